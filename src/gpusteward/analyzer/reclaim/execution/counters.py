"""Counts of what happened to actions, by kind of object and outcome, for metrics."""

import threading
from collections import Counter
from collections.abc import Mapping

OUTCOMES = (
    *("warned", "acted", "verified", "failed", "refused", "restored", "reverted", "ended"),
    *("dry_run", "conflict", "no_effect"),
)


class ReclaimCounters:
    """Written by the thread that acts, read by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, kind: str, outcome: str) -> None:
        with self._lock:
            self._counts[kind, outcome] += 1

    def counts(self) -> Mapping[tuple[str, str], int]:
        """(kind of object, outcome) -> number since the start."""
        with self._lock:
            return dict(self._counts)
