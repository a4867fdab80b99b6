"""/api/v1/namespaces: GPUs held and used by each namespace."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import LastResult
from gpusteward.analyzer.api.http.responses import DocumentedRoute
from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.api.v1.pagination import (
    FilterValues,
    ListQuery,
    RowList,
    TextColumn,
    both_ways,
    known_value,
    mean_by,
    send_page,
    sum_by,
)
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES
from gpusteward.core.api_rows import Namespace, Page
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["namespaces"])

LISTING = "namespaces"


if TYPE_CHECKING:
    NamespaceSort = str
else:
    NamespaceSort = Literal[
        both_ways(
            *("namespace", "allocations", "idle", "unknown", "average_score", "workloads"),
            *("gpus", "idle_gpus", "unknown_gpus"),
        )
    ]


class NamespaceQuery(ListQuery):
    """Filters and sort order of namespaces."""

    sort: NamespaceSort = Field(
        default="-idle", description="`-` in front: descending. Unknown values always come last."
    )
    namespace: FilterValues = ()
    cluster: FilterValues = ()


class NamespaceView:
    """The namespaces of one result as a list."""

    def __init__(self, result: Result) -> None:
        verdicts, table = result.verdicts, result.workloads
        containers = [one.container for one in verdicts.usage.allocations]
        numbers: dict[tuple[str, str], int] = {}  # by cluster and namespace
        codes = np.array(
            [numbers.setdefault((one.cluster, one.namespace), len(numbers)) for one in containers], np.intp
        )
        self._keys, size = list(numbers), len(numbers)
        self._counts = {
            each: np.bincount(codes[verdicts.activity == ACTIVITIES.index(each)], minlength=size) for each in Activity
        }
        self._gpus_by_activity = {
            each: np.bincount(codes, weights=table.fractions * (verdicts.activity == code), minlength=size)
            for code, each in enumerate(ACTIVITIES)
        }
        self._gpus = np.bincount(codes, weights=table.fractions, minlength=size)
        self._allocations = np.bincount(codes, minlength=size)
        self._score = mean_by(verdicts.score, codes, size=size)
        self._low = np.bincount(codes[result.is_low], minlength=size)
        self._memory = sum_by(verdicts.usage.column(Measure.MEMORY_USED, Stat.MEAN), codes, size=size)
        self._power = sum_by(verdicts.usage.column(Measure.POWER, Stat.MEAN), codes, size=size)
        owner_codes = np.array([numbers.get((key.cluster, key.namespace), -1) for key in table.keys], dtype=np.intp)
        is_idle = table.activity == ACTIVITIES.index(Activity.IDLE)
        self._workloads = np.bincount(owner_codes[owner_codes >= 0], minlength=size)
        self._idle_workloads = np.bincount(owner_codes[(owner_codes >= 0) & is_idle], minlength=size)
        cluster = TextColumn(lambda: [cluster for cluster, _ in self._keys])
        namespace = TextColumn(lambda: [namespace for _, namespace in self._keys])
        self.listing = RowList(
            size,
            sorts={
                "namespace": namespace.sort,
                "allocations": self._allocations,
                "idle": self._counts[Activity.IDLE],
                "unknown": self._counts[Activity.UNKNOWN],
                "average_score": self._score,
                "workloads": self._workloads,
                "gpus": self._gpus,
                "idle_gpus": self._gpus_by_activity[Activity.IDLE],
                "unknown_gpus": self._gpus_by_activity[Activity.UNKNOWN],
            },
            filters={
                "cluster": cluster.is_any_of,
                "namespace": namespace.is_any_of,
                "q": TextColumn(lambda: [f"{cluster} {namespace}" for cluster, namespace in self._keys]).contains_all,
            },
        )

    def make_row(self, number: int) -> Namespace:
        cluster, namespace = self._keys[number]
        return Namespace(
            cluster=cluster,
            namespace=namespace,
            allocations=int(self._allocations[number]),
            active=int(self._counts[Activity.ACTIVE][number]),
            idle=int(self._counts[Activity.IDLE][number]),
            unknown=int(self._counts[Activity.UNKNOWN][number]),
            workloads=int(self._workloads[number]),
            idle_workloads=int(self._idle_workloads[number]),
            average_score=known_value(self._score, number, digits=1),
            low=int(self._low[number]),
            memory_used_bytes=known_value(self._memory, number),
            power_watts=known_value(self._power, number),
            gpus=round(float(self._gpus[number]), GPU_DIGITS),
            active_gpus=round(float(self._gpus_by_activity[Activity.ACTIVE][number]), GPU_DIGITS),
            idle_gpus=round(float(self._gpus_by_activity[Activity.IDLE][number]), GPU_DIGITS),
            unknown_gpus=round(float(self._gpus_by_activity[Activity.UNKNOWN][number]), GPU_DIGITS),
        )


def view_namespaces(published: PublishedResult) -> NamespaceView:
    return published.once(LISTING, NamespaceView)


@router.get("/namespaces", summary="Namespaces", response_model=Page[Namespace])
def list_namespaces(request: Request, published: LastResult, query: Annotated[NamespaceQuery, Query()]) -> Response:
    """Every namespace that holds a GPU; those with the most idle allocations first."""
    view = view_namespaces(published)
    rows = partial(map, view.make_row)
    return send_page(request, query, result=published.result, listing=view.listing, make_rows=rows)
