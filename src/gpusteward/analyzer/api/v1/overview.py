"""/api/v1/overview: where GPUs are wasted, what it costs, and who holds them: the first page of the web UI."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import ApiDependencies, Dependencies, LastResult
from gpusteward.analyzer.api.http.cached_reads import CachedRead
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.responses import format_utc
from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.api.v1.compact import SelectedCluster, send_compact
from gpusteward.analyzer.api.v1.data_problems import DataProblem, LedgerState, find_problems
from gpusteward.analyzer.api.v1.pagination import ClusterName, ResultStamp, SignatureName
from gpusteward.analyzer.api.v1.period_costs import DAY_MS, PeriodCosts, read_period_costs
from gpusteward.analyzer.api.v1.snooze_state import ActiveSnoozes, find_snoozes
from gpusteward.analyzer.api.v1.workload_facts import WorkloadFacts
from gpusteward.analyzer.data_health import Status
from gpusteward.analyzer.judge.fleet import count_fleet, sum_gpus
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.reports.report import Amounts, Group, Point, Report, ReportQuery
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import SIGNATURES, Column
from gpusteward.core.containers import WorkloadKey
from gpusteward.core.messages import Language

router = APIRouter(prefix="/api/v1", dependencies=[Depends(may_read)], tags=["overview"])

CHART_DAYS = 14
TOP_WORKLOADS = 10
TOP_GROUPS = 20
POTENTIAL_WORKLOADS = 8
PATIENCE_SECONDS = 10.0
HOUR_MS = 3_600_000

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
class Potential:
    """What would be free if the idle workloads that cost the most per hour gave their GPUs back."""

    workloads: Annotated[int, Field(description=f"At most {POTENTIAL_WORKLOADS}.")]
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
    waste: Waste
    potential: Potential
    days: Annotated[list[DayHours], Field(description=f"The last {CHART_DAYS} days, without days that have no data.")]
    top: Annotated[list[IdleWorkload], Field(description="The workloads whose idle GPUs cost the most.")]
    namespaces: Annotated[list[WasteGroup], Field(description="Those that waste the most.")]
    teams: Annotated[list[WasteGroup], Field(description="The same by team; empty without `reports.teams`.")]
    data: DataState
    result: ResultStamp


@dataclass(frozen=True, slots=True)
class _LedgerPart:
    """What was read from the ledger; None: it could not be read, for the reason of `problem`."""

    costs: CachedRead[PeriodCosts] | None = None
    chart: CachedRead[Report] | None = None
    problem: ProblemError | None = None

    @property
    def version(self) -> bytes:
        return f"{self.costs.number if self.costs else 0}.{self.chart.number if self.chart else 0} ".encode()


@router.get("/overview", summary="Overview", response_model=Overview)
async def show_overview(
    request: Request,
    published: LastResult,
    dependencies: Dependencies,
    *,
    cluster: SelectedCluster = None,
    days: Annotated[int, Query(ge=1, le=90, description="Length of the period, which ends now.")] = 7,
    language: Annotated[Language, Query(description="The language of the problems.")] = "en",
) -> Response:
    """GPUs now, idle GPU-hours and their cost in a period and the one before, what could be free, GPU-hours per day,
    the most expensive idle workloads, the namespaces and teams that waste the most, and what is wrong with the data.

    Sums of the period are from the ledger and at most a few minutes old.
    """
    ledger = await _read_ledger(dependencies, days=days, cluster=cluster)
    state = _assess(published, dependencies, ledger, days=days, language=language)
    snoozes = await find_snoozes(dependencies)

    def make(result: Result) -> Mapping[str, object]:
        return _make_overview(result, dependencies, ledger, snoozes, cluster=cluster, days=days)

    return await run_in_threadpool(
        lambda: send_compact(
            request,
            published,
            f"overview/{days}",
            cluster,
            make,
            version=ledger.version + snoozes.version,
            extra={"data": state},
        )
    )


async def _read_ledger(dependencies: ApiDependencies, *, days: int, cluster: str | None) -> _LedgerPart:
    key = ("chart", cluster, dependencies.visible)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            costs = await read_period_costs(dependencies, days=days, cluster=cluster)
            chart = await dependencies.reads.get(key, lambda: _read_chart(dependencies, cluster))
    except ProblemError as problem:
        return _LedgerPart(problem=problem)
    except TimeoutError:
        return _LedgerPart()
    return _LedgerPart(costs, chart)


def _read_chart(dependencies: ApiDependencies, cluster: str | None) -> Report:
    now_ms = time.time_ns() // 1_000_000
    since_ms = now_ms - now_ms % DAY_MS - (CHART_DAYS - 1) * DAY_MS
    clusters = () if cluster is None else (cluster,)
    return dependencies.ledger.read_report(
        ReportQuery(since_ms, now_ms, by="day", rows=CHART_DAYS + 1, top=0, clusters=clusters)
    )


def _assess(
    published: PublishedResult,
    dependencies: ApiDependencies,
    ledger: _LedgerPart,
    *,
    days: int,
    language: Language,
) -> DataState:
    reason = ledger.problem.text(language) if ledger.problem else ""
    first_ms = ledger.costs.value.report.range.first_ms if ledger.costs else None
    wanted_ms = (dependencies.clock() - days * 86_400) * 1000
    is_short = first_ms is not None and first_ms > wanted_ms + DAY_MS
    state = LedgerState(reason, first_ms / 1000 if is_short and first_ms is not None else None)
    problems = find_problems(published, dependencies, state, language)
    return DataState(dependencies.assess_data().status, problems)


def _make_overview(
    result: Result,
    dependencies: ApiDependencies,
    ledger: _LedgerPart,
    snoozes: ActiveSnoozes,
    *,
    cluster: str | None,
    days: int,
) -> Mapping[str, object]:
    """The fields of `Overview` that follow from the result and the ledger."""
    costs = ledger.costs.value if ledger.costs else None
    numbers = [number for number, key in enumerate(result.workloads.keys) if cluster in (None, key.cluster)]
    idle = [number for number in numbers if result.workloads.idle_gpus[number] > 0]
    facts = WorkloadFacts(result)
    teams = dependencies.settings.current.reports.teams
    return {
        "clusters": list(result.verdicts.usage.clusters),
        "currency": costs.report.currency if costs else facts.currency,
        "gpus": _count_gpus(result, cluster),
        "workloads": len(numbers),
        "idle_workloads": len(idle),
        "waste": _make_waste(costs, days, cost_per_hour=_sum_known(facts.idle_cost_per_hour[idle])),
        "potential": _find_potential(result, facts, idle),
        "days": [_make_day(point) for point in ledger.chart.value.points] if ledger.chart else [],
        "top": _list_top(result, facts, idle, costs.by_workload if costs else {}, snoozes),
        "namespaces": _sum_namespaces(costs.report.groups) if costs else [],
        "teams": _sum_teams(costs.report.groups, teams) if costs and teams else [],
    }


def _count_gpus(result: Result, cluster: str | None) -> GpuNumbers:
    usage, activity, fractions = result.verdicts.usage, result.verdicts.activity, result.workloads.fractions
    if cluster is not None:
        rows = np.array([row for row, one in enumerate(usage.allocations) if one.cluster == cluster], dtype=np.intp)
        fleet = {key: count for key, count in usage.fleet.items() if key.cluster == cluster}
        usage, activity, fractions = replace(usage.take(rows), fleet=fleet), activity[rows], fractions[rows]
    fleet_counts = count_fleet(usage)
    counts = sum_gpus(activity, fractions, fleet_counts)
    return GpuNumbers(
        total=fleet_counts.gpus,
        allocated=round(float(fractions.sum()), GPU_DIGITS),
        active=round(counts.active, GPU_DIGITS),
        idle=round(counts.idle, GPU_DIGITS),
        unknown=round(counts.unknown, GPU_DIGITS),
        free=None if counts.unallocated is None else round(counts.unallocated, GPU_DIGITS),
    )


def _make_waste(costs: PeriodCosts | None, days: int, *, cost_per_hour: int | None) -> Waste:
    if costs is None:
        return Waste(days, None, None, None, None, None, None, None, None, cost_per_hour)
    report, trend, total = costs.report, costs.report.trend, costs.report.total
    change = None
    if trend is not None:
        change = trend.idle_change_ratio if trend.idle_cost_change_ratio is None else trend.idle_cost_change_ratio
    return Waste(
        days=days,
        since=_format_ms(report.range.first_ms),
        until=_format_ms(report.range.last_ms),
        idle_gpu_hours=_hours(total.idle_gpu_ms),
        allocated_gpu_hours=_hours(total.allocated_gpu_ms),
        idle_cost_micros=total.idle_cost_micros,
        previous_idle_gpu_hours=_hours(trend.idle_gpu_ms) if trend else None,
        previous_idle_cost_micros=trend.idle_cost_micros if trend else None,
        change_ratio=change,
        cost_micros_per_hour=cost_per_hour,
    )


def _find_potential(result: Result, facts: WorkloadFacts, idle: Sequence[int]) -> Potential:
    """Of workloads that are idle as a whole: others use a part of what they hold."""
    table = result.workloads
    whole = [number for number in idle if not np.isnan(table.idle_since[number])]
    costs = np.nan_to_num(facts.cost_per_hour)
    dearest = sorted(whole, key=lambda number: (-costs[number], -table.gpus[number]))[:POTENTIAL_WORKLOADS]
    return Potential(
        workloads=len(dearest),
        gpus=round(float(table.gpus[dearest].sum()), GPU_DIGITS),
        cost_micros_per_hour=_sum_known(facts.cost_per_hour[dearest]),
    )


def _list_top(
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
    return IdleWorkload(
        cluster=key.cluster,
        kind=key.kind,
        namespace=key.namespace,
        name=key.name,
        users=facts.users(number).shown,
        models=facts.models(number).shown,
        gpus=round(float(table.gpus[number]), GPU_DIGITS),
        idle_gpus=round(float(table.idle_gpus[number]), GPU_DIGITS),
        signature=SIGNATURES[table.signature[number]].value,
        idle_since=format_utc(float(table.idle_since[number])),
        idle_gpu_hours=_hours(amount.idle_gpu_ms) if amount else None,
        idle_cost_micros=amount.idle_cost_micros if amount else None,
        spell_cost_micros=None if np.isnan(spell) else round(float(spell)),
        snoozed_until=format_utc(snoozes.find_end(key)),
    )


def _sum_namespaces(groups: Sequence[Group]) -> list[WasteGroup]:
    return _sum_groups(((one.namespace, one.cluster), one) for one in groups)


def _sum_teams(groups: Sequence[Group], teams: Mapping[str, str]) -> list[WasteGroup]:
    from gpusteward.analyzer.reports.grouping import find_team  # the ledger's library, loaded with the first report

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
        allocated_gpu_hours=_hours(sum(each.amounts.allocated_gpu_ms for each in groups)),
        idle_gpu_hours=_hours(sum(each.amounts.idle_gpu_ms for each in groups)),
        idle_cost_micros=sum(costs) if costs else None,
    )


def _make_day(point: Point) -> DayHours:
    parts = (point.active_gpu_ms, point.idle_gpu_ms, point.unknown_gpu_ms)
    active, idle, unknown = map(_hours, parts)
    return DayHours(
        day=datetime.fromtimestamp(point.at_ms / 1000, UTC).date().isoformat(),
        allocated=_hours(sum(parts)),
        active=active,
        idle=idle,
        unknown=unknown,
        unallocated=None if point.unallocated_gpu_ms is None else _hours(point.unallocated_gpu_ms),
        idle_cost_micros=point.idle_cost_micros,
        partial=point.is_partial,
    )


def _sum_known(column: Column) -> int | None:
    known = column[~np.isnan(column)]
    return round(float(known.sum())) if len(known) else None


def _hours(gpu_ms: int) -> float:
    return round(gpu_ms / HOUR_MS, 3)


def _format_ms(at_ms: int | None) -> str | None:
    return None if at_ms is None else format_utc(at_ms / 1000)
