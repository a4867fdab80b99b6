"""The last result, and what is made of it: each part once, when it is first asked for."""

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar, cast

from gpusteward.analyzer.api.http.gzip_blocks import Body
from gpusteward.analyzer.results import Result

T = TypeVar("T")


class Posted:
    """A finished cycle with all that was made of it. Safe to read from any thread."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self._made: dict[Hashable, Any] = {}
        self._locks: dict[Hashable, threading.Lock] = {}

    def once(self, key: Hashable, make: Callable[[Result], T]) -> T:
        """What `make` makes of the result; made by the first who asks, others wait for it."""
        if key not in self._made:
            with self._locks.setdefault(key, threading.Lock()):
                if key not in self._made:
                    self._made[key] = make(self.result)
        return cast(T, self._made[key])


class Board:
    """Where the worker puts up its results, and everybody reads."""

    def __init__(self) -> None:
        self.posted: Posted | None = None
        self.page: Mapping[str, Body] = {}  # /metrics by content type; of the result before while this one's is made

    def post(self, posted: Posted) -> None:
        self.posted = posted
