"""What endpoints may look at and ask for; `app.py` puts it together."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request

from gpusteward.analyzer.api.event_feed import EventFeed
from gpusteward.analyzer.api.http.concurrency_limits import Places
from gpusteward.analyzer.api.http.problems import not_ready
from gpusteward.analyzer.api.http.roles import Roles
from gpusteward.analyzer.api.result_store import Board, Posted
from gpusteward.analyzer.explain.tallies import Tally
from gpusteward.analyzer.notify.outbox.records import Delivery
from gpusteward.analyzer.reports.report import Report, ReportQuery
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.pod_processes import Pod, Running
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.analyzer.worker import Account
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import AllocationKey

ReadSeries = Callable[[AllocationKey, float, float], Chart]
"""AllocationKey, end, seconds. Raises SourceError. May take long: never call it on the event loop."""

ReadProcesses = Callable[[Collection[Pod], float], Running]
"""Pods, moment. Raises SourceError. May take long: never call it on the event loop."""

ReadReport = Callable[[ReportQuery], Report]
"""Raises SourceError. May take long: never call it on the event loop."""


ReadDeliveries = Callable[[str | None, int], Sequence[Delivery]]
"""State, how many. Raises SourceError. May take long: never call it on the event loop."""

RetryDelivery = Callable[[int], tuple[Delivery | None, bool]]
"""Number -> the delivery, and whether it is tried again. Raises SourceError. Never call it on the event loop."""


def refuse_report(_: ReportQuery) -> Report:
    """Where no books are kept."""
    raise SourceError("no books are kept here: ledger.enabled is false")


@dataclass(frozen=True)
class Serving:
    """The parts behind the endpoints."""

    board: Board
    events: EventFeed
    account: Account
    tally: Tally
    settings: Callable[[], Settings]
    roles: Callable[[], Roles]
    change_settings: Callable[[Mapping[str, object]], Settings]  # raises ConfigurationError
    ask_cycle: Callable[[bool | None], None]  # with a model, without one, or as the settings say
    describe_source: Callable[[], Mapping[str, Any]]
    read_series: ReadSeries
    read_processes: ReadProcesses
    chart_places: Places
    process_places: Places
    count_queries: Callable[[], Mapping[str, int]]
    count_reloads: Callable[[], Mapping[str, int]]
    read_report: ReadReport = refuse_report
    describe_aftermath: Callable[[], Mapping[str, Any]] = dict  # the books and the deliveries, for people
    read_deliveries: ReadDeliveries = lambda _state, _limit: ()
    retry_delivery: RetryDelivery = lambda _number: (None, False)
    delivery_places: Places = field(default_factory=lambda: Places(work="deliveries"))
    report_places: Places = field(default_factory=lambda: Places(work="reports"))


async def find_serving(request: Request) -> Serving:
    serving: Serving = request.app.state.serving
    return serving


async def find_posted(request: Request) -> Posted:
    """The last result. Raises a 503 problem before the first one."""
    posted = (await find_serving(request)).board.posted
    if posted is None:
        raise not_ready()
    return posted


ServingHere = Annotated[Serving, Depends(find_serving)]
PostedHere = Annotated[Posted, Depends(find_posted)]
