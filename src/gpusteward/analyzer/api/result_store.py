"""The last published result, and what is derived from it: each part once, at the first request."""

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar, cast

import numpy as np
from fastapi.concurrency import run_in_threadpool

from gpusteward.analyzer.metrics.page import ResultPages
from gpusteward.analyzer.metrics.result_metrics import gpu_id
from gpusteward.analyzer.results import Result, find_visible, limit_result
from gpusteward.core.namespaces import VisibleNamespaces
from gpusteward.core.usages import AllocationKey

T = TypeVar("T")
MOST_LIMITED = 64
LIMITED_ROWS = 2
"""Limited results are kept for at most so many people with different namespaces, and so many times the rows of the
result: each is made again at the next request."""
DeviceKey = tuple[str, str]


class PublishedResult:
    """A result with everything derived from it so far. Safe to read from any thread."""

    def __init__(self, result: Result, hidden_holders: Mapping[DeviceKey, int] | None = None) -> None:
        """`hidden_holders`: how many holders of a visible GPU are in namespaces that are not visible."""
        self.result = result
        self.hidden_holders = hidden_holders or {}
        self._derived: dict[Hashable, Any] = {}
        self._locks: dict[Hashable, threading.Lock] = {}
        self._limited: dict[VisibleNamespaces, PublishedResult] = {}  # the last used one comes last
        self._limited_lock = threading.Lock()

    def once(self, key: Hashable, make: Callable[[Result], T]) -> T:
        """What `make` returns for the result. It is called for the first request; concurrent requests wait for it."""
        if key not in self._derived:
            with self._locks.setdefault(key, threading.Lock()):
                if key not in self._derived:
                    self._derived[key] = make(self.result)
        return cast(T, self._derived[key])

    def find_limited(self, visible: VisibleNamespaces) -> "PublishedResult | None":
        """What `limit_to` made before."""
        return self._limited.get(visible)

    def limit_to(self, visible: VisibleNamespaces) -> "PublishedResult":
        """The same as if there were only these namespaces, with its own derived parts."""
        with self._limited_lock:
            limited = self._limited.pop(visible, None) or _limit(self.result, visible)
            self._limited[visible] = limited
            self._forget_limited()
            return limited

    def _forget_limited(self) -> None:
        rows = {key: len(each.result.verdicts) for key, each in self._limited.items()}
        most = LIMITED_ROWS * len(self.result.verdicts)
        while len(self._limited) > 1 and (len(self._limited) > MOST_LIMITED or sum(rows.values()) > most):
            oldest = next(iter(self._limited))
            del self._limited[oldest], rows[oldest]


def _limit(result: Result, visible: VisibleNamespaces) -> PublishedResult:
    is_visible, allocations = find_visible(result, visible), result.verdicts.usage.allocations
    limited = limit_result(result, visible, is_visible)
    seen = {device_key(one) for one in limited.verdicts.usage.allocations}
    hidden = (device_key(allocations[row]) for row in np.flatnonzero(~is_visible).tolist())
    return PublishedResult(limited, Counter(key for key in hidden if key in seen))


def device_key(allocation: AllocationKey) -> DeviceKey:
    """Identifies a GPU or MIG instance among all clusters."""
    return allocation.cluster, gpu_id(allocation)


class ResultStore:
    """Holds the last published result. Written by the thread that runs cycles, read by any."""

    def __init__(self) -> None:
        self.published: PublishedResult | None = None
        self.pages = ResultPages()

    def publish(self, published: PublishedResult) -> None:
        self.published = published

    async def limit_to(self, visible: VisibleNamespaces) -> "ResultStore":
        """The same as if there were only these namespaces, without the page. The first request after a cycle takes a
        moment, in a thread."""
        limited, published = ResultStore(), self.published
        if published is not None:
            found = published.find_limited(visible)
            limited.publish(await run_in_threadpool(published.limit_to, visible) if found is None else found)
        return limited
