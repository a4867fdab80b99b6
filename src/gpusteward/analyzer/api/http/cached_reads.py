"""Results of slow reads of the ledger that many requests share: each is read once, and again in the background."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from gpusteward.analyzer.api.http.concurrency_limits import ConcurrencyLimit, query_ledger
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.messages import api_errors

T = TypeVar("T")
FRESH_SECONDS = 120.0
"""A result that is older is still returned, and read again meanwhile."""
OLDEST_SECONDS = 3600.0
"""A result that is older is not returned."""
RETRY_SECONDS = 30.0
MOST_ENTRIES = 64
CONCURRENT_READS = 2


@dataclass(frozen=True, slots=True)
class CachedRead(Generic[T]):
    """What was read; `number` differs for each read."""

    value: T
    number: int
    read_at: float


class CachedReads:
    """Used on the event loop only. Reads run in threads, two at once; more wait."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, most: int = MOST_ENTRIES) -> None:
        self._clock = clock
        self._most = most
        self._limit = ConcurrencyLimit(api_errors.REPORTS, size=CONCURRENT_READS)
        self._waiting: asyncio.Semaphore | None = None
        self._entries: OrderedDict[Hashable, CachedRead[Any]] = OrderedDict()  # the last used one comes last
        self._running: dict[Hashable, asyncio.Task[CachedRead[Any]]] = {}
        self._failed_at: dict[Hashable, float] = {}
        self._number = 0

    async def get(self, key: Hashable, read: Callable[[], T]) -> CachedRead[T]:
        """What `read` returned last. Raises a 503 or 504 problem while there is nothing to return."""
        entry = cast(CachedRead[T] | None, self._entries.get(key))
        age = self._clock() - entry.read_at if entry else 0.0
        if entry is None or age > OLDEST_SECONDS:
            return await asyncio.shield(self._start(key, read))
        self._entries.move_to_end(key)
        if age > FRESH_SECONDS and self._clock() - self._failed_at.get(key, float("-inf")) > RETRY_SECONDS:
            self._start(key, read)
        return entry

    def forget(self) -> None:
        """Read everything again at the next request."""
        self._entries.clear()

    def _start(self, key: Hashable, read: Callable[[], T]) -> asyncio.Task[CachedRead[T]]:
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(self._read(key, read))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks it as retrieved
        return cast("asyncio.Task[CachedRead[T]]", task)

    async def _read(self, key: Hashable, read: Callable[[], T]) -> CachedRead[T]:
        if self._waiting is None:
            self._waiting = asyncio.Semaphore(CONCURRENT_READS)
        try:
            async with self._waiting:
                value = await query_ledger(read, self._limit)
        except ProblemError:
            self._failed_at[key] = self._clock()
            raise
        finally:
            del self._running[key]
        self._failed_at.pop(key, None)
        self._number += 1
        entry = self._entries[key] = CachedRead(value, self._number, self._clock())
        while len(self._entries) > self._most:
            self._failed_at.pop(self._entries.popitem(last=False)[0], None)
        return entry
