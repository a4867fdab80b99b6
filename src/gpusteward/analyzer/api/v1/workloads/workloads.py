"""/api/v1/workloads: verdicts on root owners with all GPUs of all their pods."""

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import Dependencies, LastResult
from gpusteward.analyzer.api.http.routes import DocumentedRoute
from gpusteward.analyzer.api.v1.pagination import (
    ActivityName,
    FilterValues,
    ListQuery,
    ProofName,
    SignatureName,
    StateName,
    send_page,
)
from gpusteward.analyzer.api.v1.workloads.snooze_state import find_snoozes
from gpusteward.analyzer.api.v1.workloads.workload_rows import SnoozedView, view_workloads
from gpusteward.analyzer.tables import PROOFS, SIGNATURES
from gpusteward.core.api_rows import Page, Workload

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["workloads"])

DEFAULT_SORT: Final = "-idle_gpus"


class WorkloadQuery(ListQuery):
    """Filters and sort order of workloads."""

    sort: Literal[
        "idle_gpus",
        "-idle_gpus",
        "gpus",
        "-gpus",
        "score",
        "-score",
        "idle_since",
        "-idle_since",
        "namespace",
        "-namespace",
        "name",
        "-name",
        "kind",
        "-kind",
        "idle_cost",
        "-idle_cost",
        "idle_cost_per_hour",
        "-idle_cost_per_hour",
    ] = Field(default=DEFAULT_SORT, description="`-` in front: descending. Unknown values always come last.")
    namespace: FilterValues = ()
    kind: FilterValues = ()
    state: Annotated[tuple[StateName, ...], Field(max_length=5)] = ()
    activity: Annotated[tuple[ActivityName, ...], Field(max_length=3)] = ()
    signature: Annotated[tuple[SignatureName, ...], Field(max_length=len(SIGNATURES))] = ()
    proof: Annotated[tuple[ProofName, ...], Field(max_length=len(PROOFS))] = ()
    node: FilterValues = Field(default=(), description="Workloads with a GPU on one of these nodes.")
    model: FilterValues = Field(default=(), description="Workloads with a GPU of one of these models.")
    cluster: FilterValues = ()


@router.get("/workloads", summary="Workloads", response_model=Page[Workload])
async def list_workloads(
    request: Request, published: LastResult, dependencies: Dependencies, query: Annotated[WorkloadQuery, Query()]
) -> Response:
    """Every root owner with its verdict; those with the most idle GPUs first."""
    snoozes = await find_snoozes(dependencies)

    def send() -> Response:
        view = SnoozedView(view_workloads(published), snoozes)
        return send_page(request, query, result=published.result, view=view, version=snoozes.version)

    return await run_in_threadpool(send)
