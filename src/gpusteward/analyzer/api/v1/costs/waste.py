"""What idle GPUs cost in total, by day, by namespace and team; which workloads cost the most."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np

from gpusteward.analyzer.api.http.responses import format_utc, format_utc_ms
from gpusteward.analyzer.api.v1.costs.overview_response import (
    POTENTIAL_WORKLOADS,
    DayHours,
    IdleWorkload,
    Potential,
    Waste,
    WasteGroup,
)
from gpusteward.analyzer.api.v1.workloads.period_costs import PeriodCosts, count_gpu_hours
from gpusteward.analyzer.api.v1.workloads.snoozes import ActiveSnoozes
from gpusteward.analyzer.api.v1.workloads.workload_columns import WorkloadFacts
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.reports.report import Amounts, Group, Point
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import SIGNATURES, Column
from gpusteward.core.api_rows import MOST_NAMES
from gpusteward.core.containers import WorkloadKey

TOP_GROUPS = 20


def make_waste(costs: PeriodCosts | None, days: int, *, cost_per_hour: int | None) -> Waste:
    if costs is None:
        return Waste(days, None, None, None, None, None, None, None, None, cost_per_hour)
    report, trend, total = costs.report, costs.report.trend, costs.report.total
    change = None
    if trend is not None:
        change = trend.idle_change_ratio if trend.idle_cost_change_ratio is None else trend.idle_cost_change_ratio
    return Waste(
        days=days,
        since=format_utc_ms(report.range.first_ms),
        until=format_utc_ms(report.range.last_ms),
        idle_gpu_hours=count_gpu_hours(total.idle_gpu_ms),
        allocated_gpu_hours=count_gpu_hours(total.allocated_gpu_ms),
        idle_cost_micros=total.idle_cost_micros,
        previous_idle_gpu_hours=count_gpu_hours(trend.idle_gpu_ms) if trend else None,
        previous_idle_cost_micros=trend.idle_cost_micros if trend else None,
        change_ratio=change,
        cost_micros_per_hour=cost_per_hour,
    )


def sum_namespaces(groups: Sequence[Group]) -> list[WasteGroup]:
    return _sum_groups(((one.namespace, one.cluster), one) for one in groups)


def sum_teams(groups: Sequence[Group], teams: Mapping[str, str]) -> list[WasteGroup]:
    # The ledger's library is loaded with the first report.
    from gpusteward.analyzer.reports.ledger_sums.grouping import find_team

    return _sum_groups(((find_team(teams, one.namespace), ""), one) for one in groups)


def _sum_groups(named: Iterable[tuple[tuple[str, str], Group]]) -> list[WasteGroup]:
    members = defaultdict[tuple[str, str], list[Group]](list)
    for key, group in named:
        members[key].append(group)
    made = [_sum_group(key, those) for key, those in members.items()]
    made.sort(key=lambda one: (-(one.idle_cost_micros or 0), -one.idle_gpu_hours, one.name))
    return made[:TOP_GROUPS]


def _sum_group(key: tuple[str, str], groups: Sequence[Group]) -> WasteGroup:
    costs = [each.amounts.idle_cost_micros for each in groups if each.amounts.idle_cost_micros is not None]
    return WasteGroup(
        name=key[0],
        cluster=key[1],
        allocated_gpu_hours=count_gpu_hours(sum(each.amounts.allocated_gpu_ms for each in groups)),
        idle_gpu_hours=count_gpu_hours(sum(each.amounts.idle_gpu_ms for each in groups)),
        idle_cost_micros=sum(costs) if costs else None,
    )


def make_day(point: Point) -> DayHours:
    parts = (point.active_gpu_ms, point.idle_gpu_ms, point.unknown_gpu_ms)
    active, idle, unknown = map(count_gpu_hours, parts)
    return DayHours(
        day=datetime.fromtimestamp(point.at_ms / 1000, UTC).date().isoformat(),
        allocated=count_gpu_hours(sum(parts)),
        active=active,
        idle=idle,
        unknown=unknown,
        unallocated=None if point.unallocated_gpu_ms is None else count_gpu_hours(point.unallocated_gpu_ms),
        idle_cost_micros=point.idle_cost_micros,
        partial=point.is_partial,
    )


TOP_WORKLOADS = 10


def find_potential(result: Result, facts: WorkloadFacts, idle: Sequence[int]) -> Potential:
    """Of workloads that are idle as a whole: others use a part of what they hold."""
    table = result.workloads
    whole = [number for number in idle if not np.isnan(table.idle_since[number])]
    costs = np.nan_to_num(facts.cost_per_hour)
    dearest = sorted(whole, key=lambda number: (-costs[number], -table.gpus[number]))[:POTENTIAL_WORKLOADS]
    return Potential(
        workloads=len(dearest),
        gpus=round(float(table.gpus[dearest].sum()), GPU_DIGITS),
        cost_micros_per_hour=sum_known(facts.cost_per_hour[dearest]),
    )


def list_top(
    result: Result,
    facts: WorkloadFacts,
    idle: Sequence[int],
    costs: Mapping[WorkloadKey, Amounts],
    snoozes: ActiveSnoozes,
) -> list[IdleWorkload]:
    """By the cost of the period, else of the current idle time; without prices by idle GPU-hours; without the ledger by
    idle GPUs, then the longest idle."""
    table, spell = result.workloads, np.nan_to_num(facts.idle_cost)
    since = np.nan_to_num(table.idle_since, nan=np.inf)

    def order(number: int) -> tuple[float, float, float, float]:
        found = costs.get(table.keys[number])
        cost = found.idle_cost_micros if found and found.idle_cost_micros is not None else float(spell[number])
        idle_ms = found.idle_gpu_ms if found else 0
        return -cost, -idle_ms, -float(table.idle_gpus[number]), float(since[number])

    return [
        _make_row(result, facts, number, costs.get(table.keys[number]), snoozes)
        for number in sorted(idle, key=order)[:TOP_WORKLOADS]
    ]


def _make_row(
    result: Result, facts: WorkloadFacts, number: int, amount: Amounts | None, snoozes: ActiveSnoozes
) -> IdleWorkload:
    table = result.workloads
    key, spell = table.keys[number], facts.idle_cost[number]
    (names,) = facts.list_names([number])
    return IdleWorkload(
        cluster=key.cluster,
        kind=key.kind,
        namespace=key.namespace,
        name=key.name,
        users=names.users[:MOST_NAMES],
        models=names.models[:MOST_NAMES],
        gpus=round(float(table.gpus[number]), GPU_DIGITS),
        idle_gpus=round(float(table.idle_gpus[number]), GPU_DIGITS),
        signature=SIGNATURES[table.signature[number]].value,
        idle_since=format_utc(float(table.idle_since[number])),
        idle_gpu_hours=count_gpu_hours(amount.idle_gpu_ms) if amount else None,
        idle_cost_micros=amount.idle_cost_micros if amount else None,
        spell_cost_micros=None if np.isnan(spell) else round(float(spell)),
        snoozed_until=format_utc(snoozes.find_end(key)),
    )


def sum_known(column: Column) -> int | None:
    known = column[~np.isnan(column)]
    return round(float(known.sum())) if len(known) else None
