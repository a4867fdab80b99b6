"""/api/v1/gpu-map: every GPU with its holders in compact columns, for a picture of the whole fleet."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import LastResult
from gpusteward.analyzer.api.http.routes import DocumentedRoute
from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.api.v1.compact import Dictionary, SelectedCluster, natural_key, send_compact
from gpusteward.analyzer.api.v1.gpus.gpus import view_fleet
from gpusteward.analyzer.api.v1.workloads.workloads import view_workloads
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.metrics.result_metrics import gpu_id
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES
from gpusteward.core.api_rows import ResultStamp

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["gpus"])

Part = tuple[float, int, int, int, float | None]
"""Fraction of the GPU, activity, signature, workload, score."""


@dataclass(frozen=True, slots=True)
class MapNodes:
    """One value per node."""

    name: list[str]
    cluster: Annotated[list[int], Field(description="Indexes `clusters`.")]


@dataclass(frozen=True, slots=True)
class MapWorkloads:
    """One value per workload."""

    cluster: Annotated[list[int], Field(description="Indexes `clusters`.")]
    kind: list[str]
    namespace: Annotated[list[int], Field(description="Indexes `namespaces`.")]
    name: list[str]
    user: Annotated[list[str], Field(description="The first of its users; empty: unknown.")]


@dataclass(frozen=True, slots=True)
class MapGpus:
    """One value per GPU, ordered by cluster, node and index; free GPUs come last on their node."""

    node: Annotated[list[int], Field(description="Indexes `nodes`.")]
    index: Annotated[list[str], Field(description="Empty for a free GPU: sources count them only.")]
    model: Annotated[list[int], Field(description="Indexes `models`.")]
    uuid: Annotated[list[str], Field(description="Empty for a free GPU.")]
    share: Annotated[list[int], Field(description="How it is shared: indexes `shares`; -1 for a free GPU.")]
    parts: Annotated[
        list[list[Part]],
        Field(
            description="For each container on it: the fraction of the GPU that it holds, its activity (indexes "
            "`activities`), signature (indexes `signatures`), workload (indexes `workloads`) and score."
        ),
    ]
    hidden_holders: Annotated[list[int], Field(description="Holders in namespaces that the caller may not see.")]


@dataclass(frozen=True, slots=True)
class GpuMap:
    """All GPUs, held or free."""

    clusters: list[str]
    nodes: MapNodes
    models: list[str]
    namespaces: list[str]
    shares: list[str]
    activities: list[str]
    signatures: list[str]
    workloads: MapWorkloads
    gpus: MapGpus
    result: ResultStamp


@dataclass(frozen=True, slots=True)
class _Device:
    """A GPU, with the rows of its holders; a free one has none."""

    cluster: str
    node: str
    model: str
    index: str
    uuid: str
    share: str
    rows: Sequence[int]


@router.get("/gpu-map", summary="Map of all GPUs", response_model=GpuMap)
def show_gpu_map(request: Request, published: LastResult, cluster: SelectedCluster = None) -> Response:
    """Every GPU with its holders, in columns: one list per field, and indexes instead of repeated names. A GPU with MIG
    instances is one GPU whose parts are the instances that are held."""
    return send_compact(request, published, "gpu-map", cluster, lambda result: _make_map(published, result, cluster))


def _make_map(published: PublishedResult, result: Result, cluster: str | None) -> Mapping[str, object]:
    devices = [one for one in _list_devices(published, result) if cluster in (None, one.cluster)]
    builder = _MapBuilder(published)
    for device in devices:
        builder.add(device)
    return builder.finish()


def _list_devices(published: PublishedResult, result: Result) -> list[_Device]:
    allocations = result.verdicts.usage.allocations
    rows = defaultdict[tuple[str, str, str], list[int]](list)
    for row, one in enumerate(allocations):
        rows[one.container.cluster, one.node, one.gpu_uuid].append(row)
    held = [_make_device(result, its) for its in rows.values()]
    free = [
        _Device(key.cluster, key.node, key.model, "", "", "", ())
        for key, count in view_fleet(published).free.items()
        for _ in range(count)
    ]
    return sorted(
        [*held, *free], key=lambda one: (one.cluster, natural_key(one.node), not one.rows, natural_key(one.index))
    )


def _make_device(result: Result, rows: Sequence[int]) -> _Device:
    first = result.verdicts.usage.allocations[rows[0]]
    return _Device(
        first.container.cluster, first.node, first.model, first.gpu_index, first.gpu_uuid, str(first.share), rows
    )


class _MapBuilder:
    """Collects the columns. Dictionaries have only what is used: another cluster's names are not in the response."""

    def __init__(self, published: PublishedResult) -> None:
        result = self._result = published.result
        self._allocations = result.verdicts.usage.allocations
        self._hidden = published.hidden_holders
        self._facts = view_workloads(published).facts
        self._clusters, self._nodes = Dictionary[str](), Dictionary[tuple[str, str]]()
        self._models, self._namespaces, self._shares = Dictionary[str](), Dictionary[str](), Dictionary[str]()
        self._workloads = Dictionary[int]()
        self._gpus = MapGpus([], [], [], [], [], [], [])
        verdicts, table = result.verdicts, result.workloads
        self._fractions = np.round(table.fractions, GPU_DIGITS).tolist()
        self._scores = np.round(verdicts.score, 1).tolist()
        self._activity, self._signature = verdicts.activity.tolist(), verdicts.signature.tolist()
        self._owner = table.codes.tolist()

    def add(self, device: _Device) -> None:
        gpus = self._gpus
        gpus.node.append(self._nodes.code((device.cluster, device.node)))
        gpus.index.append(device.index)
        gpus.model.append(self._models.code(device.model))
        gpus.uuid.append(device.uuid)
        gpus.share.append(self._shares.code(device.share) if device.rows else -1)
        gpus.parts.append([self._make_part(row) for row in device.rows])
        gpus.hidden_holders.append(self._count_hidden(device.rows) if self._hidden else 0)

    def _make_part(self, row: int) -> Part:
        score = self._scores[row]  # NaN becomes null
        workload = self._workloads.code(self._owner[row])
        return self._fractions[row], self._activity[row], self._signature[row], workload, score

    def _count_hidden(self, rows: Sequence[int]) -> int:
        keys = {(self._allocations[row].container.cluster, gpu_id(self._allocations[row])) for row in rows}
        return sum(self._hidden.get(key, 0) for key in keys)

    def finish(self) -> Mapping[str, object]:
        keys = [self._result.workloads.keys[number] for number in self._workloads.names]
        names = self._facts.list_names(self._workloads.names)
        workloads = MapWorkloads(
            cluster=[self._clusters.code(key.cluster) for key in keys],
            kind=[key.kind for key in keys],
            namespace=[self._namespaces.code(key.namespace) for key in keys],
            name=[key.name for key in keys],
            user=[next(iter(each.users), "") for each in names],
        )
        nodes = MapNodes(
            [node for _, node in self._nodes.names], [self._clusters.code(cluster) for cluster, _ in self._nodes.names]
        )
        return {
            "nodes": nodes,
            "workloads": workloads,
            "gpus": self._gpus,
            "clusters": self._clusters.names,
            "models": self._models.names,
            "namespaces": self._namespaces.names,
            "shares": self._shares.names,
            "activities": [each.value for each in ACTIVITIES],
            "signatures": [each.value for each in SIGNATURES],
        }
