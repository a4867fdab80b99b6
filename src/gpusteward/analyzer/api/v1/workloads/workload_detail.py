"""/api/v1/workloads/KIND/NAMESPACE/NAME: the verdict of one workload with its reasons and evidence.
.../series: its GPUs over time, read from the source.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import ApiDependencies, Dependencies, LastResult
from gpusteward.analyzer.api.http.concurrency_limits import query_source
from gpusteward.analyzer.api.http.responses import (
    DocumentedRoute,
    format_utc,
    has_current,
    send_json,
    send_not_modified,
)
from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.api.v1.pagination import make_etag, stamp
from gpusteward.analyzer.api.v1.workloads.allocations import allocation_id, view_allocations
from gpusteward.analyzer.api.v1.workloads.snoozes import ActiveSnoozes, find_snoozes
from gpusteward.analyzer.api.v1.workloads.workload_paths import Cluster, NamedWorkload, find_workload
from gpusteward.analyzer.api.v1.workloads.workloads import view_workloads
from gpusteward.analyzer.explain.opinions import Opinion
from gpusteward.analyzer.judge.reasons import explain_row
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.core.api_rows import AllocationRow, ResultStamp, WorkloadRow
from gpusteward.core.messages import Language
from gpusteward.core.verdicts import WorkloadVerdict

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["workloads"])


MOST_ALLOCATIONS = 512


@dataclass(frozen=True, slots=True)
class SecondOpinion:
    """The opinion of a language model. It can only lower the highest action; a reason says where it did."""

    status: Literal["active", "idle", "suspicious"]
    confidence: float
    reason: str
    recommendation: str
    adjusted_score: float
    model: str
    asked_at: str | None


@dataclass(frozen=True, slots=True)
class JudgedAllocation:
    """An allocation with the reasons for its verdict and the values they are based on."""

    allocation: AllocationRow
    reasons: list[str]
    evidence: Annotated[dict[str, float], Field(description="MEASURE.STAT in base units; unknown values are left out.")]
    opinion: SecondOpinion | None


@dataclass(frozen=True, slots=True)
class WorkloadDetail:
    """The verdict of one workload with its reasons and evidence."""

    workload: WorkloadRow
    finding: Annotated[str, Field(description="Unused GPUs of a workload that is not idle as a whole.")]
    reasons: list[str]
    nodes: list[str]
    evidence: dict[str, float]
    allocations: list[JudgedAllocation]
    allocations_total: Annotated[int, Field(description=f"At most {MOST_ALLOCATIONS} of them are shown here.")]
    result: ResultStamp


@router.get("/workloads/{kind}/{namespace}/{name}", summary="One workload", response_model=WorkloadDetail)
async def show_workload(
    request: Request,
    published: LastResult,
    dependencies: Dependencies,
    *,
    path: NamedWorkload,
    cluster: Cluster = None,
    language: Annotated[Language, Query(description="The language of the reasons.")] = "en",
) -> Response:
    """The verdict of one workload with its reasons, evidence and allocations."""
    number = find_workload(published.result.workloads, path, cluster)
    snoozes = await find_snoozes(dependencies)
    etag = make_etag(request, published.result, version=snoozes.version)
    if has_current(request, etag):
        return send_not_modified(etag)
    detail = await run_in_threadpool(lambda: _detail(published, number, dependencies, snoozes, language=language))
    return send_json(detail, etag=etag)


def _detail(
    published: PublishedResult,
    number: int,
    dependencies: ApiDependencies,
    snoozes: ActiveSnoozes,
    *,
    language: Language,
) -> WorkloadDetail:
    result = published.result
    verdict: WorkloadVerdict = result.workloads.verdict(number, language=language)
    rows = result.workloads.rows(number)
    return WorkloadDetail(
        workload=view_workloads(published).make_rows([number], snoozes)[0],
        finding=verdict.finding,
        reasons=list(verdict.reasons),
        nodes=list(verdict.nodes),
        evidence=_rounded(verdict.evidence),
        allocations=[_judged(published, row, language=language) for row in rows[:MOST_ALLOCATIONS].tolist()],
        allocations_total=len(rows),
        result=stamp(result, dependencies),
    )


def _judged(published: PublishedResult, row: int, *, language: Language) -> JudgedAllocation:
    result = published.result
    stats = result.verdicts.usage.stats.items()
    return JudgedAllocation(
        allocation=view_allocations(published).make_row(row),
        reasons=list(explain_row(result.verdicts, row, rules=result.settings.rules, language=language)),
        evidence=_rounded({f"{measure}.{stat}": float(column[row]) for (measure, stat), column in stats}),
        opinion=_make_opinion(result.opinions.get(row)),
    )


def _make_opinion(opinion: Opinion | None) -> SecondOpinion | None:
    if opinion is None:
        return None
    values = asdict(opinion)
    values.pop("rule_score")
    return SecondOpinion(**values | {"asked_at": format_utc(opinion.asked_at)})


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items() if not np.isnan(value)}


LONGEST_SECONDS = 14 * 86400.0
MOST_CHARTED = 16


@dataclass(frozen=True, slots=True)
class AllocationSeries:
    """One allocation over time."""

    allocation: Annotated[str, Field(description="The id of the allocation.")]
    lines: Annotated[
        dict[str, list[tuple[float, float]]],
        Field(description="By measure, in base units: unix seconds and value. A gap is a gap, not zero."),
    ]


@dataclass(frozen=True, slots=True)
class Series:
    """The GPUs of a workload over time, until the end of the window."""

    courses: list[AllocationSeries]
    total: Annotated[int, Field(description="How many allocations the workload has.")]
    seconds: float
    result: ResultStamp


@router.get("/workloads/{kind}/{namespace}/{name}/series", summary="Series of one workload", response_model=Series)
async def read_series(
    published: LastResult,
    dependencies: Dependencies,
    *,
    path: NamedWorkload,
    cluster: Cluster = None,
    seconds: Annotated[float, Query(ge=60, le=LONGEST_SECONDS)] = 3600.0,
    limit: Annotated[int, Query(ge=1, le=MOST_CHARTED, description="Maximum number of allocations.")] = 8,
    offset: Annotated[int, Query(ge=0, le=100_000, description="Number of allocations to skip.")] = 0,
) -> Response:
    """Core utilization, memory copy, memory used and power over time, as the source has them."""
    result = published.result
    number = find_workload(result.workloads, path, cluster)
    rows = result.workloads.rows(number).tolist()
    allocations = [result.verdicts.usage.allocations[row] for row in rows[offset : offset + limit]]

    def read() -> list[Chart]:
        source, visible = dependencies.source, dependencies.visible
        return [source.read_series(each, result.at, seconds=seconds, visible=visible) for each in allocations]

    charts = await query_source(read, dependencies.limits.series, visible=dependencies.visible)
    series = [
        AllocationSeries(
            allocation_id(chart.allocation), {measure.value: list(points) for measure, points in chart.lines.items()}
        )
        for chart in charts
    ]
    return send_json(Series(series, len(rows), seconds, stamp(result, dependencies)))
