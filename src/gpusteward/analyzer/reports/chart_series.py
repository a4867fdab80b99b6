"""The bars of the chart: GPU-hours per day, or per hour for a short period."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, FromClause, RowMapping, Select, func, select, union_all

from gpusteward.analyzer.ledger.database.periods import Period
from gpusteward.analyzer.ledger.database.schema import allocations, time_column
from gpusteward.analyzer.reports.ledger_sums.ledger_extent import LedgerExtent, is_partial
from gpusteward.analyzer.reports.ledger_sums.period_totals import (
    RowSelection,
    only_scope,
    select_usage_rows,
    to_integer,
)
from gpusteward.analyzer.reports.ledger_sums.unallocated import select_fleet_rows
from gpusteward.analyzer.reports.report import Point, Range
from gpusteward.analyzer.reports.report_query import ReportScope

_SUMMED = ("allocated_ms", "active_ms", "idle_ms", "unknown_ms", "idle_cost", "ineffective_ms")


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """The length of a step, and the points in order. A step without rows has no point."""

    step_ms: int
    points: Sequence[Point]


@dataclass(slots=True)
class _FleetStep:
    """The time of all GPUs in one step, and what was allocated of it."""

    gpu_ms: int = 0
    held_ms: int = 0


def read_chart(
    connection: Connection,
    period: Period,
    *,
    extent: LedgerExtent,
    covered: Range,
    scope: ReportScope,
    has_costs: bool,
) -> ChartSeries:
    step_ms, period = extent.choose_step(period)
    usage = _read_usage(connection, select_usage_rows(period), step_ms, scope)
    fleet = _read_fleet(connection, select_fleet_rows(period, scope), step_ms)
    points: list[Point] = []
    for at_ms in sorted(usage.keys() | fleet.keys()):
        row, all_gpus = usage.get(at_ms), fleet.get(at_ms)
        sums = {name: int(row[name] or 0) if row else 0 for name in _SUMMED}
        point = Point(
            at_ms=at_ms,
            active_gpu_ms=sums["active_ms"],
            idle_gpu_ms=sums["idle_ms"],
            unknown_gpu_ms=sums["unknown_ms"],
            unallocated_gpu_ms=None if all_gpus is None else max(0, all_gpus.gpu_ms - all_gpus.held_ms),
            idle_cost_micros=sums["idle_cost"] if has_costs else None,
            ineffective_gpu_ms=sums["ineffective_ms"],
            is_partial=is_partial(at_ms, at_ms + step_ms, first_ms=covered.first_ms, last_ms=covered.last_ms),
        )
        points.append(point)
    return ChartSeries(step_ms, points)


def _read_usage(
    connection: Connection, selections: Sequence[RowSelection], step_ms: int, scope: ReportScope
) -> dict[int, RowMapping]:
    parts = [_sum_by_time(selection, scope) for selection in selections]
    if not parts:
        return {}
    times = union_all(*parts).subquery()
    at = (times.c.time_ms - times.c.time_ms % step_ms).label("at_ms")
    sums = [to_integer(func.sum(times.c[name])).label(name) for name in _SUMMED]
    return {row["at_ms"]: row for row in connection.execute(select(at, *sums).group_by(at)).mappings()}


def _sum_by_time(selection: RowSelection, scope: ReportScope) -> Select[*tuple[Any, ...]]:
    """By hour or day, which is the order of the rows: nothing has to be sorted."""
    table, time = selection.table, time_column(selection.table)
    source: FromClause = table
    if scope:
        source = table.join(allocations, allocations.c.id == table.c.allocation_id)
    sums = [func.sum(table.c[name]).label(name) for name in _SUMMED]
    query = select(time.label("time_ms"), *sums).select_from(source).where(selection.condition)
    return only_scope(query, scope).group_by(time)


def _read_fleet(connection: Connection, selections: Sequence[RowSelection], step_ms: int) -> dict[int, _FleetStep]:
    steps: dict[int, _FleetStep] = {}
    for selection in selections:
        table, time = selection.table, time_column(selection.table)
        sums = (func.sum(table.c.gpu_ms).label("gpu_ms"), func.sum(table.c.held_ms).label("held_ms"))
        rows = connection.execute(select(time.label("time_ms"), *sums).where(selection.condition).group_by(time))
        for row in rows:
            at_ms = int(row.time_ms)
            step = steps.setdefault(at_ms - at_ms % step_ms, _FleetStep())
            step.gpu_ms += int(row.gpu_ms)
            step.held_ms += int(row.held_ms)
    return steps
