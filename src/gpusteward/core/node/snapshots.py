"""Snapshot of a node at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import GpuAllocation, GpuProcess, GpuReading, UnlistedDevices


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed read and its reason. The rest of the snapshot is not affected."""

    collector: str  # "nvml", "processes", "kubelet", "pods", ...
    reason: str
    gpu_uuid: str = ""
    needs_restart: bool = False  # only a restart of the agent helps


@dataclass(frozen=True, slots=True)
class PodHostUse:
    """What a pod that holds GPUs has used of its node besides them since it started. None: not known."""

    pod: Container  # without a name
    cpu_seconds: float | None = None
    disk_bytes: int | None = None  # read and written
    network_bytes: int | None = None  # received and sent, without lo


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the agent knows about its node. Immutable: all dialects are rendered from the same snapshot."""

    node: str
    taken_at: float  # unix seconds
    readings: tuple[GpuReading, ...] = ()  # every whole GPU, each followed by its MIG instances
    processes: tuple[GpuProcess, ...] = ()
    allocations: tuple[GpuAllocation, ...] = ()
    allocations_known: bool = True  # False: allocations could not be read
    failures: tuple[Failure, ...] = ()
    holders_are_processes: bool = False  # no Kubernetes: a GPU is attributed to the processes running on it
    allocations_kept: int = 0  # claims of pods that run although the kubelet's last response lacks them
    unlisted_devices: tuple[UnlistedDevices, ...] = ()  # of init containers
    pod_host_use: tuple[PodHostUse, ...] = ()  # of pods that hold GPUs
    hpc_jobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by GPU uuid: jobs of a workload manager
