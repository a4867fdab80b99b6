"""What a cycle tells, on its way into the outbox: all of it at once, in halves where the database refuses it."""

from dataclasses import dataclass

from gpusteward.analyzer.notify.outbox.records import NoticeRecord, OutboxEvent


@dataclass(frozen=True, slots=True)
class Batch:
    """What goes in together or not at all."""

    events: tuple[OutboxEvent, ...]
    notes: tuple[NoticeRecord, ...]
    at_ms: int
    refusals: int = 0  # how often the database has refused just this

    def __len__(self) -> int:
        return len(self.events) + len(self.notes)

    def halve(self) -> tuple["Batch", "Batch"]:
        """In its order: parcels first, the record of what was told behind them."""
        middle = len(self) // 2
        events, notes = self.events, self.notes
        first = Batch(events[:middle], notes[: max(0, middle - len(events))], self.at_ms)
        return first, Batch(events[middle:], notes[max(0, middle - len(events)) :], self.at_ms)
