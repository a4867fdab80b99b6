"""The usage of an allocation over a window: what was measured, and how much of the window was covered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpusteward.core.messages import Message
from gpusteward.core.node.containers import Container


class Measure(StrEnum):
    """What is measured of an allocation, in base units."""

    CORE = "core_ratio"  # share of time a kernel ran; on MIG the engine's activity
    BUSY = "busy_ratio"  # core integrated over the window: nothing between two samples is missed
    MEMORY_COPY = "memory_copy_ratio"
    MEMORY_USED = "memory_used_bytes"
    MEMORY_SHARED = "memory_shared_bytes"  # used by all holders of its GPU, where nothing says whose it is
    MEMORY_TOTAL = "memory_total_bytes"
    POWER = "power_watts"
    ENERGY = "energy_watts"  # by which minutes of the window exceed the quiet ones of the hour, by the energy counter
    POWER_LIMIT = "power_limit_watts"
    SM_CLOCK = "sm_clock_hertz"
    ENGINE = "engine_ratio"
    TENSOR = "tensor_ratio"
    DRAM = "dram_ratio"
    PROCESSES = "processes"
    OTHER_PROCESSES = "other_processes"  # on its GPU, of somebody who does not hold it; known where there are any
    OUTSIDE = "outside_ratio"  # of the time, use of its GPU by somebody who does not hold it; read before an action
    LAST_KERNEL = "last_kernel_at"  # unix seconds; when a kernel was last launched on this GPU
    CONTAINER_KERNEL = "container_last_kernel_at"  # on any GPU of the container
    # These only prove work. They are known where they are above a floor, and unknown elsewhere.
    ENCODER = "encoder_ratio"
    DECODER = "decoder_ratio"
    VIDEO = "video_ratio"  # any video engine: encoder, decoder, JPEG, optical flow
    SM_ACTIVE = "sm_active_ratio"
    PIPES = "pipe_ratio"  # the busiest arithmetic pipe
    PCIE = "pcie_bytes_per_second"
    NVLINK = "nvlink_bytes_per_second"
    # What the inference servers of its workload report, the same in all rows of the workload. They never prove work of
    # a GPU.
    REQUESTS = "requests"  # finished in the window (COUNT)
    TOKENS = "tokens"  # read and generated in the window (COUNT)
    SERVED_TOKENS = "tokens_served"  # of these (COUNT), each once; unknown unless all of its servers count them
    RUNNING = "requests_running"  # LOWEST is known only where tokens are counted while a request runs
    WAITING = "requests_waiting"
    ASLEEP = "asleep"  # LOWEST: 1, all of its servers say that they sleep, all of the window
    SILENT = "silent"  # LOWEST: 1, no request in all of the window is proven; 0, it is not
    # Of the busiest pod of the workload: mean if all its pods are known, peak of those that are. Read if it may stall.
    DISK = "disk_bytes_per_second"
    NETWORK = "network_bytes_per_second"


LEAST_EXCESS = 1.0
"""Watts. What minutes of the window exceed the quiet ones by is not read below it: every idle GPU varies a little."""
LEAST_TRAFFIC = 1e6
"""Bytes per second. Less PCIe or NVLink traffic is not read from the source: monitoring a GPU causes some."""


class Stat(StrEnum):
    """The statistics of a window. Reports use the mean, reclaim uses the peak."""

    MEAN = "mean"
    PEAK = "peak"
    LOWEST = "lowest"
    LAST = "last"
    SPREAD = "spread"  # standard deviation
    COUNT = "count"  # samples in the window; of counted things, how many were added in it
    STEP = "step"  # seconds from one value to the next


@dataclass(frozen=True, slots=True)
class AllocationKey:
    """Identifies an allocation in a usage table: the holder and the GPU."""

    gpu_uuid: str  # the device; of a MIG instance its parent, as DCGM labels it
    gpu_instance: str  # MIG instance id, "" on a whole GPU
    container: Container
    node: str = ""
    gpu_index: str = ""
    model: str = ""
    share: str = ""
    used_by: str = field(default="", compare=False)  # the other pod of its pair, which may change while it is held

    @property
    def cluster(self) -> str:
        """That of its container."""
        return self.container.cluster

    @property
    def names(self) -> tuple[str, ...]:
        """What identifies it without the uid of its pod, which only some sources know."""
        one = self.container
        return self.gpu_uuid, self.gpu_instance, one.cluster, one.namespace, one.pod, one.name


@dataclass(frozen=True, slots=True)
class Usage:
    """One allocation over a window. A missing stat could not be measured."""

    allocation: AllocationKey
    window_seconds: float
    coverage: float  # samples seen / samples expected, 0 to 1
    stats: Mapping[tuple[Measure, Stat], float] = field(default_factory=dict)
    unknown_reason: Message | None = None  # why it must not be judged
