"""What the books know at a start: since when workloads are idle. A restart must not set that back."""

from collections.abc import Mapping

import numpy as np
from sqlalchemy import Engine, and_, func, select
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.judge.history import History, Past
from gpusteward.analyzer.judge.keys import read_keys
from gpusteward.analyzer.judge.workloads import WorkloadKey
from gpusteward.analyzer.ledger.db_engine import describe_error
from gpusteward.analyzer.ledger.identities import name_owner
from gpusteward.analyzer.ledger.periods import BOOKED, read_progress
from gpusteward.analyzer.ledger.schema import verdict_changes
from gpusteward.analyzer.tables import Column, UsageTable
from gpusteward.core.containers import Container
from gpusteward.core.verdicts import Activity
from gpusteward.logs import Log

log = Log(__name__)


def restore_history(engine: Engine, table: UsageTable) -> History:
    """A memory for the first cycle. Whether it still joins what is seen now is for `judge` to say; books that cannot be
    read are no memory."""
    try:
        booked_at, idle = _read_idle(engine)
    except SQLAlchemyError as error:
        log.warning("ledger_not_recollected", reason=describe_error(error), consequence="idle times begin anew")
        return History()
    if booked_at is None or not idle:
        return History()
    return _remember(table, idle, booked_at=booked_at)


def _read_idle(engine: Engine) -> tuple[float | None, Mapping[WorkloadKey, float]]:
    """When the books end, and since when each workload is idle that was idle then."""
    said = verdict_changes.c
    last = select(func.max(said.id)).group_by(said.namespace, said.owner_kind, said.owner_name)
    query = select(said.owner_kind, said.namespace, said.owner_name, said.idle_since_ms).where(
        and_(said.id.in_(last), said.activity == Activity.IDLE.value, said.idle_since_ms.is_not(None))
    )
    with engine.connect() as connection:
        booked_ms = read_progress(connection, BOOKED)
        rows = connection.execute(query).all()
    idle = {(kind, namespace, name): since_ms / 1000 for kind, namespace, name, since_ms in rows}
    return None if booked_ms is None else booked_ms / 1000, idle


def _remember(table: UsageTable, idle: Mapping[WorkloadKey, float], *, booked_at: float) -> History:
    """All of an idle workload was idle since then at least. A pod that came later has no past."""
    since = np.array([idle.get(_owner(one.container), np.nan) for one in table.allocations])
    since = np.where(table.started_at > booked_at, np.nan, np.fmax(since, _only_where(since, table.started_at)))
    is_known = ~np.isnan(since)
    nothing, booked = np.full(len(table), np.nan), np.where(is_known, booked_at, np.nan)
    past = Past(
        seen_at=booked,
        first_seen_at=booked,
        started_at=table.started_at,
        worked_at=nothing,
        idle_since=since,
        idle_until=booked,
        flat_since=nothing,
        flat_ratio=nothing,
    )
    return History(read_keys(table.allocations).allocations, past)


def _only_where(known: Column, column: Column) -> Column:
    return np.where(np.isnan(known), np.nan, column)


def _owner(container: Container) -> WorkloadKey:
    kind, name = name_owner(container)
    return kind, container.namespace, name
