"""A finished cycle goes up: what everybody asks for first is ready before anybody can ask."""

from gpusteward.analyzer.api.metrics_bodies import render_result
from gpusteward.analyzer.api.result_store import Board, Posted
from gpusteward.analyzer.api.v1.workloads import DEFAULT_SORT, view_workloads
from gpusteward.analyzer.results import Result


def put_up(board: Board, result: Result) -> None:
    """The result with its first list. Its page at /metrics follows; until then the page before stands, as it would for
    a scrape a moment earlier, and the result before it is not held in memory by the making of a page."""
    posted = Posted(result)
    view_workloads(posted).listing.select(DEFAULT_SORT, {})
    board.post(posted)


def publish(board: Board, result: Result) -> None:
    """The result, then its page."""
    put_up(board, result)
    board.page = render_result(result)
