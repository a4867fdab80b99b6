"""Deliveries by kind since the start, for the metrics page."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class DeliveryCounters:
    """Written by the threads that deliver, read by any thread. `pending` is a gauge, the others are counters."""

    sent: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)  # attempts
    dead: Counter[str] = field(default_factory=Counter)  # given up after too many attempts or too much time
    refused: Counter[str] = field(
        default_factory=Counter
    )  # never stored: the outbox is full or the database refused it
    pending: Mapping[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, result: str, kind: str, number: int = 1) -> None:
        """`result` is sent, failed, dead or refused."""
        with self._lock:
            counter: Counter[str] = getattr(self, result)
            counter[kind] += number

    def counts(self) -> dict[str, dict[str, int]]:
        """result -> kind -> number."""
        with self._lock:
            counters = {name: dict(getattr(self, name)) for name in ("sent", "failed", "dead", "refused")}
        return {**counters, "pending": dict(self.pending)}
