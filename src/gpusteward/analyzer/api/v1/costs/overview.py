"""/api/v1/overview: where GPUs are wasted, what it costs, who holds them, and what is missing or wrong in the data.

The first page of the web UI.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import ApiDependencies, Dependencies, LastResult
from gpusteward.analyzer.api.http.cached_reads import CachedRead
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.responses import DocumentedRoute
from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.api.v1.compact import SelectedCluster, send_compact
from gpusteward.analyzer.api.v1.costs.waste import (
    CHART_DAYS,
    DataProblem,
    DataState,
    GpuNumbers,
    Level,
    Overview,
    find_potential,
    list_top,
    make_day,
    make_funnel,
    make_waste,
    sum_busy,
    sum_groups,
    sum_known,
)
from gpusteward.analyzer.api.v1.gpus.gpus import view_fleet
from gpusteward.analyzer.api.v1.workloads.period_costs import DAY_MS, PeriodCosts, read_period_costs
from gpusteward.analyzer.api.v1.workloads.snoozes import ActiveSnoozes, find_snoozes
from gpusteward.analyzer.api.v1.workloads.workloads import view_workloads
from gpusteward.analyzer.data_health import MENTIONED_RATIO, find_unknown_reason
from gpusteward.analyzer.judge.fleet import count_fleet, sum_gpus
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.reports.report import Report
from gpusteward.analyzer.reports.report_query import ReportQuery
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import SIGNATURES, VERDICTS
from gpusteward.core.gpu_counts import format_gpus
from gpusteward.core.messages import Language, Message
from gpusteward.core.verdicts import Signature, VerdictName
from gpusteward.messages import data_health as messages

LEVELS: tuple[Level, ...] = ("critical", "warning", "info")
_LEVELS: Mapping[str, Level] = {"degraded": "critical", "warning": "warning", "info": "info"}


class _Problem(NamedTuple):
    level: Level
    code: str
    message: Message


def find_problems(
    published: PublishedResult,
    dependencies: ApiDependencies,
    language: Language,
    *,
    ledger_error: str,
    begins_at: float | None,
) -> list[DataProblem]:
    """Of what the client may see. `ledger_error`: why the ledger could not be read. `begins_at`: when it begins, if
    that is after the period."""
    found: list[_Problem] = []
    for one in dependencies.assess_data().findings:
        if one.code != "unknown-gpus":  # `_find_gpu_problems` explains them
            is_critical = one.level == "degraded" or one.code == "result-old"
            found.append(_Problem("critical" if is_critical else _LEVELS[one.level], one.code, one.message))
    found += _find_gpu_problems(published)
    ledger_error = ledger_error or str((dependencies.describe_ledger() or {}).get("error") or "")
    if not dependencies.settings.current.ledger.enabled:
        found.append(_Problem("info", "ledger-disabled", messages.LEDGER_DISABLED))
    elif ledger_error:
        found.append(_Problem("warning", "ledger-failed", messages.LEDGER_FAILED.fill(reason=ledger_error)))
    elif begins_at is not None:
        since = datetime.fromtimestamp(begins_at, UTC).strftime("%Y-%m-%d %H:%M")
        found.append(_Problem("info", "ledger-short", messages.LEDGER_SHORT.fill(since=since)))
    described = dependencies.describe_deliveries()
    failures = described.get("failures") or {}
    reason = described.get("fault") or "; ".join(f"{target}: {why}" for target, why in sorted(failures.items())[:3])
    if reason:
        found.append(_Problem("warning", "deliveries-failed", messages.DELIVERIES_FAILED.fill(reason=reason)))
    found.sort(key=lambda one: LEVELS.index(one.level))
    return [DataProblem(one.level, one.code, one.message.text(language)) for one in found]


def _find_gpu_problems(published: PublishedResult) -> Iterator[_Problem]:
    result = published.result
    if not len(result.verdicts):
        if not result.verdicts.usage.findings:  # these say why
            yield _Problem("info", "no-gpus", messages.NO_GPUS)
        return
    unknown = float(result.workloads.unknown_gpus.sum())
    total = float(result.workloads.fractions.sum())
    if unknown > 0:
        fields = {"gpus": format_gpus(unknown), "total": format_gpus(total), "reason": find_unknown_reason(result)}
        level: Level = "warning" if unknown > MENTIONED_RATIO * total else "info"
        yield _Problem(level, "unknown-gpus", messages.UNKNOWN_GPUS.fill(**fields))
    if view_fleet(published).gpus is None and result.visible is None:
        yield _Problem("info", "gpus-not-counted", messages.GPUS_NOT_COUNTED)
    if np.isnan(result.cost_micros_per_hour).all():
        yield _Problem("info", "no-price", messages.NO_PRICE)


router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["overview"])

PATIENCE_SECONDS = 10.0


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
    """GPUs now, idle GPU-hours and their cost in a period and the one before, what is left of all GPUs at each step
    from total to effective, what could be free, GPU-hours per day, the most expensive idle workloads, the namespaces
    and teams that waste the most, and what is wrong with the data.

    Sums of the period are from the ledger and at most a few minutes old.
    """
    ledger = await _read_ledger(dependencies, days=days, cluster=cluster)
    first_ms = ledger.costs.value.report.range.first_ms if ledger.costs else None
    wanted_ms = (dependencies.clock() - days * 86_400) * 1000
    problems = find_problems(
        published,
        dependencies,
        language,
        ledger_error=ledger.problem.text(language) if ledger.problem else "",
        begins_at=first_ms / 1000 if first_ms is not None and first_ms > wanted_ms + DAY_MS else None,
    )
    state = DataState(dependencies.assess_data().status, problems)
    snoozes = await find_snoozes(dependencies)

    def make(_: Result) -> Mapping[str, object]:
        return _make_overview(published, dependencies, ledger, snoozes, cluster=cluster, days=days)

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
        ReportQuery(since_ms, now_ms, by="day", rows=CHART_DAYS + 1, top=0, clusters=clusters),
        visible=dependencies.visible,
    )


def _make_overview(
    published: PublishedResult,
    dependencies: ApiDependencies,
    ledger: _LedgerPart,
    snoozes: ActiveSnoozes,
    *,
    cluster: str | None,
    days: int,
) -> Mapping[str, object]:
    """The fields of `Overview` that follow from the result and the ledger."""
    result, costs = published.result, ledger.costs.value if ledger.costs else None
    numbers = [number for number, key in enumerate(result.workloads.keys) if cluster in (None, key.cluster)]
    idle = [number for number in numbers if result.workloads.idle_gpus[number] > 0]
    facts = view_workloads(published).facts
    teams = dependencies.settings.current.reports.teams
    table, signature = result.workloads, result.workloads.signature
    is_active = table.verdict_names == VERDICTS.index(VerdictName.ACTIVE)
    suspicious = sum_busy(result, table.verdict_names == VERDICTS.index(VerdictName.SUSPICIOUS), cluster)
    starved = sum_busy(result, is_active & (signature == SIGNATURES.index(Signature.STARVED)), cluster)
    gpus = _count_gpus(result, cluster, suspicious=suspicious.gpus)
    return {
        "clusters": list(result.verdicts.usage.clusters),
        "currency": costs.report.currency if costs else facts.currency,
        "gpus": gpus,
        "workloads": len(numbers),
        "idle_workloads": len(idle),
        "funnel": make_funnel(gpus, costs),
        "waste": make_waste(costs, days, cost_per_hour=sum_known(facts.idle_cost_per_hour[idle])),
        "potential": find_potential(result, facts, idle),
        "suspicious": suspicious,
        "starved": starved,
        "days": [make_day(point) for point in ledger.chart.value.points] if ledger.chart else [],
        "top": list_top(result, facts, idle, costs.by_workload if costs else {}, snoozes),
        "namespaces": sum_groups(costs.report.groups) if costs else [],
        "teams": sum_groups(costs.report.groups, teams) if costs and teams else [],
    }


def _count_gpus(result: Result, cluster: str | None, *, suspicious: float) -> GpuNumbers:
    usage, activity, fractions = result.verdicts.usage, result.verdicts.activity, result.workloads.fractions
    is_ineffective = result.verdicts.is_ineffective
    if cluster is not None:
        rows = np.array([row for row, one in enumerate(usage.allocations) if one.cluster == cluster], dtype=np.intp)
        fleet = {key: count for key, count in usage.fleet.items() if key.cluster == cluster}
        usage, activity, fractions = replace(usage.take(rows), fleet=fleet), activity[rows], fractions[rows]
        is_ineffective = is_ineffective[rows]
    fleet_counts = count_fleet(usage)
    counts, ineffective = sum_gpus(activity, fractions, fleet_counts), float(fractions[is_ineffective].sum())
    return GpuNumbers(
        total=fleet_counts.gpus,
        allocated=round(float(fractions.sum()), GPU_DIGITS),
        active=round(counts.active, GPU_DIGITS),
        idle=round(counts.idle, GPU_DIGITS),
        unknown=round(counts.unknown, GPU_DIGITS),
        effective=round(max(0.0, counts.active - ineffective), GPU_DIGITS),
        ineffective=round(ineffective, GPU_DIGITS),
        suspicious=suspicious,
        free=None if counts.unallocated is None else round(counts.unallocated, GPU_DIGITS),
    )
