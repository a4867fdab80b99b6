"""Processes on GPUs as reported by gpusteward's agents. They are read on demand and never stored."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import NamedTuple

from gpusteward.core import metrics

METRIC_NAMES = frozenset(
    metric.name
    for metric in (
        *(metrics.USE_PROCESSES, metrics.PROCESS_MEMORY, metrics.PROCESS_MEMORY_UNKNOWN),
        *(metrics.PROCESS_UTILIZATION, metrics.PROCESS_OUTSIDE),
    )
)
"""The metrics about processes; the first one is also reported for pods without a process."""

_ENGINE = "sm"
_LARGEST_PID = 2**32


class Pod(NamedTuple):
    """A pod whose processes are queried."""

    namespace: str
    name: str
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process on one GPU; None is unknown."""

    pod: Pod
    container: str
    node: str
    gpu_index: str
    gpu_uuid: str  # of a MIG instance its own
    gpu_instance: str  # of MIG
    mig_profile: str
    pid: int
    name: str
    memory_bytes: float | None = None
    sm_ratio: float | None = None
    outside_allocation: bool = False  # on a GPU that its pod does not hold


@dataclass(frozen=True, slots=True)
class PodProcesses:
    """The processes of some pods."""

    processes: list[RunningProcess] = field(default_factory=list)
    reported: frozenset[Pod] = frozenset()  # pods that an agent reports; the processes of others are unknown


class HolderLabels(NamedTuple):
    """The label names of the holder: an engine may have renamed them."""

    namespace: str = "namespace"
    pod: str = "pod"
    container: str = "container"
    cluster: str = ""


class ProcessSample(NamedTuple):
    metric: str
    labels: Mapping[str, str]
    value: float


def collect_processes(samples: Iterable[ProcessSample], pods: Collection[Pod], labels: HolderLabels) -> PodProcesses:
    """The processes of these pods by node, GPU and pid. Duplicate samples count once."""
    reported: set[Pod] = set()
    processes: dict[tuple[str, str, str, str], RunningProcess] = {}
    for sample in samples:
        pod = Pod(*(sample.labels.get(label, "") for label in (labels.namespace, labels.pod, labels.cluster)))
        if pod not in pods or not isfinite(sample.value):
            continue
        if sample.metric == metrics.USE_PROCESSES.name:
            reported.add(pod)
        elif (pid := _read_pid(sample.labels)) is not None:
            node, uuid, text = (sample.labels.get(label, "") for label in ("node", "uuid", "pid"))
            key = (pod.cluster, node, uuid, text)
            process = processes.get(key) or _make_process(pod, pid, sample.labels, labels)
            processes[key] = _add_value(process, sample)
    return PodProcesses(sorted(processes.values(), key=_order), frozenset(reported))


def _order(process: RunningProcess) -> tuple[str, str, int, str, str, int]:
    return process.pod.cluster, process.node, len(process.gpu_index), process.gpu_index, process.gpu_uuid, process.pid


def _read_pid(labels: Mapping[str, str]) -> int | None:
    text = labels.get("pid", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST_PID)) else None


def _make_process(pod: Pod, pid: int, labels: Mapping[str, str], names: HolderLabels) -> RunningProcess:
    return RunningProcess(
        pod,
        labels.get(names.container, ""),
        node=labels.get("node", ""),
        gpu_index=labels.get("gpu", ""),
        gpu_uuid=labels.get("uuid", ""),
        gpu_instance=labels.get("gpu_instance_id", ""),
        mig_profile=labels.get("mig_profile", ""),
        pid=pid,
        name=labels.get("process", ""),
    )


def _add_value(process: RunningProcess, sample: ProcessSample) -> RunningProcess:
    if sample.metric == metrics.PROCESS_MEMORY.name:
        return replace(process, memory_bytes=sample.value)
    if sample.metric == metrics.PROCESS_OUTSIDE.name:
        return replace(process, outside_allocation=sample.value == 1)
    return replace(process, sm_ratio=sample.value) if sample.labels.get("engine") == _ENGINE else process
