"""What the ledger has of one workload: changes of its verdict, idle spells, notices with their deliveries, snoozes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Table, and_, func, select

from gpusteward.analyzer.ledger.database.schema import allocations, idle_spells, notices, outbox, verdict_changes
from gpusteward.analyzer.ledger.snoozes import Snooze, clean_workload, list_snoozes
from gpusteward.analyzer.reports.ledger_sums.ledger_extent import read_ledger
from gpusteward.core.node.containers import WorkloadKey

ListKeys = Callable[[str, str], Sequence[str]]
"""The key of a notice and its channel -> the keys of its deliveries."""


@dataclass(frozen=True, slots=True)
class RecordedVerdict:
    """From `at_ms` on, until the next one."""

    at_ms: int
    activity: str
    signature: str
    state: str
    score: float | None
    allocations: int
    idle_allocations: int
    idle_since_ms: int | None


@dataclass(frozen=True, slots=True)
class RecordedSpell:
    """A time without work of one allocation."""

    started_ms: int
    ended_ms: int | None
    ended_by: str  # empty: it has not ended
    proof: str
    signature: str
    gpus: float
    pod: str
    node: str
    gpu_uuid: str
    gpu_instance: str


@dataclass(frozen=True, slots=True)
class NoticeDelivery:
    """A message to one address of a channel. It is deleted some time after it was delivered."""

    id: int
    target: str
    state: str
    attempts: int
    next_ms: int
    error: str


@dataclass(frozen=True, slots=True)
class RecordedNotice:
    """A notice that mentioned the workload."""

    at_ms: int
    kind: str
    channel: str
    deliveries: Sequence[NoticeDelivery]


@dataclass(frozen=True, slots=True)
class WorkloadHistory:
    """Everything newest first."""

    verdicts: Sequence[RecordedVerdict]
    spells: Sequence[RecordedSpell]
    notices: Sequence[RecordedNotice]
    snoozes: Sequence[Snooze]


def read_workload_history(engine: Engine, workload: WorkloadKey, *, limit: int, list_keys: ListKeys) -> WorkloadHistory:
    """At most `limit` of each kind. Takes as long as the database. Raises SourceError."""
    workload = clean_workload(workload)
    with read_ledger(engine) as connection:
        return WorkloadHistory(
            verdicts=_read_verdicts(connection, workload, limit),
            spells=_read_spells(connection, workload, limit),
            notices=_read_notices(connection, workload, limit, list_keys),
            snoozes=list_snoozes(connection, workload, limit=limit),
        )


def _is_of(table: Table, workload: WorkloadKey) -> ColumnElement[bool]:
    return and_(
        table.c.cluster == workload.cluster,
        table.c.namespace == workload.namespace,
        table.c.owner_kind == workload.kind,
        table.c.owner_name == workload.name,
    )


def _read_verdicts(connection: Connection, workload: WorkloadKey, limit: int) -> list[RecordedVerdict]:
    changes = verdict_changes.c
    shown = [changes[name] for name in ("at_ms", "activity", "signature", "state", "score", "idle_since_ms")]
    counts = changes.gpus.label("allocations"), changes.idle_gpus.label("idle_allocations")
    found = select(*shown, *counts).where(_is_of(verdict_changes, workload))
    rows = connection.execute(found.order_by(changes.at_ms.desc(), changes.id.desc()).limit(limit))
    return [RecordedVerdict(**row) for row in rows.mappings()]


def _read_spells(connection: Connection, workload: WorkloadKey, limit: int) -> list[RecordedSpell]:
    held = [allocations.c[name] for name in ("pod", "node", "gpu_uuid", "gpu_instance")]
    spells = idle_spells.c
    shown = [spells[name] for name in ("started_ms", "ended_ms", "proof", "signature")]
    named = func.coalesce(spells.ended_by, "").label("ended_by"), spells.gpu_fraction.label("gpus")
    joined = idle_spells.join(allocations, allocations.c.id == spells.allocation_id)
    found = select(*shown, *named, *held).select_from(joined).where(_is_of(allocations, workload))
    rows = connection.execute(found.order_by(spells.started_ms.desc(), allocations.c.id).limit(limit))
    return [RecordedSpell(**row) for row in rows.mappings()]


def _read_notices(
    connection: Connection, workload: WorkloadKey, limit: int, list_keys: ListKeys
) -> list[RecordedNotice]:
    order = notices.c.created_ms.desc(), notices.c.id.desc()
    found = select(notices).where(_is_of(notices, workload)).order_by(*order).limit(limit)
    rows = connection.execute(found).all()
    keys = {row.key: list_keys(row.key, row.channel) for row in rows}
    deliveries = _read_deliveries(connection, [key for each in keys.values() for key in each])
    return [
        RecordedNotice(
            row.created_ms, row.kind, row.channel, [deliveries[key] for key in keys[row.key] if key in deliveries]
        )
        for row in rows
    ]


def _read_deliveries(connection: Connection, keys: Sequence[str]) -> dict[str, NoticeDelivery]:
    found: dict[str, NoticeDelivery] = {}
    for begin in range(0, len(keys), 500):
        rows: Any = connection.execute(select(outbox).where(outbox.c.key.in_(keys[begin : begin + 500])))
        for row in rows:
            found[row.key] = NoticeDelivery(row.id, row.target, row.state, row.attempts, row.next_ms, row.error)
    return found
