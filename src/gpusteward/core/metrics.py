"""The treaty: every series gpusteward exports under its own name, and those of the systems it replaces.

Agent, reference page and tests are made from this table. A name here is public API: it is never renamed silently.
The DCGM names are made from their own table, `core.dcgm`.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    UNTYPED = "untyped"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    dialect: str = "native"
    outlives_snapshot: bool = False  # still true when the snapshot has grown stale


NODE = ("node",)
GPU = ("node", "gpu", "uuid", "gpu_instance_id", "mig_profile")
"""`gpu` is NVML's index; the last two are empty on a whole GPU."""
CONTAINER = ("namespace", "pod", "container", "pod_uid")
USE = (*GPU, "by", *CONTAINER, "workload_kind", "workload")
"""`by` is `container`, `host` or `unattributed`: summed over it, the parts are the device."""
ALLOCATION = (*GPU, *CONTAINER, "workload_kind", "workload")
PROCESS = (*GPU, "pid", "process", "by", *CONTAINER)


def _gauge(name: str, labels: tuple[str, ...], help_text: str, *, lasts: bool = False) -> Metric:
    return Metric(f"gpusteward_{name}", Kind.GAUGE, help_text, labels, outlives_snapshot=lasts)


def _counter(name: str, labels: tuple[str, ...], help_text: str, *, lasts: bool = False) -> Metric:
    return Metric(f"gpusteward_{name}", Kind.COUNTER, help_text, labels, outlives_snapshot=lasts)


BUILD_INFO = _gauge("build_info", ("version",), "Version of gpusteward; always 1.", lasts=True)

GPU_INFO = _gauge(
    "gpu_info",
    (*GPU, "parent_uuid", "model", "pci_bus_id", "driver_version", "nvml_version"),
    "Identity of a GPU or MIG instance; always 1.",
    lasts=True,
)
GPU_UP = _gauge("gpu_up", GPU, "1 if the GPU answers, 0 if it is lost (fallen off the bus).")
GPU_XID_ERRORS = _counter("gpu_xid_errors_total", (*GPU, "xid"), "XID errors seen since the agent started, by code.")
GPU_CLOCK_EVENTS = _counter(
    "gpu_clock_events_total",
    (*GPU, "reason"),
    "Times a reason began to limit the clocks since the agent started.",
)
GPU_UTILIZATION = _gauge(
    "gpu_utilization_ratio",
    GPU,
    "Share of time a kernel ran (engine activity on MIG); at least what its processes report.",
)
GPU_MEMORY_USED = _gauge(
    "gpu_memory_used_bytes",
    GPU,
    "Memory in use without the driver's reserve; at least what its processes hold.",
)
GPU_BUSY_SECONDS = _counter("gpu_busy_seconds_total", GPU, "Utilization integrated over time since the agent started.")

DEVICE_SIGNALS = {
    signal: Metric(f"gpusteward_gpu_{name}", kind, help_text, GPU)
    for signal, name, kind, help_text in (
        ("memory_total_bytes", "memory_total_bytes", Kind.GAUGE, "Memory of the device."),
        ("memory_free_bytes", "memory_free_bytes", Kind.GAUGE, "Memory not in use."),
        ("memory_reserved_bytes", "memory_reserved_bytes", Kind.GAUGE, "Memory the driver keeps for itself."),
        ("memory_copy_ratio", "memory_copy_ratio", Kind.GAUGE, "Share of time memory was read or written."),
        ("power_watts", "power_watts", Kind.GAUGE, "Power drawn by the board."),
        ("enforced_power_limit_watts", "power_limit_watts", Kind.GAUGE, "Power limit in force."),
        (
            "energy_joules_total",
            "energy_joules_total",
            Kind.COUNTER,
            "Energy drawn since the driver was loaded.",
        ),
        ("temperature_celsius", "temperature_celsius", Kind.GAUGE, "Temperature of the GPU."),
        (
            "memory_temperature_celsius",
            "memory_temperature_celsius",
            Kind.GAUGE,
            "Temperature of the memory.",
        ),
        ("sm_clock_hertz", "sm_clock_hertz", Kind.GAUGE, "Clock of the streaming multiprocessors."),
        ("memory_clock_hertz", "memory_clock_hertz", Kind.GAUGE, "Clock of the memory."),
        ("encoder_ratio", "encoder_ratio", Kind.GAUGE, "Utilization of the video encoder."),
        ("decoder_ratio", "decoder_ratio", Kind.GAUGE, "Utilization of the video decoder."),
        (
            "gr_engine_ratio",
            "engine_active_ratio",
            Kind.GAUGE,
            "Share of time the compute engine was active.",
        ),
        ("sm_active_ratio", "sm_active_ratio", Kind.GAUGE, "Share of cycles with a warp on an SM."),
        ("tensor_ratio", "tensor_active_ratio", Kind.GAUGE, "Share of cycles the tensor pipe was active."),
        ("dram_ratio", "dram_active_ratio", Kind.GAUGE, "Share of cycles the memory interface was active."),
        ("row_remap_failure", "row_remap_failure", Kind.GAUGE, "1 if a memory row could not be remapped."),
    )
}
"""Signals the native dialect exports as they are."""

USE_UTILIZATION = _gauge(
    "use_utilization_ratio", USE, "Who uses the GPU's compute: the parts of gpu_utilization_ratio."
)
USE_MEMORY = _gauge("use_memory_bytes", USE, "Who uses the GPU's memory: the parts of gpu_memory_used_bytes.")
USE_PROCESSES = _gauge("use_processes", USE, "Processes of this user on the GPU.")
USE_POWER = _gauge("use_power_estimated_watts", USE, "Power of the GPU split by share of use: an estimate.")
USE_ENERGY = _counter(
    "use_energy_estimated_joules_total",
    USE,
    "Energy of the GPU split by share of use since the agent saw it: an estimate.",
)
USE_BUSY_SECONDS = _counter("use_busy_seconds_total", USE, "Utilization of this user integrated over time.")

ALLOCATION_INFO = _gauge(
    "allocation_info",
    (*ALLOCATION, "share", "resource", "replica", "user"),
    "A container's claim on a GPU; always 1.",
)
ALLOCATION_MEMORY_LIMIT = _gauge("allocation_memory_limit_bytes", ALLOCATION, "Memory this claim may use.")
ALLOCATION_CORE_LIMIT = _gauge("allocation_core_limit_ratio", ALLOCATION, "Share of the compute this claim may use.")
ALLOCATION_START = _gauge("allocation_start_time_seconds", ALLOCATION, "When the pod of this claim started, unix time.")

PROCESS_MEMORY = _gauge("process_memory_bytes", PROCESS, "Memory a process holds on a GPU.")
PROCESS_UTILIZATION = _gauge(
    "process_utilization_ratio",
    (*PROCESS, "engine"),
    "Utilization of a process: sm, memory, encoder, decoder.",
)
PROCESS_OUTSIDE = _gauge("process_outside_allocation", PROCESS, "1 for a process on a GPU that its pod does not hold.")

SNAPSHOT_AGE = _gauge("snapshot_age_seconds", NODE, "Age of what this page shows.", lasts=True)
COLLECTOR_ERRORS = _counter(
    "collector_errors_total",
    ("node", "collector"),
    "Failures by collector; each costs only its own series.",
    lasts=True,
)
COLLECTOR_SUCCESS = _gauge(
    "collector_success", ("node", "collector"), "1 if the collector had no failure in the last cycle, else 0."
)
COLLECTOR_SECONDS = _gauge(
    "collector_duration_seconds",
    ("node", "collector"),
    "Time the collector took when it last ran.",
)
CYCLES = _counter("cycles_total", NODE, "Collection cycles finished since the agent started.", lasts=True)
CONFIG_RELOADS = _counter(
    "config_reloads_total",
    ("node", "result"),
    "Reloads of the field list by result: ok or refused.",
    lasts=True,
)
ALLOCATIONS_KNOWN = _gauge("allocations_known", NODE, "1 if the kubelet told who holds what.")

VGPU_LABELS = ("gpu_id", "pod", "namespace")
POD_SM = Metric("pod_gpu_sm_util", Kind.GAUGE, "SM utilization of a pod on a GPU (in %).", VGPU_LABELS, "vgpu-monitor")
POD_MEMORY = Metric(
    "pod_gpu_memory_used",
    Kind.GAUGE,
    "GPU memory used by a pod on a GPU (in MB).",
    VGPU_LABELS,
    "vgpu-monitor",
)
POD_MEMORY_TOTAL = Metric(
    "pod_total_gpu_memory",
    Kind.GAUGE,
    "GPU memory lent to a pod on a GPU (in MB).",
    VGPU_LABELS,
    "vgpu-monitor",
)
PID_POD = Metric(
    "nvidia_pid_pod",
    Kind.GAUGE,
    "GPU memory held by a process of a pod (in MiB).",
    ("pid", "process_name", "pod_name", "namespace", "node_name"),
    "pid2pod",
)

METRICS: tuple[Metric, ...] = (
    *(row for row in tuple(vars().values()) if isinstance(row, Metric)),
    *DEVICE_SIGNALS.values(),
)
"""Every row above, for the reference page and the tests."""
