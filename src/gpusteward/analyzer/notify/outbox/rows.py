"""The rows of the tables `outbox` and `notices`: what is read and written within one transaction.

Every function takes the connection of the caller and raises SQLAlchemyError.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from itertools import islice
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Table,
    Text,
    bindparam,
    case,
    create_engine,
    delete,
    false,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.pool import StaticPool

from gpusteward.analyzer.ledger.database.schema import METADATA, notices, outbox
from gpusteward.analyzer.notify.outbox.records import (
    CONTROL,
    NOTICE,
    SUPERSEDED,
    AttemptOutcome,
    Delivery,
    NoticeRecord,
    OutboxEvent,
    PendingDelivery,
)

_ROWS_PER_INSERT = 500
_DELIVERY_COLUMNS = [
    outbox.c[name] for name in ("id", "stream", "kind", "target", "created_ms", "attempts", "next_ms", "state", "error")
]
_MAY_CHANGE = (outbox.c.state == "pending") | (bindparam("row_state", type_=Text) == "done")
"""A call that has failed does not make a superseded row pending again."""
_UPDATE_OUTCOME = (
    update(outbox)
    .where(outbox.c.id == bindparam("row_id"), _MAY_CHANGE)
    .values({name: bindparam(f"row_{name}") for name in ("state", "attempts", "next_ms", "error")})
)


_RENEW = (
    update(outbox)
    .where(outbox.c.key == bindparam("row_key"), (outbox.c.state == "pending") | (outbox.c.error == SUPERSEDED))
    .values({name: bindparam(f"row_{name}") for name in ("headers_json", "body", "state")})
    .values(error=case((outbox.c.error == SUPERSEDED, ""), else_=outbox.c.error))
)


def open_in_memory() -> Engine:
    """A database of its own with the two tables."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    METADATA.create_all(engine, tables=[notices, outbox])
    return engine


def insert_events(connection: Connection, events: Iterable[OutboxEvent], at_ms: int) -> None:
    _insert(connection, outbox, (_make_row(each, at_ms) for each in events))


def insert_notices(connection: Connection, records: Iterable[NoticeRecord], at_ms: int) -> None:
    _insert(connection, notices, (asdict(each) | {"created_ms": at_ms} for each in records))


def _insert(connection: Connection, table: Table, rows: Iterator[Mapping[str, Any]]) -> None:
    """In parts: all rows of a large cycle as mappings would exceed the analyzer's memory limit."""
    dialect = import_module(f"sqlalchemy.dialects.{connection.dialect.name}")  # loading both would cost 2 MB
    statement = dialect.insert(table)
    if table is outbox:  # a cycle that is notified twice has superseded its own rows
        new = {"state": "pending", "error": "", "next_ms": statement.excluded.next_ms}
        is_superseded = outbox.c.error == SUPERSEDED
        statement = statement.on_conflict_do_update(index_elements=["key"], set_=new, where=is_superseded)
    else:
        statement = statement.on_conflict_do_nothing(index_elements=["key"])
    while part := list(islice(rows, _ROWS_PER_INSERT)):
        connection.execute(statement, part)


def supersede_calls(connection: Connection, now_ms: int) -> int:
    """End the control calls of earlier cycles; their number."""
    return _supersede(connection, outbox.c.kind == CONTROL, now_ms)


def supersede_notices(connection: Connection, kinds: Iterable[str], keys: Iterable[str] = (), *, now_ms: int) -> int:
    """End waiting notices of these kinds, which have streams of their own, and those with these keys; their number."""
    return _supersede(connection, _has_kind(kinds) | outbox.c.key.in_(sorted(keys)), now_ms)


def _supersede(connection: Connection, is_meant: ColumnElement[bool], now_ms: int) -> int:
    ended = update(outbox).where(outbox.c.state == "pending", is_meant)
    return connection.execute(ended.values(state="done", next_ms=now_ms, error=SUPERSEDED)).rowcount


def _has_kind(kinds: Iterable[str]) -> ColumnElement[bool]:
    is_one = (outbox.c.stream == outbox.c.target + f"/{kind}" for kind in kinds)
    return (outbox.c.kind == NOTICE) & or_(false(), *is_one)


def read_waiting(connection: Connection, kinds: Iterable[str]) -> list[PendingDelivery]:
    """Pending notices of kinds that have streams of their own."""
    query = select(outbox).where(outbox.c.state == "pending", _has_kind(kinds)).order_by(outbox.c.id)
    return [_make_delivery(row) for row in connection.execute(query)]


def renew_events(connection: Connection, events: Sequence[OutboxEvent]) -> None:
    """Give rows with these keys their present text, if they wait or are superseded; then they wait again."""
    if events:
        connection.execute(_RENEW, [_make_row(each, 0, prefix="row_") for each in events])


def _make_row(event: OutboxEvent, at_ms: int, *, prefix: str = "") -> dict[str, Any]:
    row = {
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
    return {f"{prefix}{name}": value for name, value in row.items()} if prefix else row


def _make_delivery(row: Row[Any]) -> PendingDelivery:
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


def count_pending(connection: Connection) -> dict[str, int]:
    query = select(outbox.c.kind, func.count().label("rows")).where(outbox.c.state == "pending").group_by(outbox.c.kind)
    return {row.kind: row.rows for row in connection.execute(query)}


def read_due(connection: Connection, targets: Iterable[str], *, now_ms: int, limit: int) -> list[PendingDelivery]:
    """The first pending row of every stream, if it is due; oldest first."""
    has_target = (outbox.c.state == "pending") & outbox.c.target.in_(sorted(targets))  # a stream has one target
    heads = select(func.min(outbox.c.id)).where(has_target).group_by(outbox.c.stream)
    query = select(outbox).where(outbox.c.id.in_(heads), outbox.c.next_ms <= now_ms).order_by(outbox.c.id).limit(limit)
    return [_make_delivery(row) for row in connection.execute(query)]


def update_outcomes(connection: Connection, outcomes: Iterable[AttemptOutcome]) -> None:
    rows = [{f"row_{name}": value for name, value in asdict(each).items()} for each in outcomes]
    connection.execute(_UPDATE_OUTCOME, rows)


def retry(connection: Connection, number: int, *, now_ms: int, states_since_ms: int) -> tuple[Delivery | None, bool]:
    """The row with this id, and whether it was dead and is now pending like a new one.

    A control call from before `states_since_ms` is not retried: it may no longer be true.
    """
    is_true = (outbox.c.kind != CONTROL) | (outbox.c.created_ms >= states_since_ms)
    is_dead = (outbox.c.id == number) & (outbox.c.state == "dead") & is_true
    as_new = {"state": "pending", "attempts": 0, "next_ms": now_ms, "created_ms": now_ms}
    changed = connection.execute(update(outbox).where(is_dead).values(as_new)).rowcount
    row = connection.execute(select(*_DELIVERY_COLUMNS).where(outbox.c.id == number)).mappings().one_or_none()
    return None if row is None else Delivery(**row), changed > 0


def give_up(connection: Connection, oldest_ms: int, now_ms: int) -> dict[str, int]:
    """Pending rows from before `oldest_ms` are dead from now on; their number by kind."""
    is_old = (outbox.c.state == "pending") & (outbox.c.created_ms < oldest_ms)
    query = select(outbox.c.kind, func.count().label("rows")).where(is_old).group_by(outbox.c.kind)
    dead: dict[str, int] = {row.kind: row.rows for row in connection.execute(query)}
    if dead:
        error = func.substr("too old; last error: " + outbox.c.error, 1, 400)
        connection.execute(update(outbox).where(is_old).values(state="dead", next_ms=now_ms, error=error))
    return dead


def delete_finished(connection: Connection, state: str, *, before_ms: int) -> None:
    connection.execute(delete(outbox).where(outbox.c.state == state, outbox.c.next_ms < before_ms))


def delete_records(connection: Connection, keys: Iterable[str]) -> None:
    """Of notices that nobody has received."""
    connection.execute(delete(notices).where(notices.c.key.in_(sorted(keys))))


def delete_notices(connection: Connection, *, before_ms: int) -> None:
    connection.execute(delete(notices).where(notices.c.created_ms < before_ms))


def read_notices(connection: Connection, since_ms: int) -> list[Mapping[str, Any]]:
    """Rows of the table `notices`, oldest first, without the text."""
    columns = [column for column in notices.c if column.name not in ("id", "body")]
    query = select(*columns).where(notices.c.created_ms >= since_ms).order_by(notices.c.id)
    return [dict(row) for row in connection.execute(query).mappings()]


def read_deliveries(connection: Connection, state: str | None, *, limit: int) -> list[Delivery]:
    """The newest rows, of one state or of all."""
    query = select(*_DELIVERY_COLUMNS).order_by(outbox.c.id.desc()).limit(limit)
    query = query if state is None else query.where(outbox.c.state == state)
    return [Delivery(**row) for row in connection.execute(query).mappings()]


def read_delivered(connection: Connection, keys: Iterable[str]) -> dict[str, int]:
    """The end time of the rows with these keys that were delivered."""
    is_delivered = (outbox.c.state == "done") & (outbox.c.error != SUPERSEDED)
    query = select(outbox.c.key, outbox.c.next_ms).where(outbox.c.key.in_(sorted(keys)), is_delivered)
    return {row.key: row.next_ms for row in connection.execute(query)}
