"""Workloads that no longer hold a GPU, found in the ledger by the name of the workload or of one of its pods."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Select, Table, and_, case, func, or_, select

from gpusteward.analyzer.ledger.database.periods import BEGAN, ROLLED, floor_day, read_progress
from gpusteward.analyzer.ledger.database.schema import allocations, progress, time_column, usage_daily, usage_hourly
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.ledger_sums.amounts import (
    NO_SUMS,
    SUMMED,
    UNPRICED,
    Sums,
    make_amounts,
    read_currencies,
    use_currency,
)
from gpusteward.analyzer.reports.ledger_sums.ledger_extent import read_ledger
from gpusteward.analyzer.reports.ledger_sums.period_totals import is_visible, to_integer, unpriced_time
from gpusteward.analyzer.reports.report import MAX_NAMES, EndedWorkload
from gpusteward.analyzer.reports.report_query import EndedQuery

MAX_ENDED = 5
_OWNER = (allocations.c.cluster, allocations.c.namespace, allocations.c.owner_kind, allocations.c.owner_name)


def read_ended_workloads(engine: Engine, query: EndedQuery, *, prices: PriceSettings) -> list[EndedWorkload]:
    """The latest first, at most MAX_ENDED. Takes as long as the database. Raises SourceError."""
    with read_ledger(engine) as connection:
        owners = connection.execute(_select_owners(query)).all()
        return [_read_workload(connection, _is_owned_by(*owner), prices) for owner in owners]


def _select_owners(query: EndedQuery) -> Select[Any]:
    """Workloads of this name, or with a pod of this name; not those that ended before anything was recorded, of which
    only idle spells were back-filled."""
    began_ms = select(progress.c.at_ms).where(progress.c.name == BEGAN).scalar_subquery()
    found = select(*_OWNER).where(or_(allocations.c.owner_name == query.name, allocations.c.pod == query.name))
    found = found.where(allocations.c.last_ms >= func.coalesce(began_ms, 0))
    if query.visible is not None:
        found = found.where(is_visible(query.visible))
    if query.namespace:
        found = found.where(allocations.c.namespace == query.namespace)
    if query.cluster:
        found = found.where(allocations.c.cluster == query.cluster)
    if query.kind:
        found = found.where(func.lower(allocations.c.owner_kind) == query.kind.lower())
    last_ms = func.max(func.coalesce(allocations.c.ended_ms, allocations.c.last_ms))
    return found.group_by(*_OWNER).order_by(last_ms.desc(), *_OWNER).limit(MAX_ENDED)


def _is_owned_by(*owner: str) -> ColumnElement[bool]:
    return and_(*(column == value for column, value in zip(_OWNER, owner, strict=True)))


def _read_workload(connection: Connection, is_own: ColumnElement[bool], prices: PriceSettings) -> EndedWorkload:
    row = connection.execute(_select_workload(is_own)).mappings().one()
    names = {name: _read_names(connection, name, is_own) for name in ("user_name", "model", "node")}
    priced = use_currency(prices, _find_currency(connection, row["ended_ms"]))
    return EndedWorkload(
        kind=row["owner_kind"],
        namespace=row["namespace"],
        name=row["owner_name"],
        first_ms=int(row["first_ms"]),
        ended_ms=None if row["held"] else int(row["ended_ms"]),
        devices=int(row["devices"]),
        users=names["user_name"],
        models=names["model"],
        nodes=names["node"],
        currency=priced.currency,
        cluster=row["cluster"],
        amounts=make_amounts(_sum_usage(connection, is_own, first_ms=int(row["first_ms"])), prices=priced),
    )


def _select_workload(is_own: ColumnElement[bool]) -> Select[Any]:
    ended, device = allocations.c.ended_ms, allocations.c.gpu_uuid + "/" + allocations.c.gpu_instance
    columns = (
        func.min(allocations.c.first_ms).label("first_ms"),
        func.max(ended).label("ended_ms"),
        func.count(case((ended.is_(None), 1))).label("held"),
        func.count(device.distinct()).label("devices"),
    )
    return select(*_OWNER, *columns).where(is_own).group_by(*_OWNER)


def _find_currency(connection: Connection, ended_ms: int | None) -> str | None:
    """The one in use at the end; None: no costs yet."""
    known = read_currencies(connection).known
    used = [each.currency for each in known if ended_ms is None or each.since_ms <= ended_ms]
    return next(reversed([each.currency for each in known[:1]] + used), None)


def _read_names(connection: Connection, column: str, is_own: ColumnElement[bool]) -> tuple[str, ...]:
    name = allocations.c[column]
    found = select(name).where(is_own, name != "").distinct().order_by(name).limit(MAX_NAMES)
    return tuple(connection.execute(found).scalars())


def _sum_usage(connection: Connection, is_own: ColumnElement[bool], *, first_ms: int) -> Sums:
    """Hours that ended before "rolled" are part of their day; later ones have rows of their own only."""
    rolled_ms = read_progress(connection, ROLLED) or 0
    days = _sum_rows(connection, usage_daily, is_own, since_ms=floor_day(first_ms))
    hours = _sum_rows(connection, usage_hourly, is_own, since_ms=rolled_ms)
    return {**NO_SUMS, **{name: days[name] + hours[name] for name in days}}


def _sum_rows(connection: Connection, table: Table, is_own: ColumnElement[bool], *, since_ms: int) -> Sums:
    sums = [to_integer(func.sum(table.c[name])).label(name) for name in SUMMED]
    unpriced = to_integer(func.sum(unpriced_time(table))).label(UNPRICED)
    is_theirs = table.c.allocation_id.in_(select(allocations.c.id).where(is_own))
    found = select(*sums, unpriced).where(time_column(table) >= since_ms, is_theirs)
    return {name: int(value or 0) for name, value in connection.execute(found).mappings().one().items()}
