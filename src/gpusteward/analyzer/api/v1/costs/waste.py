"""The parts of the overview: the cost of idle GPUs in total, by day, by namespace and team, and of single workloads."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal, get_args

import numpy as np
from pydantic import Field

from gpusteward.analyzer.api.http.responses import format_utc, format_utc_ms
from gpusteward.analyzer.api.v1.workloads.period_costs import PeriodCosts, count_gpu_hours
from gpusteward.analyzer.api.v1.workloads.snoozes import ActiveSnoozes
from gpusteward.analyzer.api.v1.workloads.workload_columns import WorkloadFacts
from gpusteward.analyzer.data_health import Status
from gpusteward.analyzer.judge.allocation_columns import Mask
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.reports.report import Amounts, Group, Point
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES, Column
from gpusteward.core.api_rows import MOST_NAMES, ClusterName, ResultStamp, SignatureName
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Activity

CHART_DAYS = 14
POTENTIAL_WORKLOADS = 8
Level = Literal["critical", "warning", "info"]
FunnelStepName = Literal["total", "allocated", "active", "effective"]

Hours = Annotated[float | None, Field(description="GPU-hours; null: not recorded.")]
Micros = Annotated[int | None, Field(description="Millionths of `currency`; null: unknown.")]


@dataclass(frozen=True, slots=True)
class GpuNumbers:
    """GPUs now; a share of a GPU is a fraction."""

    total: Annotated[float | None, Field(description="null: the source does not count GPUs that nobody holds.")]
    allocated: float
    active: float
    idle: float
    unknown: float
    free: Annotated[float | None, Field(description="Free GPUs, and free parts of shared ones.")]
    effective: Annotated[float, Field(description="Active ones without ineffective ones: an upper bound, not MFU.")]
    ineffective: Annotated[float, Field(description="Of the active ones: their work is shown to be of no use.")]
    suspicious: Annotated[float, Field(description="Of the active ones: those of suspicious workloads.")]


@dataclass(frozen=True, slots=True)
class Waste:
    """Idle GPU-hours and their cost in a period, and in the period of the same length before."""

    days: int
    since: Annotated[str | None, Field(description="The recorded part of the period; null: nothing is recorded.")]
    until: str | None
    idle_gpu_hours: Hours
    allocated_gpu_hours: Hours
    idle_cost_micros: Micros
    previous_idle_gpu_hours: Hours
    previous_idle_cost_micros: Micros
    change_ratio: Annotated[
        float | None,
        Field(description="Relative change of the cost per hour, of GPU-hours without costs; null: no period before."),
    ]
    cost_micros_per_hour: Annotated[int | None, Field(description="Of all GPUs that are idle now.")]


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """What is left of all GPUs at one step: now, and in the period."""

    step: Annotated[
        FunnelStepName, Field(description="Each is a part of the one before. Effective is an upper bound, not MFU.")
    ]
    gpus: Annotated[float | None, Field(description="Now; null: the source does not count GPUs that nobody holds.")]
    gpu_hours: Hours
    cost_micros: Annotated[int | None, Field(description="Of these GPU-hours; null: unknown.")]


@dataclass(frozen=True, slots=True)
class Potential:
    """What would be free if the idle workloads that cost the most per hour gave their GPUs back."""

    workloads: Annotated[int, Field(description=f"At most {POTENTIAL_WORKLOADS}.")]
    gpus: float
    cost_micros_per_hour: Micros


@dataclass(frozen=True, slots=True)
class BusyWorkloads:
    """Workloads with something in common that work, or look as if they did; only what is active of them."""

    workloads: int
    gpus: float
    cost_micros_per_hour: Micros


@dataclass(frozen=True, slots=True)
class DayHours:
    """GPU-hours of one day (UTC)."""

    day: str
    allocated: float
    active: float
    idle: float
    unknown: float
    ineffective: Annotated[float, Field(description="Of the active ones: their work is shown to be of no use.")]
    unallocated: Hours
    idle_cost_micros: Micros
    partial: Annotated[bool, Field(description="Whether only a part of the day is recorded.")]


@dataclass(frozen=True, slots=True)
class IdleWorkload:
    """A workload with idle GPUs."""

    cluster: ClusterName
    kind: str
    namespace: str
    name: str
    users: list[str]
    models: list[str]
    gpus: float
    idle_gpus: float
    signature: SignatureName
    idle_since: Annotated[str | None, Field(description="null: only some of its GPUs are idle.")]
    idle_gpu_hours: Annotated[float | None, Field(description="In the period.")]
    idle_cost_micros: Annotated[int | None, Field(description="In the period.")]
    spell_cost_micros: Annotated[int | None, Field(description="Since its GPUs are idle.")]
    snoozed_until: Annotated[str | None, Field(description="No notices about it are sent until then; null: it is not.")]


@dataclass(frozen=True, slots=True)
class WasteGroup:
    """A namespace or a team in the period."""

    name: Annotated[str, Field(description="Empty: no team.")]
    cluster: Annotated[str, Field(description="Of a namespace.")]
    allocated_gpu_hours: float
    idle_gpu_hours: float
    idle_cost_micros: Micros


@dataclass(frozen=True, slots=True)
class DataProblem:
    """One thing that is missing or wrong."""

    level: Annotated[Level, Field(description="critical: what is shown is old or unknown; info: it may be intended.")]
    code: Annotated[str, Field(description="A word for programs.")]
    text: Annotated[str, Field(description="In the language of the request.")]


@dataclass(frozen=True, slots=True)
class DataState:
    """Whether the data can be relied on."""

    status: Status
    problems: Annotated[list[DataProblem], Field(description="The worst first; empty: everything is there.")]


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of all GPUs that the caller may see."""

    clusters: Annotated[list[str], Field(description="All that can be chosen.")]
    currency: str
    gpus: GpuNumbers
    workloads: int
    idle_workloads: Annotated[int, Field(description="Those with idle GPUs.")]
    funnel: Annotated[list[FunnelStep], Field(description="From all GPUs to those with effective work.")]
    waste: Waste
    potential: Potential
    suspicious: Annotated[BusyWorkloads, Field(description="They look busy but are not.")]
    starved: Annotated[BusyWorkloads, Field(description="They work, and wait for data most of the time.")]
    days: Annotated[list[DayHours], Field(description=f"The last {CHART_DAYS} days, without days that have no data.")]
    top: Annotated[list[IdleWorkload], Field(description="The workloads whose idle GPUs cost the most.")]
    namespaces: Annotated[list[WasteGroup], Field(description="Those that waste the most.")]
    teams: Annotated[list[WasteGroup], Field(description="The same by team; empty without `reports.teams`.")]
    data: DataState
    result: ResultStamp


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


def make_funnel(gpus: GpuNumbers, costs: PeriodCosts | None) -> list[FunnelStep]:
    now = {"total": gpus.total, "allocated": gpus.allocated, "active": gpus.active, "effective": gpus.effective}
    times: dict[str, int | None] = {}
    money: dict[str, int | None] = {}
    if costs is not None:
        total = costs.report.total
        parts = (total.cost_micros, total.unallocated_cost_micros)
        times = {
            "allocated": total.allocated_gpu_ms,
            "active": total.active_gpu_ms,
            "effective": total.effective_gpu_ms,
        }
        if total.unallocated_gpu_ms is not None:
            times["total"] = total.allocated_gpu_ms + total.unallocated_gpu_ms
        money = {
            "total": None if None in parts else sum(part or 0 for part in parts),
            "allocated": total.cost_micros,
            "active": total.active_cost_micros,
            "effective": total.effective_cost_micros,
        }
    made = []
    for step in get_args(FunnelStepName):
        gpu_ms = times.get(step)
        hours = None if gpu_ms is None else count_gpu_hours(gpu_ms)
        made.append(FunnelStep(step, now[step], hours, money.get(step)))
    return made


def sum_groups(groups: Sequence[Group], teams: Mapping[str, str] | None = None) -> list[WasteGroup]:
    """By namespace, or by team."""
    # The ledger's library is loaded with the first report.
    from gpusteward.analyzer.reports.ledger_sums.grouping import find_team

    members = defaultdict[tuple[str, str], list[Group]](list)
    for one in groups:
        key = (one.namespace, one.cluster) if teams is None else (find_team(teams, one.namespace), "")
        members[key].append(one)
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
        ineffective=count_gpu_hours(point.ineffective_gpu_ms),
        unallocated=None if point.unallocated_gpu_ms is None else count_gpu_hours(point.unallocated_gpu_ms),
        idle_cost_micros=point.idle_cost_micros,
        partial=point.is_partial,
    )


def sum_busy(result: Result, chosen: Mask, cluster: str | None) -> BusyWorkloads:
    """`chosen`: which workloads."""
    table = result.workloads
    own = np.array([cluster in (None, key.cluster) for key in table.keys], dtype=bool) & chosen
    rows = own[table.codes] & (result.verdicts.activity == ACTIVITIES.index(Activity.ACTIVE))
    return BusyWorkloads(
        workloads=int(np.count_nonzero(own)),
        gpus=round(float(table.fractions[rows].sum()), GPU_DIGITS),
        cost_micros_per_hour=sum_known(result.cost_micros_per_hour[rows]),
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
