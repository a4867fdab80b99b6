"""/api/v1/sources: the source, and the metric and label names found there."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from gpusteward.analyzer.api.authorization import may_read_all
from gpusteward.analyzer.api.dependencies import Dependencies
from gpusteward.analyzer.api.http.problems import find_language
from gpusteward.analyzer.api.http.responses import send_json
from gpusteward.analyzer.api.http.routes import DocumentedRoute
from gpusteward.analyzer.api.v1.health.health import view_findings

router = APIRouter(
    route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read_all)], tags=["sources"]
)


@router.get("/sources", summary="Metrics and labels of the source", response_model=Mapping[str, Any])
async def show_sources(request: Request, dependencies: Dependencies) -> Response:
    """The engine, its dialects with their metric and label names, and the queries that failed last; `status` and
    `findings` as in /api/v1/health."""
    health = dependencies.assess_data()
    findings = view_findings(health, find_language(request.headers))
    return send_json({**dependencies.source.describe(), "status": health.status, "findings": findings})
