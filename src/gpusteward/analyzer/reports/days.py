"""A report by day (UTC): one row per day in order of time, instead of one per group of allocations."""

from typing import Any

from sqlalchemy import Connection, Select, func, literal, select, union_all

from gpusteward.analyzer.ledger.periods import DAY_MS, Period, floor_day
from gpusteward.analyzer.ledger.schema import allocations, time_column
from gpusteward.analyzer.prices import PriceList, PriceSettings
from gpusteward.analyzer.reports.groups import GroupSums, make_others, round_rows
from gpusteward.analyzer.reports.ledger_sums.amounts import (
    COSTS,
    NO_SUMS,
    SUMMED,
    UNPRICED,
    Sums,
    Unallocated,
    add,
    make_amounts,
    read_sums,
)
from gpusteward.analyzer.reports.ledger_sums.ledger_extent import is_partial, split_days
from gpusteward.analyzer.reports.ledger_sums.period_totals import (
    RowSelection,
    only_scope,
    select_usage_rows,
    to_integer,
    unpriced_time,
)
from gpusteward.analyzer.reports.ledger_sums.unallocated import price_unallocated, read_unallocated, sum_unallocated
from gpusteward.analyzer.reports.render import quantities
from gpusteward.analyzer.reports.report import Group, Range
from gpusteward.analyzer.reports.report_query import ReportQuery, ReportScope


def read_days(
    connection: Connection,
    query: ReportQuery,
    period: Period,
    *,
    covered: Range,
    prices: PriceSettings,
    has_costs: bool,
) -> tuple[list[Group], Group | None]:
    """The last days of the period, and the earlier ones as one group."""
    usage = _read_usage(connection, period, query.scope, has_costs=has_costs)
    listed = PriceList(prices if has_costs else PriceSettings())
    found: list[GroupSums] = []
    for each in split_days(period):
        unallocated = _read_unallocated(connection, each, query.scope, listed)
        day_ms = floor_day(each.since_ms)
        if day_ms in usage or unallocated.gpu_ms is not None:
            found.append(GroupSums((str(day_ms),), usage.get(day_ms, NO_SUMS), unallocated))
    cut, shown = found[: -query.rows], found[-query.rows :]
    groups = [_make_day(each, covered, prices) for each in shown]
    others = make_others(add([each.sums for each in cut]), cut, count=len(cut), prices=prices)
    return round_rows(groups, others, prices)


def _read_unallocated(connection: Connection, period: Period, scope: ReportScope, prices: PriceList) -> Unallocated:
    return sum_unallocated(price_unallocated(read_unallocated(connection, period, scope), prices).values())


def _make_day(found: GroupSums, covered: Range, prices: PriceSettings) -> Group:
    day_ms = int(found.key[0])
    return Group(
        name=quantities.date(day_ms),
        kind="",
        namespace="",
        amounts=make_amounts(found.sums, prices=prices, unallocated=found.unallocated),
        idle_change_ratio=None,
        is_partial=is_partial(day_ms, day_ms + DAY_MS, first_ms=covered.first_ms, last_ms=covered.last_ms),
    )


def _read_usage(connection: Connection, period: Period, scope: ReportScope, *, has_costs: bool) -> dict[int, Sums]:
    parts = [_select_rows(selection, scope, has_costs=has_costs) for selection in select_usage_rows(period)]
    if not parts:
        return {}
    rows = union_all(*parts).subquery()
    sums = [to_integer(func.sum(rows.c[name])).label(name) for name in (*SUMMED, UNPRICED)]
    count = func.count(rows.c.allocation_id.distinct()).label("allocations")
    query = select(rows.c.day_ms, *sums, count).group_by(rows.c.day_ms)
    return {int(row["day_ms"]): read_sums(row) for row in connection.execute(query).mappings()}


def _select_rows(selection: RowSelection, scope: ReportScope, *, has_costs: bool) -> Select[*tuple[Any, ...]]:
    table, time = selection.table, time_column(selection.table)
    amounts = [
        literal(0).label(name) if name in COSTS and not has_costs else table.c[name].label(name) for name in SUMMED
    ]
    unpriced = unpriced_time(table) if has_costs else table.c.allocated_ms
    day = (time - time % DAY_MS).label("day_ms")
    joined = table.join(allocations, allocations.c.id == table.c.allocation_id)
    query = select(day, table.c.allocation_id, *amounts, unpriced.label(UNPRICED)).select_from(joined)
    return only_scope(query.where(selection.condition), scope)
