"""Work that may take long, beside the event loop: few at once, in threads that nobody has to wait for.

A few questions to the source may be under way at once, each within a time limit; more are refused, so that people who
look never stand in the way of cycles.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.core.errors import SourceError

PLACES = 2
LONGEST_WAIT_SECONDS = 15.0
LEDGER_WAIT_SECONDS = 60.0
T = TypeVar("T")


class Places:
    """How many questions are under way. Used on the event loop only."""

    def __init__(self, size: int = PLACES, *, work: str = "charts") -> None:
        self._free = size
        self._work = work

    def take(self) -> None:
        """Raises a 503 problem when all are taken."""
        if self._free == 0:
            raise ProblemError(
                503, "busy", f"other {self._work} are being read; try again", headers={"Retry-After": "2"}
            )
        self._free -= 1

    def give_back(self) -> None:
        self._free += 1


def run_in_thread(function: Callable[[], T]) -> asyncio.Future[T]:
    """In a thread that nobody waits for at the end of the program, unlike those of a pool."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())  # an error nobody waits for is no news

    def work() -> None:
        try:
            settle = partial(future.set_result, function())
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            settle = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended: nobody waits
            loop.call_soon_threadsafe(lambda: future.done() or settle())

    threading.Thread(target=work, name="series", daemon=True).start()
    return future


@dataclass(frozen=True, slots=True)
class _Asked:
    """Who is asked: how long that may take, and what is said if it fails or takes longer."""

    name: str
    longest_seconds: float
    too_slow: str


_SOURCE = _Asked("engine", LONGEST_WAIT_SECONDS, "the engine took too long; ask for less")
_LEDGER = _Asked("ledger", LEDGER_WAIT_SECONDS, "the database took too long; ask for a shorter time")


async def ask_source(read: Callable[[], T], places: Places) -> T:
    """Raises a 503 or 504 problem."""
    return await _ask(_SOURCE, read, places)


async def ask_ledger(read: Callable[[], T], places: Places) -> T:
    """Raises a 503 or 504 problem."""
    return await _ask(_LEDGER, read, places)


async def _ask(asked: _Asked, read: Callable[[], T], places: Places) -> T:
    """A question that takes too long is left behind with its place until it ends."""
    places.take()
    future = run_in_thread(read)
    future.add_done_callback(lambda _: places.give_back())
    try:
        async with asyncio.timeout(asked.longest_seconds):
            return await asyncio.shield(future)
    except SourceError as error:
        raise ProblemError(503, f"{asked.name}-failed", str(error), headers={"Retry-After": "10"}) from error
    except TimeoutError as error:
        raise ProblemError(504, f"{asked.name}-slow", asked.too_slow) from error
