"""/api/v1/lendable: idle GPUs that can be lent for some time, with the probability that nobody needs them before."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import Dependencies, LastResult
from gpusteward.analyzer.api.http.responses import DocumentedRoute, format_utc, send_json
from gpusteward.analyzer.api.v1.pagination import FilterValues, stamp
from gpusteward.analyzer.reclaim.lending import LEAST_PROBABILITY, LendableGpus, lend_result
from gpusteward.core.api_rows import ClusterName, ResultStamp

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["reclaim"])

MOST_WORKLOADS = 1000


class LendableQuery(BaseModel):
    """Filters."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: FilterValues = Field(default=(), description="Only these GPU models.")
    horizon: Annotated[tuple[Literal["1h", "4h", "morning"], ...], Field(max_length=3)] = Field(
        default=(), description="Only these times; morning: until the next 08:00 in notify.time_zone."
    )
    limit: int = Field(default=100, ge=0, le=MOST_WORKLOADS, description="Workloads listed for each model and time.")


@dataclass(frozen=True, slots=True)
class LendableSource:
    """A workload whose idle GPUs could be lent."""

    cluster: ClusterName
    kind: str
    namespace: str
    name: str
    gpus: float
    idle_since: str | None
    probability: Annotated[float | None, Field(description="That no work comes back; null: too few idle spells.")]
    spells: int
    of: Literal["workload", "kind", ""]


@dataclass(frozen=True, slots=True)
class LendableRow:
    """The GPUs of one model for one time."""

    horizon: Literal["1h", "4h", "morning"]
    seconds: float
    model: str
    gpus: Annotated[
        float, Field(description=f"Whose probability of not being needed is at least {LEAST_PROBABILITY:g}.")
    ]
    probability: Annotated[float | None, Field(description="Mean of these GPUs; null: there are none.")]
    expected_gpus: Annotated[float, Field(description="All idle GPUs, weighted with their probabilities.")]
    unknown_gpus: Annotated[float, Field(description="Idle GPUs with too few idle spells.")]
    workloads: Annotated[list[LendableSource], Field(description="Where they come from, the most probable first.")]
    workloads_total: int


@dataclass(frozen=True, slots=True)
class LendablePage:
    items: list[LendableRow]
    result: ResultStamp


@router.get("/lendable", summary="GPUs that can be lent", response_model=LendablePage)
async def list_lendable(
    dependencies: Dependencies, published: LastResult, query: Annotated[LendableQuery, Query()]
) -> Response:
    """How many idle GPUs of each model nobody will need for 1 h, 4 h and until morning, from the idle spells of these
    workloads. Only idleness that is proven by signals which include all of the time counts."""
    found = await run_in_threadpool(lend_result, published.result)
    items = [
        _show(each, query.limit)
        for each in found
        if (not query.model or each.model in query.model) and (not query.horizon or each.horizon in query.horizon)
    ]
    return send_json(LendablePage(items, stamp(published.result, dependencies)))


def _show(row: LendableGpus, limit: int) -> LendableRow:
    return LendableRow(
        horizon=row.horizon,  # type: ignore[arg-type]
        seconds=row.seconds,
        model=row.model,
        gpus=round(row.gpus, 4),
        probability=None if row.probability is None else round(row.probability, 4),
        expected_gpus=round(row.expected_gpus, 4),
        unknown_gpus=round(row.unknown_gpus, 4),
        workloads=[
            LendableSource(
                *(each.workload.cluster, each.workload.kind, each.workload.namespace, each.workload.name),
                gpus=round(each.gpus, 4),
                idle_since=format_utc(each.idle_since),
                probability=None if each.probability is None else round(each.probability, 4),
                spells=each.spells,
                of=each.of,
            )
            for each in row.workloads[:limit]
        ],
        workloads_total=len(row.workloads),
    )
