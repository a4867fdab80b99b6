"""Snoozes: until when nobody wants to hear about a workload, and why. Notices about its idle GPUs wait meanwhile.

A workload has at most one active snooze: a new one ends the one before. Ended ones are kept as history.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, insert, or_, select, update

from gpusteward.analyzer.ledger.database.schema import snoozes
from gpusteward.analyzer.ledger.identities import clean_text
from gpusteward.core.node.containers import WorkloadKey


@dataclass(frozen=True, slots=True)
class Snooze:
    """Times are unix seconds."""

    workload: WorkloadKey  # as the ledger stores names
    until: float
    reason: str
    who: str
    created_at: float
    ended_at: float | None = None  # before `until`; None: not
    ended_by: str = ""


def clean_workload(workload: WorkloadKey) -> WorkloadKey:
    """The key as the ledger stores it."""
    return WorkloadKey(*map(clean_text, workload))


def active_snoozes(connection: Connection, at: float) -> Mapping[WorkloadKey, Snooze]:
    """The snoozes at this time. Raises SQLAlchemyError."""
    found = connection.execute(select(snoozes).where(_is_active(_ms(at))).order_by(snoozes.c.created_ms)).mappings()
    return {snooze.workload: snooze for snooze in map(_read, found)}


def list_snoozes(connection: Connection, workload: WorkloadKey, *, limit: int) -> list[Snooze]:
    """Of one workload, the newest first. Raises SQLAlchemyError."""
    order = snoozes.c.created_ms.desc(), snoozes.c.id.desc()
    found = connection.execute(select(snoozes).where(_is_of(workload)).order_by(*order).limit(limit)).mappings()
    return [_read(row) for row in found]


def add_snooze(
    connection: Connection, workload: WorkloadKey, *, until: float, reason: str, who: str, at: float
) -> Snooze:
    """In place of the active one, if there is one. Raises SQLAlchemyError."""
    workload = clean_workload(workload)
    end_snooze(connection, workload, who=who, at=at)
    reason, who = clean_text(reason), clean_text(who)
    connection.execute(
        insert(snoozes).values(
            cluster=workload.cluster,
            namespace=workload.namespace,
            owner_kind=workload.kind,
            owner_name=workload.name,
            until_ms=_ms(until),
            reason=reason,
            who=who,
            created_ms=_ms(at),
        )
    )
    return Snooze(workload, _ms(until) / 1000, reason, who, _ms(at) / 1000)


def end_snooze(connection: Connection, workload: WorkloadKey, *, who: str, at: float) -> bool:
    """Whether there was an active one. Raises SQLAlchemyError."""
    is_meant = and_(_is_of(workload), _is_active(_ms(at)))
    ended = connection.execute(update(snoozes).where(is_meant).values(ended_ms=_ms(at), ended_by=clean_text(who)))
    return ended.rowcount > 0


def _is_active(at_ms: int) -> ColumnElement[bool]:
    return and_(snoozes.c.until_ms > at_ms, or_(snoozes.c.ended_ms.is_(None), snoozes.c.ended_ms > at_ms))


def _is_of(workload: WorkloadKey) -> ColumnElement[bool]:
    kind, namespace, name, cluster = clean_workload(workload)
    return and_(
        snoozes.c.cluster == cluster,
        snoozes.c.namespace == namespace,
        snoozes.c.owner_kind == kind,
        snoozes.c.owner_name == name,
    )


def _read(row: RowMapping) -> Snooze:
    return Snooze(
        workload=WorkloadKey(row["owner_kind"], row["namespace"], row["owner_name"], row["cluster"]),
        until=row["until_ms"] / 1000,
        reason=row["reason"],
        who=row["who"],
        created_at=row["created_ms"] / 1000,
        ended_at=None if row["ended_ms"] is None else row["ended_ms"] / 1000,
        ended_by=row["ended_by"] or "",
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
