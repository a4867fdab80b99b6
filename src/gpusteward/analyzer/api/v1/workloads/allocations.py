"""/api/v1/allocations: one row per container and GPU."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import LastResult
from gpusteward.analyzer.api.http.responses import DocumentedRoute, format_utc
from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.api.v1.pagination import (
    ActivityName,
    FilterValues,
    Listing,
    ListQuery,
    ProofName,
    SignatureName,
    StateName,
    TextColumn,
    filter_codes,
    known_value,
    name_in_cluster,
    send_page,
)
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.metrics.result_metrics import gpu_id
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, DOUBTS, PROOFS, SIGNATURES, STATES, STEPS, Column
from gpusteward.core.api_rows import Allocation, Page, WorkloadName
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


class AllocationQuery(ListQuery):
    """Filters and sort order of allocations."""

    sort: Literal[
        "score",
        "-score",
        "idle_since",
        "-idle_since",
        "core",
        "-core",
        "memory",
        "-memory",
        "power",
        "-power",
        "namespace",
        "-namespace",
        "pod",
        "-pod",
        "node",
        "-node",
        "model",
        "-model",
    ] = Field(default="score", description="`-` in front: descending. Unknown values always come last.")
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
        self.listing = self._make_listing()

    def _make_listing(self) -> Listing:
        verdicts, allocations = self._result.verdicts, self._result.verdicts.usage.allocations
        namespace, pod = _texts(allocations, lambda one: one.container.namespace), _texts(allocations, _pod)
        node, model = _texts(allocations, lambda one: one.node), _texts(allocations, lambda one: one.model)
        workload, names = TextColumn(self._owners), TextColumn(self._names)
        sorts: dict[str, Column] = {"score": verdicts.score, "idle_since": verdicts.idle_since}
        sorts |= {"core": self._columns[0], "memory": self._columns[2], "power": self._columns[4]}
        cluster = _texts(allocations, lambda one: one.cluster)
        texts = {"namespace": namespace, "pod": pod, "node": node, "model": model}
        return Listing(
            len(verdicts),
            sorts={name: _return(column) for name, column in sorts.items()}
            | {name: text.sort for name, text in texts.items()},
            filters={name: text.is_any_of for name, text in texts.items() if name != "pod"}
            | {
                "cluster": cluster.is_any_of,
                "workload": workload.is_any_of,
                "q": names.contains_all,
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

    def make_rows(self, numbers: Sequence[int]) -> list[Allocation]:
        return [self.make_row(number) for number in numbers]

    def make_row(self, number: int) -> Allocation:
        verdicts, workloads = self._result.verdicts, self._result.workloads
        allocation = verdicts.usage.allocations[number]
        container = allocation.container
        core, peak, used, total, power = (known_value(column, number) for column in self._columns)
        return Allocation(
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
        )


def view_allocations(published: PublishedResult) -> AllocationView:
    return published.once(LISTING, AllocationView)


@router.get("/allocations", summary="Allocations", response_model=Page[Allocation])
def list_allocations(request: Request, published: LastResult, query: Annotated[AllocationQuery, Query()]) -> Response:
    """Every container on every GPU with its score, state, activity and signature, including unknown ones."""
    view = view_allocations(published)
    return send_page(request, query, result=published.result, listing=view.listing, make_rows=view.make_rows)


def allocation_id(allocation: AllocationKey) -> str:
    container = allocation.container
    name = f"{container.namespace}/{container.pod}/{container.name}/{gpu_id(allocation)}"
    return name_in_cluster(container.cluster, name)


def _texts(allocations: Sequence[AllocationKey], read: Callable[[AllocationKey], str]) -> TextColumn:
    return TextColumn(lambda: [read(one) for one in allocations])


def _pod(allocation: AllocationKey) -> str:
    return allocation.container.pod


def _return(column: Column) -> Callable[[], Column]:
    return lambda: column
