"""/api/v1/workloads/ended: workloads that no longer hold a GPU. Reads the ledger."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import Dependencies
from gpusteward.analyzer.api.http.concurrency_limits import query_ledger
from gpusteward.analyzer.api.http.responses import send_json
from gpusteward.analyzer.api.http.routes import DocumentedRoute
from gpusteward.analyzer.reports.report import EndedWorkload
from gpusteward.analyzer.reports.report_query import EndedQuery

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["workloads"])


class EndedWorkloads(BaseModel):
    """Workloads of one name, the latest first."""

    items: Sequence[EndedWorkload]


class EndedParameters(BaseModel):
    """Which workloads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(max_length=253, description="Name of the workload or of one of its pods.")
    namespace: str = Field(default="", max_length=253, description="Only in this namespace.")
    cluster: str = Field(default="", max_length=253, description="Only in this cluster.")
    kind: str = Field(default="", max_length=253, description="Only of this kind, in any case.")


@router.get("/workloads/ended", summary="Ended workloads", response_model=EndedWorkloads)
async def list_ended_workloads(dependencies: Dependencies, parameters: Annotated[EndedParameters, Query()]) -> Response:
    """What the ledger has of workloads with this name: when they ended, GPU-hours and cost. Also finds workloads that
    still hold GPUs; their `ended_ms` is null."""
    query = EndedQuery(parameters.name, parameters.namespace, parameters.kind, parameters.cluster)
    found = await query_ledger(
        lambda: dependencies.ledger.read_ended_workloads(query), dependencies.limits.ended_workloads
    )
    return send_json({"items": found})
