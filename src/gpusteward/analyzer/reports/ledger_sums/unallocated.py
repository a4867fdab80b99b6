"""GPUs that were not allocated: all existing GPUs minus what was allocated while their number was known.

Rows of the fleet tables contain for how long the number was known, and what was allocated in that time. Rows of schema
version 0001 do not: they are taken to cover the whole hour or day, and what was allocated in it is added up here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Table, exists, func, select, true

from gpusteward.analyzer.ledger.periods import DAY_MS, HOUR_MS, Period, floor_hour
from gpusteward.analyzer.ledger.schema import (
    allocations,
    fleet_daily,
    fleet_hourly,
    time_column,
    usage_daily,
    usage_hourly,
)
from gpusteward.analyzer.prices import PriceList, cost_of
from gpusteward.analyzer.reports.ledger_sums.amounts import Unallocated
from gpusteward.analyzer.reports.ledger_sums.ledger_extent import LedgerExtent
from gpusteward.analyzer.reports.ledger_sums.period_totals import RowSelection, only_scope, select_rows
from gpusteward.analyzer.reports.report import Range, Unused
from gpusteward.analyzer.reports.report_query import ReportScope
from gpusteward.analyzer.tables import NodeModel


def price_unallocated(gpu_ms: Mapping[NodeModel, int], prices: PriceList) -> dict[NodeModel, Unallocated]:
    """No namespace holds this time, so no discount applies."""
    listed = {key: prices.list_micros_per_gpu_hour(key.model) for key in gpu_ms}
    return {key: Unallocated(ms, cost_of(ms, listed[key]) if listed[key] else None) for key, ms in gpu_ms.items()}


def sum_unallocated(parts: Iterable[Unallocated]) -> Unallocated:
    """Of the parts that are known."""
    parts = list(parts)
    return Unallocated(_sum_known(each.gpu_ms for each in parts), _sum_known(each.cost_micros for each in parts))


def _sum_known(amounts: Iterable[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def select_fleet_rows(period: Period, scope: ReportScope) -> Sequence[RowSelection]:
    """The fleet rows of a period; none for some namespaces, because unallocated GPUs belong to no namespace."""
    if not scope.has_fleet:
        return []
    selections = select_rows(period, hourly=fleet_hourly, daily=fleet_daily)
    return [each._replace(condition=each.condition & _in_clusters(each.table, scope)) for each in selections]


def _in_clusters(fleet: Table, scope: ReportScope) -> ColumnElement[bool]:
    return fleet.c.cluster.in_(scope.clusters) if scope.clusters else true()


def read_unallocated(connection: Connection, period: Period, scope: ReportScope) -> dict[NodeModel, int]:
    """GPU-milliseconds; only nodes and models whose number of GPUs was known."""
    fleet, held, missing = Counter[NodeModel](), Counter[NodeModel](), Counter[NodeModel]()
    for selection in select_fleet_rows(period, scope):
        table = selection.table
        keys = (table.c.node, table.c.model, table.c.cluster)
        sums = (
            func.sum(table.c.gpu_ms).label("gpu_ms"),
            func.sum(table.c.held_ms).label("held_ms"),
            (func.count() - func.count(table.c.held_ms)).label("without_held"),
        )
        rows = connection.execute(select(*keys, *sums).where(selection.condition).group_by(*keys)).all()
        for row in rows:
            key = NodeModel(row.node, row.model, row.cluster)
            fleet[key] += int(row.gpu_ms)
            held[key] += int(row.held_ms or 0)
        if any(row.without_held for row in rows):
            missing.update(_sum_allocated(connection, table, selection.condition))
    return _subtract(fleet, held, missing)


def _sum_allocated(connection: Connection, fleet: Table, condition: ColumnElement[bool]) -> Mapping[NodeModel, int]:
    """What was allocated on a node in the hours or days whose fleet rows lack it."""
    usage = usage_hourly if fleet is fleet_hourly else usage_daily
    usage_time, fleet_time = time_column(usage), time_column(fleet)
    incomplete = select(fleet_time).where(condition, fleet.c.held_ms.is_(None)).distinct()  # uses the index
    is_same_node = (fleet.c.node == allocations.c.node) & (fleet.c.cluster == allocations.c.cluster)
    has_fleet_row = exists().where(fleet_time == usage_time, is_same_node, fleet.c.held_ms.is_(None), condition)
    joined = usage.join(allocations, allocations.c.id == usage.c.allocation_id)
    keys = (allocations.c.node, allocations.c.model, allocations.c.cluster)
    sums = (
        select(*keys, func.sum(usage.c.allocated_ms).label("allocated_ms"))
        .select_from(joined)
        .where(usage_time.in_(incomplete), has_fleet_row)
        .group_by(*keys)
    )
    return {NodeModel(row.node, row.model, row.cluster): int(row.allocated_ms) for row in connection.execute(sums)}


def _subtract(
    fleet: Mapping[NodeModel, int], held: Mapping[NodeModel, int], missing: Mapping[NodeModel, int]
) -> dict[NodeModel, int]:
    """On a node with a single model, all allocations of the node count, as when they were recorded."""
    models = Counter((key.cluster, key.node) for key in fleet)
    missing_on = Counter[tuple[str, str]]()
    for key, gpu_ms in missing.items():
        missing_on[key.cluster, key.node] += gpu_ms
    unallocated: dict[NodeModel, int] = {}
    for key, gpu_ms in fleet.items():
        node = key.cluster, key.node
        unallocated[key] = max(0, gpu_ms - held[key] - (missing_on[node] if models[node] == 1 else missing.get(key, 0)))
    return unallocated


def read_coverage(connection: Connection, period: Period, scope: ReportScope, covered: Range) -> float | None:
    """The part of the recorded time for which the number of GPUs was known; None if nothing is recorded, or for some
    namespaces. The time of some clusters begins with their first allocation."""
    if not scope.has_fleet or covered.first_ms is None or covered.last_ms is None:
        return None
    first_ms = max(covered.first_ms, _first_allocation(connection, scope) if scope.clusters else 0)
    if covered.last_ms <= first_ms:
        return None
    known_ms = 0
    for selection in select_fleet_rows(period, scope):
        table = selection.table
        whole_ms = HOUR_MS if table is fleet_hourly else DAY_MS
        longest = select(func.max(func.coalesce(table.c.known_ms, whole_ms))).where(selection.condition)
        known_ms += sum(int(each) for each in connection.scalars(longest.group_by(time_column(table))))
    return min(1.0, known_ms / (covered.last_ms - first_ms))


def _first_allocation(connection: Connection, scope: ReportScope) -> int:
    first = select(func.min(allocations.c.first_ms)).where(allocations.c.cluster.in_(scope.clusters))
    return connection.scalar(first) or 0


def read_unused(connection: Connection, scope: ReportScope, *, extent: LedgerExtent, until_ms: int) -> Unused | None:
    """Of the last full recorded hour before `until_ms`; None without one. The first recorded hour may be incomplete."""
    if extent.recorded_ms is None or extent.begin_ms is None:
        return None
    hour_ms = floor_hour(min(extent.recorded_ms, until_ms)) - HOUR_MS
    if hour_ms <= extent.begin_ms:
        return None
    held, idle = _read_hour(connection, hour_ms, scope)
    fleet = _read_fleet_hour(connection, hour_ms, scope, held=int(held or 0)) if scope.has_fleet else None
    if held is None and fleet is None:
        return None
    return _count_gpus(hour_ms, held=int(held or 0), idle=int(idle or 0), fleet=fleet)


def _read_hour(connection: Connection, hour_ms: int, scope: ReportScope) -> tuple[int | None, int | None]:
    """Allocated and idle GPU-milliseconds; None without rows."""
    usage = usage_hourly.c
    joined = usage_hourly.join(allocations, allocations.c.id == usage.allocation_id)
    sums = select(func.sum(usage.allocated_ms), func.sum(usage.idle_ms)).select_from(joined)
    held, idle = connection.execute(only_scope(sums.where(usage.hour_ms == hour_ms), scope)).one()
    return held, idle


class FleetHour(NamedTuple):
    """GPU-milliseconds of all GPUs in one hour, and of those that were not allocated."""

    total: float
    unallocated: float


def _read_fleet_hour(connection: Connection, hour_ms: int, scope: ReportScope, *, held: int) -> FleetHour | None:
    """What was known for a part of the hour is extrapolated to the whole hour."""
    fleet = fleet_hourly.c
    query = select(fleet.gpu_ms, fleet.held_ms, fleet.known_ms)
    rows = connection.execute(query.where(fleet.hour_ms == hour_ms, _in_clusters(fleet_hourly, scope))).all()
    if not rows:
        return None
    total = sum(row.gpu_ms * HOUR_MS / (row.known_ms or HOUR_MS) for row in rows)
    if any(row.held_ms is None for row in rows):
        return FleetHour(total, total - held)
    return FleetHour(total, sum((row.gpu_ms - row.held_ms) * HOUR_MS / (row.known_ms or HOUR_MS) for row in rows))


def _count_gpus(hour_ms: int, *, held: int, idle: int, fleet: FleetHour | None) -> Unused:
    gpus = round(max(held, fleet.total if fleet else 0.0) / HOUR_MS)
    idle_gpus = min(gpus, round(idle / HOUR_MS))
    if fleet is None:
        return Unused(hour_ms, gpus, idle_gpus, None)
    return Unused(hour_ms, gpus, idle_gpus, min(gpus - idle_gpus, round(max(0.0, fleet.unallocated) / HOUR_MS)))
