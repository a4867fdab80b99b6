"""/api/v1/workloads/table: all workloads at once in compact columns, for lists that are filtered and sorted by the
client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import Dependencies, LastResult
from gpusteward.analyzer.api.http.routes import DocumentedRoute
from gpusteward.analyzer.api.v1.compact import Dictionary, SelectedCluster, send_compact
from gpusteward.analyzer.api.v1.workloads.period_costs import find_period_costs
from gpusteward.analyzer.api.v1.workloads.snooze_state import ActiveSnoozes, find_snoozes
from gpusteward.analyzer.api.v1.workloads.workload_facts import WorkloadFacts, WorkloadNames
from gpusteward.analyzer.api.v1.workloads.workload_rows import view_workloads
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.reports.report import Amounts
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, SIGNATURES, STATES, STEPS, Codes, Column
from gpusteward.core.api_rows import ResultStamp
from gpusteward.core.containers import EVIDENCE_ORDER, OwnerEvidence, WorkloadKey

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["workloads"])

COST_DAYS = 7
Index = Annotated[list[int], Field(description="Indexes the list of the same name in `names`.")]
Indexes = Annotated[list[list[int]], Field(description="Each indexes the list of the same name in `names`.")]
Numbers = list[float | None]
Money = Annotated[list[int | None], Field(description="Millionths of `currency`; null: no price.")]
Times = Annotated[list[int | None], Field(description="Unix seconds.")]


@dataclass(frozen=True, slots=True)
class TableNames:
    """What the indexes of the columns stand for."""

    cluster: list[str]
    kind: list[str]
    namespace: list[str]
    state: list[str]
    activity: list[str]
    signature: list[str]
    highest_step: list[str]
    proof: list[str]
    owner_evidence: list[str]
    users: list[str]
    models: list[str]
    nodes: list[str]


@dataclass(frozen=True, slots=True)
class TableColumns:
    """One value per workload in each column; the fields are those of a row of /api/v1/workloads."""

    cluster: Index
    kind: Index
    namespace: Index
    name: list[str]
    score: Numbers
    state: Index
    activity: Index
    signature: Index
    highest_step: Index
    proof: Index
    gpus: list[float]
    idle_gpus: list[float]
    unknown_gpus: list[float]
    idle_since: Times
    allocations: list[int]
    idle_allocations: list[int]
    unknown_allocations: list[int]
    users: Indexes
    models: Indexes
    nodes: Indexes
    nodes_total: list[int]
    cost_micros_per_hour: Money
    idle_cost_micros_per_hour: Money
    idle_cost_micros: Money
    idle_cost_micros_7d: Annotated[
        list[int | None],
        Field(description="Of its idle GPU-hours in the last seven days; null: not recorded, or no price."),
    ]
    owner_evidence: Index
    snoozed_until: Times


@dataclass(frozen=True, slots=True)
class WorkloadColumns:
    """All workloads in columns."""

    total: int
    currency: str
    has_ledger: Annotated[bool, Field(description="Whether costs of the last seven days could be read.")]
    names: TableNames
    columns: TableColumns
    result: ResultStamp


@router.get("/workloads/table", summary="All workloads in columns", response_model=WorkloadColumns)
async def show_table(
    request: Request, published: LastResult, dependencies: Dependencies, cluster: SelectedCluster = None
) -> Response:
    """Every workload, those with the most idle GPUs first, in one response: one list per field, and indexes instead of
    repeated names. Costs of the last seven days are from the ledger and at most a few minutes old."""
    costs = await find_period_costs(dependencies, days=COST_DAYS)
    by_workload = costs.value.by_workload if costs else None
    snoozes = await find_snoozes(dependencies)

    def make(result: Result) -> Mapping[str, object]:
        return _make_table(
            result, view_workloads(published).listing.select("-idle_gpus", {}).tolist(), cluster, by_workload, snoozes
        )

    version = f"{costs.number if costs else 0} ".encode() + snoozes.version
    return await run_in_threadpool(
        lambda: send_compact(request, published, "workloads/table", cluster, make, version=version)
    )


@dataclass(frozen=True, slots=True)
class _Names:
    """The repeated names, with the index of each."""

    clusters: Dictionary[str] = field(default_factory=Dictionary[str])
    kinds: Dictionary[str] = field(default_factory=Dictionary[str])
    namespaces: Dictionary[str] = field(default_factory=Dictionary[str])
    users: Dictionary[str] = field(default_factory=Dictionary[str])
    models: Dictionary[str] = field(default_factory=Dictionary[str])
    nodes: Dictionary[str] = field(default_factory=Dictionary[str])


def _make_table(
    result: Result,
    order: Sequence[int],
    cluster: str | None,
    costs: Mapping[WorkloadKey, Amounts] | None,
    snoozes: ActiveSnoozes,
) -> Mapping[str, object]:
    facts, names = WorkloadFacts(result), _Names()
    rows = [number for number in order if cluster in (None, result.workloads.keys[number].cluster)]
    columns = _make_columns(result, rows, facts, names, costs=costs, snoozes=snoozes)
    return {
        "total": len(rows),
        "currency": facts.currency,
        "has_ledger": costs is not None,
        "names": _list_names(names),
        "columns": columns,
    }


def _make_columns(
    result: Result,
    rows: Sequence[int],
    facts: WorkloadFacts,
    names: _Names,
    *,
    costs: Mapping[WorkloadKey, Amounts] | None,
    snoozes: ActiveSnoozes,
) -> TableColumns:
    table, chosen = result.workloads, np.array(rows, dtype=np.intp)
    keys = [table.keys[number] for number in rows]
    all_names = facts.list_all()
    who = [all_names[number] for number in rows]
    show = WorkloadNames.show
    return TableColumns(
        cluster=[names.clusters.code(key.cluster) for key in keys],
        kind=[names.kinds.code(key.kind) for key in keys],
        namespace=[names.namespaces.code(key.namespace) for key in keys],
        name=[key.name for key in keys],
        score=_known(table.score[chosen], digits=1),
        state=table.state[chosen].tolist(),
        activity=table.activity[chosen].tolist(),
        signature=table.signature[chosen].tolist(),
        highest_step=table.step[chosen].tolist(),
        proof=table.proof[chosen].tolist(),
        gpus=_gpus(table.gpus[chosen]),
        idle_gpus=_gpus(table.idle_gpus[chosen]),
        unknown_gpus=_gpus(table.unknown_gpus[chosen]),
        idle_since=_whole(table.idle_since[chosen]),
        allocations=table.allocations[chosen].tolist(),
        idle_allocations=table.idle_allocations[chosen].tolist(),
        unknown_allocations=table.unknown_allocations[chosen].tolist(),
        users=[[names.users.code(name) for name in show(each.users)] for each in who],
        models=[[names.models.code(name) for name in show(each.models)] for each in who],
        nodes=[[names.nodes.code(name) for name in show(each.nodes)] for each in who],
        nodes_total=[len(each.nodes - {""}) for each in who],
        cost_micros_per_hour=_whole(facts.cost_per_hour[chosen]),
        idle_cost_micros_per_hour=_whole(facts.idle_cost_per_hour[chosen]),
        idle_cost_micros=_whole(facts.idle_cost[chosen]),
        idle_cost_micros_7d=[_find_cost(costs, key) for key in keys],
        owner_evidence=_find_evidence(result)[chosen].tolist(),
        snoozed_until=[_find_end(snoozes, key) for key in keys],
    )


def _list_names(names: _Names) -> TableNames:
    return TableNames(
        cluster=names.clusters.names,
        kind=names.kinds.names,
        namespace=names.namespaces.names,
        state=[each.value for each in STATES],
        activity=[each.value for each in ACTIVITIES],
        signature=[each.value for each in SIGNATURES],
        highest_step=[each.value for each in STEPS],
        proof=[each.value for each in PROOFS],
        owner_evidence=[each.value for each in EVIDENCE_ORDER],
        users=names.users.names,
        models=names.models.names,
        nodes=names.nodes.names,
    )


def _find_evidence(result: Result) -> Codes:
    """The weakest of the pods of each workload, as an index of `EVIDENCE_ORDER`."""
    order = {evidence: number for number, evidence in enumerate(EVIDENCE_ORDER)}
    owners = (one.container.workload for one in result.verdicts.usage.allocations)
    known = [order[OwnerEvidence.UNKNOWN if owner is None else owner.evidence] for owner in owners]
    weakest = np.full(len(result.workloads), len(EVIDENCE_ORDER) - 1, dtype=np.int8)
    np.minimum.at(weakest, result.workloads.codes, np.array(known, dtype=np.int8))
    return weakest


def _find_cost(costs: Mapping[WorkloadKey, Amounts] | None, key: WorkloadKey) -> int | None:
    found = costs.get(key) if costs else None
    return found.idle_cost_micros if found else None


def _find_end(snoozes: ActiveSnoozes, key: WorkloadKey) -> int | None:
    until = snoozes.find_end(key)
    return None if until is None else int(until)


def _known(column: Column, *, digits: int) -> Numbers:
    """NaN becomes null when it is encoded."""
    return np.round(column, digits).tolist()  # type: ignore[no-any-return]


def _gpus(column: Column) -> list[float]:
    """Whole numbers without a fraction: half the size."""
    return [int(value) if value == int(value) else value for value in np.round(column, GPU_DIGITS).tolist()]


def _whole(column: Column) -> list[int | None]:
    return [None if value != value else int(value) for value in np.round(column).tolist()]  # noqa: PLR0124 - NaN
