"""The rows of a report: groups with the highest idle cost first, the remaining ones in one row. They add up to the
total."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import RowMapping

from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.ledger_sums.amounts import (
    NO_SUMS,
    NO_UNALLOCATED,
    Sums,
    Unallocated,
    make_amounts,
    read_sums,
    round_electricity,
    subtract,
)
from gpusteward.analyzer.reports.ledger_sums.grouping import Grouping, GroupKey
from gpusteward.analyzer.reports.ledger_sums.period_totals import PeriodTotals
from gpusteward.analyzer.reports.ledger_sums.unallocated import sum_unallocated
from gpusteward.analyzer.reports.previous_period import PreviousPeriod
from gpusteward.analyzer.reports.report import Group
from gpusteward.analyzer.reports.report_query import ReportQuery
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
    names = grouping.name_parts(found.key)
    is_workload = "owner_name" in names
    return Group(
        name=names["owner_name"] if is_workload else found.key[0],
        kind=names.get("owner_kind", ""),
        namespace=names["namespace"] if is_workload else "",
        cluster=names.get("cluster", ""),
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
