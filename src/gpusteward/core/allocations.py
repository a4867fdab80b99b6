"""Allocations of GPUs to containers."""

from dataclasses import dataclass
from enum import StrEnum

from gpusteward.core.containers import Container


class Share(StrEnum):
    """How a GPU is shared."""

    EXCLUSIVE = "exclusive"
    MIG = "mig"
    TIME_SLICED = "time-sliced"
    MPS = "mps"
    HAMI = "hami"
    RATIO = "ratio"  # k8s-vgpu-monitor's ratio file
    FRACTION = "fraction"  # KAI / run:ai

    @property
    def is_shared(self) -> bool:
        """Whether others may hold the same device."""
        return self not in (Share.EXCLUSIVE, Share.MIG)


@dataclass(frozen=True, slots=True)
class Allocation:
    """One GPU or MIG instance allocated to one container."""

    container: Container
    gpu_uuid: str
    share: Share = Share.EXCLUSIVE
    resource: str = ""  # "nvidia.com/gpu"
    replica: str = ""  # number of the replica of a shared GPU, if the device id contains it
    memory_limit_bytes: int | None = None
    core_limit_ratio: float | None = None
    claim: tuple[tuple[str, str], ...] = ()  # dra_* labels of a dynamic resource claim


@dataclass(frozen=True, slots=True)
class UnlistedDevices:
    """Devices that a pod holds and the kubelet does not list: which GPU they are is unknown."""

    container: Container  # without a name
    resource: str
    count: int
