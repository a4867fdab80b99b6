"""What exporters report now, read on demand and never stored: the processes of pods (by gpusteward's agents), the state
of the GPUs of one node, and what pods use of their hosts."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import NamedTuple

from gpusteward.analyzer.sources.usage.label_mapping import LabelMapping
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage.schemes import list_dcgm_names
from gpusteward.core import metrics

PROCESS_METRICS = frozenset(
    metric.name
    for metric in (
        *(metrics.USE_PROCESSES, metrics.PROCESS_MEMORY, metrics.PROCESS_MEMORY_UNKNOWN),
        *(metrics.PROCESS_UTILIZATION, metrics.PROCESS_OUTSIDE),
    )
)
"""The metrics about processes; the first one is also reported for pods without a process."""

_LARGEST_PID = 2**32


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process on one GPU; None is unknown."""

    pod: PodKey
    container: str
    node: str
    gpu_index: str
    gpu_uuid: str  # of a MIG instance its own
    gpu_instance: str  # of MIG
    mig_profile: str
    pid: int
    name: str
    memory_bytes: float | None = None
    sm_ratio: float | None = None
    outside_allocation: bool = False  # on a GPU that its pod does not hold


@dataclass(frozen=True, slots=True)
class PodProcesses:
    """The processes of some pods."""

    processes: list[RunningProcess] = field(default_factory=list)
    reported: frozenset[PodKey] = frozenset()  # pods that an agent reports; the processes of others are unknown


class HostUse(NamedTuple):
    """What one pod used of its host, as means over some minutes; None is unknown."""

    cpu_cores: float | None = None
    disk_bytes_per_second: float | None = None  # read and written
    network_bytes_per_second: float | None = None  # received and sent


class LiveSample(NamedTuple):
    """One sample of one of `PROCESS_METRICS` or `GPU_METRICS`."""

    metric: str
    labels: Mapping[str, str]
    value: float


def collect_processes(samples: Iterable[LiveSample], pods: Collection[PodKey], labels: LabelMapping) -> PodProcesses:
    """The processes of these pods by node, GPU and pid. Duplicate samples count once."""
    reported: set[PodKey] = set()
    processes: dict[tuple[str, str, str, str], RunningProcess] = {}
    for sample in samples:
        pod = PodKey(*(sample.labels.get(label, "") for label in (labels.namespace, labels.pod, labels.cluster)))
        if pod not in pods or not isfinite(sample.value):
            continue
        if sample.metric == metrics.USE_PROCESSES.name:
            reported.add(pod)
        elif (pid := _read_pid(sample.labels)) is not None:
            node, uuid, text = (sample.labels.get(label, "") for label in ("node", "uuid", "pid"))
            key = (pod.cluster, node, uuid, text)
            process = processes.get(key) or _make_process(pod, pid, sample.labels, labels)
            if sample.metric == metrics.PROCESS_MEMORY.name:
                process = replace(process, memory_bytes=sample.value)
            elif sample.metric == metrics.PROCESS_OUTSIDE.name:
                process = replace(process, outside_allocation=sample.value == 1)
            elif sample.labels.get("engine") == "sm":
                process = replace(process, sm_ratio=sample.value)
            processes[key] = process
    ordered = sorted(
        processes.values(),
        key=lambda one: (one.pod.cluster, one.node, len(one.gpu_index), one.gpu_index, one.gpu_uuid, one.pid),
    )
    return PodProcesses(ordered, frozenset(reported))


def _read_pid(labels: Mapping[str, str]) -> int | None:
    text = labels.get("pid", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST_PID)) else None


def _make_process(pod: PodKey, pid: int, labels: Mapping[str, str], names: LabelMapping) -> RunningProcess:
    return RunningProcess(
        pod,
        labels.get(names.container, ""),
        node=labels.get("node", ""),
        gpu_index=labels.get("gpu", ""),
        gpu_uuid=labels.get("uuid", ""),
        gpu_instance=labels.get("gpu_instance_id", ""),
        mig_profile=labels.get("mig_profile", ""),
        pid=pid,
        name=labels.get("process", ""),
    )


_DEVICE = metrics.DEVICE_SIGNALS


class _Field(NamedTuple):
    """A value in base units."""

    name: str
    scale: float = 1.0


_VALUES: Mapping[str, str] = {
    **{
        signal: signal
        for signal in (
            *("temperature_celsius", "memory_temperature_celsius", "power_watts", "power_limit_watts"),
            *("sm_clock_hertz", "memory_clock_hertz", "memory_total_bytes", "memory_used_bytes", "utilization_ratio"),
            *("last_xid", "row_remap_failure", "row_remap_pending"),
        )
    },
    "enforced_power_limit_watts": "power_limit_watts",
    "remapped_rows_correctable_total": "correctable_remapped_rows",
    "remapped_rows_uncorrectable_total": "uncorrectable_remapped_rows",
    "ecc_single_bit_volatile_total": "ecc_single_bit_errors",
    "ecc_double_bit_volatile_total": "ecc_double_bit_errors",
}
"""Signals of `core.node.signals` -> the names of their values here."""
_NATIVE: Mapping[str, _Field] = {
    **{_DEVICE[signal].name: _Field(name) for signal, name in _VALUES.items() if signal in _DEVICE},
    metrics.GPU_MEMORY_USED.name: _Field("memory_used_bytes"),
    metrics.GPU_UTILIZATION.name: _Field("utilization_ratio"),
    metrics.GPU_UP.name: _Field("up"),
}
_DCGM: Mapping[str, _Field] = {
    name: _Field(value, scale) for signal, value in _VALUES.items() for name, scale in list_dcgm_names(signal)
}
"""Under all names that versions of DCGM have for them; the agent exports some values under DCGM's names only."""
_COUNTERS = (metrics.GPU_XID_ERRORS.name, metrics.GPU_CLOCK_EVENTS.name)
GPU_METRICS = frozenset({*_NATIVE, *_DCGM, *_COUNTERS, metrics.GPU_INFO.name})
"""Of gpusteward's agent, which come first, and of dcgm-exporter."""
MAX_LABEL_LENGTH = 200


NATIVE_LABELS = LabelMapping(
    "uuid", "gpu_instance_id", namespace="namespace", pod="pod", container="container", gpu="gpu", model="model"
)
DCGM_LABELS = LabelMapping("UUID", "GPU_I_ID", gpu="gpu", model="modelName")


@dataclass(slots=True)
class ReportedGpu:
    """One GPU or MIG instance. A value that was not reported is absent."""

    index: str
    instance: str  # MIG instance id; empty for a whole GPU
    uuid: str = ""
    parent_uuid: str = ""  # of a MIG instance, if it is known
    profile: str = ""
    model: str = ""
    driver: str = ""
    values: dict[str, float] = field(default_factory=dict)
    xid_errors: dict[int, int] = field(default_factory=dict)  # since the agent started, by code
    clock_events: dict[str, int] = field(default_factory=dict)  # by reason


def collect_readings(samples: Iterable[tuple[LiveSample, LabelMapping]]) -> list[ReportedGpu]:
    """The GPUs of one node by index and instance. Values of gpusteward's agent win over those of other exporters."""
    readings: dict[tuple[str, str], ReportedGpu] = {}
    for sample, names in sorted(samples, key=lambda each: each[0].metric not in _NATIVE):
        index, instance = sample.labels.get(names.gpu, ""), sample.labels.get(names.instance, "")
        if isfinite(sample.value) and len(index) <= MAX_LABEL_LENGTH:
            reading = readings.setdefault((index, instance), ReportedGpu(index, instance))
            _add(reading, sample, names)
    return sorted(readings.values(), key=lambda one: (len(one.index), one.index, len(one.instance), one.instance))


def _add(reading: ReportedGpu, sample: LiveSample, names: LabelMapping) -> None:
    labels = sample.labels
    reading.uuid = reading.uuid or labels.get(names.uuid, "")
    reading.model = reading.model or labels.get(names.model, "")
    reading.profile = reading.profile or labels.get("mig_profile", "") or labels.get("GPU_I_PROFILE", "")
    if sample.metric == metrics.GPU_INFO.name:
        reading.uuid = labels.get(names.uuid, "") or reading.uuid
        reading.parent_uuid = labels.get("parent_uuid", "")
        reading.driver = labels.get("driver_version", "")
    elif sample.metric == metrics.GPU_XID_ERRORS.name:
        code = labels.get("xid", "")
        if code.isdecimal() and len(code) <= 6 and sample.value > 0:
            reading.xid_errors[int(code)] = round(sample.value)
    elif sample.metric == metrics.GPU_CLOCK_EVENTS.name:
        if sample.value > 0:
            reading.clock_events[labels.get("reason", "")[:MAX_LABEL_LENGTH]] = round(sample.value)
    elif found := _NATIVE.get(sample.metric) or _DCGM.get(sample.metric):
        reading.values.setdefault(found.name, sample.value * found.scale)


def find_labels(metric: str) -> LabelMapping:
    """As the exporter of this metric names them."""
    return DCGM_LABELS if metric in _DCGM else NATIVE_LABELS
