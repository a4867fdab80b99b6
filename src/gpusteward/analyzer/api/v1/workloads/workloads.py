"""/api/v1/workloads: verdicts on root owners with all GPUs of all their pods; by page, or all in compact columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import Dependencies, LastResult
from gpusteward.analyzer.api.http.responses import DocumentedRoute
from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.api.v1.compact import SelectedCluster, send_compact
from gpusteward.analyzer.api.v1.pagination import (
    ActivityName,
    FilterValues,
    ListQuery,
    ProofName,
    RowList,
    SignatureName,
    StateName,
    TextColumn,
    VerdictWord,
    both_ways,
    filter_codes,
    filter_groups,
    send_page,
)
from gpusteward.analyzer.api.v1.workloads.period_costs import find_period_costs
from gpusteward.analyzer.api.v1.workloads.snoozes import ActiveSnoozes, find_snoozes
from gpusteward.analyzer.api.v1.workloads.workload_columns import (
    NAMED_COLUMNS,
    TABLE_COLUMNS,
    ChosenWorkloads,
    WorkloadFacts,
    make_table,
    make_workloads,
)
from gpusteward.analyzer.judge.workloads import WorkloadTable
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, SIGNATURES, STATES, VERDICTS
from gpusteward.core.api_rows import Page, ResultStamp, WorkloadRow

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["workloads"])

DEFAULT_SORT: Final = "-idle_gpus"
COST_DAYS = 7
if TYPE_CHECKING:
    WorkloadSort = str
else:
    WorkloadSort = Literal[
        both_ways(
            *("idle_gpus", "gpus", "score", "idle_since", "namespace", "name", "kind"),
            *("idle_cost", "idle_cost_per_hour"),
        )
    ]


class WorkloadQuery(ListQuery):
    """Filters and sort order of workloads."""

    sort: WorkloadSort = Field(
        default=DEFAULT_SORT, description="`-` in front: descending. Unknown values always come last."
    )
    namespace: FilterValues = ()
    kind: FilterValues = ()
    state: Annotated[tuple[StateName, ...], Field(max_length=5)] = ()
    activity: Annotated[tuple[ActivityName, ...], Field(max_length=3)] = ()
    verdict: Annotated[tuple[VerdictWord, ...], Field(max_length=len(VERDICTS))] = ()
    signature: Annotated[tuple[SignatureName, ...], Field(max_length=len(SIGNATURES))] = ()
    proof: Annotated[tuple[ProofName, ...], Field(max_length=len(PROOFS))] = ()
    node: FilterValues = Field(default=(), description="Workloads with a GPU on one of these nodes.")
    model: FilterValues = Field(default=(), description="Workloads with a GPU of one of these models.")
    cluster: FilterValues = ()


class WorkloadView:
    """The workloads of one result as a list."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self.facts = WorkloadFacts(result)
        self.listing = _make_listing(result, self.facts)

    def make_rows(self, numbers: Sequence[int], snoozes: ActiveSnoozes) -> list[WorkloadRow]:
        return make_workloads(ChosenWorkloads(self._result, self.facts, numbers, snoozes))

    def sum_idle_cost(self) -> int | None:
        """Per hour, of all workloads whose idle GPUs have a price."""
        known = self.facts.idle_cost_per_hour[~np.isnan(self.facts.idle_cost_per_hour)]
        return round(float(known.sum())) if len(known) else None


def view_workloads(published: PublishedResult) -> WorkloadView:
    return published.once("workloads", WorkloadView)


def _make_listing(result: Result, facts: WorkloadFacts) -> RowList:
    table, allocations = result.workloads, result.verdicts.usage.allocations
    kind, namespace, name, cluster = (TextColumn(partial(_list_parts, table, part)) for part in range(4))
    node = TextColumn(lambda: [one.node for one in allocations])
    model = TextColumn(lambda: [one.model for one in allocations])
    size = len(table)
    return RowList(
        size,
        tie_breakers=("-idle_gpus", "idle_since"),  # the most idle GPUs first, then the longest idle
        sorts={
            "idle_gpus": table.idle_gpus,
            "gpus": table.gpus,
            "score": table.score,
            "idle_since": table.idle_since,
            "namespace": namespace.sort,
            "name": name.sort,
            "kind": kind.sort,
            "idle_cost": lambda: facts.idle_cost,
            "idle_cost_per_hour": lambda: facts.idle_cost_per_hour,
        },
        filters={
            "namespace": namespace.is_any_of,
            "kind": kind.is_any_of,
            "cluster": cluster.is_any_of,
            "state": filter_codes(table.state, STATES),
            "activity": filter_codes(table.activity, ACTIVITIES),
            "verdict": filter_codes(table.verdict_names, VERDICTS),
            "signature": filter_codes(table.signature, SIGNATURES),
            "proof": filter_codes(table.proof, PROOFS),
            "node": filter_groups(node.is_any_of, table.codes, size=size),
            "model": filter_groups(model.is_any_of, table.codes, size=size),
            "q": TextColumn(lambda: [f"{key.cluster} {key.path}" for key in table.keys]).contains_all,
        },
    )


def _list_parts(table: WorkloadTable, part: int) -> list[str]:
    return [key[part] for key in table.keys]


if TYPE_CHECKING:
    TableNames = Mapping[str, list[str]]
    TableColumns = Mapping[str, list[Any]]
else:  # for the API document
    TableNames = make_dataclass("TableNames", [(name, list[str]) for name in NAMED_COLUMNS])
    TableNames.__doc__ = "What the indexes of the columns stand for."
    TableColumns = make_dataclass(
        "TableColumns", [(name, column.kind.table_type) for name, column in TABLE_COLUMNS.items()]
    )
    TableColumns.__doc__ = "One value per workload in each column; the fields are those of a row of /api/v1/workloads."


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
        view, keys = view_workloads(published), result.workloads.keys
        order = view.listing.select(DEFAULT_SORT, {}).tolist()
        numbers = [number for number in order if cluster in (None, keys[number].cluster)]
        return {
            "total": len(numbers),
            "currency": view.facts.currency,
            "has_ledger": costs is not None,
            **make_table(ChosenWorkloads(result, view.facts, numbers, snoozes, by_workload)),
        }

    version = f"{costs.number if costs else 0} ".encode() + snoozes.version
    return await run_in_threadpool(
        lambda: send_compact(request, published, "workloads/table", cluster, make, version=version)
    )


@router.get("/workloads", summary="Workloads", response_model=Page[WorkloadRow])
async def list_workloads(
    request: Request, published: LastResult, dependencies: Dependencies, query: Annotated[WorkloadQuery, Query()]
) -> Response:
    """Every root owner with its verdict; those with the most idle GPUs first."""
    snoozes = await find_snoozes(dependencies)

    def send() -> Response:
        view = view_workloads(published)
        return send_page(
            request,
            query,
            result=published.result,
            listing=view.listing,
            make_rows=lambda numbers: view.make_rows(numbers, snoozes),
            version=snoozes.version,
        )

    return await run_in_threadpool(send)
