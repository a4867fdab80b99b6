"""/api/v1/sources: the source, and the metric and label names found there.
/api/v1/settings: the effective settings with their origin, without secrets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_inspect, may_read_all
from gpusteward.analyzer.api.dependencies import Dependencies
from gpusteward.analyzer.api.http.problems import find_language
from gpusteward.analyzer.api.http.responses import DocumentedRoute, send_json
from gpusteward.analyzer.api.v1.health.health import view_findings
from gpusteward.analyzer.settings.settings import NEEDS_RESTART
from gpusteward.core.settings import Source

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", tags=["sources"])


@router.get(
    "/sources",
    summary="Metrics and labels of the source",
    response_model=Mapping[str, Any],
    dependencies=[Depends(may_read_all)],
)
async def show_sources(request: Request, dependencies: Dependencies) -> Response:
    """The engine, its dialects with their metric and label names, and the queries that failed last; `status` and
    `findings` as in /api/v1/health."""
    health = dependencies.assess_data()
    findings = view_findings(health, find_language(request.headers))
    return send_json({**dependencies.source.describe(), "status": health.status, "findings": findings})


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting."""

    path: Annotated[str, Field(description="As in the settings file: section.key.")]
    value: Annotated[Any, Field(description="Secrets are masked, or empty when they are not set.")]
    source: Annotated[Source, Field(description="Which kind of place it comes from.")]
    origin: Annotated[str, Field(description="The line, variable, flag or request it comes from.")]
    about: str
    needs_restart: Annotated[bool, Field(description="Whether a change takes effect only after a restart.")]


@dataclass(frozen=True, slots=True)
class SettingList:
    """Every setting of the analyzer."""

    items: list[SettingRow]


@router.get(
    "/settings", summary="Settings with their origin", response_model=SettingList, dependencies=[Depends(may_inspect)]
)
def show_settings(dependencies: Dependencies) -> Response:
    """Every setting in effect and where it comes from, as `gpusteward settings` prints it. Needs the role operator: the
    settings name people and addresses. Keys, tokens and passwords are never shown."""
    rows = [
        SettingRow(
            *(one.path, one.value, one.source, one.origin, one.about),
            needs_restart=one.path in NEEDS_RESTART or one.path.partition(".")[0] in NEEDS_RESTART,
        )
        for one in dependencies.settings.describe()
    ]
    return send_json(SettingList(rows))
