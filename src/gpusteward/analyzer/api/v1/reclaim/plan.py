"""/api/v1/plan: what reclaim would do now, for each workload every guard and its answer."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import Dependencies
from gpusteward.analyzer.api.http.responses import DocumentedRoute, format_utc, send_json
from gpusteward.analyzer.api.v1.pagination import MOST_ROWS, FilterValues
from gpusteward.analyzer.reclaim.execution.changes import Change
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.analyzer.reclaim.plan import Decision, Outcome
from gpusteward.core.api_rows import ClusterName
from gpusteward.core.messages import Language

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["reclaim"])

if TYPE_CHECKING:
    OutcomeName = str
    ModeName = str
else:  # the enums as literals, for the API document
    OutcomeName = Literal[tuple(each.value for each in Outcome)]
    ModeName = Literal[tuple(each.value for each in Mode)]
MOST_OTHER_PODS = 100
Outcomes = Annotated[tuple[OutcomeName, ...], Field(max_length=len(Outcome))]


class PlanQuery(BaseModel):
    """Filters of the plan."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: FilterValues = Field(default=(), description="Only in these clusters.")
    namespace: FilterValues = Field(default=(), description="Only in these namespaces.")
    name: FilterValues = Field(default=(), description="Only workloads with these names.")
    kind: FilterValues = Field(default=(), description="Only workloads of these kinds.")
    outcome: Outcomes = Field(default=(), description="Only decisions with these outcomes.")
    limit: int = Field(default=100, ge=1, le=MOST_ROWS, description="Maximum number, the longest idle first.")
    language: Language = Field(default="en", description="The language of the reasons.")


@dataclass(frozen=True, slots=True)
class GuardAnswer:
    """The answer of one guard."""

    guard: str
    passed: Annotated[bool | None, Field(description="Null: not asked, because another guard already says no.")]
    reason: str


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """What exactly would change on one object."""

    kind: str
    name: str
    path: Annotated[str, Field(description="In the API of Kubernetes.")]
    method: str
    text: Annotated[str, Field(description="`spec.replicas: 3 -> 0`")]
    before: Annotated[dict[str, Any], Field(description="Values by JSON pointer; null: absent.")]
    after: dict[str, Any]
    gpus: Annotated[float | None, Field(description="GPUs that become free; null: all of the workload.")]


_Unknown = Field(description="Of its host, a mean over some minutes; null: unknown, or not read.")


@dataclass(frozen=True, slots=True)
class OtherPodRow:
    """A pod without GPUs that would stop too."""

    name: str
    uid: str
    cpu_cores: Annotated[float | None, _Unknown]
    disk_bytes_per_second: Annotated[float | None, _Unknown]
    network_bytes_per_second: Annotated[float | None, _Unknown]


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """The decision on one workload."""

    cluster: ClusterName
    kind: str
    namespace: str
    name: str
    uid: str
    gpus: float
    idle_since: str | None
    policy: str
    origins: Annotated[dict[str, str], Field(description="Where the fields of the policy come from.")]
    action: Annotated[str, Field(description="Of the policy; empty: the policy was not looked up.")]
    outcome: OutcomeName
    due_at: Annotated[str | None, Field(description="When it is acted on if nothing changes; null: never, or unknown.")]
    action_id: Annotated[str, Field(description="Of the journal, once a warning was sent.")]
    answers: list[GuardAnswer]
    changes: list[ChangeRow]
    other_pods: Annotated[list[OtherPodRow], Field(description="Pods without GPUs that it would stop.")]


@dataclass(frozen=True, slots=True)
class PlanPage:
    """The plan of the last cycle."""

    at: Annotated[str | None, Field(description="Null before the first plan, and in mode off.")]
    mode: ModeName
    stopped_by: Annotated[str, Field(description="Why nothing is done at all: the switch, or another leader.")]
    total: Annotated[int, Field(description="How many decisions pass the filters.")]
    counts: Annotated[dict[str, int], Field(description="How many of all decisions have each outcome.")]
    items: list[DecisionRow]


@router.get("/plan", summary="What reclaim would do now", response_model=PlanPage)
async def read_plan(dependencies: Dependencies, query: Annotated[PlanQuery, Query()]) -> Response:
    """One decision for each workload that holds GPUs, the longest idle first. In mode `observe` outcome `act` means
    that it would be acted on; nothing is."""
    control = dependencies.reclaim
    plan = control.read_plan(visible=dependencies.visible) if control is not None else None
    if control is None or plan is None:
        return send_json(PlanPage(None, control.mode if control else Mode.OFF, "", 0, {}, []))
    found = [each for each in plan.decisions if _is_wanted(each, query)]
    page = PlanPage(
        at=format_utc(plan.at),
        mode=plan.mode,
        stopped_by=plan.stopped_by.text(query.language) if plan.stopped_by else "",
        total=len(found),
        counts={outcome.value: count for outcome, count in plan.counts.items()},
        items=[make_decision_row(each, query.language) for each in found[: query.limit]],
    )
    return send_json(page)


def _is_wanted(decision: Decision, query: PlanQuery) -> bool:
    workload = decision.workload
    filters = (
        (workload.cluster, query.cluster),
        (workload.namespace, query.namespace),
        (workload.name, query.name),
        (workload.kind, query.kind),
        (decision.outcome.value, query.outcome),
    )
    return all(not wanted or value in wanted for value, wanted in filters)


def make_decision_row(decision: Decision, language: Language) -> DecisionRow:
    workload, policy = decision.workload, decision.policy
    return DecisionRow(
        cluster=workload.cluster,
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        uid=workload.uid,
        gpus=round(decision.gpus, 4),
        idle_since=format_utc(decision.idle_since),
        policy=policy.name if policy else "",
        origins=dict(policy.origins) if policy else {},
        action=decision.action.value if decision.action else "",
        outcome=decision.outcome.value,
        due_at=format_utc(decision.due_at),
        action_id=decision.action_id,
        answers=[GuardAnswer(each.guard, each.passed, each.reason.text(language)) for each in decision.answers],
        changes=[make_change_row(each) for each in decision.changes],
        other_pods=[OtherPodRow(*pod) for pod in decision.other_pods[:MOST_OTHER_PODS]],
    )


def make_change_row(change: Change) -> ChangeRow:
    return ChangeRow(**change.make_row(), text=change.text)
