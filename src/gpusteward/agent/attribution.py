"""Joins what NVML, /proc, the kubelet and the API server said into one Snapshot. Pure.

A process is named by, in order of trust: its cgroup with the pods of this node; its cgroup alone; the one holder of
the GPU it runs on. What stays over is `host` or `unattributed`, and counted as such.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpusteward.agent.kubernetes.pod_watch import Pod
from gpusteward.agent.proc.process_table import ProcessIdentity
from gpusteward.core.allocations import Allocation, Share
from gpusteward.core.containers import Container, Workload
from gpusteward.core.gpus import GpuProcess, Place


@dataclass(frozen=True, slots=True)
class AttributionInput:
    """Everybody who can say whose process it is."""

    identities: Mapping[int, ProcessIdentity] = field(default_factory=dict)
    pods: Mapping[str, Pod] = field(default_factory=dict)
    allocations: Sequence[Allocation] = ()
    allocations_known: bool = True
    unplaced: frozenset[tuple[str, str]] = frozenset()  # pods that hold a device nobody found: namespace, name


def attribute(processes: Sequence[GpuProcess], witnesses: AttributionInput) -> tuple[GpuProcess, ...]:
    """Give every process its place, its container, and a flag if it runs where its pod has no claim."""
    holders: dict[str, list[Allocation]] = {}
    for allocation in witnesses.allocations:
        holders.setdefault(allocation.gpu_uuid, []).append(allocation)
    return tuple(_attribute_one(process, witnesses, holders.get(process.gpu_uuid, [])) for process in processes)


def _attribute_one(process: GpuProcess, witnesses: AttributionInput, holders: Sequence[Allocation]) -> GpuProcess:
    identity = witnesses.identities.get(process.pid, _NOBODY)
    container = _container(identity, witnesses.pods, holders)
    return GpuProcess(
        process.pid,
        process.gpu_uuid,
        identity.name,
        process.memory_bytes,
        process.sm_ratio,
        process.memory_ratio,
        process.encoder_ratio,
        process.decoder_ratio,
        identity.container_id,
        identity.pod_uid or (container.pod_uid if container else ""),
        Place.CONTAINER if container else identity.place,
        container,
        witnesses.allocations_known
        and not _is_mps_server(identity)
        and _is_outside(container, holders, witnesses.unplaced),
    )


_NOBODY = ProcessIdentity(name="", place=Place.UNKNOWN, pod_uid="", container_id="")


def _container(identity: ProcessIdentity, pods: Mapping[str, Pod], holders: Sequence[Allocation]) -> Container | None:
    if identity.place is Place.HOST:
        return None
    pod = _find_pod(identity, pods)
    if pod is not None:
        return _container_of_pod(pod, identity.container_id, holders)
    if identity.pod_uid or identity.place is Place.UNKNOWN:
        holder = _sole_holder(holders, identity.pod_uid)
        if holder is not None:
            return holder
    if identity.pod_uid:
        return Container(pod_uid=identity.pod_uid)
    return Container(name=identity.container_id[:12]) if identity.container_id else None


def _find_pod(identity: ProcessIdentity, pods: Mapping[str, Pod]) -> Pod | None:
    """By its uid; where the cgroup path names none (a kubelet without cgroups per pod), by the container's id."""
    if identity.pod_uid or not identity.container_id:
        return pods.get(identity.pod_uid)
    return next((pod for pod in pods.values() if identity.container_id in pod.containers), None)


def _container_of_pod(pod: Pod, container_id: str, holders: Sequence[Allocation]) -> Container:
    """The container by its id; where the API server does not know the id yet, the pod's only claim on the GPU."""
    name = pod.containers.get(container_id, "")
    own = [
        each.container
        for each in holders
        if (each.container.namespace, each.container.pod) == (pod.namespace, pod.name)
    ]
    if len(own) == 1 and name in ("", own[0].name):
        return own[0]
    return pod.container(name)


def _sole_holder(holders: Sequence[Allocation], pod_uid: str) -> Container | None:
    """Nobody else can be on a GPU that is lent to one container alone, unless the uids contradict."""
    if len(holders) != 1 or holders[0].share not in (Share.EXCLUSIVE, Share.MIG):
        return None
    container = holders[0].container
    return container if not pod_uid or container.pod_uid in ("", pod_uid) else None


def _is_mps_server(identity: ProcessIdentity) -> bool:
    """The device plugin's MPS daemon runs in a pod of its own and works for those who hold the GPU."""
    return identity.name.rpartition("/")[2] == "nvidia-cuda-mps-server"


def _is_outside(
    container: Container | None, holders: Sequence[Allocation], unplaced: frozenset[tuple[str, str]]
) -> bool:
    """Whether its pod has no claim here. One whose claim could not be found on any GPU may well have it here."""
    if container is None or not container.pod:
        return False
    pod = (container.namespace, container.pod)
    return pod not in unplaced and all((each.container.namespace, each.container.pod) != pod for each in holders)


SHORT_ID = 12  # characters of a container's id, as docker and crictl show it


def assign_process_holders(
    processes: Sequence[GpuProcess], identities: Mapping[int, ProcessIdentity]
) -> tuple[tuple[GpuProcess, ...], tuple[Allocation, ...]]:
    """The processes with their holders named, and what each holder has: one claim for each GPU it is on."""
    seated = tuple(_seat(process, identities.get(process.pid)) for process in processes)
    holders = dict.fromkeys((each.gpu_uuid, each.container) for each in seated if each.container)
    on_gpu = Counter(uuid for uuid, _ in holders)
    return seated, tuple(
        Allocation(container, uuid, Share.EXCLUSIVE if on_gpu[uuid] == 1 else Share.TIME_SLICED)
        for uuid, container in holders
        if container is not None
    )


def _seat(process: GpuProcess, identity: ProcessIdentity | None) -> GpuProcess:
    """One whose identity could not be read stays unattributed."""
    if identity is None or identity.place is Place.UNKNOWN:
        return process
    return replace(process, place=Place.CONTAINER, container=_holder(identity), outside_allocation=False)


def _holder(identity: ProcessIdentity) -> Container:
    kind, name = ("Container", identity.container_id[:SHORT_ID]) if identity.container_id else ("Program", "")
    name = name or identity.name.rpartition("/")[2] or identity.name  # a program may call itself `x/`
    return Container(identity.user, name, workload=Workload(kind, identity.user, name), user=identity.user)
