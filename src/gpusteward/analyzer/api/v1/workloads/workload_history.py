"""/api/v1/workloads/.../history: what the ledger has of a workload.
/api/v1/workloads/ended: what it has of workloads with a name, also of those that hold no GPU any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import ApiDependencies, Dependencies, LastResult
from gpusteward.analyzer.api.http.concurrency_limits import query_ledger
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.responses import DocumentedRoute, format_utc_ms, send_json
from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.api.v1.workloads.period_costs import PeriodCosts, count_gpu_hours, find_period_costs
from gpusteward.analyzer.api.v1.workloads.snoozes import SnoozeRow, show_snooze
from gpusteward.analyzer.api.v1.workloads.workload_paths import Cluster, NamedWorkload, WorkloadPath, find_workload
from gpusteward.analyzer.api.v1.workloads.workloads import view_workloads
from gpusteward.analyzer.reports.report import Amounts, EndedWorkload, Finding
from gpusteward.analyzer.reports.report_query import EndedQuery
from gpusteward.analyzer.reports.workload_history import (
    NoticeDelivery,
    RecordedSpell,
    RecordedVerdict,
    WorkloadHistory,
)
from gpusteward.core.api_rows import ActivityName, ProofName, SignatureName, StateName
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.messages.errors import api_errors

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", tags=["workloads"])

COST_DAYS = 7
MOST_ROWS = 200


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """A verdict that held from `at` until the next one."""

    at: str | None
    activity: ActivityName
    signature: SignatureName
    state: StateName
    score: float | None
    allocations: int
    idle_allocations: int
    idle_since: str | None


@dataclass(frozen=True, slots=True)
class SpellRow:
    """A time without work of one GPU of the workload."""

    started_at: str | None
    ended_at: Annotated[str | None, Field(description="null: it has not ended.")]
    ended_by: Annotated[str, Field(description="work, released, reclaimed or lost; empty: it has not ended.")]
    proof: ProofName
    signature: SignatureName
    gpus: float
    pod: str
    node: str
    gpu: str


@dataclass(frozen=True, slots=True)
class NoticeDeliveryRow:
    """A message to one address of a channel; deleted some time after it was delivered."""

    id: int
    target: str
    state: Literal["pending", "done", "dead"]
    attempts: int
    next_at: str | None
    error: str


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """A notice that mentioned the workload."""

    at: str | None
    kind: str
    channel: Annotated[str, Field(description="Empty for viewers of some namespaces.")]
    deliveries: list[NoticeDeliveryRow]


@dataclass(frozen=True, slots=True)
class CostSum:
    """GPU-hours and money; null: not recorded, or no price."""

    gpu_hours: float
    idle_gpu_hours: float
    cost_micros: int | None
    idle_cost_micros: int | None


@dataclass(frozen=True, slots=True)
class WorkloadCost:
    """What the workload cost, in millionths of the currency."""

    currency: str
    since: Annotated[str | None, Field(description="When it was first recorded.")]
    total: Annotated[CostSum | None, Field(description="As far as the ledger reaches.")]
    last_7_days: CostSum | None
    spell_idle_cost_micros: Annotated[int | None, Field(description="Of its idle GPUs since they are idle.")]


@dataclass(frozen=True, slots=True)
class SizeAdvice:
    """The workload would fit into a part of each GPU that it holds, by its peaks in the last seven days."""

    model: str
    gpus: int
    part: Annotated[Literal["mig", "share"], Field(description="share: the board has no MIG.")]
    profile: str
    board_fraction: float
    core_peak_ratio: float
    memory_peak_bytes: int
    memory_total_bytes: int
    saving_gpu_hours: float
    saving_micros: int | None


@dataclass(frozen=True, slots=True)
class History:
    """What the ledger has of a workload, the newest first."""

    verdicts: list[VerdictRow]
    spells: list[SpellRow]
    notices: list[NoticeRow]
    snoozes: list[SnoozeRow]
    cost: WorkloadCost
    advice: list[SizeAdvice]


@router.get(
    "/workloads/{kind}/{namespace}/{name}/history",
    summary="History of one workload",
    response_model=History,
    dependencies=[Depends(may_read)],
)
async def show_history(
    published: LastResult,
    dependencies: Dependencies,
    *,
    path: NamedWorkload,
    cluster: Cluster = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS, description="Maximum number of rows of each kind.")] = 50,
) -> Response:
    """Changes of its verdict, idle spells, notices with their deliveries, snoozes, costs and right-sizing advice, from
    the ledger. Also of a workload that no longer holds GPUs."""
    number, workload = _find(published, path, cluster)
    history, ended = await query_ledger(lambda: _read(dependencies, workload, limit=limit), dependencies.limits.history)
    if number is None and not ended and not (history.verdicts or history.snoozes):
        raise ProblemError(404, "not-found", api_errors.WORKLOAD_NOT_FOUND)
    week = await find_period_costs(dependencies, days=COST_DAYS)
    recorded = _FromLedger(history, ended, week.value if week else None)
    return send_json(_make_history(published, number, workload, recorded))


def _find(published: PublishedResult, path: WorkloadPath, cluster: str | None) -> tuple[int | None, WorkloadKey]:
    """Its number in the last result; None: it holds no GPU. Raises a 409 problem if several clusters have it."""
    table = published.result.workloads
    try:
        number = find_workload(table, path, cluster)
    except ProblemError as error:
        if error.status != 404:
            raise
        return None, WorkloadKey(*path, cluster or "")
    return number, table.keys[number]


def _read(
    dependencies: ApiDependencies, workload: WorkloadKey, *, limit: int
) -> tuple[WorkloadHistory, EndedWorkload | None]:
    history = dependencies.ledger.read_history(workload, limit=limit, visible=dependencies.visible)
    query = EndedQuery(workload.name, workload.namespace, workload.kind, workload.cluster)
    found = dependencies.ledger.read_ended_workloads(query, visible=dependencies.visible)
    return history, next((one for one in found if _key_of(one) == workload), None)


def _key_of(one: EndedWorkload | Finding) -> WorkloadKey:
    return WorkloadKey(one.kind, one.namespace, one.name, one.cluster)


class _FromLedger(NamedTuple):
    """What was read from the ledger."""

    history: WorkloadHistory
    ended: EndedWorkload | None
    week: PeriodCosts | None


def _make_history(
    published: PublishedResult, number: int | None, workload: WorkloadKey, recorded: _FromLedger
) -> History:
    history, ended, week = recorded
    spell_cost = np.nan if number is None else float(view_workloads(published).facts.idle_cost[number])
    return History(
        verdicts=[_show_verdict(each) for each in history.verdicts],
        spells=[_show_spell(each) for each in history.spells],
        notices=[
            NoticeRow(
                format_utc_ms(each.at_ms), each.kind, each.channel, [_show_delivery(one) for one in each.deliveries]
            )
            for each in history.notices
        ],
        snoozes=[show_snooze(each) for each in history.snoozes],
        cost=WorkloadCost(
            currency=ended.currency if ended else published.result.settings.prices.currency,
            since=format_utc_ms(ended.first_ms) if ended else None,
            total=_sum(ended.amounts) if ended else None,
            last_7_days=_sum(week.by_workload[workload]) if week and workload in week.by_workload else None,
            spell_idle_cost_micros=None if np.isnan(spell_cost) else round(spell_cost),
        ),
        advice=[_show_advice(each) for each in (week.report.findings if week else ()) if _key_of(each) == workload],
    )


def _sum(amounts: Amounts) -> CostSum:
    return CostSum(
        gpu_hours=count_gpu_hours(amounts.allocated_gpu_ms),
        idle_gpu_hours=count_gpu_hours(amounts.idle_gpu_ms),
        cost_micros=amounts.cost_micros,
        idle_cost_micros=amounts.idle_cost_micros,
    )


def _show_verdict(one: RecordedVerdict) -> VerdictRow:
    return VerdictRow(
        at=format_utc_ms(one.at_ms),
        activity=one.activity,
        signature=one.signature,
        state=one.state,
        score=None if one.score is None else round(one.score, 1),
        allocations=one.allocations,
        idle_allocations=one.idle_allocations,
        idle_since=format_utc_ms(one.idle_since_ms),
    )


def _show_spell(one: RecordedSpell) -> SpellRow:
    return SpellRow(
        started_at=format_utc_ms(one.started_ms),
        ended_at=format_utc_ms(one.ended_ms),
        ended_by=one.ended_by,
        proof=one.proof,
        signature=one.signature,
        gpus=round(one.gpus, 4),
        pod=one.pod,
        node=one.node,
        gpu=f"{one.gpu_uuid}/{one.gpu_instance}" if one.gpu_instance else one.gpu_uuid,
    )


def _show_delivery(one: NoticeDelivery) -> NoticeDeliveryRow:
    state: Literal["pending", "done", "dead"] = "pending"
    if one.state in ("done", "dead"):
        state = "done" if one.state == "done" else "dead"
    return NoticeDeliveryRow(one.id, one.target, state, one.attempts, format_utc_ms(one.next_ms), one.error)


def _show_advice(one: Finding) -> SizeAdvice:
    return SizeAdvice(
        model=one.model,
        gpus=one.gpus,
        part="mig" if one.part == "mig" else "share",
        profile=one.profile,
        board_fraction=one.board_fraction,
        core_peak_ratio=one.core_peak_ratio,
        memory_peak_bytes=one.memory_peak_bytes,
        memory_total_bytes=one.memory_total_bytes,
        saving_gpu_hours=count_gpu_hours(one.saving_gpu_ms),
        saving_micros=one.saving_micros,
    )


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


@router.get(
    "/workloads/ended", summary="Ended workloads", response_model=EndedWorkloads, dependencies=[Depends(may_read)]
)
async def list_ended_workloads(dependencies: Dependencies, parameters: Annotated[EndedParameters, Query()]) -> Response:
    """What the ledger has of workloads with this name: when they ended, GPU-hours and cost. Also finds workloads that
    still hold GPUs; their `ended_ms` is null."""
    query = EndedQuery(parameters.name, parameters.namespace, parameters.kind, parameters.cluster)
    found = await query_ledger(
        lambda: dependencies.ledger.read_ended_workloads(query, visible=dependencies.visible),
        dependencies.limits.ended_workloads,
    )
    return send_json({"items": found})
