"""Resolves device ids of device plugins and schedulers to GPUs (pure)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpusteward.core.allocations import Share
from gpusteward.core.gpus import Gpu, GpuReading

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
class Device:
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
        for reading in readings:
            self._add(reading.gpu)

    def find(self, device_id: str) -> Device | None:
        """The device of an id; None if it is not on this node, or the form of the id is unknown."""
        name = device_id.strip().lower()
        if gpu := self._by_uuid.get(name):
            return Device(gpu, Share.MIG if gpu.mig else Share.EXCLUSIVE)
        if match := _REPLICA.fullmatch(name):
            return self._slice(match[1], match[2], Share.TIME_SLICED)
        if match := _GKE.fullmatch(name):
            return self._find_gke(match)
        if match := _OLD_MIG.fullmatch(name):
            return _whole(self._find_instance(match[1], int(match[2]), int(match[3])))
        if match := _DRA.fullmatch(name):
            return self._find_dra(match)
        if match := _HAMI_MIG.fullmatch(name):
            return self._find_position(match[1], int(match[2]))
        match = _HAMI_REPLICA.fullmatch(name)
        return self._slice(match[1], match[2], Share.HAMI) if match else None

    def _add(self, gpu: Gpu) -> None:
        uuid = gpu.uuid.lower()
        self._by_uuid[uuid] = gpu
        self._by_uuid.setdefault(re.sub("^(gpu|mig)-", "", uuid), gpu)
        if gpu.mig:
            self._instances.setdefault(gpu.mig.parent_uuid.lower(), []).append(gpu)
        elif gpu.minor is not None:
            self._by_minor.setdefault(gpu.minor, gpu)  # lost GPUs that NVML no longer counts come last

    def _slice(self, base: str, replica: str, share: Share) -> Device | None:
        gpu = self._by_uuid.get(base)
        return Device(gpu, share, replica) if gpu else None

    def _find_gke(self, match: re.Match[str]) -> Device | None:
        gpu = self._by_minor.get(int(match[1]))
        if gpu and match[2]:
            gpu = self._find_instance(gpu.uuid.lower(), int(match[2]), None)
        if gpu and match[3]:
            return Device(gpu, Share.TIME_SLICED, match[3])
        return _whole(gpu)

    def _find_instance(self, parent: str, gpu_instance: int, compute_instance: int | None) -> Gpu | None:
        """The instance by its ids; where only the GPU instance is named, its first compute instance."""
        for gpu in self._instances.get(parent, ()):
            ids = gpu.mig and (gpu.mig.gpu_instance_id, gpu.mig.compute_instance_id)
            if ids and ids[0] == gpu_instance and compute_instance in (None, ids[1]):
                return gpu
        return None

    def _find_dra(self, match: re.Match[str]) -> Device | None:
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

    def _find_position(self, parent: str, position: int) -> Device | None:
        instances = self._instances.get(parent, ())
        return _whole(instances[position]) if position < len(instances) else None


def _whole(gpu: Gpu | None) -> Device | None:
    return Device(gpu, Share.MIG if gpu.mig else Share.EXCLUSIVE) if gpu else None


def _is_of_profile(profile: str, match: re.Match[str]) -> bool:
    """Whether a profile such as `1g.24gb+me` matches a name of the DRA driver."""
    if match[2].isdigit():
        slices, _, rest = profile.partition(".")
        return _SLICES.get((match[2], match[4])) == slices + "+me" * rest.endswith("+me")
    return re.sub("[^a-z0-9]", "-", profile.replace(".", "")) == match[2]
