"""/api/v1/actions: what reclaim did, would have done, was refused or has put back; suspending and restoring by hand.
/api/v1/savings: GPU-hours and money that it has given back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.api.authorization import may_operate, may_read
from gpusteward.analyzer.api.dependencies import ApiDependencies, Client, Dependencies
from gpusteward.analyzer.api.http.concurrency_limits import hide_errors
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.responses import DocumentedRoute, format_utc, send_json
from gpusteward.analyzer.api.v1.pagination import MOST_ROWS
from gpusteward.analyzer.api.v1.reclaim.plan import DecisionRow, ModeName, make_decision_row
from gpusteward.analyzer.prices import PriceList
from gpusteward.analyzer.reclaim.execution.journal import (
    OPEN_STATES,
    SAVING_STATES,
    Action,
    ActionState,
    measure_saving,
    read_message,
)
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.analyzer.reclaim.plan import MOST_ACTIONS
from gpusteward.analyzer.reclaim.policies.policy import ReclaimAction
from gpusteward.core.api_rows import ClusterName
from gpusteward.core.messages import Language
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.logs import Log
from gpusteward.messages.errors import api_errors

log = Log(__name__)

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", tags=["reclaim"])

if TYPE_CHECKING:
    StateName = str
else:
    StateName = Literal[tuple(each.value for each in ActionState)]
Name = Annotated[str, Path(max_length=253)]
ClusterParameter = Annotated[str, Query(max_length=253, description="Needed where several clusters are known.")]
LanguageParameter = Annotated[Language, Query(description="The language of reasons, notes and errors.")]
ActionId = Annotated[str, Path(max_length=64, pattern="^[A-Za-z0-9._-]+$", description="The `id` of an action.")]


class ActionQuery(BaseModel):
    """Filters of the journal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: Annotated[tuple[StateName, ...], Field(max_length=len(ActionState))] = Field(
        default=(), description="Only actions in these states."
    )
    cluster: str = Field(default="", max_length=253, description="Of the workload below.")
    kind: str = Field(default="", max_length=253, description="Only of this workload: kind, namespace and name.")
    namespace: str = Field(default="", max_length=253)
    name: str = Field(default="", max_length=253)
    limit: int = Field(default=100, ge=1, le=MOST_ROWS, description="Maximum number, the newest first.")
    language: Language = Field(default="en", description="The language of reasons, notes and errors.")


@dataclass(frozen=True, slots=True)
class StepRow:
    """A move from one state to the next."""

    state: StateName
    at: str | None
    by: str
    note: str


@dataclass(frozen=True, slots=True)
class WarningRow:
    """A warning before an action."""

    sent_at: str | None
    delivered_at: Annotated[str | None, Field(description="At the first address; null: not yet.")]


@dataclass(frozen=True, slots=True)
class TargetRow:
    """The object that an action changes."""

    kind: str
    name: str
    uid: str
    path: str


@dataclass(frozen=True, slots=True)
class ActionRow:
    """One action of the journal."""

    id: str
    cluster: ClusterName
    kind: str
    namespace: str
    name: str
    uid: str
    action: str
    mode: ModeName
    is_dry_run: Annotated[bool, Field(description="Planned in mode observe: nothing was changed.")]
    is_restorable: Annotated[bool, Field(description="Whether it can be undone now.")]
    state: StateName
    waiting_gpus: Annotated[
        float | None,
        Field(description="Restored, and its pods wait for so many GPUs; null: they run, or it was not restored."),
    ]
    policy: str
    gpus: float
    idle_since: str | None
    created_at: str | None
    updated_at: str | None
    acted_at: str | None
    ended_at: str | None
    by: Annotated[str, Field(description="gpusteward, or the person who asked for it.")]
    error: str
    target: TargetRow | None
    original: Annotated[dict[str, Any], Field(description="Values before the change, by JSON pointer.")]
    patch: Annotated[dict[str, Any], Field(description="Values that were set, by JSON pointer.")]
    evidence: Annotated[dict[str, Any], Field(description="Proof, signature and answers of the guards.")]
    warnings: list[WarningRow]
    steps: list[StepRow]


@dataclass(frozen=True, slots=True)
class Actions:
    """A part of the journal."""

    items: list[ActionRow]


@router.get("/actions", summary="Journal of reclaim", response_model=Actions, dependencies=[Depends(may_read)])
async def list_actions(dependencies: Dependencies, query: Annotated[ActionQuery, Query()]) -> Response:
    """The newest first. Actions of mode `observe` are dry runs: nothing was changed."""
    control, visible = dependencies.reclaim, dependencies.visible
    if control is None:
        return send_json(Actions([]))
    workload = WorkloadKey(query.kind, query.namespace, query.name, query.cluster) if query.name else None
    states = tuple(ActionState(each) for each in query.state)
    found = await dependencies.ask_reclaim(
        lambda: control.read_actions(visible=visible, workload=workload, states=states, limit=query.limit)
    )
    return send_json(Actions([make_action_row(each, query.language) for each in found]))


@router.get("/actions/{action_id}", summary="One action", response_model=ActionRow, dependencies=[Depends(may_read)])
async def read_action(dependencies: Dependencies, action_id: ActionId, language: LanguageParameter = "en") -> Response:
    """With its evidence, the values before and after, and every step."""
    return send_json(make_action_row(await _find_action(dependencies, action_id), language))


@router.post(
    "/actions/{action_id}/restore",
    summary="Undo an action",
    response_model=ActionRow,
    dependencies=[Depends(may_operate)],
)
async def restore_action(
    dependencies: Dependencies, client: Client, action_id: ActionId, language: LanguageParameter = "en"
) -> Response:
    """Puts exactly the original back, in every mode, if the value is still the one that was set; then the workload is
    left alone for `reclaim.cool_down_minutes`. Where a right is missing, the problem has the kubectl command that
    undoes it by hand."""
    found = await _find_action(dependencies, action_id)
    return await _restore(dependencies, found.id, by=str(client), language=language)


@router.post(
    "/workloads/{kind}/{namespace}/{name}/restore",
    summary="Undo what was done to a workload",
    response_model=ActionRow,
    dependencies=[Depends(may_operate)],
)
async def restore_workload(
    dependencies: Dependencies,
    client: Client,
    *,
    kind: Name,
    namespace: Name,
    name: Name,
    cluster: ClusterParameter = "",
    language: LanguageParameter = "en",
) -> Response:
    """As above, for the last action on this workload that can be undone."""
    control, visible = dependencies.require_reclaim(), dependencies.visible
    workload = WorkloadKey(kind, namespace, name, cluster)
    found = await dependencies.ask_reclaim(
        lambda: control.read_actions(visible=visible, workload=workload, states=tuple(OPEN_STATES), limit=1)
    )
    if not found:
        raise ProblemError(404, "not-found", api_errors.NOTHING_TO_RESTORE)
    return await _restore(dependencies, found[0].id, by=str(client), language=language)


@dataclass(frozen=True, slots=True)
class SuspendResult:
    """What suspending would change, or what it did."""

    preview: Annotated[DecisionRow | None, Field(description="With preview=true: every guard, and what would change.")]
    action: Annotated[ActionRow | None, Field(description="With preview=false: the action that was begun.")]


@router.post(
    "/workloads/{kind}/{namespace}/{name}/suspend",
    summary="Suspend a workload now",
    response_model=SuspendResult,
    dependencies=[Depends(may_operate)],
)
async def suspend_workload(
    dependencies: Dependencies,
    client: Client,
    *,
    kind: Name,
    namespace: Name,
    name: Name,
    preview: Annotated[bool, Query(description="Only show what would change.")] = True,
    cluster: ClusterParameter = "",
    language: LanguageParameter = "en",
) -> Response:
    """Guards on time (window, warning, hours, budgets) do not hold for a person who asks; all others do: an active,
    kept or protected workload is refused with 409. Without `preview=false` nothing is changed."""
    control, workload = dependencies.require_reclaim(), WorkloadKey(kind, namespace, name, cluster)
    if preview:
        decision = await dependencies.ask_reclaim(lambda: control.preview(workload))
        return send_json(SuspendResult(make_decision_row(decision, language), None))
    by = str(client)
    log.info("suspend_requested", by=client, kind=kind, namespace=namespace, name=name)
    action = await dependencies.ask_reclaim(lambda: control.suspend(workload, by=by))
    return send_json(SuspendResult(None, make_action_row(action, language)))


async def _find_action(dependencies: ApiDependencies, action_id: str) -> Action:
    control, visible = dependencies.require_reclaim(), dependencies.visible
    found = await dependencies.ask_reclaim(lambda: control.read_action(action_id, visible=visible))
    if found is None:
        raise ProblemError(404, "not-found", api_errors.ACTION_NOT_FOUND)
    return found


async def _restore(dependencies: ApiDependencies, action_id: str, *, by: str, language: Language) -> Response:
    control = dependencies.require_reclaim()
    log.info("restore_requested", by=by, action=action_id)
    action = await dependencies.ask_reclaim(lambda: control.restore(action_id, by=by))
    return send_json(make_action_row(action, language))


def make_action_row(action: Action, language: Language) -> ActionRow:
    workload, target = action.workload, action.target
    return ActionRow(
        id=action.id,
        cluster=workload.cluster,
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        uid=action.uid,
        action=action.action.value,
        mode=action.mode.value,
        is_dry_run=action.mode is not Mode.ENFORCE,
        # Also one that was interrupted, or whose restore was asked for and has not succeeded yet. An evicted pod is
        # gone.
        is_restorable=action.is_open and action.mode is Mode.ENFORCE and action.action is not ReclaimAction.EVICT,
        state=action.state.value,
        waiting_gpus=None if action.waiting_gpus is None else round(action.waiting_gpus, 4),
        policy=action.policy,
        gpus=round(action.gpus, 4),
        idle_since=format_utc(action.idle_since),
        created_at=format_utc(action.created_at),
        updated_at=format_utc(action.updated_at),
        acted_at=format_utc(action.acted_at),
        ended_at=format_utc(action.ended_at),
        by=action.by,
        error=action.failure.text(language),
        target=TargetRow(*target) if target else None,
        original=dict(action.original),
        patch=dict(action.patch),
        evidence=_show_evidence(action.evidence, language),
        warnings=[WarningRow(format_utc(each.sent_at), format_utc(each.delivered_at)) for each in action.warnings],
        steps=[
            StepRow(each.state.value, format_utc(each.at), each.by, each.note.text(language)) for each in action.steps
        ],
    )


def _show_evidence(evidence: Mapping[str, Any], language: Language) -> dict[str, Any]:
    shown = dict(evidence)
    if "guards" in shown:
        guards = shown["guards"]
        shown["guards"] = [{**each, "reason": read_message(each["reason"]).text(language)} for each in guards]
    if "reasons" in shown:
        shown["reasons"] = [read_message(each).text(language) for each in shown["reasons"]]
    return shown


MOST_ITEMS = 500
DAY_SECONDS = 86_400
FRESH_SECONDS = 10.0
"""The journal is read once for all who ask within this time."""


@dataclass(frozen=True, slots=True)
class SavingRow:
    """What one action has given back."""

    id: Annotated[str, Field(description="Of the action.")]
    gpu_hours: float
    cost_micros: int | None


@dataclass(frozen=True, slots=True)
class Savings:
    """From each action to its restore, or until now."""

    since: str | None
    currency: Annotated[str, Field(description="Of the costs, which are millionths of it; null: no price.")]
    actions: Annotated[int, Field(description="That gave GPUs back in the period; dry runs do not count.")]
    gpus: Annotated[float, Field(description="GPUs that are given back now.")]
    gpu_hours: float
    cost_micros: int | None
    items: Annotated[list[SavingRow], Field(description=f"The newest {MOST_ITEMS}.")]


@router.get("/savings", summary="What reclaim has saved", response_model=Savings, dependencies=[Depends(may_read)])
async def read_savings(
    dependencies: Dependencies,
    days: Annotated[int, Query(ge=1, le=366, description="The last days.")] = 7,
) -> Response:
    """GPU-hours that idle workloads would have held on to, and what they would have cost."""
    visible = dependencies.visible
    read = await dependencies.reads.get(
        ("savings", days, visible),
        lambda: hide_errors(lambda: _read(dependencies, days), visible),
        fresh_seconds=FRESH_SECONDS,
    )
    return send_json(read.value)


def _read(dependencies: ApiDependencies, days: int) -> Savings:
    now, control, prices = dependencies.clock(), dependencies.reclaim, dependencies.settings.current.prices
    since, price_of = now - days * DAY_SECONDS, PriceList(prices).micros_per_gpu_hour
    actions: list[Action] = []
    if control is not None:
        actions = control.read_actions(visible=dependencies.visible, states=SAVING_STATES, limit=MOST_ACTIONS)
    measured = ((each, measure_saving(each, price_of, since=since, now=now)) for each in actions)
    found = [(each, saving) for each, saving in measured if saving is not None]
    costs = [saving.cost_micros for _, saving in found if saving.cost_micros is not None]
    return Savings(
        since=format_utc(since),
        currency=prices.currency,
        actions=len(found),
        gpus=round(sum(action.gpus for action, saving in found if saving.is_open), 4),
        gpu_hours=round(sum(saving.gpu_hours for _, saving in found), 4),
        cost_micros=sum(costs) if costs else None,
        items=[
            SavingRow(action.id, round(saving.gpu_hours, 4), saving.cost_micros)
            for action, saving in found[:MOST_ITEMS]
        ],
    )
