"""The rows of a report: groups with the highest idle cost first, the remaining ones in one row. They add up to the
total."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import RowMapping

from gpusteward.analyzer.ledger.cycle_record import NodeModel
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.amounts import NO_SUMS, Sums, make_amounts, read_sums, round_electricity, subtract
from gpusteward.analyzer.reports.period_totals import GROUP_COLUMNS, PeriodTotals
from gpusteward.analyzer.reports.previous_period import PreviousPeriod
from gpusteward.analyzer.reports.report import By, Group, ReportQuery

GroupKey = tuple[str, ...]
"""The values of `GROUP_COLUMNS`."""
_WITH_UNALLOCATED: tuple[By, ...] = ("node", "model")


class _GroupSums(NamedTuple):
    key: GroupKey
    sums: Sums


def read_groups(
    totals: PeriodTotals,
    query: ReportQuery,
    *,
    total: Sums,
    unallocated: Mapping[NodeModel, int],
    prices: PriceSettings,
    previous: PreviousPeriod | None,
) -> tuple[list[Group], Group | None]:
    """The groups, and the remaining ones as one group."""
    unallocated_ms = _sum_unallocated(query.by, unallocated)
    found = [_GroupSums(_key_of(row, query.by), read_sums(row)) for row in _read_rows(totals, query)]
    missing = sorted(unallocated_ms.keys() - {each.key for each in found})  # nothing was allocated there
    found += [_GroupSums(key, NO_SUMS) for key in missing]
    count = len(found) if query.by in _WITH_UNALLOCATED else totals.count_groups(query.by)
    shown, cut = found[: query.rows], found[query.rows :]
    groups = [_make_group(each, unallocated_ms.get(each.key), prices=prices, previous=previous) for each in shown]
    rest = subtract(total, [each.sums for each in shown])
    others = _sum_others(rest, cut, unallocated_ms, count=count - len(shown), prices=prices)
    return _round_electricity(groups, others, prices)


def _read_rows(totals: PeriodTotals, query: ReportQuery) -> Sequence[RowMapping]:
    """All nodes and models, which are few; of other groups only those that are shown."""
    return totals.read_groups(query.by, limit=None if query.by in _WITH_UNALLOCATED else query.rows)


def _key_of(row: RowMapping, by: By) -> GroupKey:
    return tuple(row[name] for name in GROUP_COLUMNS[by])


def _sum_unallocated(by: By, unallocated: Mapping[NodeModel, int]) -> dict[GroupKey, int]:
    """By node or by model; other groups have no unallocated time."""
    found: dict[GroupKey, int] = {}
    if by in _WITH_UNALLOCATED:
        for node_model, gpu_ms in unallocated.items():
            key = (node_model.node if by == "node" else node_model.model,)
            found[key] = found.get(key, 0) + gpu_ms
    return found


def _make_group(
    found: _GroupSums, unallocated_ms: int | None, *, prices: PriceSettings, previous: PreviousPeriod | None
) -> Group:
    kind, namespace, name = found.key if len(found.key) == 3 else ("", "", found.key[0])
    return Group(
        name=name,
        kind=kind,
        namespace=namespace,
        amounts=make_amounts(found.sums, prices=prices, unallocated_ms=unallocated_ms),
        idle_change_ratio=previous.compare_group(found.key, found.sums["idle_ms"]) if previous else None,
    )


def _sum_others(
    rest: Sums,
    cut: Sequence[_GroupSums],
    unallocated_ms: Mapping[GroupKey, int],
    *,
    count: int,
    prices: PriceSettings,
) -> Group | None:
    if count <= 0:
        return None
    known = [unallocated_ms[each.key] for each in cut if each.key in unallocated_ms]
    amounts = make_amounts(rest, prices=prices, unallocated_ms=sum(known) if known else None)
    return Group(name=str(count), kind="others", namespace="", amounts=amounts, idle_change_ratio=None)


def _round_electricity(
    groups: list[Group], others: Group | None, prices: PriceSettings
) -> tuple[list[Group], Group | None]:
    rows = [*groups, others] if others else groups
    rounded = round_electricity([row.amounts for row in rows], prices)
    made = [replace(row, amounts=amounts) for row, amounts in zip(rows, rounded, strict=True)]
    return (made[:-1], made[-1]) if others else (made, None)
