"""The pid2pod dialect: nvidia-pid2pod's metric, the GPU memory of every process of a pod in MiB."""

from functools import partial

from gpusteward.agent.usage_counters import SnapshotView
from gpusteward.core import metrics
from gpusteward.core.containers import Container
from gpusteward.core.exposition import Family, LabelCache, Labels
from gpusteward.core.gpus import GpuProcess

MIB = 1024 * 1024


class Pid2PodDialect:
    """`nvidia_pid_pod{pid, process_name, pod_name, namespace, node_name}`."""

    name = "pid2pod"
    wanted: frozenset[str] = frozenset()

    def __init__(self, labels: LabelCache) -> None:
        self._labels = labels

    def families(self, view: SnapshotView) -> list[Family]:
        held: dict[str, int | None] = {}
        for process in view.snapshot.processes:
            who = process.container
            if who and who.pod:
                key = ("pid2pod", process.pid, process.name, who.pod, who.namespace)
                labels = self._labels.get_or_render(key, partial(_labels, process, who, view.snapshot.node))
                held[labels] = _plus(held.get(labels, 0), process.memory_bytes)
        return [Family(metrics.PID_POD, [(labels, size // MIB) for labels, size in held.items() if size is not None])]

    def list_unavailable(self, unsupported: frozenset[str]) -> list[str]:  # noqa: ARG002 - as its protocol
        return []


def _plus(left: int | None, right: int | None) -> int | None:
    """A process on several GPUs has one sample: the sum, or unknown if its memory on one of them is unknown."""
    return None if left is None or right is None else left + right


def _labels(process: GpuProcess, container: Container, node: str) -> Labels:
    return (
        ("pid", str(process.pid)),
        ("process_name", process.name),
        ("pod_name", container.pod),
        ("namespace", container.namespace),
        ("node_name", node),
    )
