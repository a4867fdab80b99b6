"""The rows of a report: groups with the highest idle cost first, the remaining ones in one row; of a report by day
(UTC), one row per day in order of time. They add up to the total."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import Connection, RowMapping, Select, func, literal, select, union_all

from gpusteward.analyzer.ledger.database.periods import DAY_MS, Period, floor_day
from gpusteward.analyzer.ledger.database.schema import allocations, time_column
from gpusteward.analyzer.prices import PriceList, PriceSettings
from gpusteward.analyzer.reports.ledger_sums.amounts import (
    MONEY,
    NO_SUMS,
    NO_UNALLOCATED,
    SUMMED,
    UNPRICED,
    Sums,
    Unallocated,
    add,
    make_amounts,
    read_sums,
    round_electricity,
    subtract,
)
from gpusteward.analyzer.reports.ledger_sums.grouping import Grouping, GroupKey
from gpusteward.analyzer.reports.ledger_sums.ledger_extent import is_partial, split_days
from gpusteward.analyzer.reports.ledger_sums.period_totals import (
    PeriodTotals,
    RowSelection,
    only_scope,
    select_usage_rows,
    to_integer,
    unpriced_time,
)
from gpusteward.analyzer.reports.ledger_sums.unallocated import read_unallocated, sum_unallocated
from gpusteward.analyzer.reports.previous_period import PreviousPeriod
from gpusteward.analyzer.reports.render import quantities
from gpusteward.analyzer.reports.report import Group, Range
from gpusteward.analyzer.reports.report_query import ReportQuery, ReportScope
from gpusteward.analyzer.tables import NodeModel


class GroupSums(NamedTuple):
    """One row before it is made."""

    key: GroupKey
    sums: Sums
    unallocated: Unallocated = NO_UNALLOCATED


def read_groups(
    totals: PeriodTotals,
    query: ReportQuery,
    grouping: Grouping,
    *,
    total: Sums,
    unallocated: Mapping[NodeModel, Unallocated],
    prices: PriceSettings,
    previous: PreviousPeriod | None,
) -> tuple[list[Group], Group | None]:
    """The groups, and the remaining ones as one group."""
    unheld = _group_unallocated(grouping, unallocated)
    rows = totals.read_groups(grouping.columns, limit=None if grouping.needs_all_rows else query.rows)
    sums = grouping.sum_groups([(_key_of(row, grouping), read_sums(row)) for row in rows])
    found = [GroupSums(key, each, unheld.get(key, NO_UNALLOCATED)) for key, each in sums]
    missing = sorted(unheld.keys() - {each.key for each in found})  # nothing was allocated there
    found += [GroupSums(key, NO_SUMS, unheld[key]) for key in missing]
    count = len(found) if grouping.needs_all_rows else totals.count_groups(grouping.columns)
    shown, cut = found[: query.rows], found[query.rows :]
    groups = [_make_group(each, grouping, prices=prices, previous=previous) for each in shown]
    rest = subtract(total, [each.sums for each in shown])
    others = make_others(rest, cut, count=count - len(shown), prices=prices)
    return round_rows(groups, others, prices)


def _key_of(row: RowMapping, grouping: Grouping) -> GroupKey:
    return tuple(row[column.name] for column in grouping.columns)


def _group_unallocated(grouping: Grouping, unallocated: Mapping[NodeModel, Unallocated]) -> dict[GroupKey, Unallocated]:
    found: dict[GroupKey, Unallocated] = {}
    if grouping.has_unallocated:
        for node_model, part in unallocated.items():
            key = tuple(getattr(node_model, column.name) for column in grouping.columns)
            found[key] = sum_unallocated([found.get(key, NO_UNALLOCATED), part])
    return found


def _make_group(
    found: GroupSums, grouping: Grouping, *, prices: PriceSettings, previous: PreviousPeriod | None
) -> Group:
    return Group(
        **grouping.name_group(found.key),
        amounts=make_amounts(found.sums, prices=prices, unallocated=found.unallocated),
        idle_change_ratio=previous.compare_group(found.key, found.sums["idle_ms"]) if previous else None,
    )


def make_others(rest: Sums, cut: Sequence[GroupSums], *, count: int, prices: PriceSettings) -> Group | None:
    """The groups that are not shown as one; `cut`: those with unallocated time."""
    if count <= 0:
        return None
    amounts = make_amounts(rest, prices=prices, unallocated=sum_unallocated(each.unallocated for each in cut))
    return Group(name=str(count), kind="others", namespace="", amounts=amounts, idle_change_ratio=None)


def round_rows(groups: list[Group], others: Group | None, prices: PriceSettings) -> tuple[list[Group], Group | None]:
    """With amounts of electricity that add up to the total."""
    rows = [*groups, others] if others else groups
    rounded = round_electricity([row.amounts for row in rows], prices)
    made = [replace(row, amounts=amounts) for row, amounts in zip(rows, rounded, strict=True)]
    return (made[:-1], made[-1]) if others else (made, None)


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
        unallocated = sum_unallocated(read_unallocated(connection, each, query.scope, listed).values())
        day_ms = floor_day(each.since_ms)
        if day_ms in usage or unallocated.gpu_ms is not None:
            found.append(GroupSums((str(day_ms),), usage.get(day_ms, NO_SUMS), unallocated))
    cut, shown = found[: -query.rows], found[-query.rows :]
    groups = [_make_day(each, covered, prices) for each in shown]
    others = make_others(add([each.sums for each in cut]), cut, count=len(cut), prices=prices)
    return round_rows(groups, others, prices)


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
        literal(0).label(name) if name in MONEY and not has_costs else table.c[name].label(name) for name in SUMMED
    ]
    unpriced = unpriced_time(table) if has_costs else table.c.allocated_ms
    day = (time - time % DAY_MS).label("day_ms")
    joined = table.join(allocations, allocations.c.id == table.c.allocation_id)
    query = select(day, table.c.allocation_id, *amounts, unpriced.label(UNPRICED)).select_from(joined)
    return only_scope(query.where(selection.condition), scope)
