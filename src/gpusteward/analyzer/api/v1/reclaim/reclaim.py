"""/api/v1/reclaim: mode and state of reclaim, and the switch that stops all actions.
/api/v1/policies: the policies in effect, or why there are none; the defaults by class, and an example.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from gpusteward.analyzer.api.authorization import may_administer, may_read_all
from gpusteward.analyzer.api.dependencies import ApiDependencies, Client, Dependencies
from gpusteward.analyzer.api.http.responses import DocumentedRoute, format_utc, send_json
from gpusteward.analyzer.api.v1.reclaim.plan import ModeName
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.analyzer.reclaim.plan import ReclaimControl
from gpusteward.analyzer.reclaim.policies.example import EXAMPLE
from gpusteward.analyzer.reclaim.policies.file import DEFAULTS
from gpusteward.core.messages import Language
from gpusteward.logs import Log

log = Log(__name__)

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", tags=["reclaim"])


@dataclass(frozen=True, slots=True)
class SwitchRow:
    """The switch: while it is off, no action happens, whatever the mode is."""

    is_off: bool
    by: str
    at: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class ReclaimStatus:
    """Mode, switch and counts."""

    mode: ModeName
    switch: Annotated[SwitchRow | None, Field(description="Null where there is no API server or no ledger.")]
    details: Annotated[
        dict[str, Any],
        Field(
            description="Leader, counts of outcomes, refusals of the last plan because of work on the host "
            "(refused_by_cpu, refused_by_disk, refused_by_network), last error, what is suspended."
        ),
    ]


@router.get("/reclaim", summary="State of reclaim", response_model=ReclaimStatus, dependencies=[Depends(may_read_all)])
async def read_reclaim(dependencies: Dependencies) -> Response:
    """The mode of the settings, who switched reclaim off, and what happened since the start."""
    control = dependencies.reclaim
    if control is None:
        return send_json(ReclaimStatus(Mode.OFF.value, None, {}))
    return await _send_status(control, dependencies)


@router.post(
    "/reclaim/off", summary="Stop all actions", response_model=ReclaimStatus, dependencies=[Depends(may_administer)]
)
async def switch_off(
    dependencies: Dependencies,
    client: Client,
    reason: Annotated[str, Query(max_length=500, description="Shown to everybody.")] = "",
) -> Response:
    """No action begins from now on, also of other replicas, until it is switched on again. What was suspended stays so
    until somebody restores it, and lowered pools are scaled up again when they are needed."""
    control, by = dependencies.require_reclaim(), str(client)
    log.warning("reclaim_switched_off", by=client, reason=reason)
    await dependencies.ask_reclaim(lambda: control.switch_off(by=by, reason=reason))
    return await _send_status(control, dependencies)


@router.post(
    "/reclaim/on", summary="Allow actions again", response_model=ReclaimStatus, dependencies=[Depends(may_administer)]
)
async def switch_on(dependencies: Dependencies, client: Client) -> Response:
    """Undoes `off`. The mode stays as the settings say."""
    control, by = dependencies.require_reclaim(), str(client)
    log.warning("reclaim_switched_on", by=client)
    await dependencies.ask_reclaim(lambda: control.switch_on(by=by))
    return await _send_status(control, dependencies)


async def _send_status(control: ReclaimControl, dependencies: ApiDependencies) -> Response:
    switch = await dependencies.ask_reclaim(control.read_switch)
    row = SwitchRow(switch.is_off, switch.by, format_utc(switch.at), switch.reason)
    return send_json(ReclaimStatus(control.mode.value, row, dict(control.describe())))


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


@router.get("/policies", summary="Policies of reclaim", response_model=PolicyPage, dependencies=[Depends(may_read_all)])
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
