"""The bars of the chart: time by day, or by hour where the period is short."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, RowMapping, Select, Table, func, select, union_all

from gpusteward.analyzer.ledger.periods import DAY_MS, HOUR_MS, Period
from gpusteward.analyzer.ledger.schema import allocations
from gpusteward.analyzer.reports.ledger_extent import Books
from gpusteward.analyzer.reports.period_totals import Rows, choose_rows, whole, within
from gpusteward.analyzer.reports.report import Point
from gpusteward.analyzer.reports.unallocated import choose_fleet, read_fleet_steps

FINEST_STEPS = 48  # hours that are still drawn one by one
_NAMES = ("allocated_ms", "active_ms", "idle_ms", "unknown_ms", "idle_cost")


def read_points(
    connection: Connection, period: Period, *, books: Books, namespaces: Sequence[str], has_money: bool
) -> tuple[int, list[Point]]:
    """The step, and the points in order. A step without any row has no point."""
    is_short = period.until_ms - period.since_ms <= FINEST_STEPS * HOUR_MS and books.keeps_hours(period)
    step_ms = HOUR_MS if is_short else DAY_MS
    if is_short:  # single hours also of whole days
        period = Period(period.since_ms, period.until_ms, (0, 0), ((period.since_ms, period.until_ms),))
    usage = {row["at_ms"]: row for row in _read_usage(connection, choose_rows(period), step_ms, namespaces)}
    fleet = {} if namespaces else read_fleet_steps(connection, choose_fleet(period), step_ms=step_ms)
    points = [_point(at, usage.get(at), fleet.get(at)) for at in sorted(usage.keys() | fleet.keys())]
    return step_ms, points if has_money else [replace(point, idle_cost_micros=None) for point in points]


def _point(at_ms: int, row: RowMapping | None, fleet: tuple[int, int | None] | None) -> Point:
    allocated, active, idle, unknown, idle_cost = (int(row[name] or 0) if row else 0 for name in _NAMES)
    there, held = fleet or (0, None)
    unallocated = None if fleet is None else max(0, there - (allocated if held is None else held))
    return Point(at_ms, active, idle, unknown, unallocated, idle_cost)


def _read_usage(connection: Connection, rows: Rows, step_ms: int, namespaces: Sequence[str]) -> Sequence[RowMapping]:
    parts = [_by_moment(table, chosen, namespaces) for table, chosen in rows]
    if not parts:
        return ()
    moments = union_all(*parts).subquery()
    at = (moments.c.moment - moments.c.moment % step_ms).label("at_ms")
    sums = [whole(func.sum(moments.c[name])).label(name) for name in _NAMES]
    return connection.execute(select(at, *sums).group_by(at)).mappings().all()


def _by_moment(table: Table, chosen: ColumnElement[bool], namespaces: Sequence[str]) -> Select[*tuple[Any, ...]]:
    """By each hour or day, which is the order of the rows: nothing has to be sorted."""
    moment = next(iter(table.c))
    source: FromClause = table
    if namespaces:
        source = table.join(allocations, allocations.c.id == table.c.allocation_id)
    sums = [func.sum(table.c[name]).label(name) for name in _NAMES]
    question = select(moment.label("moment"), *sums).select_from(source).where(chosen)
    return within(question, namespaces).group_by(moment)
