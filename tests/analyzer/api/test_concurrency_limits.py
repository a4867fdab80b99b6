"""Requests beyond a limit wait for their turn, but not for ever."""

import asyncio

import pytest

from gpusteward.analyzer.api.http.concurrency_limits import ConcurrencyLimit
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.messages.errors import api_errors


def test_a_request_takes_the_place_of_one_that_ends():
    async def run() -> list[str]:
        limit, order = ConcurrencyLimit(api_errors.REPORTS, size=1), []
        await limit.acquire()
        waiting = asyncio.create_task(limit.acquire())
        await asyncio.sleep(0)
        order.append("waits" if not waiting.done() else "runs")
        limit.release()
        await waiting
        order.append("runs")
        return order

    assert asyncio.run(run()) == ["waits", "runs"]


def test_if_none_ends_in_time_it_is_refused_and_takes_no_place():
    async def run() -> ProblemError:
        limit = ConcurrencyLimit(api_errors.REPORTS, size=1, patience_seconds=0.01)
        await limit.acquire()
        with pytest.raises(ProblemError) as caught:
            await limit.acquire()
        limit.release()
        await limit.acquire()
        return caught.value

    problem = asyncio.run(run())
    assert (problem.status, problem.kind) == (503, "busy")
