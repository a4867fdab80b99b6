"""GPUs that were not allocated: all existing GPUs minus what was allocated while their number was known. Rows of the
fleet tables contain for how long it was known, and what was allocated in that time."""

from collections import Counter
from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, Table, func, select, true

from gpusteward.analyzer.ledger.database.periods import HOUR_MS, Period, floor_hour
from gpusteward.analyzer.ledger.database.schema import (
    allocations,
    fleet_daily,
    fleet_hourly,
    time_column,
    usage_hourly,
)
from gpusteward.analyzer.prices import PriceList, cost_of
from gpusteward.analyzer.reports.ledger_sums.amounts import Unallocated
from gpusteward.analyzer.reports.ledger_sums.ledger_extent import LedgerExtent
from gpusteward.analyzer.reports.ledger_sums.period_totals import RowSelection, only_scope, select_rows
from gpusteward.analyzer.reports.report import Range, Unused
from gpusteward.analyzer.reports.report_query import ReportScope
from gpusteward.analyzer.tables import NodeModel


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


def read_unallocated(
    connection: Connection, period: Period, scope: ReportScope, prices: PriceList
) -> dict[NodeModel, Unallocated]:
    """Only nodes and models whose number of GPUs was known. No namespace holds this time, so no discount applies."""
    unallocated = Counter[NodeModel]()
    for selection in select_fleet_rows(period, scope):
        table = selection.table
        keys = (table.c.node, table.c.model, table.c.cluster)
        sums = (func.sum(table.c.gpu_ms).label("gpu_ms"), func.sum(table.c.held_ms).label("held_ms"))
        for row in connection.execute(select(*keys, *sums).where(selection.condition).group_by(*keys)):
            unallocated[NodeModel(row.node, row.model, row.cluster)] += int(row.gpu_ms) - int(row.held_ms)
    found: dict[NodeModel, Unallocated] = {}
    for key, gpu_ms in unallocated.items():
        free_ms, price = max(0, gpu_ms), prices.list_micros_per_gpu_hour(key.model)
        found[key] = Unallocated(free_ms, cost_of(free_ms, price) if price else None)
    return found


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
        longest = select(func.max(table.c.known_ms)).where(selection.condition)
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
    unallocated = _read_unallocated_hour(connection, hour_ms, scope) if scope.has_fleet else None
    if held is None and unallocated is None:
        return None
    # The nodes of some allocations may not be in the fleet: all GPUs are those that are held and those that are not.
    gpus = round((int(held or 0) + (unallocated or 0.0)) / HOUR_MS)
    idle_gpus = min(gpus, round(int(idle or 0) / HOUR_MS))
    unallocated_gpus = None if unallocated is None else min(gpus - idle_gpus, round(unallocated / HOUR_MS))
    return Unused(hour_ms, gpus, idle_gpus, unallocated_gpus)


def _read_hour(connection: Connection, hour_ms: int, scope: ReportScope) -> tuple[int | None, int | None]:
    """Allocated and idle GPU-milliseconds; None without rows."""
    usage = usage_hourly.c
    joined = usage_hourly.join(allocations, allocations.c.id == usage.allocation_id)
    sums = select(func.sum(usage.allocated_ms), func.sum(usage.idle_ms)).select_from(joined)
    held, idle = connection.execute(only_scope(sums.where(usage.hour_ms == hour_ms), scope)).one()
    return held, idle


def _read_unallocated_hour(connection: Connection, hour_ms: int, scope: ReportScope) -> float | None:
    """GPU-milliseconds. What was known for a part of the hour is extrapolated to the whole hour."""
    fleet = fleet_hourly.c
    query = select(fleet.gpu_ms, fleet.held_ms, fleet.known_ms).where(fleet.known_ms > 0)
    rows = connection.execute(query.where(fleet.hour_ms == hour_ms, _in_clusters(fleet_hourly, scope))).all()
    if not rows:
        return None
    return max(0.0, float(sum((row.gpu_ms - row.held_ms) * HOUR_MS / row.known_ms for row in rows)))
