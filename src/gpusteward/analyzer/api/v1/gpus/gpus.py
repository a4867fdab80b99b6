"""/api/v1/gpus: one row per device or MIG instance with its holders, and one for the free GPUs of a node and model.
/api/v1/gpu-map: the same in compact columns, for a picture of the whole fleet.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import LastResult
from gpusteward.analyzer.api.http.responses import DocumentedRoute
from gpusteward.analyzer.api.result_store import DeviceKey, PublishedResult, device_key
from gpusteward.analyzer.api.v1.compact import Dictionary, SelectedCluster, natural_key, send_compact
from gpusteward.analyzer.api.v1.pagination import (
    FilterValues,
    ListQuery,
    RowList,
    TextColumn,
    filter_codes,
    filter_groups,
    known_value,
    mean_by,
    name_in_cluster,
    send_page,
)
from gpusteward.analyzer.api.v1.workloads.workloads import view_workloads
from gpusteward.analyzer.judge.allocation_columns import encode
from gpusteward.analyzer.judge.fleet import Fleet, GpuCounts, count_fleet, count_gpus
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.judge.score import name_states
from gpusteward.analyzer.metrics.result_metrics import gpu_id
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, SIGNATURES, STATES, VERDICTS
from gpusteward.core.api_rows import GpuRow, Holder, Page, ResultStamp
from gpusteward.core.verdicts import Activity, VerdictName

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["gpus"])

LISTING = "gpus"
NOT_USED = (Activity.IDLE, Activity.UNKNOWN)
GpuStateName = Literal["idle", "low", "normal", "high", "unknown", "free"]
GpuActivityName = Literal["active", "idle", "unknown", "free"]
GpuVerdictName = Literal["active", "idle", "suspicious", "unknown", "free"]
GPU_VERDICTS: Sequence[GpuVerdictName] = (*(each.value for each in VERDICTS), "free")
GPU_STATES: Sequence[GpuStateName] = (*(each.value for each in STATES), "free")
GPU_ACTIVITIES: Sequence[GpuActivityName] = (*(each.value for each in ACTIVITIES), "free")


class GpuQuery(ListQuery):
    """Filters and sort order of GPUs."""

    sort: Literal["id", "-id", "node", "-node", "model", "-model", "score", "-score", "holders", "-holders"] = Field(
        default="node", description="`-` in front: descending. Unknown values always come last."
    )
    namespace: FilterValues = Field(default=(), description="GPUs held by pods of these namespaces.")
    state: Annotated[tuple[GpuStateName, ...], Field(max_length=6)] = ()
    activity: Annotated[tuple[GpuActivityName, ...], Field(max_length=4)] = ()
    verdict: Annotated[tuple[GpuVerdictName, ...], Field(max_length=5)] = ()
    node: FilterValues = ()
    model: FilterValues = ()
    cluster: FilterValues = ()


def view_fleet(published: PublishedResult) -> Fleet:
    return published.once("fleet", lambda result: count_fleet(result.verdicts.usage))


def view_gpu_counts(published: PublishedResult) -> GpuCounts:
    return published.once("gpu counts", lambda result: count_gpus(result.workloads, view_fleet(published)))


class GpuView:
    """The GPUs of one result as a list: first those that are held, then the free ones by node and model."""

    def __init__(self, result: Result, fleet: Fleet, hidden_holders: Mapping[DeviceKey, int]) -> None:
        self._verdicts = result.verdicts
        self._hidden_holders = hidden_holders
        coded = encode([name_in_cluster(one.cluster, gpu_id(one)) for one in result.verdicts.usage.allocations])
        self._held, self._codes = len(coded.names), coded.codes
        self._free = list(fleet.free.items())
        free = (name_in_cluster(key.cluster, f"{key.node}/{key.model}/free") for key, _ in self._free)
        self._ids = (*coded.names, *free)
        self._holders = np.bincount(self._codes, minlength=len(self._ids))
        self._rows = np.argsort(self._codes, kind="stable")
        self._begins = np.concatenate(([0], np.cumsum(self._holders)))
        self._score = mean_by(result.verdicts.score, self._codes, size=len(self._ids))
        self._fractions, self._row_verdicts = result.workloads.fractions, result.workloads.row_verdicts
        self._gpus, self._idle_gpus, self._unknown_gpus = (
            np.bincount(self._codes[rows], weights=self._fractions[rows], minlength=len(self._ids))
            for rows in (slice(None), *(self._verdicts.activity == ACTIVITIES.index(each) for each in NOT_USED))
        )
        self._activity = self._join_activity()
        self._state = name_states(self._score, self._activity, thresholds=result.settings.thresholds)
        self._activity[self._held :] = GPU_ACTIVITIES.index("free")
        self._state[self._held :] = GPU_STATES.index("free")
        self._verdict = self._join_verdicts()
        self.listing = self._make_listing()

    def _join_activity(self) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
        """As for workloads: active with one active holder; else unknown with one unknown holder."""
        codes = {each: ACTIVITIES.index(each) for each in Activity}
        active, unknown = (
            np.bincount(self._codes[self._verdicts.activity == codes[each]], minlength=len(self._ids)) > 0
            for each in (Activity.ACTIVE, Activity.UNKNOWN)
        )
        chosen = np.select([active, unknown], [codes[Activity.ACTIVE], codes[Activity.UNKNOWN]], codes[Activity.IDLE])
        return chosen.astype(np.int8)

    def _join_verdicts(self) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
        """As its activity; suspicious where nothing but suspicious work runs on it."""
        of_activity = np.array([GPU_VERDICTS.index(name) for name in GPU_ACTIVITIES], dtype=np.int8)
        works, suspicious = (
            np.bincount(self._codes[self._row_verdicts == VERDICTS.index(each)], minlength=len(self._ids)) > 0
            for each in (VerdictName.ACTIVE, VerdictName.SUSPICIOUS)
        )
        chosen = np.where(suspicious & ~works, GPU_VERDICTS.index("suspicious"), of_activity[self._activity])
        return chosen.astype(np.int8)

    def _make_listing(self) -> RowList:
        allocations, size = self._verdicts.usage.allocations, len(self._ids)
        node, model, cluster = (TextColumn(partial(self._read, name)) for name in ("node", "model", "cluster"))
        namespace = TextColumn(lambda: [one.container.namespace for one in allocations])
        names = TextColumn(self._read_names)
        of_names = np.concatenate((self._codes, np.arange(self._held, size)))
        return RowList(
            size,
            sorts={
                "id": self._ids,
                "node": node.sort,
                "model": model.sort,
                "score": self._score,
                "holders": self._holders,
            },
            filters={
                "namespace": filter_groups(namespace.is_any_of, self._codes, size=size),
                "state": filter_codes(self._state, GPU_STATES),
                "activity": filter_codes(self._activity, GPU_ACTIVITIES),
                "verdict": filter_codes(self._verdict, GPU_VERDICTS),
                "node": node.is_any_of,
                "model": model.is_any_of,
                "cluster": cluster.is_any_of,
                "q": filter_groups(names.contains_all, of_names, size=size),
            },
        )

    def _read(self, name: str) -> list[str]:
        """`name`: node, model or cluster. Of a GPU that is held, of its first allocation."""
        allocations, firsts = self._verdicts.usage.allocations, self._rows[self._begins[: self._held]].tolist()
        return [*(getattr(allocations[row], name) for row in firsts), *(getattr(key, name) for key, _ in self._free)]

    def _read_names(self) -> list[str]:
        """The texts that `q` searches: one per holder, and one per row of free GPUs."""
        allocations = self._verdicts.usage.allocations
        held = [f"{one.node} {gpu_id(one)} {one.container.namespace}/{one.container.pod}" for one in allocations]
        return [*held, *(f"{key.node} {key.model} free" for key, _ in self._free)]

    def make_row(self, number: int) -> GpuRow:
        return self._held_row(number) if number < self._held else self._free_row(number)

    def _free_row(self, number: int) -> GpuRow:
        key, gpus = self._free[number - self._held]
        return GpuRow(
            id=self._ids[number],
            cluster=key.cluster,
            uuid="",
            instance="",
            index="",
            node=key.node,
            model=key.model,
            gpus=gpus,
            score=None,
            state="free",
            activity="free",
            verdict="free",
            holders=[],
            idle_gpus=0.0,
            unknown_gpus=0.0,
            hidden_holders=0,
        )

    def _held_row(self, number: int) -> GpuRow:
        rows = self._rows[self._begins[number] : self._begins[number + 1]].tolist()
        allocation = self._verdicts.usage.allocations[rows[0]]
        return GpuRow(
            id=self._ids[number],
            cluster=allocation.cluster,
            uuid=allocation.gpu_uuid,
            instance=allocation.gpu_instance,
            index=allocation.gpu_index,
            node=allocation.node,
            model=allocation.model,
            gpus=round(float(self._gpus[number]), GPU_DIGITS),
            score=known_value(self._score, number, digits=1),
            state=GPU_STATES[self._state[number]],
            activity=GPU_ACTIVITIES[self._activity[number]],
            verdict=GPU_VERDICTS[self._verdict[number]],
            holders=[self._holder(row) for row in rows],
            idle_gpus=round(float(self._idle_gpus[number]), GPU_DIGITS),
            unknown_gpus=round(float(self._unknown_gpus[number]), GPU_DIGITS),
            hidden_holders=self._hidden_holders.get(device_key(allocation), 0),
        )

    def _holder(self, row: int) -> Holder:
        allocation, activity = self._verdicts.usage.allocations[row], ACTIVITIES[self._verdicts.activity[row]].value
        container = allocation.container
        return Holder(
            namespace=container.namespace,
            pod=container.pod,
            container=container.name,
            share=str(allocation.share),
            activity=activity,
            verdict=VERDICTS[self._row_verdicts[row]].value,
            proof=PROOFS[self._verdicts.proof[row]].value,
            gpu_fraction=round(float(self._fractions[row]), GPU_DIGITS),
        )


def view_gpus(published: PublishedResult) -> GpuView:
    return published.once(LISTING, lambda result: GpuView(result, view_fleet(published), published.hidden_holders))


@router.get("/gpus", summary="GPUs", response_model=Page[GpuRow])
def list_gpus(request: Request, published: LastResult, query: Annotated[GpuQuery, Query()]) -> Response:
    """Every GPU that is held, with its holders. Where the source counts free GPUs, those of each node and model are one
    row."""
    view = view_gpus(published)
    rows = partial(map, view.make_row)
    return send_page(request, query, result=published.result, listing=view.listing, make_rows=rows)


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
    verdict: Annotated[
        list[int], Field(description="Indexes `verdicts`. What is active of a suspicious workload is suspicious.")
    ]


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
    verdicts: list[str]
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
    return send_compact(request, published, "gpu-map", cluster, lambda _: _make_map(published, cluster))


def _make_map(published: PublishedResult, cluster: str | None) -> Mapping[str, object]:
    """Names and workloads are numbered when they are first used: those of other clusters are not in the response."""
    result, hidden = published.result, published.hidden_holders
    verdicts, table, allocations = result.verdicts, result.workloads, result.verdicts.usage.allocations
    fractions, scores = np.round(table.fractions, GPU_DIGITS).tolist(), np.round(verdicts.score, 1).tolist()
    activity, signature, owner = verdicts.activity.tolist(), verdicts.signature.tolist(), table.codes.tolist()
    clusters, nodes, workloads = Dictionary[str](), Dictionary[tuple[str, str]](), Dictionary[int]()
    models, namespaces, shares = Dictionary[str](), Dictionary[str](), Dictionary[str]()
    gpus = MapGpus([], [], [], [], [], [], [])
    for device in _list_devices(published, result):
        if cluster not in (None, device.cluster):
            continue
        gpus.node.append(nodes.code((device.cluster, device.node)))
        gpus.index.append(device.index)
        gpus.model.append(models.code(device.model))
        gpus.uuid.append(device.uuid)
        gpus.share.append(shares.code(device.share) if device.rows else -1)
        gpus.parts.append(
            [
                (fractions[row], activity[row], signature[row], workloads.code(owner[row]), scores[row])  # NaN: null
                for row in device.rows
            ]
        )
        held = {device_key(allocations[row]) for row in device.rows} if hidden else ()
        gpus.hidden_holders.append(sum(hidden.get(key, 0) for key in held))
    keys = [table.keys[number] for number in workloads.names]
    names = view_workloads(published).facts.list_names(workloads.names)
    owners = MapWorkloads(
        cluster=[clusters.code(key.cluster) for key in keys],
        kind=[key.kind for key in keys],
        namespace=[namespaces.code(key.namespace) for key in keys],
        name=[key.name for key in keys],
        user=[next(iter(each.users), "") for each in names],
        verdict=table.verdict_names[workloads.names].tolist() if workloads.names else [],
    )
    return {
        "nodes": MapNodes([node for _, node in nodes.names], [clusters.code(its) for its, _ in nodes.names]),
        "workloads": owners,
        "gpus": gpus,
        "clusters": clusters.names,
        "models": models.names,
        "namespaces": namespaces.names,
        "shares": shares.names,
        "activities": [each.value for each in ACTIVITIES],
        "signatures": [each.value for each in SIGNATURES],
        "verdicts": [each.value for each in VERDICTS],
    }


def _list_devices(published: PublishedResult, result: Result) -> list[_Device]:
    allocations = result.verdicts.usage.allocations
    rows = defaultdict[tuple[str, str, str], list[int]](list)
    for row, one in enumerate(allocations):
        rows[one.container.cluster, one.node, one.gpu_uuid].append(row)
    held: list[_Device] = []
    for its in rows.values():
        one = allocations[its[0]]
        held.append(
            _Device(one.container.cluster, one.node, one.model, one.gpu_index, one.gpu_uuid, str(one.share), its)
        )
    free = [
        _Device(key.cluster, key.node, key.model, "", "", "", ())
        for key, count in view_fleet(published).free.items()
        for _ in range(count)
    ]
    return sorted(
        [*held, *free], key=lambda one: (one.cluster, natural_key(one.node), not one.rows, natural_key(one.index))
    )
