"""Reads from the ledger since when workloads are idle and which allocations have worked: a restart neither resets their
idle time nor makes them look as if they were still starting. Also which clusters there were: the only one that reports
after a restart is not taken for the only one there is.

The ledger may be shared with other clusters, with the same names and without any. Idle time is restored only to an
allocation that the ledger has as held: the same pod, by its uid where that is known, on the same GPU.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, Engine, and_, func, or_, select
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.judge.allocation_columns import read_allocation_columns
from gpusteward.analyzer.judge.history import Past, VerdictHistory
from gpusteward.analyzer.ledger.database.db_engine import describe_error
from gpusteward.analyzer.ledger.database.periods import HOUR_MS, RECORDED, read_progress
from gpusteward.analyzer.ledger.database.schema import allocations, idle_spells, usage_hourly, verdict_changes
from gpusteward.analyzer.ledger.database.schema_version import has_tables
from gpusteward.analyzer.ledger.identities import make_allocation_id, name_owner
from gpusteward.analyzer.tables import Column, UsageTable
from gpusteward.core.idle_spells import SpellEnd
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.usages import AllocationKey
from gpusteward.core.verdicts import Activity, Signature
from gpusteward.logs import Log

log = Log(__name__)


def restore_history(engine: Engine, table: UsageTable) -> VerdictHistory:
    """The history for the first cycle; empty if the ledger cannot be read. `judge` decides whether it still applies."""
    try:
        recorded, worked = _read_idle(engine, table), _read_worked(engine)
    except SQLAlchemyError as error:
        log.warning("ledger_not_restored", reason=describe_error(error), consequence="idle times start again")
        return VerdictHistory()
    return _make_history(table, recorded, worked) if recorded.idle or worked else VerdictHistory()


_SILENT = (Signature.NO_REQUESTS.value, Signature.ASLEEP.value)


class _Recorded(NamedTuple):
    """Since when each workload is idle that was idle when the ledger ends."""

    at: float  # its end; unix seconds
    idle: Mapping[WorkloadKey, float]
    without_requests: frozenset[WorkloadKey]  # those of them whose server had no requests: the GPU may have worked
    held: frozenset[int]  # ids of allocations that were held then
    earlier_names: frozenset[str]  # where the only cluster of the table has a new name: those that are recorded

    def find_begin(self, one: AllocationKey) -> float:
        """Since when the workload of this allocation is idle; NaN: not, or not known."""
        container, key = one.container, _name_owner(one)
        began = self.idle.get(key)
        if began is not None and make_allocation_id(one) in self.held:
            return began
        for cluster in self.earlier_names if container.pod_uid else ():  # only a uid is never that of a twin
            began = self.idle.get(key._replace(cluster=cluster))
            before = replace(one, container=replace(container, cluster=cluster))
            if began is not None and make_allocation_id(before) in self.held:
                return began
        return np.nan


def _name_owner(one: AllocationKey) -> WorkloadKey:
    kind, name = name_owner(one.container)
    return WorkloadKey(kind, one.container.namespace, name, one.container.cluster)


def _read_idle(engine: Engine, table: UsageTable) -> _Recorded:
    changes = verdict_changes.c
    owner = (changes.owner_kind, changes.namespace, changes.owner_name, changes.cluster)
    last = select(func.max(changes.id)).group_by(*owner)
    query = select(*owner, changes.idle_since_ms).where(
        and_(changes.id.in_(last), changes.activity == Activity.IDLE.value, changes.idle_since_ms.is_not(None))
    )
    with engine.connect() as connection:
        recorded_ms = read_progress(connection, RECORDED)
        rows = connection.execute(query).all()
        held = connection.execute(select(allocations.c.id).where(allocations.c.ended_ms.is_(None))).scalars()
        names = {one.cluster for one in table.allocations}
        is_recorded = changes.cluster.in_(names)
        known = connection.execute(select(changes.id).where(is_recorded).limit(1)).first()  # uses the index
        idle = {WorkloadKey(*row[: len(owner)]): row.idle_since_ms / 1000 for row in rows}
        last_silent = select(*owner, func.max(changes.at_ms)).where(changes.signature.in_(_SILENT)).group_by(*owner)
        silent_ms = {WorkloadKey(*row[:-1]): row[-1] / 1000 for row in connection.execute(last_silent)}
        silent = (key for key, since in idle.items() if silent_ms.get(key, -1.0) >= since)
        is_renamed = len(names) == 1 and known is None
        earlier = frozenset(key.cluster for key in idle) if is_renamed else frozenset[str]()
        known_idle = idle if recorded_ms else {}
        return _Recorded((recorded_ms or 0) / 1000, known_idle, frozenset(silent), frozenset(held), earlier)


def _read_worked(engine: Engine) -> Mapping[int, float]:
    """When the allocations that are held last began to work after an idle spell, or worked before one that work has not
    ended; unix seconds."""
    spells, held, usage = idle_spells.c, allocations.c, usage_hourly.c
    of_held = select(spells.allocation_id).join(allocations, held.id == spells.allocation_id)
    of_held = of_held.where(held.ended_ms.is_(None)).group_by(spells.allocation_id)
    ended = of_held.add_columns(func.max(spells.ended_ms)).where(spells.ended_by == SpellEnd.WORK.value)
    # A pod that has never worked has spells, too: the hour before one tells.
    before = spells.started_ms - 1
    is_before = and_(usage.allocation_id == spells.allocation_id, usage.hour_ms == before - before % HOUR_MS)
    began = of_held.add_columns(func.max(spells.started_ms)).join(usage_hourly, is_before)
    began = began.where(usage.active_ms > 0, or_(spells.ended_ms.is_(None), spells.ended_by == SpellEnd.LOST.value))
    worked: dict[int, float] = {}
    with engine.connect() as connection:
        for query in (ended, began):
            for number, at_ms in connection.execute(query):
                worked[number] = max(worked.get(number, 0.0), at_ms / 1000)
    return worked


def _make_history(table: UsageTable, recorded: _Recorded, worked: Mapping[int, float]) -> VerdictHistory:
    """All pods of an idle workload have been idle at least since then; pods started later have no history."""
    recorded_at = recorded.at
    since = np.array([recorded.find_begin(one) for one in table.allocations])
    since = np.where(table.started_at > recorded_at, np.nan, np.fmax(since, _only_where(since, table.started_at)))
    ids = (make_allocation_id(one) for one in table.allocations) if worked else ()
    worked_at = np.array([worked.get(each, np.nan) for each in ids]) if worked else np.full(len(table), np.nan)
    worked_at = np.where(worked_at < table.started_at, np.nan, worked_at)  # an earlier pod of the same name
    # When such a GPU worked last is not recorded. Under another name of its cluster it is none of these: then a request
    # is as far away as its work.
    is_silent = np.array([_name_owner(one) in recorded.without_requests for one in table.allocations], dtype=bool)
    is_known = ~np.isnan(since) | ~np.isnan(worked_at)
    seen_at = np.where(is_known, recorded_at, np.nan)
    past = replace(
        Past.unknown(len(table)),
        seen_at=seen_at,
        first_seen_at=seen_at,
        started_at=table.started_at,
        worked_at=worked_at,
        idle_since=since,
        idle_until=_only_where(since, seen_at),
        unused_work_at=np.where(is_silent | bool(recorded.earlier_names), seen_at, np.nan),
    )
    return VerdictHistory(read_allocation_columns(table.allocations).hashes, past)


def read_clusters(connection: Connection, present: Collection[str]) -> list[tuple[str, str]]:
    """The name of every recorded cluster with the UUIDs of its GPUs; without these where there is one name only,
    together with those that are `present` now. Raises SQLAlchemyError."""
    if not has_tables(connection):
        return []  # a new file
    names: list[str] = []
    name = connection.execute(select(func.min(verdict_changes.c.cluster))).scalar()
    while name is not None:  # one step in the index for each name, where DISTINCT would read every row
        names.append(name)
        later = select(func.min(verdict_changes.c.cluster)).where(verdict_changes.c.cluster > name)
        name = connection.execute(later).scalar()
    found = [(each, "") for each in names]
    if len({*names, *present}) > 1:
        held = connection.execute(select(allocations.c.cluster, allocations.c.gpu_uuid).distinct())
        found += [(row.cluster, row.gpu_uuid) for row in held]
    return found


def _only_where(known: Column, column: Column) -> Column:
    return np.where(np.isnan(known), np.nan, column)
