"""The outbox in the ledger's table `outbox`, or in memory; the idea and its invariants: `__init__.py`.

- A row whose target is no longer in the settings stays pending until it is too old.
- When a working database refuses a batch, the batch is split in halves until the refused event is alone. That event is
  dropped, counted and logged; all others are stored.
- Without a ledger the same tables are kept in memory, with a lower limit, and pending rows are lost at a restart. When
  the database fails at run time, new events are buffered in memory up to `MAX_BUFFERED` and stored when it is back.
  Nothing is sent meanwhile: older events of the same stream may still be in the database.
- A state that was not sent before a cycle replaced it is done with the error `SUPERSEDED`.
"""

import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.database.db_engine import describe_error, is_data_error, with_write_lock
from gpusteward.analyzer.notify.outbox import rows
from gpusteward.analyzer.notify.outbox.records import (
    ASKED,
    CONTROL,
    NOTICE,
    AttemptOutcome,
    Delivery,
    DeliveryCounters,
    NoticeKind,
    NoticeRecord,
    OutboxEvent,
    PendingDelivery,
    Review,
    ReviewNotices,
)
from gpusteward.analyzer.settings.notify import OutboxSettings
from gpusteward.logs import Log

log = Log(__name__)

MAX_BUFFERED = 10_000
"""Events buffered while the database is unavailable, and pending events without a ledger: about 10 MB."""
NOTICE_DAYS = 92
MAX_REFUSALS = 3
"""A single event that the database has refused this often is dropped."""
MAX_REFUSALS_IN_A_ROW = 20
"""After this many dropped events the rest of the batch is not split further: each split costs a transaction."""
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_NEVER_MS = 2**53


@dataclass(frozen=True, slots=True)
class _BufferedBatch:
    """Events and notice records that are not in the database yet."""

    at_ms: int
    events: tuple[OutboxEvent, ...] = ()
    notices: tuple[NoticeRecord, ...] = ()
    refusals: int = 0  # how often the database has refused exactly this batch
    renewed: tuple[OutboxEvent, ...] = ()
    withdraws: tuple[NoticeKind, ...] = ()  # waiting notices of these kinds
    review: ReviewNotices | None = None  # of waiting notices about idle workloads
    replaces_states: bool = False  # and control calls of earlier cycles
    state_change: int = 0  # of the outbox, when it was made: later ones make its control calls untrue

    def __len__(self) -> int:
        return len(self.events) + len(self.notices)

    def split(self) -> tuple["_BufferedBatch", "_BufferedBatch"]:
        """Two halves in order: events first, notice records after them."""
        middle = len(self) // 2
        notices_middle = max(0, middle - len(self.events))
        first = _BufferedBatch(self.at_ms, self.events[:middle], self.notices[:notices_middle])
        return first, _BufferedBatch(self.at_ms, self.events[middle:], self.notices[notices_middle:])


class Outbox:
    """Safe to use from several threads."""

    def __init__(self, engine: Engine | None, settings: OutboxSettings, counters: DeliveryCounters) -> None:
        """`engine` is the ledger's; None: rows are kept in memory."""
        self._settings = settings
        self._counters = counters
        self._lock = threading.RLock()  # the in-memory database has one connection: one transaction at a time
        self._buffered: deque[_BufferedBatch] = deque()
        self._failure = self._refusal = ""
        self._refused_in_a_row = 0
        self._is_full = False
        self.has_current_states = False
        self._states_since_ms = _NEVER_MS
        self.state_changes = 0
        """How often states were replaced or held: rows read before are not sent."""
        self.in_memory = engine is None
        self._engine = engine if engine is not None else rows.open_in_memory()
        self._writing = with_write_lock(self._engine)
        if self.in_memory:
            log.info("outbox_in_memory", reason="there is no ledger", effect="pending deliveries are lost at a restart")

    def apply_settings(self, settings: OutboxSettings) -> None:
        self._settings = settings

    def add(
        self,
        events: Sequence[OutboxEvent],
        records: Sequence[NoticeRecord] = (),
        *,
        at_ms: int,
        replaces_states: bool = False,
        withdraws: Sequence[NoticeKind] = (),
        review: ReviewNotices | None = None,
    ) -> None:
        """Store them, or buffer them while the database is unavailable. Never raises for a failing database.

        With `replaces_states` the control calls among them are all that are still true, and waiting warnings are not
        sent before they are renewed; `review` says the same about waiting notices on idle workloads. `withdraws`:
        waiting notices of these kinds are not true any more.
        """
        with self._lock:
            if replaces_states:
                self.hold_states()
                self._drop_buffered_states()
            if replaces_states or withdraws:  # a batch of its own: a refused event must not undo it
                self._buffered.append(
                    _BufferedBatch(
                        at_ms,
                        withdraws=tuple(withdraws),
                        review=review,
                        replaces_states=replaces_states,
                        state_change=self.state_changes,
                    )
                )
            if events or records:
                self._buffer(_BufferedBatch(at_ms, tuple(events), tuple(records)))
            self.flush()

    def renew(self, events: Sequence[OutboxEvent], *, at_ms: int) -> None:
        """Give those of them that wait, or were withdrawn, their present text. Others, as delivered ones, do not
        change. Never raises for a failing database."""
        with self._lock:
            self._buffered.append(_BufferedBatch(at_ms, renewed=tuple(events)))
            self.flush()

    def flush(self) -> bool:
        """Store what is buffered. False while the database is unavailable."""
        with self._lock:
            while self._buffered:
                try:
                    self._write(self._buffered[0])
                except Exception as error:
                    if is_data_error(error):
                        self._split_or_drop(describe_error(error))
                        continue
                    if not isinstance(error, SQLAlchemyError):
                        raise
                    self.report_failure(error)
                    return False
                self._buffered.popleft()
                self._refused_in_a_row = 0
            return True

    def hold_states(self) -> None:
        """Send nothing that may be untrue until a cycle says what is true now."""
        self.has_current_states = False
        self._states_since_ms = _NEVER_MS
        self.state_changes += 1

    def hand_over(self) -> None:
        """Another replica sends from now on, or did until now: its rows are stored, buffered ones are outdated."""
        with self._lock:
            self._buffered.clear()
            self.hold_states()

    def read_due(self, targets: Iterable[str], *, now_ms: int, limit: int) -> list[PendingDelivery]:
        """The first pending row of every stream, if it is due; oldest first. Raises SQLAlchemyError."""
        with self._lock, self._engine.connect() as connection:
            due = rows.read_due(connection, targets, now_ms=now_ms, limit=limit)
        self._report_recovery()
        return due

    def save_outcomes(self, outcomes: Sequence[AttemptOutcome]) -> None:
        """Raises SQLAlchemyError."""
        if not outcomes:
            return
        with self._lock, self._writing.begin() as connection:
            rows.update_outcomes(connection, outcomes)
        self._report_recovery()

    def expire(self, now_ms: int) -> None:
        """Give up rows that are too old; delete finished rows after their retention. Raises SQLAlchemyError."""
        settings = self._settings
        with self._lock, self._writing.begin() as connection:
            oldest_ms = now_ms - round(settings.max_age_hours * _HOUR_MS)
            self._report_given_up(rows.give_up(connection, oldest_ms, now_ms))
            for state, hours in (("done", settings.keep_done_hours), ("dead", settings.keep_dead_hours)):
                rows.delete_finished(connection, state, before_ms=now_ms - round(hours * _HOUR_MS))
            rows.delete_notices(connection, before_ms=now_ms - NOTICE_DAYS * _DAY_MS)
        self._report_recovery()

    def count_pending(self) -> None:
        """Update the counters. Raises SQLAlchemyError."""
        with self._lock, self._engine.connect() as connection:
            self._counters.pending = rows.count_pending(connection)

    def read_notices(self, since_ms: int) -> list[Mapping[str, Any]]:
        """Rows of the table `notices`, oldest first, without the text. Raises SQLAlchemyError."""
        with self._lock, self._engine.connect() as connection:
            return rows.read_notices(connection, since_ms)

    def read_deliveries(self, state: str | None = None, *, limit: int) -> list[Delivery]:
        """The newest rows, of one state or of all. Raises SQLAlchemyError."""
        with self._lock, self._engine.connect() as connection:
            return rows.read_deliveries(connection, state, limit=limit)

    def read_delivered(self, keys: Iterable[str]) -> Mapping[str, int]:
        """When the rows with these keys were delivered; those that were not are missing. Raises SQLAlchemyError."""
        with self._lock, self._engine.connect() as connection:
            return rows.read_delivered(connection, keys)

    def retry(self, number: int, *, now_ms: int) -> tuple[Delivery | None, bool]:
        """The row with this id, and whether it was dead and is now pending like a new one. Raises SQLAlchemyError.

        A control call of an earlier cycle is not retried: it may no longer be true.
        """
        with self._lock, self._writing.begin() as connection:
            return rows.retry(connection, number, now_ms=now_ms, states_since_ms=self._states_since_ms)

    def describe(self) -> dict[str, Any]:
        """For /api/v1/health."""
        buffered = self._count_buffered()
        return {"in_memory": self.in_memory, "held": buffered, "trouble": self._failure, "refusal": self._refusal}

    def close(self) -> None:
        """Close the in-memory database; the ledger closes its own engine."""
        with self._lock:
            if self.in_memory:
                self._engine.dispose()

    def report_failure(self, error: SQLAlchemyError) -> None:
        """Log a failing database, once per reason."""
        reason = describe_error(error)
        if reason != self._failure:
            log.error("outbox_unwritable", reason=reason, buffered=self._count_buffered())
        self._failure = reason

    def _report_recovery(self) -> None:
        if self._failure and not self._buffered:
            log.info("outbox_writable_again")
            self._failure = ""

    def _count_buffered(self) -> int:
        return sum(len(batch.events) for batch in self._buffered)

    def _buffer(self, batch: _BufferedBatch) -> None:
        buffered = self._count_buffered()
        free = max(0, MAX_BUFFERED - buffered)
        if buffered and free < len(batch.events):
            self._refuse(batch.events[free:], reason="the database has been unavailable for too long")
            batch = replace(batch, events=batch.events[:free])
        self._buffered.append(batch)

    def _split_or_drop(self, reason: str) -> None:
        """The database refuses the first batch every time: split it to find the part that the database accepts."""
        batch = self._buffered.popleft()
        if len(batch) > 1 and self._refused_in_a_row < MAX_REFUSALS_IN_A_ROW:
            self._buffered.extendleft(reversed(batch.split()))
        elif batch.refusals + 1 < MAX_REFUSALS:
            self._buffered.appendleft(replace(batch, refusals=batch.refusals + 1))
        else:
            self._drop(batch, reason)

    def _drop(self, batch: _BufferedBatch, reason: str) -> None:
        self._refused_in_a_row += 1
        if reason != self._refusal:
            log.error("outbox_refused", reason=reason, effect="this event is dropped, the others are stored")
        self._refusal = reason
        self._count_refused(batch.events)

    def _write(self, batch: _BufferedBatch) -> None:
        with self._writing.begin() as connection:
            self._replace_states(connection, batch)
            rows.renew_events(connection, batch.renewed)
            events = self._select_fitting(connection, batch.events)
            rows.insert_events(connection, events, batch.at_ms)
            rows.insert_notices(connection, batch.notices, batch.at_ms)
            self._counters.pending = rows.count_pending(connection)
        if batch.replaces_states and batch.state_change == self.state_changes:
            self.has_current_states, self._states_since_ms = True, batch.at_ms
        self._report_recovery()

    def _replace_states(self, connection: Connection, batch: _BufferedBatch) -> None:
        if batch.replaces_states:
            self._counters.add("superseded", CONTROL, rows.supersede_calls(connection, batch.at_ms))
            # Not counted: reclaim renews most of them in the same cycle.
            rows.supersede_notices(connection, [NoticeKind.WARNING], now_ms=batch.at_ms)
        review = Review()
        if batch.review is not None:
            review = batch.review(rows.read_waiting(connection, (NoticeKind.IDLE, ASKED)))
            rows.renew_events(connection, review.renewed)
            rows.delete_records(connection, review.records)
        if batch.withdraws or review.withdrawn:
            ended = rows.supersede_notices(connection, batch.withdraws, review.withdrawn, now_ms=batch.at_ms)
            self._counters.add("superseded", NOTICE, ended)

    def _drop_buffered_states(self) -> None:
        before = self._count_buffered()
        for number, batch in enumerate(self._buffered):
            kept = tuple(each for each in batch.events if each.kind != CONTROL)
            self._buffered[number] = replace(batch, events=kept, renewed=(), review=None)
        self._counters.add("superseded", CONTROL, before - self._count_buffered())

    def _select_fitting(self, connection: Connection, events: tuple[OutboxEvent, ...]) -> list[OutboxEvent]:
        """The limit is per kind: a webhook that is down must not use up the space of notices."""
        limit = min(self._settings.max_pending, MAX_BUFFERED) if self.in_memory else self._settings.max_pending
        pending, fitting, others = Counter(rows.count_pending(connection)), list[OutboxEvent](), list[OutboxEvent]()
        for each in events:
            pending[each.kind] += 1
            (fitting if pending[each.kind] <= limit else others).append(each)
        if others:
            self._refuse(others, reason="outbox.max_pending is reached")
        self._is_full = bool(others)
        return fitting

    def _refuse(self, events: Sequence[OutboxEvent], *, reason: str) -> None:
        if not self._is_full:
            log.error("outbox_full", refused=len(events), reason=reason)
        self._is_full = True
        self._count_refused(events)

    def _count_refused(self, events: Sequence[OutboxEvent]) -> None:
        for kind, number in Counter(each.kind for each in events).items():
            self._counters.add("refused", kind, number)

    def _report_given_up(self, dead: Mapping[str, int]) -> None:
        if dead:
            log.error("deliveries_given_up", reason="too old", **dead)
        for kind, number in dead.items():
            self._counters.add("dead", kind, number)
