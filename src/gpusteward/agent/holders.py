"""What processes prove about holders that the kubelet does not tell: their pod uids while the API server is not
available, and the GPUs of init containers.

The kubelet lists holders by name. Without the API server their uids are in the cgroups of their processes only: a pod
has one uid and a uid belongs to one pod. If the cgroups contradict that, a process of another pod runs on the GPU, and
nothing shows which of them is the holder: the GPU is disputed and its processes stay unnamed.

GPUs of init containers are not listed. A process proves the GPU of its container while it runs, and the pod keeps that
GPU until it ends. Without a process only the number of GPUs is known, from the spec of the pod; that of a dynamic
resource claim is not, and one is assumed. An init container on more GPUs than that is not confined to its devices, and
none of them is taken for its own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpusteward.agent.attribution import (
    AttributionInput,
    find_pod,
    has_exclusive_holder,
    is_held_exclusively,
    locate_process,
    name_pod,
)
from gpusteward.agent.kubernetes.kubelet import DRA_DRIVER, Claim
from gpusteward.agent.kubernetes.pods import Pod, PodName
from gpusteward.agent.shares.annotations import read_grants
from gpusteward.core.node.gpus import GpuAllocation, GpuProcess, UnlistedDevices
from gpusteward.core.node.usage_split import group_by_gpu

MEMORY_SECONDS = 60.0
"""How long a uid without a process still contradicts another one. After that the pod was probably replaced by one of
the same name. The value is our guess."""


class HolderUids:
    """Remembers the uids seen on the GPUs of each holder: its identity must not change when its processes end."""

    def __init__(self) -> None:
        self._seen: dict[PodName, dict[str, float]] = {}  # pod -> uid -> when last seen

    def identify(self, processes: Sequence[GpuProcess], known: AttributionInput, *, now: float) -> AttributionInput:
        """Return the input with the uids of its holders, and with the GPUs that are disputed."""
        unnamed = {name_pod(each) for each in known.allocations if not each.container.pod_uid}
        self._seen = {pod: uids for pod, uids in self._seen.items() if pod in unnamed}
        if not unnamed:
            return known
        held = {
            uuid: name_pod(holders[0])
            for uuid, holders in group_by_gpu(known.allocations).items()
            if is_held_exclusively(holders) and name_pod(holders[0]) in unnamed
        }
        for process in processes:
            uid = _find_unknown_uid(process, known)
            if uid and process.gpu_uuid in held:
                self._seen.setdefault(held[process.gpu_uuid], {})[uid] = now
        candidates = {pod: _choose(uids, now) for pod, uids in self._seen.items()}
        pods_of = Counter(uid for uids in candidates.values() for uid in uids)
        proven = {pod: uids[0] for pod, uids in candidates.items() if len(uids) == 1 and pods_of[uids[0]] == 1}
        return replace(
            known,
            allocations=tuple(_set_uid(each, proven.get(name_pod(each), "")) for each in known.allocations),
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


def _set_uid(allocation: GpuAllocation, uid: str) -> GpuAllocation:
    if not uid or allocation.container.pod_uid:
        return allocation
    return replace(allocation, container=replace(allocation.container, pod_uid=uid))


class InitContainerGpus:
    """Remembers which GPU an init container used."""

    def __init__(self, accepts: Callable[[str], bool]) -> None:
        """`accepts`: whether a resource is a GPU."""
        self._accepts = accepts
        self._claims: dict[str, dict[str, Claim]] = {}  # pod uid -> GPU uuid -> claim

    def forget_ended(self, pods: Mapping[str, Pod]) -> None:
        """Drop the GPUs of pods that have ended."""
        self._claims = {uid: own for uid, own in self._claims.items() if uid in pods and not pods[uid].is_finished}

    def claims_besides(self, listed: Sequence[Claim]) -> tuple[Claim, ...]:
        """The claims found, without those on GPUs that the kubelet lists for somebody."""
        taken = {claim.device_id for claim in listed}
        return tuple(claim for own in self._claims.values() for uuid, claim in own.items() if uuid not in taken)

    def learn(
        self, processes: Sequence[GpuProcess], allocations: Sequence[GpuAllocation], pods: Mapping[str, Pod]
    ) -> bool:
        """Add the GPUs that init containers use now. Returns whether there are any."""
        holders = group_by_gpu(allocations)
        found: dict[str, dict[str, Claim]] = {}
        for process in processes:
            pod = pods.get(process.pod_uid)
            claim = self._find_claim(process, pod, holders.get(process.gpu_uuid, ())) if pod else None
            if pod and claim:
                found.setdefault(pod.uid, {})[process.gpu_uuid] = claim
        fitting = {uid: claims for uid, claims in found.items() if self._fits(pods[uid], len(claims))}
        for uid, claims in fitting.items():
            self._claims.setdefault(uid, {}).update(claims)
        return bool(fitting)

    def count_unlisted(self, pods: Mapping[str, Pod]) -> Iterator[UnlistedDevices]:
        """Devices of init containers whose GPU is still unknown, by pod and resource."""
        for pod in _list_pods(pods):
            found = len(self._claims.get(pod.uid, ()))
            for resource, count in self._counts(pod).items():
                if count > found:
                    yield UnlistedDevices(pod.container(""), resource, count - found)
                found = max(0, found - count)

    def find_reserving(self, pods: Mapping[str, Pod]) -> frozenset[tuple[str, str]]:
        """Namespace and name of the pods with devices whose GPU is still unknown."""
        return frozenset((pod.namespace, pod.name) for pod in _list_pods(pods) if self._fits(pod, 1))

    def _find_claim(self, process: GpuProcess, pod: Pod, holders: Sequence[GpuAllocation]) -> Claim | None:
        """The claim of an init container on the GPU of its process, unless that GPU is listed for a pod."""
        container = process.container
        if container is None or pod.init_devices is None or read_grants(pod):
            return None
        is_own = any(name_pod(each) == (pod.namespace, pod.name) for each in holders)
        if container.name not in pod.init_devices.containers or is_own or has_exclusive_holder(holders):
            return None
        resource = next(iter(self._counts(pod)), DRA_DRIVER)
        return Claim(pod.namespace, pod.name, container.name, resource, process.gpu_uuid)

    def _fits(self, pod: Pod, added: int) -> bool:
        """Whether the pod may have that many more. Otherwise its processes are not confined to its devices."""
        claims = pod.init_devices.claims if pod.init_devices else 0
        return added <= sum(self._counts(pod).values()) + claims - len(self._claims.get(pod.uid, ()))

    def _counts(self, pod: Pod) -> dict[str, int]:
        counts = pod.init_devices.counts if pod.init_devices else {}
        return {resource: count for resource, count in counts.items() if self._accepts(resource)}


def _list_pods(pods: Mapping[str, Pod]) -> Iterable[Pod]:
    """The pods with devices of init containers; a static pod has two uids."""
    return {pod.uid: pod for pod in pods.values() if pod.init_devices and not pod.is_finished}.values()
