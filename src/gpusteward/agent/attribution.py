"""Attributes GPU processes to containers (pure).

The idea: NVML knows pids on GPUs, the kubelet knows which container was given which GPU, and neither knows the other.
The cgroup of a process connects them, because the kubelet creates the cgroup of every container. Sources in order of
trust:

1. the cgroup together with the pods of this node: namespace, pod and container;
2. the cgroup alone, while the API server is not available: a pod uid, and the holder of the GPU with that uid;
3. the only holder of the GPU, where the cgroup says nothing;
4. else the process is counted as `host` (its cgroup is no container's) or `unattributed` (nothing is known).

Invariants:

- A process is attributed once, to one container or to none. What is not known stays unknown: a wrong name would
  accuse, or excuse, a team for the work of another.
- A container can contain cgroups that are named after other pods. The outermost pod of this node counts, because the
  kubelet created its cgroup; in a nested Kubernetes the enclosing pods are not on this node. Otherwise a tenant could
  give its work the name of somebody else.
- Only an exclusive holder is taken for the owner of a process without a cgroup: on a shared GPU each of the holders may
  be it, and a GPU whose cgroups contradict each other (`disputed`) has no holder that can be named.
- A process on a GPU that its pod does not hold is flagged (`outside_allocation`), unless the pod may hold it in a way
  that is not seen yet: its device id matches no GPU (`unplaced`), the GPU of its init container is not known
  (`reserving`), or it works for the holder as its pair. MPS servers work for their clients and are never flagged.
- Labels and annotations are written by tenants: two pods are a pair on a GPU only if each names the other and both name
  the GPU. Otherwise a pod could claim the work of a neighbour, or call its own that of somebody who agreed to nothing.

Without all this, verdicts would be about GPUs, not about those who hold them: an idle pod on a busy GPU would look
busy, and the pod that works there without having asked for it would not be seen at all.

On a machine without Kubernetes no device is allocated by a kubelet. There, a GPU is attributed to the container, or to
the user and program, running on it (`assign_process_holders`). The result uses the fields of a cluster, so that
everything downstream works unchanged: the user is the namespace, the container or program is the pod.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpusteward.agent.kubernetes.pods import PAIR_GPUS_ANNOTATION, Pod, PodName
from gpusteward.agent.processes import CgroupIdentity, ProcessIdentity
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.node.gpus import GpuAllocation, GpuProcess, Place, Share, is_mps_server
from gpusteward.core.node.usage_split import group_by_gpu
from gpusteward.kubernetes.owners import PAIR_LABEL


@dataclass(frozen=True, slots=True)
class AttributionInput:
    """What is known about processes, pods and allocations of the node, which `join_pairs` has seen."""

    identities: Mapping[int, ProcessIdentity] = field(default_factory=dict)
    pods: Mapping[str, Pod] = field(default_factory=dict)
    allocations: Sequence[GpuAllocation] = ()
    allocations_known: bool = True
    unplaced: frozenset[PodName] = frozenset()  # pods whose device id matches no GPU
    reserving: frozenset[PodName] = frozenset()  # pods with a device that no source places on a GPU
    disputed: frozenset[str] = frozenset()  # GPUs on which cgroups contradict each other about the uid of the holder


def attribute_processes(processes: Sequence[GpuProcess], known: AttributionInput) -> tuple[GpuProcess, ...]:
    """Set place and container of every process, and flag those on a GPU that their pod does not hold."""
    holders = group_by_gpu(known.allocations)
    return tuple(_attribute_one(process, known, holders=holders.get(process.gpu_uuid, [])) for process in processes)


MOST_PAIR_GPUS = 128
"""A node has at most 16 GPUs with 7 MIG instances each."""


def join_pairs(allocations: Sequence[GpuAllocation], pods: Mapping[str, Pod]) -> tuple[GpuAllocation, ...]:
    """The allocations, with the other pod of its pair where one uses the GPU in place of the holder.

    That holds whether the other pod has a process there or not: a server may be asleep, or about to start.
    """
    labelled = {(pod.namespace, pod.name): pod for pod in pods.values() if pod.labels.get(PAIR_LABEL)}
    if not labelled:
        return tuple(allocations)
    held = {(name_pod(each), each.gpu_uuid) for each in allocations}
    return tuple(
        replace(each, used_by=other.name)
        if (other := _find_other(labelled, name_pod(each), each.gpu_uuid))
        and ((other.namespace, other.name), each.gpu_uuid) not in held
        else each
        for each in allocations
    )


def _find_other(labelled: Mapping[PodName, Pod], holder: PodName, gpu_uuid: str) -> Pod | None:
    """The pod that is a pair with this one on this GPU."""
    pod = labelled.get(holder)
    other = labelled.get((holder[0], pod.labels[PAIR_LABEL])) if pod else None
    if pod is None or other is None or other.labels[PAIR_LABEL] != pod.name or other.is_finished:
        return None
    return other if all(gpu_uuid in _list_pair_gpus(each) for each in (pod, other)) else None


def _list_pair_gpus(pod: Pod) -> frozenset[str]:
    """Of its annotation, as far as it is read. A longer text than `LONGEST_TEXT` was dropped already."""
    parts = pod.annotations.get(PAIR_GPUS_ANNOTATION, "").split(",", MOST_PAIR_GPUS)[:MOST_PAIR_GPUS]
    return frozenset(part.strip() for part in parts)


def _attribute_one(process: GpuProcess, known: AttributionInput, *, holders: Sequence[GpuAllocation]) -> GpuProcess:
    identity = locate_process(known.identities.get(process.pid, _NO_IDENTITY), known.pods)
    container = _container(identity, known.pods, holders, is_disputed=process.gpu_uuid in known.disputed)
    # Nobody is accused while the holders are unknown; an MPS server works for those that hold the GPU.
    is_outside = known.allocations_known and not is_mps_server(identity.name) and _is_outside(container, holders, known)
    pod = (container.namespace, container.pod) if container and is_outside else None
    works_for = next((each.container for each in holders if (each.container.namespace, each.used_by) == pod), None)
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
        is_outside and works_for is None,
        works_for,
    )


def name_pod(allocation: GpuAllocation) -> PodName:
    """Namespace and name of the pod that holds it."""
    return allocation.container.namespace, allocation.container.pod


_NO_IDENTITY = ProcessIdentity()
SHORT_ID = 12  # characters of a container's id, as docker and crictl show it


def locate_process(identity: ProcessIdentity, pods: Mapping[str, Pod]) -> ProcessIdentity:
    """The identity with pod and container of its outermost cgroup that belongs to a pod of this node.

    If none does, with those of the outermost pod: that cgroup alone cannot have been created by a tenant.
    """
    if not identity.outer:
        return identity
    levels = (*identity.outer, CgroupIdentity(identity.pod_uid, identity.container_id))
    of_pods = [level for level in levels if find_pod(level, pods)] or [level for level in levels if level.pod_uid]
    own = of_pods[0] if of_pods else levels[-1]
    return replace(identity, pod_uid=own.pod_uid, container_id=own.container_id)


def find_pod(identity: ProcessIdentity | CgroupIdentity, pods: Mapping[str, Pod]) -> Pod | None:
    """Find by pod uid, or by container id where the cgroup path has no pod uid (kubelet without cgroups per pod)."""
    if identity.pod_uid or not identity.container_id:
        return pods.get(identity.pod_uid)
    return next((pod for pod in pods.values() if identity.container_id in pod.containers), None)


def _container(
    identity: ProcessIdentity, pods: Mapping[str, Pod], holders: Sequence[GpuAllocation], *, is_disputed: bool
) -> Container | None:
    """The container of a process, from the sources in their order of trust."""
    if identity.place is Place.HOST:
        return None
    pod = find_pod(identity, pods)
    if pod is not None:
        # The API server may not know the container id yet: then it is that of the pod's only allocation on this GPU.
        name = pod.containers.get(identity.container_id, "")
        own = [each.container for each in holders if name_pod(each) == (pod.namespace, pod.name)]
        return own[0] if len(own) == 1 and name in ("", own[0].name) else pod.container(name)
    # A container without a pod, such as one of docker, is not taken for the holder: its cgroup says that it is not.
    if (identity.pod_uid or identity.place is Place.UNKNOWN) and not is_disputed:
        holder = _sole_holder(holders, identity.pod_uid)
        if holder is not None:
            return holder
    if identity.pod_uid:
        return Container(pod_uid=identity.pod_uid)
    return Container(name=identity.container_id[:SHORT_ID]) if identity.container_id else None


def _sole_holder(holders: Sequence[GpuAllocation], pod_uid: str) -> Container | None:
    """The only holder with this pod uid, else the container that holds the GPU exclusively unless its uid differs."""
    same = [each.container for each in holders if pod_uid and each.container.pod_uid == pod_uid]
    if len(same) == 1:
        return same[0]
    if not is_held_exclusively(holders):
        return None
    container = holders[0].container
    return container if not pod_uid or not container.pod_uid else None


def is_held_exclusively(holders: Sequence[GpuAllocation]) -> bool:
    """Whether one container holds the GPU and nobody else does."""
    return len(holders) == 1 and not holders[0].share.is_shared


def has_exclusive_holder(holders: Sequence[GpuAllocation]) -> bool:
    """Whether the GPU is not shared, so that no unknown holder can be on it."""
    return any(not each.share.is_shared for each in holders)


def _is_outside(container: Container | None, holders: Sequence[GpuAllocation], known: AttributionInput) -> bool:
    """Whether the pod has no allocation on this GPU. False for pods with a device that may be on this GPU."""
    if container is None or not container.pod:
        return False
    pod = (container.namespace, container.pod)
    if pod in known.unplaced or (pod in known.reserving and not has_exclusive_holder(holders)):
        return False
    return all(name_pod(each) != pod for each in holders)


def assign_process_holders(
    processes: Sequence[GpuProcess], identities: Mapping[int, ProcessIdentity]
) -> tuple[tuple[GpuProcess, ...], tuple[GpuAllocation, ...]]:
    """Return the processes with their holder set, and one allocation per holder and GPU.

    A process whose identity could not be read stays unattributed.
    """
    known = {pid: each for pid, each in identities.items() if each.place is not Place.UNKNOWN}
    assigned = tuple(
        replace(each, place=Place.CONTAINER, container=_holder_of(known[each.pid]), outside_allocation=False)
        if each.pid in known
        else each
        for each in processes
    )
    holders = dict.fromkeys((each.gpu_uuid, each.container) for each in assigned if each.container)
    on_gpu = Counter(uuid for uuid, _ in holders)
    return assigned, tuple(
        GpuAllocation(container, uuid, Share.EXCLUSIVE if on_gpu[uuid] == 1 else Share.TIME_SLICED)
        for uuid, container in holders
        if container is not None
    )


def _holder_of(identity: ProcessIdentity) -> Container:
    kind, name = ("Container", identity.container_id[:SHORT_ID]) if identity.container_id else ("Program", "")
    name = name or identity.name.rpartition("/")[2] or identity.name  # a program may call itself `x/`
    return Container(identity.user, name, workload=Workload(kind, identity.user, name), user=identity.user)
