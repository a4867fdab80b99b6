"""/api/v1/allocations: one row per container and GPU."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import LastResult
from gpusteward.analyzer.api.http.responses import DocumentedRoute, format_utc
from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.api.v1.pagination import (
    ActivityName,
    FilterValues,
    ListQuery,
    ProofName,
    RowList,
    SignatureName,
    StateName,
    TextColumn,
    both_ways,
    filter_codes,
    known_value,
    name_in_cluster,
    send_page,
)
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.metrics.result_metrics import gpu_id
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, DOUBTS, PROOFS, SIGNATURES, STATES, STEPS, VERDICTS
from gpusteward.core.api_rows import AllocationRow, Page, WorkloadName
from gpusteward.core.usages import AllocationKey, Measure, Stat

router = APIRouter(
    route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["allocations"]
)

LISTING = "allocations"
_SHOWN = (
    (Measure.CORE, Stat.MEAN),
    (Measure.CORE, Stat.PEAK),
    (Measure.MEMORY_USED, Stat.MEAN),
    (Measure.MEMORY_TOTAL, Stat.LAST),
    (Measure.POWER, Stat.MEAN),
)


if TYPE_CHECKING:
    AllocationSort = str
else:
    AllocationSort = Literal[
        both_ways("score", "idle_since", "core", "memory", "power", "namespace", "pod", "node", "model")
    ]


class AllocationQuery(ListQuery):
    """Filters and sort order of allocations."""

    sort: AllocationSort = Field(
        default="score", description="`-` in front: descending. Unknown values always come last."
    )
    namespace: FilterValues = ()
    state: Annotated[tuple[StateName, ...], Field(max_length=5)] = ()
    activity: Annotated[tuple[ActivityName, ...], Field(max_length=3)] = ()
    signature: Annotated[tuple[SignatureName, ...], Field(max_length=len(SIGNATURES))] = ()
    proof: Annotated[tuple[ProofName, ...], Field(max_length=len(PROOFS))] = ()
    node: FilterValues = ()
    model: FilterValues = ()
    cluster: FilterValues = ()
    workload: FilterValues = Field(default=(), description="By KIND/NAMESPACE/NAME.")


class AllocationView:
    """The allocations of one result as a list."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self._columns = [result.verdicts.usage.column(*key) for key in _SHOWN]
        core, _, memory, _, power = self._columns
        verdicts, allocations = result.verdicts, result.verdicts.usage.allocations
        namespace = TextColumn(lambda: [one.container.namespace for one in allocations])
        pod = TextColumn(lambda: [one.container.pod for one in allocations])
        node = TextColumn(lambda: [one.node for one in allocations])
        model = TextColumn(lambda: [one.model for one in allocations])
        cluster = TextColumn(lambda: [one.cluster for one in allocations])
        self.listing = RowList(
            len(verdicts),
            sorts={
                "score": verdicts.score,
                "idle_since": verdicts.idle_since,
                "core": core,
                "memory": memory,
                "power": power,
                "namespace": namespace.sort,
                "pod": pod.sort,
                "node": node.sort,
                "model": model.sort,
            },
            filters={
                "namespace": namespace.is_any_of,
                "node": node.is_any_of,
                "model": model.is_any_of,
                "cluster": cluster.is_any_of,
                "workload": TextColumn(self._owners).is_any_of,
                "q": TextColumn(self._names).contains_all,
                "state": filter_codes(verdicts.state, STATES),
                "activity": filter_codes(verdicts.activity, ACTIVITIES),
                "signature": filter_codes(verdicts.signature, SIGNATURES),
                "proof": filter_codes(verdicts.proof, PROOFS),
            },
        )

    def _owners(self) -> list[str]:
        workloads = self._result.workloads
        names = [key.path for key in workloads.keys]
        return [names[code] for code in workloads.codes.tolist()]

    def _names(self) -> list[str]:
        """The texts that `q` searches."""
        allocations = self._result.verdicts.usage.allocations
        return [
            f"{allocation_id(one)} {one.node} {one.model} {owner}"
            for one, owner in zip(allocations, self._owners(), strict=True)
        ]

    def make_row(self, number: int) -> AllocationRow:
        verdicts, workloads = self._result.verdicts, self._result.workloads
        allocation = verdicts.usage.allocations[number]
        container = allocation.container
        core, peak, used, total, power = (known_value(column, number) for column in self._columns)
        return AllocationRow(
            id=allocation_id(allocation),
            cluster=allocation.cluster,
            gpu=gpu_id(allocation),
            node=allocation.node,
            index=allocation.gpu_index,
            model=allocation.model,
            namespace=container.namespace,
            pod=container.pod,
            container=container.name,
            workload=WorkloadName(*workloads.keys[workloads.codes[number]]),
            share=str(allocation.share),
            score=known_value(verdicts.score, number, digits=1),
            state=STATES[verdicts.state[number]].value,
            activity=ACTIVITIES[verdicts.activity[number]].value,
            verdict=VERDICTS[workloads.row_verdicts[number]].value,
            signature=SIGNATURES[verdicts.signature[number]].value,
            highest_step=STEPS[verdicts.step[number]].value,
            proof=PROOFS[verdicts.proof[number]].value,
            doubt=DOUBTS[verdicts.doubt[number]].value,
            idle_since=format_utc(float(verdicts.idle_since[number])),
            coverage=round(float(verdicts.usage.coverage[number]), 4),
            core_mean_ratio=core,
            core_peak_ratio=peak,
            memory_used_bytes=used,
            memory_total_bytes=total,
            power_watts=power,
            gpu_fraction=round(float(workloads.fractions[number]), GPU_DIGITS),
            used_by=allocation.used_by,
        )


def view_allocations(published: PublishedResult) -> AllocationView:
    return published.once(LISTING, AllocationView)


@router.get("/allocations", summary="Allocations", response_model=Page[AllocationRow])
def list_allocations(request: Request, published: LastResult, query: Annotated[AllocationQuery, Query()]) -> Response:
    """Every container on every GPU with its score, state, activity and signature, including unknown ones."""
    view = view_allocations(published)
    rows = partial(map, view.make_row)
    return send_page(request, query, result=published.result, listing=view.listing, make_rows=rows)


def allocation_id(allocation: AllocationKey) -> str:
    container = allocation.container
    name = f"{container.namespace}/{container.pod}/{container.name}/{gpu_id(allocation)}"
    return name_in_cluster(container.cluster, name)
