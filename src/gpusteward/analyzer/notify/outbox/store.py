"""What is still to be delivered: rows of the ledger's table `outbox`, in order for each stream, at least once.

- An event has a key; the same key a second time changes nothing. What a cycle tells goes in together or not at all.
- A row names its target (`control`, `channel/ops/0`), never an address: addresses have tokens in them and come from the
  settings of the day. A row whose target is not in the settings any more waits, and dies of age.
- What the database refuses although it is well goes in by halves, until what is refused stands alone. That is set
  aside, counted and said; the rest goes on.
- Without a ledger the same tables are kept in memory, smaller, and what waits there is lost with the process: said at
  the start. When the database is lost while running, new events are held in memory up to `HELD_LIMIT` and written when
  it is back; nothing is sent meanwhile, since older events of the same stream may still be in it, and order counts.
"""

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from itertools import islice
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, Row, Table, bindparam, create_engine, delete, func, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool

from gpusteward.analyzer.ledger.db_engine import describe_error, is_data_error, with_write_lock
from gpusteward.analyzer.ledger.schema import METADATA, notices, outbox
from gpusteward.analyzer.notify.batches import Batch
from gpusteward.analyzer.notify.outbox.delivery_counters import DeliveryCounters
from gpusteward.analyzer.notify.outbox.records import Delivery, NoticeRecord, OutboxEvent, Outcome, PendingDelivery
from gpusteward.analyzer.settings.notify import OutboxSettings
from gpusteward.logs import Log

log = Log(__name__)

HELD_LIMIT = 10_000
"""Events held while the database is away, and events waiting when there is no ledger: about 10 MB."""
NOTICE_DAYS = 92
REFUSALS = 3
"""What the database has refused so often, alone, is set aside."""
HOPELESS = 20
"""After so many in a row nobody looks for good ones among the rest: each look is a transaction."""
_ROWS_AT_ONCE = 500
_DAY_MS = 86_400_000
_SEEN = [
    outbox.c[name] for name in ("id", "stream", "kind", "target", "created_ms", "attempts", "next_ms", "state", "error")
]

_SETTLE = (
    update(outbox)
    .where(outbox.c.id == bindparam("its_id"))
    .values({name: bindparam(f"its_{name}") for name in ("state", "attempts", "next_ms", "error")})
)


class Outbox:
    """Safe to use from several threads."""

    def __init__(self, engine: Engine | None, settings: OutboxSettings, counters: DeliveryCounters) -> None:
        self._settings = settings
        self._tally = counters
        self._lock = threading.RLock()  # the database in memory is one connection: one transaction at a time
        self._held: deque[Batch] = deque()
        self._trouble = self._refusal = ""
        self._refused_in_a_row = 0
        self._is_full = False
        self.in_memory = engine is None
        self._engine = engine if engine is not None else _open_memory()
        self._writing = with_write_lock(self._engine)
        if self.in_memory:
            log.info("outbox_in_memory", reason="there is no ledger", effect="what waits is lost at a restart")

    def adopt(self, settings: OutboxSettings) -> None:
        self._settings = settings

    def put(self, events: Sequence[OutboxEvent], notes: Sequence[NoticeRecord] = (), *, at_ms: int) -> None:
        """Take them in, or hold them while the database is away. Never raises for a fault of the database."""
        with self._lock:
            if events or notes:
                self._hold(Batch(tuple(events), tuple(notes), at_ms))
            self.flush()

    def flush(self) -> bool:
        """Write what is held; whether nothing is left."""
        with self._lock:
            while self._held:
                try:
                    self._write(self._held[0])
                except Exception as error:
                    if is_data_error(error):
                        self._part(describe_error(error))
                        continue
                    if not isinstance(error, SQLAlchemyError):
                        raise
                    self.complain(error)
                    return False
                self._held.popleft()
                self._refused_in_a_row = 0
            return True

    def take(self, targets: Iterable[str], *, now_ms: int, limit: int) -> list[PendingDelivery]:
        """The first pending row of every stream that is due, oldest first. Raises SQLAlchemyError."""
        is_ours = (outbox.c.state == "pending") & outbox.c.target.in_(sorted(targets))  # a stream has one target
        heads = select(func.min(outbox.c.id)).where(is_ours).group_by(outbox.c.stream)
        query = (
            select(outbox).where(outbox.c.id.in_(heads), outbox.c.next_ms <= now_ms).order_by(outbox.c.id).limit(limit)
        )
        with self._lock, self._engine.connect() as connection:
            rows = connection.execute(query).all()
        self._recover()
        return [_waiting(row) for row in rows]

    def settle(self, outcomes: Sequence[Outcome]) -> None:
        """Write down what became of rows. Raises SQLAlchemyError."""
        if not outcomes:
            return
        with self._lock, self._writing.begin() as connection:
            connection.execute(
                _SETTLE, [{f"its_{key}": value for key, value in asdict(each).items()} for each in outcomes]
            )
        self._recover()

    def sweep(self, now_ms: int) -> None:
        """Give up what is too old, forget what is over. Raises SQLAlchemyError."""
        settings = self._settings
        with self._lock, self._writing.begin() as connection:
            self._bury(connection, now_ms - round(settings.max_age_hours * 3_600_000), now_ms)
            for state, hours in (("done", settings.keep_done_hours), ("dead", settings.keep_dead_hours)):
                old = now_ms - round(hours * 3_600_000)
                connection.execute(delete(outbox).where(outbox.c.state == state, outbox.c.next_ms < old))
            connection.execute(delete(notices).where(notices.c.created_ms < now_ms - NOTICE_DAYS * _DAY_MS))
        self._recover()

    def count(self) -> None:
        """How many wait, for the metrics. Raises SQLAlchemyError."""
        with self._lock, self._engine.connect() as connection:
            self._tally.pending = _count(connection)

    def read_notes(self, since_ms: int) -> list[Mapping[str, Any]]:
        """The record of what was told. Raises SQLAlchemyError."""
        columns = [column for column in notices.c if column.name not in ("id", "body")]
        query = select(*columns).where(notices.c.created_ms >= since_ms).order_by(notices.c.id)
        with self._lock, self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def read(self, state: str | None = None, *, limit: int) -> list[Delivery]:
        """The newest ones, of one state or of all. Raises SQLAlchemyError."""
        query = select(*_SEEN).order_by(outbox.c.id.desc()).limit(limit)
        query = query if state is None else query.where(outbox.c.state == state)
        with self._lock, self._engine.connect() as connection:
            return [Delivery(*row) for row in connection.execute(query)]

    def retry(self, number: int, *, now_ms: int) -> tuple[Delivery | None, bool]:
        """The row of this number, and whether it was given up and is pending again, as if it were new. Raises
        SQLAlchemyError."""
        is_dead = (outbox.c.id == number) & (outbox.c.state == "dead")
        fresh = {"state": "pending", "attempts": 0, "next_ms": now_ms, "created_ms": now_ms}
        with self._lock, self._writing.begin() as connection:
            changed = connection.execute(update(outbox).where(is_dead).values(fresh)).rowcount
            row = connection.execute(select(*_SEEN).where(outbox.c.id == number)).one_or_none()
        return None if row is None else Delivery(*row), changed > 0

    def describe(self) -> dict[str, Any]:
        held = sum(len(batch.events) for batch in self._held)
        return {"in_memory": self.in_memory, "held": held, "trouble": self._trouble, "refusal": self._refusal}

    def close(self) -> None:
        """The ledger's engine is the ledger's to close."""
        with self._lock:
            if self.in_memory:
                self._engine.dispose()

    def _hold(self, batch: Batch) -> None:
        room = HELD_LIMIT - sum(len(held.events) for held in self._held)
        if self._held and room < len(batch.events):
            self._refuse(batch.events[max(room, 0) :], reason="the database is away for too long")
            batch = Batch(batch.events[: max(room, 0)], batch.notes, batch.at_ms)
        self._held.append(batch)

    def _part(self, reason: str) -> None:
        """The first batch was refused, and would be for ever: look for what of it can go in."""
        batch = self._held.popleft()
        if len(batch) > 1 and self._refused_in_a_row < HOPELESS:
            self._held.extendleft(reversed(batch.halve()))
        elif batch.refusals + 1 < REFUSALS:
            self._held.appendleft(replace(batch, refusals=batch.refusals + 1))
        else:
            self._set_aside(batch, reason)

    def _set_aside(self, batch: Batch, reason: str) -> None:
        self._refused_in_a_row += 1
        if reason != self._refusal:
            log.error("outbox_refused", reason=reason, consequence="it is not told, the others are")
        self._refusal = reason
        for kind, number in Counter(each.kind for each in batch.events).items():
            self._tally.add("refused", kind, number)

    def _write(self, batch: Batch) -> None:
        with self._writing.begin() as connection:
            events = self._fitting(connection, batch.events)
            _insert(connection, outbox, (_row(each, batch.at_ms) for each in events))
            _insert(connection, notices, (asdict(each) | {"created_ms": batch.at_ms} for each in batch.notes))
            self._tally.pending = _count(connection)
        self._recover()

    def _fitting(self, connection: Connection, events: tuple[OutboxEvent, ...]) -> tuple[OutboxEvent, ...]:
        """Each kind has its own room: a webhook that is away must not take that of notices."""
        limit = min(self._settings.max_pending, HELD_LIMIT) if self.in_memory else self._settings.max_pending
        waiting, fitting, others = Counter(_count(connection)), list[OutboxEvent](), list[OutboxEvent]()
        for each in events:
            waiting[each.kind] += 1
            (fitting if waiting[each.kind] <= limit else others).append(each)
        if others:
            self._refuse(others, reason="outbox.max_pending is reached")
        self._is_full = bool(others)
        return tuple(fitting)

    def _refuse(self, events: Sequence[OutboxEvent], *, reason: str) -> None:
        if not self._is_full:
            log.error("outbox_full", refused=len(events), reason=reason)
        self._is_full = True
        for kind, number in Counter(each.kind for each in events).items():
            self._tally.add("refused", kind, number)

    def _bury(self, connection: Connection, oldest_ms: int, now_ms: int) -> None:
        is_old = (outbox.c.state == "pending") & (outbox.c.created_ms < oldest_ms)
        counted = select(outbox.c.kind, func.count()).where(is_old).group_by(outbox.c.kind)
        buried: dict[str, int] = {row[0]: row[1] for row in connection.execute(counted)}
        if not buried:
            return
        error = func.substr("too old; last: " + outbox.c.error, 1, 400)
        connection.execute(update(outbox).where(is_old).values(state="dead", next_ms=now_ms, error=error))
        log.error("deliveries_given_up", reason="older than outbox.max_age_hours", **buried)
        for kind, number in buried.items():
            self._tally.add("dead", kind, number)

    def complain(self, error: SQLAlchemyError) -> None:
        """Say once what is wrong with the database."""
        reason = describe_error(error)
        if reason != self._trouble:
            log.error("outbox_unwritable", reason=reason, held=sum(len(held.events) for held in self._held))
        self._trouble = reason

    def _recover(self) -> None:
        if self._trouble and not self._held:
            log.info("outbox_writable_again")
            self._trouble = ""


def _open_memory() -> Engine:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    METADATA.create_all(engine, tables=[notices, outbox])
    return engine


def _insert(connection: Connection, table: Table, rows: Iterator[Mapping[str, Any]]) -> None:
    """Some at a time: all of a large cycle as mappings would take more memory than the analyzer may."""
    dialect = import_module(f"sqlalchemy.dialects.{connection.dialect.name}")  # the other would be 2 MB for nothing
    statement = dialect.insert(table).on_conflict_do_nothing(index_elements=["key"])
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        connection.execute(statement, some)


def _row(event: OutboxEvent, at_ms: int) -> dict[str, Any]:
    return {
        "stream": event.stream,
        "key": event.key,
        "kind": event.kind,
        "target": event.target,
        "headers_json": msgspec.json.encode(dict(event.headers)).decode(),
        "body": event.body,
        "created_ms": at_ms,
        "attempts": 0,
        "next_ms": at_ms,
        "state": "pending",
        "error": "",
    }


def _waiting(row: Row[Any]) -> PendingDelivery:
    return PendingDelivery(
        id=row.id,
        stream=row.stream,
        key=row.key,
        kind=row.kind,
        target=row.target,
        headers=msgspec.json.decode(row.headers_json, type=dict[str, str]),
        body=row.body,
        created_ms=row.created_ms,
        attempts=row.attempts,
    )


def _count(connection: Connection) -> dict[str, int]:
    query = select(outbox.c.kind, func.count()).where(outbox.c.state == "pending").group_by(outbox.c.kind)
    return {row[0]: row[1] for row in connection.execute(query)}
