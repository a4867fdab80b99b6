"""/api/v1/sources: the source, and the metric and label names found there."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Depends, Response

from gpusteward.analyzer.api.authorization import may_read_all
from gpusteward.analyzer.api.dependencies import Dependencies
from gpusteward.analyzer.api.http.responses import send_json
from gpusteward.analyzer.api.http.routes import DocumentedRoute

router = APIRouter(
    route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read_all)], tags=["sources"]
)


@router.get("/sources", summary="Metrics and labels of the source", response_model=Mapping[str, Any])
async def show_sources(dependencies: Dependencies) -> Response:
    """The engine, its dialects with their metric and label names, and the queries that failed last."""
    return send_json(dependencies.source.describe())
