"""The last published result, and what is derived from it: each part once, at the first request."""

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar, cast

from gpusteward.analyzer.gzip_blocks import Body
from gpusteward.analyzer.results import Result

T = TypeVar("T")


class PublishedResult:
    """A result with everything derived from it so far. Safe to read from any thread."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self._derived: dict[Hashable, Any] = {}
        self._locks: dict[Hashable, threading.Lock] = {}

    def once(self, key: Hashable, make: Callable[[Result], T]) -> T:
        """What `make` returns for the result. It is called for the first request; concurrent requests wait for it."""
        if key not in self._derived:
            with self._locks.setdefault(key, threading.Lock()):
                if key not in self._derived:
                    self._derived[key] = make(self.result)
        return cast(T, self._derived[key])


class ResultStore:
    """Holds the last published result. Written by the thread that runs cycles, read by any."""

    def __init__(self) -> None:
        self.published: PublishedResult | None = None
        self.page: Mapping[str, Body] = {}
        """/metrics by content type; that of the previous result while the new one is rendered."""

    def publish(self, published: PublishedResult) -> None:
        self.published = published
