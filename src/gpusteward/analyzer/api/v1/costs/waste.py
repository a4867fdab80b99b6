"""GPU-hours and costs of a period from its report: in total, by day, by namespace and team."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from gpusteward.analyzer.api.http.responses import format_utc_ms
from gpusteward.analyzer.api.v1.costs.overview_response import DayHours, Waste, WasteGroup
from gpusteward.analyzer.api.v1.workloads.period_costs import PeriodCosts, count_gpu_hours
from gpusteward.analyzer.reports.report import Group, Point

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
