"""Results of slow reads of the ledger that many requests share: each is read once, and again in the background."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from gpusteward.analyzer.api.http.concurrency_limits import ConcurrencyLimit, query_ledger
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.messages.errors import api_errors

T = TypeVar("T")
FRESH_SECONDS = 120.0
"""A result that is older is still returned, and read again meanwhile."""
OLDEST_SECONDS = 3600.0
"""A result that is older is not returned."""
RETRY_SECONDS = 30.0
"""A read that failed is not tried again before."""
PATIENCE_SECONDS = 3.0
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
        self._failures: OrderedDict[Hashable, tuple[float, ProblemError]] = OrderedDict()
        self._number = 0

    async def get(self, key: Hashable, read: Callable[[], T], *, fresh_seconds: float = FRESH_SECONDS) -> CachedRead[T]:
        """What `read` returned last. Raises a 503 or 504 problem while there is nothing to return."""
        entry, now = cast(CachedRead[T] | None, self._entries.get(key)), self._clock()
        failed_at, problem = self._failures.get(key, (float("-inf"), None))
        may_read = now - failed_at > RETRY_SECONDS
        if entry is None or now - entry.read_at > OLDEST_SECONDS:
            if problem is not None and not may_read:
                raise problem
            return await asyncio.shield(self._start(key, read))
        self._entries.move_to_end(key)
        if now - entry.read_at > fresh_seconds and may_read:
            self._start(key, read)
        return entry

    async def find(
        self, key: Hashable, read: Callable[[], T], *, fresh_seconds: float = FRESH_SECONDS
    ) -> CachedRead[T] | None:
        """None while it cannot be read, or takes long: then a later request may find it."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await self.get(key, read, fresh_seconds=fresh_seconds)
        except (ProblemError, TimeoutError):
            return None

    def forget(self, name: str) -> None:
        """What was read with this name as the first part of its key is read again at the next request."""
        for keys in (self._entries, self._failures):
            for key in [each for each in keys if isinstance(each, tuple) and each[0] == name]:
                keys.pop(key, None)
        # A read that is running may have begun before whatever changed.
        for key in [each for each in self._running if isinstance(each, tuple) and each[0] == name]:
            del self._running[key]

    def _start(self, key: Hashable, read: Callable[[], T]) -> asyncio.Task[CachedRead[T]]:
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(self._read(key, read))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks it as retrieved
        return cast("asyncio.Task[CachedRead[T]]", task)

    async def _read(self, key: Hashable, read: Callable[[], T]) -> CachedRead[T]:
        if self._waiting is None:
            self._waiting = asyncio.Semaphore(CONCURRENT_READS)
        task = asyncio.current_task()
        try:
            async with self._waiting:
                value = await query_ledger(read, self._limit)
        except ProblemError as problem:
            self._failures[key] = self._clock(), problem
            if len(self._failures) > self._most:
                self._failures.popitem(last=False)
            raise
        finally:
            is_current = self._running.get(key) is task
            if is_current:
                del self._running[key]
        self._number += 1
        entry = CachedRead(value, self._number, self._clock())
        if is_current:  # otherwise something changed meanwhile
            self._failures.pop(key, None)
            self._entries[key] = entry
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
        return entry
