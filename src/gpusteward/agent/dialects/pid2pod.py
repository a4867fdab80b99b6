"""nvidia-pid2pod's one family: the GPU memory of every process of a pod, in MiB."""

from gpusteward.agent.dialects.sheets import Labels, Sheet
from gpusteward.agent.meters import View
from gpusteward.core import metrics
from gpusteward.core.exposition import Family, LabelCache
from gpusteward.core.processes import GpuProcess

MIB = 1024 * 1024


class Pid2PodDialect:
    """`nvidia_pid_pod{pid, process_name, pod_name, namespace, node_name}`."""

    name = "pid2pod"
    wanted: frozenset[str] = frozenset()

    def __init__(self, labels: LabelCache) -> None:
        self._labels = labels

    def families(self, view: View) -> list[Family]:
        held: dict[Labels, int | None] = {}
        for process in view.snapshot.processes:
            if process.container and process.container.pod:
                labels = _labels(process, view.snapshot.node)
                held[labels] = _plus(held.get(labels, 0), process.memory_bytes)
        sheet = Sheet()
        for labels, memory_bytes in held.items():
            if memory_bytes is not None:
                sheet.write(self._labels.render(labels), (metrics.PID_POD, memory_bytes // MIB))
        return sheet.families()


def _plus(left: int | None, right: int | None) -> int | None:
    """A process on several GPUs has one sample: the sum, unknown if its memory on one of them is."""
    return None if left is None or right is None else left + right


def _labels(process: GpuProcess, node: str) -> Labels:
    container = process.container
    assert container is not None
    return (
        ("pid", str(process.pid)),
        ("process_name", process.name),
        ("pod_name", container.pod),
        ("namespace", container.namespace),
        ("node_name", node),
    )
