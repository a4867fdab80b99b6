"""The state of the GPUs of one node as its exporters report it now: temperature, power, clocks, memory, errors. Read on
demand and never stored."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from gpusteward.core import metrics

_MEBIBYTE = 1048576.0
_DEVICE = metrics.DEVICE_SIGNALS


class _Field(NamedTuple):
    """A value in base units."""

    name: str
    scale: float = 1.0


_NATIVE: Mapping[str, _Field] = {
    _DEVICE["temperature_celsius"].name: _Field("temperature_celsius"),
    _DEVICE["memory_temperature_celsius"].name: _Field("memory_temperature_celsius"),
    _DEVICE["power_watts"].name: _Field("power_watts"),
    _DEVICE["enforced_power_limit_watts"].name: _Field("power_limit_watts"),
    _DEVICE["sm_clock_hertz"].name: _Field("sm_clock_hertz"),
    _DEVICE["memory_clock_hertz"].name: _Field("memory_clock_hertz"),
    _DEVICE["memory_total_bytes"].name: _Field("memory_total_bytes"),
    metrics.GPU_MEMORY_USED.name: _Field("memory_used_bytes"),
    metrics.GPU_UTILIZATION.name: _Field("utilization_ratio"),
    metrics.GPU_UP.name: _Field("up"),
    _DEVICE["row_remap_failure"].name: _Field("row_remap_failure"),
}
_DCGM: Mapping[str, _Field] = {
    "DCGM_FI_DEV_GPU_TEMP": _Field("temperature_celsius"),
    "DCGM_FI_DEV_MEMORY_TEMP": _Field("memory_temperature_celsius"),
    "DCGM_FI_DEV_POWER_USAGE": _Field("power_watts"),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": _Field("power_limit_watts"),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": _Field("power_limit_watts"),
    "DCGM_FI_DEV_SM_CLOCK": _Field("sm_clock_hertz", 1e6),
    "DCGM_FI_DEV_MEM_CLOCK": _Field("memory_clock_hertz", 1e6),
    "DCGM_FI_DEV_FB_TOTAL": _Field("memory_total_bytes", _MEBIBYTE),
    "DCGM_FI_DEV_FB_USED": _Field("memory_used_bytes", _MEBIBYTE),
    "DCGM_FI_DEV_GPU_UTIL": _Field("utilization_ratio", 0.01),
    "DCGM_FI_DEV_XID_ERRORS": _Field("last_xid"),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": _Field("row_remap_failure"),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": _Field("row_remap_pending"),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": _Field("correctable_remapped_rows"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": _Field("uncorrectable_remapped_rows"),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": _Field("ecc_single_bit_errors"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _Field("ecc_double_bit_errors"),
    # The names of 4.9, for what the agent exports under DCGM's names only.
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": _Field("temperature_celsius"),
    "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS": _Field("memory_temperature_celsius"),
    "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ": _Field("memory_clock_hertz"),
    "DCGM_FI_DEV_FB_USED_BYTES": _Field("memory_used_bytes"),
    "DCGM_FI_DEV_ROW_REMAP_FAILED": _Field("row_remap_failure"),
}
_COUNTERS = (metrics.GPU_XID_ERRORS.name, metrics.GPU_CLOCK_EVENTS.name)
METRIC_NAMES = frozenset({*_NATIVE, *_DCGM, *_COUNTERS, metrics.GPU_INFO.name})
"""Of gpusteward's agent, which come first, and of dcgm-exporter."""
MAX_LABEL_LENGTH = 200


class GpuSample(NamedTuple):
    """One sample of one of `METRIC_NAMES`."""

    metric: str
    labels: Mapping[str, str]
    value: float


class GpuLabels(NamedTuple):
    """The label names of the device: an engine may have renamed them."""

    uuid: str = "uuid"
    gpu: str = "gpu"
    model: str = "model"
    instance: str = "gpu_instance_id"


NATIVE_LABELS = GpuLabels()
DCGM_LABELS = GpuLabels("UUID", "gpu", "modelName", "GPU_I_ID")


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


def collect_readings(samples: Iterable[tuple[GpuSample, GpuLabels]]) -> list[ReportedGpu]:
    """The GPUs of one node by index and instance. Values of gpusteward's agent win over those of other exporters."""
    readings: dict[tuple[str, str], ReportedGpu] = {}
    for sample, names in sorted(samples, key=lambda each: each[0].metric not in _NATIVE):
        index, instance = sample.labels.get(names.gpu, ""), sample.labels.get(names.instance, "")
        if isfinite(sample.value) and len(index) <= MAX_LABEL_LENGTH:
            reading = readings.setdefault((index, instance), ReportedGpu(index, instance))
            _add(reading, sample, names)
    return sorted(readings.values(), key=lambda one: (len(one.index), one.index, len(one.instance), one.instance))


def _add(reading: ReportedGpu, sample: GpuSample, names: GpuLabels) -> None:
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


def find_labels(metric: str) -> GpuLabels:
    """As the exporter of this metric names them."""
    return DCGM_LABELS if metric in _DCGM else NATIVE_LABELS
