"""A node at one moment."""

from dataclasses import dataclass

from gpusteward.core.allocations import Allocation
from gpusteward.core.gpus import GpuProcess, GpuReading


@dataclass(frozen=True, slots=True)
class Failure:
    """What could not be read, and why. It cost its own part; the rest of the snapshot is whole."""

    collector: str  # "nvml", "processes", "kubelet", "pods", ...
    reason: str
    gpu_uuid: str = ""
    needs_restart: bool = False  # of the agent; nothing else mends it


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the agent knows of its node, immutable: every dialect is rendered from the same one."""

    node: str
    taken_at: float  # unix seconds
    readings: tuple[GpuReading, ...] = ()  # every whole GPU, each followed by its MIG instances
    processes: tuple[GpuProcess, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    allocations_known: bool = True  # False: nobody could tell who holds what
    failures: tuple[Failure, ...] = ()
    holders_are_processes: bool = False  # there is no Kubernetes: whoever has a process on a GPU holds it
