"""The pod uids of holders that only the kubelet knows, from the cgroups of the processes on their GPUs.

The kubelet lists holders by name. While the API server is not available, their uids are in the cgroups of their
processes only: a pod has one uid and a uid belongs to one pod. If the cgroups contradict that, a process of another pod
runs on the GPU, and nothing shows which of them is the holder: the GPU is disputed and its processes stay unnamed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpusteward.agent.attribution import (
    AttributionInput,
    find_pod,
    group_by_gpu,
    is_held_exclusively,
    locate_process,
)
from gpusteward.core.allocations import Allocation
from gpusteward.core.gpus import GpuProcess

MEMORY_SECONDS = 60.0
"""How long a uid without a process still contradicts another one. After that the pod was probably replaced by one of
the same name. The value is our guess."""

_PodName = tuple[str, str]  # namespace, name


class HolderUids:
    """Remembers the uids seen on the GPUs of each holder: its identity must not change when its processes end."""

    def __init__(self) -> None:
        self._seen: dict[_PodName, dict[str, float]] = {}  # pod -> uid -> when last seen

    def identify(self, processes: Sequence[GpuProcess], known: AttributionInput, *, now: float) -> AttributionInput:
        """Return the input with the uids of its holders, and with the GPUs that are disputed."""
        unnamed = {_name(each) for each in known.allocations if not each.container.pod_uid}
        self._seen = {pod: uids for pod, uids in self._seen.items() if pod in unnamed}
        if not unnamed:
            return known
        held = {
            uuid: _name(holders[0])
            for uuid, holders in group_by_gpu(known.allocations).items()
            if is_held_exclusively(holders) and _name(holders[0]) in unnamed
        }
        self._see(processes, known, held, now)
        return self._apply(known, held, now)

    def _see(
        self, processes: Sequence[GpuProcess], known: AttributionInput, held: Mapping[str, _PodName], now: float
    ) -> None:
        for process in processes:
            uid = _find_unknown_uid(process, known)
            if uid and process.gpu_uuid in held:
                self._seen.setdefault(held[process.gpu_uuid], {})[uid] = now

    def _apply(self, known: AttributionInput, held: Mapping[str, _PodName], now: float) -> AttributionInput:
        candidates = {pod: _choose(uids, now) for pod, uids in self._seen.items()}
        pods_of = Counter(uid for uids in candidates.values() for uid in uids)
        proven = {pod: uids[0] for pod, uids in candidates.items() if len(uids) == 1 and pods_of[uids[0]] == 1}
        return replace(
            known,
            allocations=tuple(_set_uid(each, proven.get(_name(each), "")) for each in known.allocations),
            disputed=frozenset(uuid for uuid, pod in held.items() if pod in candidates and pod not in proven),
        )


def _find_unknown_uid(process: GpuProcess, known: AttributionInput) -> str:
    """The pod uid of the process, unless the API server knows the pod, or one of several nested pods may be meant."""
    identity = known.identities.get(process.pid)
    if identity is None or find_pod(locate_process(identity, known.pods), known.pods):
        return ""
    return "" if any(level.pod_uid for level in identity.outer) else identity.pod_uid


def _choose(uids: Mapping[str, float], now: float) -> list[str]:
    """The uids seen recently; without any, the last one seen."""
    return [uid for uid, at in uids.items() if abs(now - at) <= MEMORY_SECONDS] or [max(uids, key=uids.__getitem__)]


def _name(allocation: Allocation) -> _PodName:
    return allocation.container.namespace, allocation.container.pod


def _set_uid(allocation: Allocation, uid: str) -> Allocation:
    if not uid or allocation.container.pod_uid:
        return allocation
    return replace(allocation, container=replace(allocation.container, pod_uid=uid))
