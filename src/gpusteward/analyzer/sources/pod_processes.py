"""Processes on GPUs as gpusteward's agents tell them: asked for when somebody looks, never kept."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import NamedTuple

from gpusteward.core import metrics

NAMES = frozenset(
    metric.name
    for metric in (
        *(metrics.USE_PROCESSES, metrics.PROCESS_MEMORY),
        *(metrics.PROCESS_UTILIZATION, metrics.PROCESS_OUTSIDE),
    )
)
"""Families that say what runs; the first of them says it of who runs nothing, too."""

_ENGINE = "sm"
_LARGEST_PID = 2**32


class Pod(NamedTuple):
    """Whose processes are asked for."""

    namespace: str
    name: str


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
class Running:
    """What some pods run."""

    processes: list[RunningProcess] = field(default_factory=list)
    told: frozenset[Pod] = frozenset()  # pods an agent speaks of; what others run, nobody knows


class HolderLabels(NamedTuple):
    """What the labels of the holder are called: an engine may have renamed them."""

    namespace: str = "namespace"
    pod: str = "pod"
    container: str = "container"


Sample = tuple[str, Mapping[str, str], float]  # family, labels, value


def gather(samples: Iterable[Sample], pods: Collection[Pod], names: HolderLabels) -> Running:
    """What these pods run, by node, GPU and pid. What is said twice counts once."""
    told: set[Pod] = set()
    found: dict[tuple[str, str, str], RunningProcess] = {}
    for family, labels, value in samples:
        pod = Pod(labels.get(names.namespace, ""), labels.get(names.pod, ""))
        if pod not in pods or not isfinite(value):
            continue
        if family == metrics.USE_PROCESSES.name:
            told.add(pod)
        elif (pid := _read_pid(labels)) is not None:
            key = (labels.get("node", ""), labels.get("uuid", ""), labels.get("pid", ""))
            process = found.get(key) or _meet(pod, pid, labels, names)
            found[key] = _learn(process, family, labels, value)
    return Running(sorted(found.values(), key=_order), frozenset(told))


def _order(process: RunningProcess) -> tuple[str, int, str, str, int]:
    return process.node, len(process.gpu_index), process.gpu_index, process.gpu_uuid, process.pid


def _read_pid(labels: Mapping[str, str]) -> int | None:
    text = labels.get("pid", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST_PID)) else None


def _meet(pod: Pod, pid: int, labels: Mapping[str, str], names: HolderLabels) -> RunningProcess:
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


def _learn(process: RunningProcess, family: str, labels: Mapping[str, str], value: float) -> RunningProcess:
    if family == metrics.PROCESS_MEMORY.name:
        return replace(process, memory_bytes=value)
    if family == metrics.PROCESS_OUTSIDE.name:
        return replace(process, outside_allocation=value == 1)
    return replace(process, sm_ratio=value) if labels.get("engine") == _ENGINE else process
