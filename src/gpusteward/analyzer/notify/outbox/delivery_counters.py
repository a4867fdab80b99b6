"""Deliveries by kind since the start, for the metrics page."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

DELIVERY_RESULTS = ("sent", "failed", "dead", "refused", "superseded")


@dataclass
class DeliveryCounters:
    """Written by the threads that deliver, read by any thread. `pending` is a gauge, the others are counters."""

    sent: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)  # attempts
    dead: Counter[str] = field(default_factory=Counter)  # given up after too many attempts or too much time
    refused: Counter[str] = field(
        default_factory=Counter
    )  # never stored: the outbox is full or the database refused it
    superseded: Counter[str] = field(default_factory=Counter)  # not sent: a later cycle replaced it
    pending: Mapping[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, result: str, kind: str, number: int = 1) -> None:
        """`result` is sent, failed, dead, refused or superseded."""
        with self._lock:
            counter: Counter[str] = getattr(self, result)
            if number:
                counter[kind] += number

    def counts(self) -> dict[str, dict[str, int]]:
        """result -> kind -> number."""
        with self._lock:
            counters = {name: dict(getattr(self, name)) for name in DELIVERY_RESULTS}
        return {**counters, "pending": dict(self.pending)}
