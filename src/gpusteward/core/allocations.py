"""A container's claim on a GPU: the key of everything that is judged, billed and given back."""

from dataclasses import dataclass
from enum import StrEnum

from gpusteward.core.containers import Container


class Share(StrEnum):
    """How a GPU is lent out."""

    EXCLUSIVE = "exclusive"
    MIG = "mig"
    TIME_SLICED = "time-sliced"
    MPS = "mps"
    HAMI = "hami"
    RATIO = "ratio"  # k8s-vgpu-monitor's ratio file
    FRACTION = "fraction"  # KAI / run:ai


@dataclass(frozen=True, slots=True)
class Allocation:
    """One container's claim on one GPU or MIG instance."""

    container: Container
    gpu_uuid: str
    share: Share = Share.EXCLUSIVE
    resource: str = ""  # "nvidia.com/gpu"
    replica: str = ""  # which slice of a shared GPU, where the device id says so
    memory_limit_bytes: int | None = None
    core_limit_ratio: float | None = None
    claim: tuple[tuple[str, str], ...] = ()  # dra_* labels of a dynamic resource claim
