"""Reads of the ledger that many requests share: read once, again in the background, and not after every failure."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from gpusteward.analyzer.api.http.cached_reads import FRESH_SECONDS, OLDEST_SECONDS, RETRY_SECONDS, CachedReads
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.core.errors import SourceError


class Reading:
    """Counts reads; `fault` fails them, `gate` holds them."""

    def __init__(self) -> None:
        self.count = 0
        self.fault = ""
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self) -> int:
        assert self.gate.wait(20)
        if self.fault:
            raise SourceError(self.fault)
        self.count += 1
        return self.count


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def settle(is_done: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_done():
            await asyncio.sleep(0.005)


def test_concurrent_requests_share_one_read():
    async def run() -> None:
        reads, reading = CachedReads(), Reading()
        found = await asyncio.gather(*(reads.get(("k",), reading) for _ in range(20)))
        assert (reading.count, {one.value for one in found}) == (1, {1})

    asyncio.run(run())


def test_an_old_value_is_returned_at_once_and_read_again_in_the_background():
    async def run() -> None:
        clock, reading = Clock(), Reading()
        reads = CachedReads(clock=clock)
        first = await reads.get(("k",), reading)
        clock.now += FRESH_SECONDS + 1
        reading.gate.clear()
        assert (await reads.get(("k",), reading)) is first
        reading.gate.set()
        await settle(lambda: reading.count == 2)
        await settle(lambda: reads._entries[("k",)].value == 2)
        second = await reads.get(("k",), reading)
        assert (second.value, second.number > first.number) == (2, True)

    asyncio.run(run())


def test_a_failure_keeps_the_old_value_until_it_is_too_old_and_is_not_repeated_at_once():
    async def run() -> None:
        clock, reading = Clock(), Reading()
        reads = CachedReads(clock=clock)
        await reads.get(("k",), reading)
        reading.fault = "the database is down"
        clock.now += OLDEST_SECONDS + 1
        with pytest.raises(ProblemError, match="down"):
            await reads.get(("k",), reading)
        reading.fault = ""
        with pytest.raises(ProblemError, match="down"):
            await reads.get(("k",), reading)
        assert await reads.find(("k",), reading) is None
        clock.now += RETRY_SECONDS + 1
        assert (await reads.get(("k",), reading)).value == 2

    asyncio.run(run())


def test_a_read_that_began_before_a_change_is_not_kept():
    async def run() -> None:
        reads, reading = CachedReads(), Reading()
        reading.gate.clear()
        early = asyncio.create_task(reads.get(("snoozes", None), reading))
        await asyncio.sleep(0)
        reads.forget("snoozes")
        reading.gate.set()
        await early
        assert (await reads.get(("snoozes", None), reading)).value == 2
        assert reading.count == 2

    asyncio.run(run())


def test_the_number_of_values_is_limited_and_the_least_used_one_is_dropped():
    async def run() -> None:
        reads, reading = CachedReads(most=2), Reading()
        for name in "aba":
            await reads.get((name,), reading)
        await reads.get(("c",), reading)
        assert reading.count == 3
        await reads.get(("a",), reading)
        assert reading.count == 3
        await reads.get(("b",), reading)
        assert reading.count == 4

    asyncio.run(run())
