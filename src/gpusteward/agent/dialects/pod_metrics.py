"""The dialects vgpu-monitor and pid2pod: k8s-vgpu-monitor's metrics of utilization and memory per pod and GPU, and
nvidia-pid2pod's metric, the GPU memory of every process of a pod in MiB.
"""

import math
from functools import partial

from gpusteward.agent.usage_counters import SnapshotView
from gpusteward.core import metrics
from gpusteward.core.exposition import Family, FamilyBuilder, LabelCache, Labels
from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import GpuProcess, Place

MIB = 1024 * 1024
_PodOnGpu = tuple[int, str, str]  # gpu index, pod, namespace


class VgpuMonitorDialect:
    """`pod_gpu_sm_util`, `pod_gpu_memory_used` and `pod_total_gpu_memory`, with a namespace label in addition."""

    name = "vgpu-monitor"
    wanted = frozenset({"utilization_ratio", "utilization_mean_ratio", "memory_used_bytes", "memory_total_bytes"})

    def __init__(self, labels: LabelCache) -> None:
        self._labels = labels

    def families(self, view: SnapshotView) -> list[Family]:
        builder = FamilyBuilder()
        rows = builder.rows(metrics.POD_SM, metrics.POD_MEMORY, metrics.POD_MEMORY_TOTAL)
        allocated = _memory_allocated(view)
        for key, (ratio, used) in _use_by_pod(view).items():
            rows.write(
                self._labels.get_or_render(("vgpu-monitor", key), partial(_labels, *key)),
                None if ratio is None else round(ratio * 100, 2),
                None if used is None else used // MIB,
                allocated.get(key),
            )
        return builder.families()

    def list_unavailable(self, unsupported: frozenset[str]) -> list[str]:
        return [metrics.POD_MEMORY_TOTAL.name] if "memory_total_bytes" in unsupported else []


def _labels(index: int, pod: str, namespace: str) -> Labels:
    return (("gpu_id", str(index)), ("pod", pod), ("namespace", namespace))


def _use_by_pod(view: SnapshotView) -> dict[_PodOnGpu, tuple[float | None, float | None]]:
    """Utilization and memory per pod and GPU, summed over containers and MIG instances."""
    rows: dict[_PodOnGpu, tuple[float | None, float | None]] = {}
    for split in view.splits:
        for part in split.parts:
            if part.by is Place.CONTAINER and part.container and part.container.pod:
                key = (split.gpu.index, part.container.pod, part.container.namespace)
                ratio, used = rows.get(key, (0.0, 0.0))
                rows[key] = _plus(ratio, part.utilization_ratio), _plus(used, part.memory_bytes)
    return rows


def _plus(left: float | None, right: float | None) -> float | None:
    """The sum; unknown if one of them is."""
    return None if left is None or right is None else left + right


def _memory_allocated(view: SnapshotView) -> dict[_PodOnGpu, float]:
    """Memory each pod may use: its limit if the sharing system sets one, else the whole device.

    Allocations of several containers are summed, up to the size of the device.
    """
    gpus = {split.gpu.uuid: split.gpu for split in view.splits}
    by_device: dict[tuple[str, str, str], float] = {}
    for allocation in view.snapshot.allocations:
        gpu = gpus.get(allocation.gpu_uuid)
        size = allocation.memory_limit_bytes or (gpu.memory_total_bytes if gpu else None)
        if gpu is not None and size:
            pod_on_device = (gpu.uuid, allocation.container.pod, allocation.container.namespace)
            by_device[pod_on_device] = min(by_device.get(pod_on_device, 0) + size, gpu.memory_total_bytes or math.inf)
    allocated: dict[_PodOnGpu, float] = {}
    for (uuid, pod, namespace), total in by_device.items():
        key = (gpus[uuid].index, pod, namespace)
        allocated[key] = allocated.get(key, 0) + total // MIB
    return allocated


class Pid2PodDialect:
    """`nvidia_pid_pod{pid, process_name, pod_name, namespace, node_name}`."""

    name = "pid2pod"
    wanted: frozenset[str] = frozenset()

    def __init__(self, labels: LabelCache) -> None:
        self._labels = labels

    def families(self, view: SnapshotView) -> list[Family]:
        held: dict[str, float | None] = {}
        for process in view.snapshot.processes:
            who = process.container
            if who and who.pod:
                key = ("pid2pod", process.pid, process.name, who.pod, who.namespace)
                labels = self._labels.get_or_render(key, partial(_process_labels, process, who, view.snapshot.node))
                # A process on several GPUs has one sample.
                held[labels] = _plus(held.get(labels, 0), process.memory_bytes)
        return [Family(metrics.PID_POD, [(labels, size // MIB) for labels, size in held.items() if size is not None])]

    def list_unavailable(self, unsupported: frozenset[str]) -> list[str]:  # noqa: ARG002 - as its protocol
        return []


def _process_labels(process: GpuProcess, container: Container, node: str) -> Labels:
    return (
        ("pid", str(process.pid)),
        ("process_name", process.name),
        ("pod_name", container.pod),
        ("namespace", container.namespace),
        ("node_name", node),
    )
