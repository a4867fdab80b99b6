"""/api/v1/policies: the policies in effect, and whether the last change of their file is valid."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from gpusteward.analyzer.api.authorization import may_read_all
from gpusteward.analyzer.api.dependencies import Dependencies
from gpusteward.analyzer.api.http.responses import send_json
from gpusteward.analyzer.api.http.routes import DocumentedRoute
from gpusteward.analyzer.reclaim.policies.policy import BUILT_IN
from gpusteward.core.messages import Language

router = APIRouter(
    route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read_all)], tags=["reclaim"]
)


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy of the file."""

    name: str
    match: Annotated[dict[str, Any], Field(description="Which workloads it is for; empty: all.")]
    fields: Annotated[dict[str, Any], Field(description="What it sets; times are seconds.")]


@dataclass(frozen=True, slots=True)
class BuiltInRow:
    """What applies to a class of workloads where no policy says otherwise."""

    workload_class: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PolicyPage:
    """The policies, in the order in which they are tried."""

    file: Annotated[str, Field(description="Path of the file; empty: there is none.")]
    is_valid: Annotated[bool, Field(description="Whether the file as it is now is in effect.")]
    error: Annotated[str, Field(description="Why the last change is refused; the policies before it stay in effect.")]
    policies: list[PolicyRow]
    built_in: list[BuiltInRow]


@router.get("/policies", summary="Policies of reclaim", response_model=PolicyPage)
async def list_policies(
    dependencies: Dependencies,
    language: Annotated[Language, Query(description="The language of the error.")] = "en",
) -> Response:
    """The first policy that matches a workload counts; what it leaves out is as in the built-in one. What applies to
    one workload, with annotations of its owner, is in /api/v1/plan."""
    watched, settings = dependencies.policies, dependencies.settings.current.reclaim
    rows = [
        PolicyRow(each.name, _dump(each.match), _dump(each, exclude={"name", "match"}))
        for each in watched.current.policies
    ]
    page = PolicyPage(
        file=str(settings.policy_file or ""),
        is_valid=watched.error is None,
        error=watched.error.text(language) if watched.error else "",
        policies=rows,
        built_in=[BuiltInRow(each.value, _dump(fields)) for each, fields in BUILT_IN.items()],
    )
    return send_json(page)


def _dump(model: BaseModel, *, exclude: set[str] | None = None) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_unset=True, exclude=exclude)
