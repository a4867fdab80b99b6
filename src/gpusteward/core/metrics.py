"""The table of exported series: gpusteward's own names and those of the systems it replaces.

Agent, reference page and tests use this table. Names here are public API and are never renamed silently. The DCGM names
have their own table, `core.dcgm`.
"""

from dataclasses import dataclass
from enum import StrEnum

from gpusteward.core.node.signals import SIGNALS


class MetricType(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    UNTYPED = "untyped"
    HISTOGRAM = "histogram"
    CREATED = "created"
    """When a counter or histogram began, unix time; in OpenMetrics a sample of that metric, in the text a gauge."""


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: MetricType
    help: str
    labels: tuple[str, ...] = ()
    dialect: str = "native"
    outlives_snapshot: bool = False  # still exported when the snapshot is stale


NODE = ("node",)
GPU = ("node", "gpu", "uuid", "gpu_instance_id", "mig_profile")
"""`gpu` is NVML's index; the last two are empty on a whole GPU."""
CONTAINER = ("namespace", "pod", "container", "pod_uid")
POD = ("node", "namespace", "pod", "pod_uid")
USE = (*GPU, "by", *CONTAINER, "workload_kind", "workload")
"""`by` is `container`, `host` or `unattributed`; the sum over all series of a GPU is the device total. Host and
unattributed have no series where they are 0."""
ALLOCATION = (*GPU, *CONTAINER, "workload_kind", "workload")
PROCESS = (*GPU, "pid", "process", "by", *CONTAINER)


def _gauge(name: str, labels: tuple[str, ...], help_text: str, *, stays_valid: bool = False) -> Metric:
    return Metric(f"gpusteward_{name}", MetricType.GAUGE, help_text, labels, outlives_snapshot=stays_valid)


def _counter(name: str, labels: tuple[str, ...], help_text: str, *, stays_valid: bool = False) -> Metric:
    return Metric(f"gpusteward_{name}", MetricType.COUNTER, help_text, labels, outlives_snapshot=stays_valid)


BUILD_INFO = _gauge("build_info", ("version",), "Version of gpusteward; always 1.", stays_valid=True)

GPU_INFO = _gauge(
    "gpu_info",
    (*GPU, "parent_uuid", "model", "pci_bus_id", "driver_version", "nvml_version"),
    "Identity of a GPU or MIG instance; always 1.",
    stays_valid=True,
)
GPU_UP = _gauge("gpu_up", GPU, "1 if the GPU responds, 0 if it is lost (fallen off the bus).")
GPU_ALL_XID_ERRORS = _counter("gpu_all_xid_errors_total", GPU, "XID errors of all codes since the agent started.")
GPU_XID_ERRORS = _counter(
    "gpu_xid_errors_total", (*GPU, "xid"), "XID errors since the agent started, by code, from the first one on."
)
GPU_ALL_CLOCK_EVENTS = _counter(
    "gpu_all_clock_events_total", GPU, "Times any reason began to limit the clocks since the agent started."
)
GPU_CLOCK_EVENTS = _counter(
    "gpu_clock_events_total",
    (*GPU, "reason"),
    "Times a reason began to limit the clocks since the agent started, from the first one on.",
)
GPU_UTILIZATION = _gauge(
    "gpu_utilization_ratio",
    GPU,
    "Share of time a kernel ran (engine activity on MIG); at least the sum of its processes.",
)
GPU_MEMORY_USED = _gauge(
    "gpu_memory_used_bytes",
    GPU,
    "Memory in use without the driver's reserve; at least the sum of its processes.",
)
GPU_BUSY_SECONDS = _counter("gpu_busy_seconds_total", GPU, "Utilization integrated over time since the agent started.")
GPU_OUTSIDE_SECONDS = _counter(
    "gpu_outside_use_seconds_total",
    GPU,
    "Time in which somebody who does not hold the GPU used it: worked on it, had more than 1 GiB of its memory, or is "
    "a pair with its holder. On a GPU that nobody holds that is everybody.",
)

_PROFILED = "(Hopper and newer, or a DCGM hostengine)"


def _signal(signal: str, help_text: str = "", *, name: str = "") -> tuple[str, Metric]:
    """By default with the name and the help text of the signal."""
    kind = MetricType.COUNTER if signal.endswith("_total") else MetricType.GAUGE
    return signal, Metric(f"gpusteward_gpu_{name or signal}", kind, help_text or f"{SIGNALS[signal].help}.", GPU)


DEVICE_SIGNALS = dict(
    (
        _signal("memory_total_bytes"),
        _signal("memory_free_bytes"),
        _signal("memory_reserved_bytes"),
        _signal("memory_copy_ratio", "Share of time memory was read or written."),
        _signal("power_watts"),
        _signal("enforced_power_limit_watts", "Power limit in force.", name="power_limit_watts"),
        _signal("energy_joules_total"),
        _signal("temperature_celsius"),
        _signal("memory_temperature_celsius"),
        _signal("sm_clock_hertz"),
        _signal("memory_clock_hertz"),
        _signal("encoder_ratio"),
        _signal("decoder_ratio"),
        _signal("gr_engine_ratio", "Share of time the compute engine was active.", name="engine_active_ratio"),
        _signal("sm_active_ratio"),
        _signal("tensor_ratio", name="tensor_active_ratio"),
        _signal("dram_ratio", name="dram_active_ratio"),
        _signal("pcie_tx_bytes_per_second", f"PCIe bytes sent, headers included {_PROFILED}."),
        _signal("pcie_rx_bytes_per_second", f"PCIe bytes received, headers included {_PROFILED}."),
        _signal("nvlink_bytes_per_second", "NVLink data, sent and received."),
        _signal("row_remap_failure", "1 if a memory row could not be remapped."),
    )
)
"""Signals that the native dialect exports unchanged."""

USE_UTILIZATION = _gauge(
    "use_utilization_ratio", USE, "Utilization of the GPU by container or host; sums to gpu_utilization_ratio."
)
USE_MEMORY = _gauge("use_memory_bytes", USE, "Memory of the GPU by container or host; sums to gpu_memory_used_bytes.")
USE_PROCESSES = _gauge("use_processes", USE, "Processes on the GPU by container or host.")
USE_POWER = _gauge(
    "use_power_estimated_watts", USE, "Power of the GPU by container or host, estimated from utilization."
)
USE_ENERGY = _counter(
    "use_energy_estimated_joules_total",
    USE,
    "Energy of the GPU by container or host since the agent first saw it, estimated from utilization.",
)
USE_BUSY_SECONDS = _counter("use_busy_seconds_total", USE, "Utilization by container or host, integrated over time.")
USE_VIDEO_SECONDS = _counter(
    "use_video_seconds_total",
    USE,
    "Utilization of the busiest video engine (encoder, decoder) by container or host, integrated over time.",
)

ALLOCATION_INFO = _gauge(
    "allocation_info",
    (*ALLOCATION, "share", "resource", "replica", "user", "used_by"),
    "Allocation of a GPU to a container; always 1. `used_by` is the pod that uses it in place of the holder, if the "
    "two are a pair.",
)
ALLOCATION_MEMORY_LIMIT = _gauge("allocation_memory_limit_bytes", ALLOCATION, "Memory limit of the allocation.")
ALLOCATION_CORE_LIMIT = _gauge("allocation_core_limit_ratio", ALLOCATION, "Compute limit of the allocation.")
ALLOCATION_START = _gauge("allocation_start_time_seconds", ALLOCATION, "Start time of the pod, unix time.")

PROCESS_MEMORY = _gauge("process_memory_bytes", PROCESS, "Memory a process holds on a GPU.")
PROCESS_UTILIZATION = _gauge(
    "process_utilization_ratio",
    (*PROCESS, "engine"),
    "Utilization of a process: sm, memory, encoder, decoder.",
)
PROCESS_OUTSIDE = _gauge("process_outside_allocation", PROCESS, "1 for a process on a GPU that its pod does not hold.")
PROCESS_MEMORY_UNKNOWN = _gauge(
    "process_memory_unknown", PROCESS, "1 for a process whose memory the driver does not report."
)

SNAPSHOT_AGE = _gauge("snapshot_age_seconds", NODE, "Age of the data on this page.", stays_valid=True)
COLLECTOR_ERRORS = _counter(
    "collector_errors_total",
    ("node", "collector"),
    "Failures by collector; a failure affects only the series of its collector.",
    stays_valid=True,
)
COLLECTOR_SUCCESS = _gauge(
    "collector_success", ("node", "collector"), "1 if the collector had no failure in the last cycle, else 0."
)
COLLECTOR_SECONDS = _gauge(
    "collector_duration_seconds",
    ("node", "collector"),
    "Duration of the last run of the collector.",
)
CYCLES = _counter("cycles_total", NODE, "Collection cycles finished since the agent started.", stays_valid=True)
CONFIG_RELOADS = _counter(
    "config_reloads_total",
    ("node", "result"),
    "Reloads of the field list by result: ok or refused.",
    stays_valid=True,
)
ALLOCATIONS_KNOWN = _gauge("allocations_known", NODE, "1 if the allocations of the node are known.")
ALLOCATIONS_KEPT = _gauge(
    "allocations_kept",
    NODE,
    "Devices of running pods that the kubelet's last response lacks, as after its restart; absent if there are none.",
)
UNLISTED_DEVICES = _gauge(
    "unlisted_devices",
    (*POD, "resource"),
    "Devices that init containers took for the life of the pod and the kubelet does not list: their GPU is unknown.",
)

POD_CPU_SECONDS = _counter("pod_cpu_seconds_total", POD, "CPU time of a pod that holds GPUs.")
POD_DISK_BYTES = _counter(
    "pod_disk_bytes_total",
    POD,
    "Bytes that a pod that holds GPUs read from and wrote to disks of the node, without network file systems.",
)
POD_NETWORK_BYTES = _counter(
    "pod_network_bytes_total",
    POD,
    "Bytes that a pod that holds GPUs received and sent, without lo and RDMA; absent in the network of the host.",
)

VGPU_LABELS = ("gpu_id", "pod", "namespace")
POD_SM, POD_MEMORY, POD_MEMORY_TOTAL = (
    Metric(name, MetricType.GAUGE, help_text, VGPU_LABELS, "vgpu-monitor")
    for name, help_text in (
        ("pod_gpu_sm_util", "SM utilization of a pod on a GPU (in %)."),
        ("pod_gpu_memory_used", "GPU memory used by a pod on a GPU (in MB)."),
        ("pod_total_gpu_memory", "GPU memory allocated to a pod on a GPU (in MB)."),
    )
)
PID_POD = Metric(
    "nvidia_pid_pod",
    MetricType.GAUGE,
    "GPU memory held by a process of a pod (in MiB).",
    ("pid", "process_name", "pod_name", "namespace", "node_name"),
    "pid2pod",
)

METRICS: tuple[Metric, ...] = (
    *(row for row in tuple(vars().values()) if isinstance(row, Metric)),
    *DEVICE_SIGNALS.values(),
)
"""Every row above, for the reference page and the tests."""
