"""/api/v1/workloads/.../series: the GPUs of a workload over time, read from the source."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import Dependencies, LastResult
from gpusteward.analyzer.api.http.concurrency_limits import query_source
from gpusteward.analyzer.api.http.responses import send_json
from gpusteward.analyzer.api.http.routes import DocumentedRoute
from gpusteward.analyzer.api.v1.pagination import stamp
from gpusteward.analyzer.api.v1.workloads.allocations import allocation_id
from gpusteward.analyzer.api.v1.workloads.workload_paths import Cluster, Part, find_workload
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.core.api_rows import ResultStamp

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["workloads"])

LONGEST_SECONDS = 14 * 86400.0
MOST_ALLOCATIONS = 16


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
    kind: Part,
    namespace: Part,
    name: Part,
    cluster: Cluster = None,
    seconds: Annotated[float, Query(ge=60, le=LONGEST_SECONDS)] = 3600.0,
    limit: Annotated[int, Query(ge=1, le=MOST_ALLOCATIONS, description="Maximum number of allocations.")] = 8,
    offset: Annotated[int, Query(ge=0, le=100_000, description="Number of allocations to skip.")] = 0,
) -> Response:
    """Core utilization, memory copy, memory used and power over time, as the source has them."""
    result = published.result
    number = find_workload(result.workloads, kind=kind, namespace=namespace, name=name, cluster=cluster)
    rows = result.workloads.rows(number).tolist()
    allocations = [result.verdicts.usage.allocations[row] for row in rows[offset : offset + limit]]

    def read() -> list[Chart]:
        return [dependencies.source.read_series(allocation, result.at, seconds=seconds) for allocation in allocations]

    series = [_make_series(chart) for chart in await query_source(read, dependencies.limits.series)]
    when = stamp(result, dependencies)
    return send_json(Series(courses=series, total=len(rows), seconds=seconds, result=when))


def _make_series(chart: Chart) -> AllocationSeries:
    return AllocationSeries(
        allocation_id(chart.allocation), {measure.value: list(points) for measure, points in chart.lines.items()}
    )
