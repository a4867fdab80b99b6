"""The row of a node in the API, and the nodes of one result."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.api.v1.compact import natural_key
from gpusteward.analyzer.api.v1.gpus.gpus import view_fleet
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES
from gpusteward.core.api_rows import ClusterName
from gpusteward.core.verdicts import Activity

NodeKey = tuple[str, str]  # cluster, node


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with GPUs; a share of a GPU is a fraction."""

    cluster: ClusterName
    node: str
    models: list[str]
    gpus: Annotated[int | None, Field(description="All of them; null: the source does not count those that are free.")]
    free_gpus: Annotated[int | None, Field(description="Those of which no part is held.")]
    allocated_gpus: float
    active_gpus: float
    idle_gpus: float
    unknown_gpus: float
    shares: Annotated[list[str], Field(description="How GPUs are held: exclusive, mig, time-sliced and so on.")]
    workloads: Annotated[int, Field(description="How many hold a GPU here.")]
    idle_cost_micros_per_hour: Annotated[int | None, Field(description="Of its idle GPUs; null: none has a price.")]


def view_nodes(published: PublishedResult) -> Mapping[NodeKey, NodeRow]:
    return published.once("nodes by key", lambda result: _make_rows(published, result))


def rows_by_node(published: PublishedResult) -> Mapping[NodeKey, list[int]]:
    def make(result: Result) -> Mapping[NodeKey, list[int]]:
        rows = defaultdict[NodeKey, list[int]](list)
        for row, one in enumerate(result.verdicts.usage.allocations):
            rows[one.container.cluster, one.node].append(row)
        return rows

    return published.once("rows by node", make)


def _make_rows(published: PublishedResult, result: Result) -> dict[NodeKey, NodeRow]:
    fleet, rows = view_fleet(published), rows_by_node(published)
    counted, free = defaultdict[NodeKey, int](int), defaultdict[NodeKey, int](int)
    models = defaultdict[NodeKey, set[str]](set)
    for key, count in result.verdicts.usage.fleet.items():
        counted[key.cluster, key.node] += count
        models[key.cluster, key.node].add(key.model)
    for key, count in fleet.free.items():
        free[key.cluster, key.node] += count
    keys = sorted({*rows, *counted}, key=lambda key: (key[0], natural_key(key[1])))
    return {
        key: _make_row(
            result,
            key,
            np.array(rows.get(key, []), dtype=np.intp),
            models=models[key],
            counts=(max(counted[key], _count_held(result, rows.get(key, []))), free[key]) if key in counted else None,
        )
        for key in keys
    }


def _count_held(result: Result, rows: Iterable[int]) -> int:
    return len({result.verdicts.usage.allocations[row].gpu_uuid for row in rows})


def _make_row(
    result: Result,
    key: NodeKey,
    rows: np.ndarray[tuple[int], np.dtype[np.intp]],
    *,
    models: set[str],
    counts: tuple[int, int] | None,
) -> NodeRow:
    """`counts`: all GPUs and free ones; None if the source does not count them."""
    allocations, activity = result.verdicts.usage.allocations, result.verdicts.activity[rows]
    fractions, cost = result.workloads.fractions[rows], result.cost_micros_per_hour[rows]
    by_activity = np.bincount(activity, weights=fractions, minlength=len(ACTIVITIES)).tolist()
    active, idle, unknown = (round(by_activity[ACTIVITIES.index(each)], GPU_DIGITS) for each in Activity)
    idle_cost = cost[(activity == ACTIVITIES.index(Activity.IDLE)) & ~np.isnan(cost)]
    held = [allocations[row] for row in rows.tolist()]
    return NodeRow(
        cluster=key[0],
        node=key[1],
        models=sorted({*models, *(one.model for one in held)} - {""}),
        gpus=counts[0] if counts else None,
        free_gpus=counts[1] if counts else None,
        allocated_gpus=round(float(fractions.sum()), GPU_DIGITS),
        active_gpus=active,
        idle_gpus=idle,
        unknown_gpus=unknown,
        shares=sorted({str(one.share) for one in held} - {""}),
        workloads=len(set(result.workloads.codes[rows].tolist())),
        idle_cost_micros_per_hour=round(float(idle_cost.sum())) if len(idle_cost) else None,
    )
