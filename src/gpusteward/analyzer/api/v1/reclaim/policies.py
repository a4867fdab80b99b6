"""/api/v1/policies: the policies in effect, or why there are none; the defaults by class, and an example."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from gpusteward.analyzer.api.authorization import may_read_all
from gpusteward.analyzer.api.dependencies import Dependencies
from gpusteward.analyzer.api.http.responses import send_json
from gpusteward.analyzer.api.http.routes import DocumentedRoute
from gpusteward.analyzer.reclaim.policies.example import EXAMPLE
from gpusteward.analyzer.reclaim.policies.file import DEFAULTS
from gpusteward.core.messages import Language

router = APIRouter(
    route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read_all)], tags=["reclaim"]
)


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy of the file."""

    name: str
    match: Annotated[dict[str, Any], Field(description="Which workloads it is for; empty: all of them.")]
    fields: Annotated[dict[str, Any], Field(description="What it sets; times are seconds.")]


@dataclass(frozen=True, slots=True)
class BuiltInRow:
    """What a policy leaves out, for one class of workloads. Without an action it only notifies."""

    workload_class: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PolicyPage:
    """The policies, in the order in which they are tried. What none of them matches is at most notified."""

    file: Annotated[str, Field(description="Path of the file; empty: there is none.")]
    is_valid: Annotated[bool, Field(description="Whether there is a file that can be used.")]
    error: Annotated[
        str, Field(description="Why there are no policies, with the line: nothing new is warned of or done meanwhile.")
    ]
    policies: list[PolicyRow]
    built_in: Annotated[list[BuiltInRow], Field(description="The defaults of what a policy leaves out, by class.")]
    example: Annotated[str, Field(description="The text of a policy file to begin with.")]


@router.get("/policies", summary="Policies of reclaim", response_model=PolicyPage)
async def list_policies(
    dependencies: Dependencies,
    language: Annotated[Language, Query(description="The language of the error.")] = "en",
) -> Response:
    """The first policy that matches a workload counts; what it leaves out has the default of the class of the workload.
    What applies to one workload, with annotations of its owner, is in /api/v1/plan."""
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
        built_in=[BuiltInRow(each.value, _dump(fields)) for each, fields in DEFAULTS.items()],
        example=EXAMPLE,
    )
    return send_json(page)


def _dump(model: BaseModel, *, exclude: set[str] | None = None) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_unset=True, exclude=exclude)
