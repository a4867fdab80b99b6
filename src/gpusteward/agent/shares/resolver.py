"""Resolves claims of the kubelet and annotations of sharing schedulers to allocations with share and limits (pure).

Sources in order of trust: annotations of HAMi or Volcano, annotations of KAI, the kubelet's list. The ratio file of
k8s-vgpu-monitor adds a limit where no source sets one.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gpusteward.agent.kubernetes.kubelet import Claim
from gpusteward.agent.kubernetes.pods import Pod, PodName
from gpusteward.agent.shares.annotations import (
    RESERVED_GPU_ANNOTATION,
    Grant,
    gpu_groups,
    is_reservation,
    read_fraction,
    read_grants,
)
from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import Gpu, GpuAllocation, GpuReading, Share

_N = r"([0-9]{1,9})"
_REPLICA = re.compile(rf"(.+)::{_N}")  # NVIDIA's plugin: GPU-<uuid>::3, MIG-<uuid>::0
_HAMI_REPLICA = re.compile(rf"(.+)-{_N}")  # HAMi's and Volcano's plugins: GPU-<uuid>-3
_HAMI_MIG = re.compile(rf"(.+)\[[^\[\]]*-{_N}\]")  # their MIG mode until 2026: GPU-<uuid>[<template>-<position>]
_OLD_MIG = re.compile(rf"mig-(gpu-.+)/{_N}/{_N}")  # drivers before R470: MIG-GPU-<uuid>/<gi>/<ci>
_GKE = re.compile(rf"nvidia{_N}(?:/gi{_N})?(?:/vgpu{_N})?")  # N of /dev/nvidiaN
_DRA = re.compile(rf"gpu-{_N}(?:-mig-(.+)-{_N}-{_N})?")
"""gpu.nvidia.com: the minor number; of an instance also profile, profile id, start: `gpu-0-mig-1g24gb-me-20-5`.
Until v25.8 it was profile id, start and size: `gpu-0-mig-20-5-1`."""
_SLICES = {
    ("19", "1"): "1g", ("20", "1"): "1g+me", ("15", "2"): "1g", ("14", "2"): "2g",
    ("9", "4"): "3g", ("5", "4"): "4g", ("0", "8"): "7g",
    ("14", "1"): "1g", ("21", "1"): "1g+me", ("5", "2"): "2g", ("6", "2"): "2g+me", ("0", "4"): "4g",
}  # fmt: skip
"""Profile id and size in memory slices -> the begin of the profile name; the last row is the A30."""


@dataclass(frozen=True, slots=True)
class SharedDevice:
    """The meaning of a device id: a GPU or MIG instance, and the sharing mode implied by the form of the id."""

    gpu: Gpu
    share: Share
    replica: str = ""


class DeviceTable:
    """The GPUs of this node by all their names."""

    def __init__(self, readings: Sequence[GpuReading]) -> None:
        self._by_uuid: dict[str, Gpu] = {}
        self._by_minor: dict[int, Gpu] = {}
        self._instances: dict[str, list[Gpu]] = {}  # by the parent's uuid, in NVML's order
        for gpu in (reading.gpu for reading in readings):
            uuid = gpu.uuid.lower()
            self._by_uuid[uuid] = gpu
            self._by_uuid.setdefault(re.sub("^(gpu|mig)-", "", uuid), gpu)
            if gpu.mig:
                self._instances.setdefault(gpu.mig.parent_uuid.lower(), []).append(gpu)
            elif gpu.minor is not None:
                self._by_minor.setdefault(gpu.minor, gpu)  # lost GPUs that NVML no longer counts come last

    def find(self, device_id: str) -> SharedDevice | None:
        """The device of an id; None if it is not on this node, or the form of the id is unknown."""
        name = device_id.strip().lower()
        if gpu := self._by_uuid.get(name):
            return _whole(gpu)
        if match := _REPLICA.fullmatch(name):
            return self._slice(match[1], match[2], Share.TIME_SLICED)
        if match := _GKE.fullmatch(name):
            return self._find_gke(match)
        if match := _OLD_MIG.fullmatch(name):
            return _whole(self._find_instance(match[1], int(match[2]), int(match[3])))
        if match := _DRA.fullmatch(name):
            return self._find_dra(match)
        if match := _HAMI_MIG.fullmatch(name):
            return _whole(next(iter(self._instances.get(match[1], ())[int(match[2]) :]), None))
        match = _HAMI_REPLICA.fullmatch(name)
        return self._slice(match[1], match[2], Share.HAMI) if match else None

    def _slice(self, base: str, replica: str, share: Share) -> SharedDevice | None:
        gpu = self._by_uuid.get(base)
        return SharedDevice(gpu, share, replica) if gpu else None

    def _find_gke(self, match: re.Match[str]) -> SharedDevice | None:
        gpu = self._by_minor.get(int(match[1]))
        if gpu and match[2]:
            gpu = self._find_instance(gpu.uuid.lower(), int(match[2]), None)
        if gpu and match[3]:
            return SharedDevice(gpu, Share.TIME_SLICED, match[3])
        return _whole(gpu)

    def _find_instance(self, parent: str, gpu_instance: int, compute_instance: int | None) -> Gpu | None:
        """The instance by its ids; where only the GPU instance is named, its first compute instance."""
        for gpu in self._instances.get(parent, ()):
            ids = gpu.mig and (gpu.mig.gpu_instance_id, gpu.mig.compute_instance_id)
            if ids and ids[0] == gpu_instance and compute_instance in (None, ids[1]):
                return gpu
        return None

    def _find_dra(self, match: re.Match[str]) -> SharedDevice | None:
        """An instance is named by profile and placement. Where NVML hides the placement, the profile must be unique."""
        gpu = self._by_minor.get(int(match[1]))
        if gpu is None or not match[2]:
            return _whole(gpu)
        instances = self._instances.get(gpu.uuid.lower(), ())
        alike = [each for each in instances if each.mig and _is_of_profile(each.mig.profile.lower(), match)]
        if len(alike) > 1:
            start = int(match[3] if match[2].isdigit() else match[4])
            alike = [each for each in alike if each.mig and each.mig.placement_start == start]
        return _whole(alike[0]) if len(alike) == 1 else None


def _whole(gpu: Gpu | None) -> SharedDevice | None:
    return SharedDevice(gpu, Share.MIG if gpu.mig else Share.EXCLUSIVE) if gpu else None


def _is_of_profile(profile: str, match: re.Match[str]) -> bool:
    """Whether a profile such as `1g.24gb+me` matches a name of the DRA driver."""
    if match[2].isdigit():
        slices, _, rest = profile.partition(".")
        return _SLICES.get((match[2], match[4])) == slices + "+me" * rest.endswith("+me")
    return re.sub("[^a-z0-9]", "-", profile.replace(".", "")) == match[2]


_Limit = TypeVar("_Limit", int, float)


@dataclass(frozen=True, slots=True)
class Resolution:
    """Allocations, unique by container and GPU, and the device ids that match no GPU of this node."""

    allocations: tuple[GpuAllocation, ...] = ()
    unresolved: tuple[str, ...] = ()
    unplaced: frozenset[PodName] = frozenset()  # pods with such a device id: their GPU is unknown


class Resolver:
    """Caches the resolution until its input changes: claims and pods rarely change from cycle to cycle."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()
        self._pods: Mapping[str, Pod] | None = None
        self._resolution = Resolution()

    def resolve(
        self,
        claims: Sequence[Claim],
        pods: Mapping[str, Pod],
        readings: Sequence[GpuReading],
        *,
        ratio: float | None,
    ) -> Resolution:
        """Like `resolve_allocations`. `pods` must be a mapping that is replaced, never modified."""
        gpus = [(each.gpu, each.is_mps, each.signals.get("memory_total_bytes")) for each in readings]
        seen = (tuple(claims), gpus, ratio)
        if pods is not self._pods or seen != self._seen:
            self._resolution = resolve_allocations(claims, pods, readings, ratio=ratio)
            self._pods, self._seen = pods, seen
        return self._resolution


@dataclass(slots=True)
class _NodeIndex:
    """The indexed input of one resolution."""

    devices: DeviceTable
    readings: Mapping[str, GpuReading]
    pods: Mapping[PodName, Pod]
    grants: dict[PodName, Sequence[Grant]] = field(default_factory=dict)  # of running pods on devices of this node
    groups: dict[str, list[Pod]] = field(default_factory=dict)  # KAI group -> the running pods that use its GPU
    unresolved: set[str] = field(default_factory=set)
    unplaced: set[PodName] = field(default_factory=set)

    def find(self, device_id: str, holder: PodName) -> SharedDevice | None:
        device = self.devices.find(device_id)
        if device is None:
            self.unresolved.add(device_id)
            self.unplaced.add(holder)
        return device


def resolve_allocations(
    claims: Sequence[Claim], pods: Mapping[str, Pod], readings: Sequence[GpuReading], *, ratio: float | None
) -> Resolution:
    """All allocations. Finished pods hold nothing; a pod not yet seen by the watch holds its claim without a uid."""
    node = _index_node(pods, readings)
    found = [*_from_grants(node, claims), *_from_claims(node, claims), *_from_reservations(node, claims)]
    merged = _merge(found)
    pods_on = {(each.gpu_uuid, each.container.namespace, each.container.pod) for each in merged}
    holders = Counter(gpu_uuid for gpu_uuid, _namespace, _pod in pods_on)
    allocations = tuple(
        _finish_allocation(each, node.readings[each.gpu_uuid], holders=holders[each.gpu_uuid], ratio=ratio)
        for each in merged
    )
    return Resolution(allocations, tuple(sorted(node.unresolved)), frozenset(node.unplaced))


def _index_node(pods: Mapping[str, Pod], readings: Sequence[GpuReading]) -> _NodeIndex:
    by_name = {(pod.namespace, pod.name): pod for pod in pods.values()}
    node = _NodeIndex(DeviceTable(readings), {each.gpu.uuid: each for each in readings}, by_name)
    for name, pod in by_name.items():
        if pod.is_finished:
            continue
        grants = [grant for grant in read_grants(pod) if node.find(grant.device_id, name)]
        if grants:  # without any on devices of this node, the kubelet's claims are used
            node.grants[name] = grants
        if not is_reservation(pod.namespace, pod):
            for group in gpu_groups(pod):
                node.groups.setdefault(group, []).append(pod)
    return node


def _from_grants(node: _NodeIndex, claims: Sequence[Claim]) -> Iterator[GpuAllocation]:
    resources = {(claim.namespace, claim.pod, claim.container): claim.resource for claim in claims}
    for (namespace, name), grants in node.grants.items():
        for grant in grants:
            device = node.find(grant.device_id, (namespace, name))
            if device is not None:
                share = Share.MIG if device.gpu.mig else Share.HAMI
                resource = resources.get((namespace, name, grant.container), "")
                yield _allocate_grant(node.pods[namespace, name], grant, device.gpu, share=share, resource=resource)


def _from_claims(node: _NodeIndex, claims: Sequence[Claim]) -> Iterator[GpuAllocation]:
    for claim in claims:
        name = (claim.namespace, claim.pod)
        pod = node.pods.get(name)
        if name in node.grants or (pod is not None and pod.is_finished):
            continue
        device = node.find(claim.device_id, name)
        if device is not None and is_reservation(claim.namespace, pod):
            shared = list(_share_reserved(node, pod, device.gpu, resource=claim.resource))
            yield from shared or [_allocate_claim(claim, pod, SharedDevice(device.gpu, Share.FRACTION))]
        elif device is not None:
            yield _allocate_claim(claim, pod, device)


def _share_reserved(node: _NodeIndex, reservation: Pod | None, gpu: Gpu, *, resource: str) -> Iterator[GpuAllocation]:
    """A reserved GPU is held by the pods of its group; by none while they are unknown."""
    groups = sorted(gpu_groups(reservation)) if reservation else []
    for pod in (pod for group in groups for pod in node.groups.get(group, ())):
        grant = read_fraction(pod, gpu.uuid, memory_bytes=_memory_total(node.readings[gpu.uuid]))
        yield _allocate_grant(pod, grant, gpu, share=Share.FRACTION, resource=resource)


def _from_reservations(node: _NodeIndex, claims: Sequence[Claim]) -> Iterator[GpuAllocation]:
    """Reservations that the kubelet does not list, by the uuid in their annotation."""
    listed = {(claim.namespace, claim.pod) for claim in claims}
    for name, pod in node.pods.items():
        device_id = pod.annotations.get(RESERVED_GPU_ANNOTATION, "")
        is_unlisted = name not in listed and not pod.is_finished and is_reservation(pod.namespace, pod)
        if is_unlisted and device_id and (device := node.find(device_id, name)):
            yield from _share_reserved(node, pod, device.gpu, resource="")


def _allocate_claim(claim: Claim, pod: Pod | None, device: SharedDevice) -> GpuAllocation:
    gpu, labels = device.gpu, claim.dra
    if labels and gpu.mig:
        mig = (("dra_mig_profile", gpu.mig.profile), ("dra_mig_device_uuid", gpu.uuid))
        labels += tuple(label for label in mig if label[1])
    known = pod.container(claim.container) if pod else Container(claim.namespace, claim.pod, "", claim.container)
    return GpuAllocation(known, gpu.uuid, device.share, claim.resource, device.replica, claim=labels)


def _allocate_grant(pod: Pod, grant: Grant, gpu: Gpu, *, share: Share, resource: str) -> GpuAllocation:
    return GpuAllocation(
        pod.container(grant.container),
        gpu.uuid,
        share,
        resource,
        memory_limit_bytes=grant.memory_limit_bytes,
        core_limit_ratio=grant.core_limit_ratio,
    )


def _merge(found: Sequence[GpuAllocation]) -> list[GpuAllocation]:
    """Merge to one allocation per container and GPU, which may consist of several replicas."""
    merged: dict[tuple[Container, str], GpuAllocation] = {}
    for other in found:
        key = (other.container, other.gpu_uuid)
        one = merged.setdefault(key, other)
        if one is not other:
            replicas = {replica for each in (one, other) for replica in each.replica.split(",") if replica}
            merged[key] = replace(
                one,
                resource=one.resource or other.resource,
                replica=",".join(sorted(replicas, key=int)),
                memory_limit_bytes=_add(one.memory_limit_bytes, other.memory_limit_bytes),
                core_limit_ratio=_add(one.core_limit_ratio, other.core_limit_ratio),
                claim=one.claim or other.claim,
            )
    return list(merged.values())


def _finish_allocation(
    allocation: GpuAllocation, reading: GpuReading, *, holders: int, ratio: float | None
) -> GpuAllocation:
    """Set the final share, which the device id alone may not show, and apply the ratio if there is no other limit."""
    share = allocation.share
    if not share.is_shared and holders > 1 and allocation.memory_limit_bytes is None:
        share = Share.TIME_SLICED
    if share is Share.TIME_SLICED and reading.is_mps:
        share = Share.MPS
    if ratio is None or reading.gpu.mig is not None or allocation.memory_limit_bytes is not None:
        return replace(allocation, share=share)
    total = _memory_total(reading)
    limit = math.inf if total is None else total / ratio
    return replace(
        allocation,
        share=Share.RATIO if ratio > 1 else share,  # one pod per GPU is not sharing
        memory_limit_bytes=int(limit) if math.isfinite(limit) else None,
    )


def _memory_total(reading: GpuReading) -> int | None:
    total = reading.signals.get("memory_total_bytes", reading.gpu.memory_total_bytes)
    return None if total is None else int(total)


def _add(one: _Limit | None, other: _Limit | None) -> _Limit | None:
    """The sum of two limits; without a limit on one part there is none on the whole."""
    return None if one is None or other is None else one + other
