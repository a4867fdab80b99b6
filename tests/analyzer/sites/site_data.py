"""A simulated cluster whose truth is known, and what a Prometheus stores of it: pages of exporters, scraped as
Prometheus does it (labels of the target, honor_labels, metric_relabel_configs, external labels, `up`)."""

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

from gpusteward.core.exposition import render_labels
from tests.analyzer.remote_write import Sample

GIB = 1 << 30
HISTORY_SECONDS = 4500.0
AHEAD_SECONDS = 300.0
"""Samples reach beyond the present, since time goes on while they are read."""
STALE = struct.unpack("<d", bytes.fromhex("020000000000f07f"))[0]
"""What Prometheus writes when a series ends; no computation may touch it, or it becomes an ordinary NaN."""

Labels = Mapping[str, str]
Point = tuple[str, Labels, float]  # of a page: metric, labels, value


class Load(NamedTuple):
    """What a workload does to its GPU."""

    core: float  # 0 to 1
    gib: float
    watts: float

    @property
    def works(self) -> bool:
        return self.core > 0


TRAINING, SERVING, PARKED, EMPTY = Load(0.9, 60, 520), Load(0.3, 40, 220), Load(0, 20, 72), Load(0, 0, 64)
BUSY_SITE = (*[("training-0", TRAINING)] * 4, ("chat-7d9f4-x2x9p", SERVING), ("notebook-ada", PARKED), ("debug", EMPTY))
BUSY_SITE = (*BUSY_SITE, None)
OTHER_NODE = (*[("training-1", TRAINING)] * 2, ("notebook-bob", PARKED), ("embed-5c8b7-k4k4w", SERVING))
OTHER_NODE = (*OTHER_NODE, ("rerank-0", SERVING), ("shell", EMPTY), None, None)
RESTING = (*[("training-0", PARKED)] * 4, ("chat-7d9f4-x2x9p", EMPTY), ("notebook-ada", PARKED), ("debug", EMPTY), None)


class Gpu(NamedTuple):
    """One of the cluster, with its holder."""

    cluster: "Cluster"
    node: str
    index: int
    pod: str  # empty: nobody holds it
    load: Load

    @property
    def uuid(self) -> str:
        return f"GPU-{self.cluster.key}{self.node[-1]}{self.index}0b1e5-0a7c-4d2e-9f00-{self.index:012d}"

    @property
    def bus_id(self) -> str:
        return f"00000000:{0x1A + 13 * self.index:02X}:00.0"


@dataclass(frozen=True)
class Cluster:
    """Nodes of eight GPUs. `key`: a part of the UUIDs."""

    key: str = "a"
    nodes: tuple[tuple[tuple[str, Load] | None, ...], ...] = (BUSY_SITE, OTHER_NODE)
    names: tuple[str, ...] = ("gpu-node-1", "gpu-node-2")
    namespace: str = "research"

    @property
    def gpus(self) -> list[Gpu]:
        return [
            Gpu(self, name, index, *(held or ("", EMPTY)))
            for name, node in zip(self.names, self.nodes, strict=True)
            for index, held in enumerate(node)
        ]


def holder(gpu: Gpu) -> Labels:
    """As dcgm-exporter names it; nothing without one."""
    return {"container": "main", "namespace": gpu.cluster.namespace, "pod": gpu.pod} if gpu.pod else {}


def dcgm(gpu: Gpu, at: float) -> Iterator[Point]:
    """A page of dcgm-exporter with its default fields."""
    labels = {**dcgm_device(gpu), **holder(gpu)}
    return ((f"DCGM_FI_{name}", labels, value) for name, value in dcgm_values(gpu, at).items())


def dcgm_device(gpu: Gpu) -> dict[str, str]:
    device = {"gpu": str(gpu.index), "UUID": gpu.uuid, "pci_bus_id": gpu.bus_id, "device": f"nvidia{gpu.index}"}
    return {**device, "modelName": "NVIDIA H100 80GB HBM3", "Hostname": gpu.node, "DCGM_FI_DRIVER_VERSION": "550.54"}


def dcgm_values(gpu: Gpu, at: float) -> dict[str, float]:
    load, wave = gpu.load, math.sin(at / 17 + gpu.index)
    core = load.core * (1 + 0.08 * wave)
    used = max(load.gib * 1024, 4)
    return {
        "DEV_GPU_UTIL": round(100 * core),
        "DEV_MEM_COPY_UTIL": round(40 * core),
        "DEV_ENC_UTIL": 0,
        "DEV_DEC_UTIL": 0,
        "DEV_FB_USED": used,
        "DEV_FB_FREE": 81_000 - used,
        "DEV_POWER_USAGE": round(load.watts + (15 if load.works else 1) * wave, 3),
        "DEV_TOTAL_ENERGY_CONSUMPTION": round(1e9 + 1000 * load.watts * (at % 1e7)),
        "DEV_GPU_TEMP": 40 + round(30 * core),
        "DEV_XID_ERRORS": 0,
        "PROF_GR_ENGINE_ACTIVE": round(core, 4),
        "PROF_DRAM_ACTIVE": round(0.4 * core, 4),
        "PROF_PIPE_TENSOR_ACTIVE": round(0.3 * core, 4),
        "PROF_PCIE_TX_BYTES": round(2e5 + 4e8 * core),
        "PROF_PCIE_RX_BYTES": round(2e5 + 6e8 * core),
    }


def native(gpu: Gpu, at: float) -> Iterator[Point]:
    """A page of gpusteward's agent."""
    load, since = gpu.load, at % 1e7
    device = {"node": gpu.node, "gpu": str(gpu.index), "uuid": gpu.uuid}
    yield "gpusteward_allocations_known", {"node": gpu.node}, 1.0
    yield "gpusteward_gpu_info", {**device, "model": "NVIDIA H100 80GB HBM3"}, 1.0
    for name, value in (
        ("gpu_utilization_ratio", load.core),
        ("gpu_busy_seconds_total", load.core * since),
        ("gpu_outside_use_seconds_total", 0.0),
        ("gpu_power_watts", load.watts),
        ("gpu_memory_total_bytes", 80.0 * GIB),
    ):
        yield f"gpusteward_{name}", device, value
    if not gpu.pod:
        return
    held = {**device, **holder(gpu), "pod_uid": f"uid-{gpu.pod}"}
    owner = {"workload_kind": "Job", "workload": gpu.pod, "share": "exclusive"}
    yield "gpusteward_allocation_info", {**held, **owner}, 1.0
    yield "gpusteward_allocation_start_time_seconds", held, at - since + 1.0
    own = {**held, "by": "container"}
    for name, value in (
        ("use_utilization_ratio", load.core),
        ("use_memory_bytes", load.gib * GIB),
        ("use_processes", float(load.gib > 0)),
        ("use_busy_seconds_total", load.core * since),
        ("use_video_seconds_total", 0.0),
    ):
        yield f"gpusteward_{name}", own, value


def hami(gpu: Gpu, at: float) -> Iterator[Point]:
    """HAMi's monitor, and a dcgm-exporter that knows no pods."""
    del at
    if gpu.pod:
        own = {"device_uuid": gpu.uuid, "vdevice_index": "0", "node": gpu.node, **holder(gpu)}
        yield "hami_container_device_utilization_ratio", own, 100 * gpu.load.core
        yield "hami_vgpu_memory_used_bytes", own, gpu.load.gib * GIB
        yield "hami_vgpu_memory_limit_bytes", own, 80.0 * GIB


def unmapped(gpu: Gpu, at: float) -> Iterator[Point]:
    """dcgm-exporter without the kubelet's socket."""
    return ((f"DCGM_FI_{name}", dcgm_device(gpu), value) for name, value in dcgm_values(gpu, at).items())


Rule = Callable[[str, dict[str, str]], tuple[str, dict[str, str]] | None]
"""A part of metric_relabel_configs: metric and labels, changed; None: the series is dropped."""


def rename(**names: str) -> Rule:
    def change(metric: str, labels: dict[str, str]) -> tuple[str, dict[str, str]]:
        return metric, {names.get(name, name): value for name, value in labels.items()}

    return change


def move(source: str, target: str) -> Rule:
    """`source_labels: [source], regex: (.+), target_label: target`, and the source is dropped."""

    def change(metric: str, labels: dict[str, str]) -> tuple[str, dict[str, str]]:
        found = labels.pop(source, "")
        return metric, {**labels, target: found} if found else labels

    return change


def drop(*names: str) -> Rule:
    return lambda metric, labels: (metric, {name: value for name, value in labels.items() if name not in names})


def add(**others: str) -> Rule:
    return lambda metric, labels: (metric, {**labels, **others})


def rename_metrics(change: Callable[[str], str]) -> Rule:
    """An empty name drops the series."""

    def apply(metric: str, labels: dict[str, str]) -> tuple[str, dict[str, str]] | None:
        name = change(metric)
        return (name, labels) if name else None

    return apply


def keep(*parts: str) -> Rule:
    """Only metrics with one of these in their names."""
    return rename_metrics(lambda name: name if any(part in name for part in parts) else "")


def without(*parts: str) -> Rule:
    return rename_metrics(lambda name: "" if any(part in name for part in parts) else name)


Page = Callable[[Gpu, float], Iterable[Point]]
Label = Callable[[str, tuple[tuple[str, str], ...]], tuple[str, str] | None]


def kubernetes_target(node: str) -> Labels:
    """As a ServiceMonitor labels the exporter's pod."""
    own = {"pod": f"nvidia-dcgm-exporter-{node[-1]}x7q2", "namespace": "gpu-operator", "container": "exporter"}
    return {**own, "instance": f"10.0.{node[-1]}.7:9400", "service": "nvidia-dcgm-exporter", "endpoint": "gpu-metrics"}


def plain_target(node: str) -> Labels:
    return {"instance": f"{node}:9400"}


def is_up(_node: str, _age: float) -> float | None:
    return 1.0


@dataclass(frozen=True)
class Job:
    """A scrape job over the exporters of a cluster. Ages are seconds before the present; ahead of it they are
    negative."""

    cluster: Cluster = Cluster()
    page: Page = dcgm
    name: str = "nvidia-dcgm-exporter"
    target: Callable[[str], Labels] = kubernetes_target
    honor: bool = False
    rules: tuple[Rule, ...] = ()
    external: tuple[tuple[str, str], ...] = ()  # labels that remote write adds
    step: Callable[[str], float] = lambda _node: 30.0
    up: Callable[[str, float], float | None] = is_up  # of a node at an age: 0: the scrape fails; None: no such target
    has_up: bool = True
    lag: Callable[[str, float], float] = lambda _node, _now: 0.0
    """How late samples are, as seen at a time; in seconds, of a node."""
    value: Callable[[str, Gpu, float, float], float | None] = lambda _metric, _gpu, _age, value: value
    """Changes a value; None: no sample."""

    def store(self, now: float, *, after: float, until: float) -> Iterator[Sample]:
        """What is stored from after one time until another. `now`: the present, which ages are counted from."""
        for number, node in enumerate(self.cluster.names):
            step, lag = self.step(node), self.lag(node, until)
            gpus = [gpu for gpu in self.cluster.gpus if gpu.node == node]
            first = now - HISTORY_SECONDS - (now - HISTORY_SECONDS) % step + 3 + 2 * number
            label = cache(partial(self._label, node))
            for count in range(int((HISTORY_SECONDS + AHEAD_SECONDS) / step) + 1):
                at = first + count * step
                if not after - self.lag(node, after) < at <= until - lag:
                    continue
                is_up = self.up(node, now - at)
                if is_up is not None and self.has_up:
                    yield "up", self._target_labels(node), is_up, at
                if is_up:
                    yield from self._scrape(gpus, label, now - at, at)
                elif count and self.up(node, now - at + step):
                    ended = self._scrape(gpus, label, now - at, at)
                    yield from ((name, labels, STALE, at) for name, labels, _, _ in ended)

    def _scrape(self, gpus: Iterable[Gpu], label: Label, age: float, at: float) -> Iterator[Sample]:
        for gpu in gpus:
            for metric, labels, value in self.page(gpu, at):
                stored = label(metric, tuple(labels.items()))
                changed = self.value(metric, gpu, age, value) if stored else None
                if stored and changed is not None:
                    yield *stored, changed, at

    def _target_labels(self, node: str) -> str:
        labels = {**self.target(node), "job": self.name, **dict(self.external)}
        return render_labels(sorted(labels.items()))

    def _label(self, node: str, metric: str, page: tuple[tuple[str, str], ...]) -> tuple[str, str] | None:
        """Name and labels of a series as they are stored; None: relabeling drops it."""
        own, labels = {**self.target(node), "job": self.name}, dict(page)
        if self.honor:
            labels = {**own, **{name: value for name, value in labels.items() if value}}
        else:
            labels = {**{f"exported_{name}" if name in own else name: value for name, value in labels.items()}, **own}
        found: tuple[str, dict[str, str]] | None = (metric, {name: value for name, value in labels.items() if value})
        for rule in self.rules:
            found = rule(*found) if found else None
        if found is None:
            return None
        return found[0], render_labels(sorted({**dict(self.external), **found[1]}.items()))
