"""The exporters: which metrics of each provide which quantity, with their units, and what its series mean.

An exporter is a row of `SCHEMES`: gpusteward's agent (native), HAMi, and DCGM under all its metric names. Other modules
ask what holds for it, not which one it is: whether allocations have series of their own, whether every series names its
holder, whether another exporter reports its devices.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from gpusteward.analyzer.sources.usage.quantities import (
    CORE_AGGREGATIONS,
    STATIC_QUANTITIES,
    Aggregation,
    Level,
    Quantity,
    UsageMetric,
)
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers
from gpusteward.core import metrics
from gpusteward.core.dcgm import DcgmField, Unit
from gpusteward.core.dcgm_names import SERVED

_BOTH = (Aggregation.MEAN, Aggregation.PEAK)
_MEAN = (Aggregation.MEAN,)
_PEAK = (Aggregation.PEAK,)
_LAST = (Aggregation.LAST,)
_INCREASE = (Aggregation.INCREASE,)

_DCGM: tuple[tuple[str, Quantity, tuple[Aggregation, ...]], ...] = (
    ("utilization_ratio", Quantity.CORE, CORE_AGGREGATIONS),
    ("memory_copy_ratio", Quantity.MEMORY_COPY, _BOTH),
    ("memory_used_bytes", Quantity.MEMORY_USED, _BOTH),
    ("memory_free_bytes", Quantity.MEMORY_FREE, _LAST),
    ("memory_reserved_bytes", Quantity.MEMORY_RESERVED, _LAST),
    ("memory_total_bytes", Quantity.MEMORY_TOTAL, _LAST),
    ("power_watts", Quantity.POWER, (*_BOTH, Aggregation.CHANGES)),
    ("energy_joules_total", Quantity.ENERGY, (Aggregation.EXCESS, Aggregation.HOUR_EXCESS, Aggregation.CHANGES)),
    ("enforced_power_limit_watts", Quantity.POWER_LIMIT, _LAST),
    ("power_limit_watts", Quantity.POWER_LIMIT, _LAST),
    ("sm_clock_hertz", Quantity.SM_CLOCK, _MEAN),
    ("gr_engine_ratio", Quantity.ENGINE, (*_BOTH, Aggregation.COUNT)),
    ("tensor_ratio", Quantity.TENSOR, _BOTH),
    ("dram_ratio", Quantity.DRAM, _BOTH),
    ("encoder_ratio", Quantity.ENCODER, _BOTH),
    ("decoder_ratio", Quantity.DECODER, _BOTH),
    ("sm_active_ratio", Quantity.SM_ACTIVE, _PEAK),
    *((f"{pipe}_ratio", Quantity.PIPES, _PEAK) for pipe in ("fp64", "fp32", "fp16")),
    # Rates, although some exporters declare them as counters. All directions of a link are one quantity.
    *((f"pcie_{name}_bytes_per_second", Quantity.PCIE, _PEAK) for name in ("tx", "rx")),
    *((f"pcie_throughput_{name}_bytes_per_second", Quantity.PCIE, _PEAK) for name in ("tx", "rx")),
    *((f"nvlink{name}_bytes_per_second", Quantity.NVLINK, _PEAK) for name in ("", "_tx", "_rx")),
)
"""The signals of `core.node.signals` that are read from DCGM fields."""


def _list_dcgm_only() -> Iterator[tuple[str, Quantity]]:
    for engine, quantity, count in (
        ("NVDEC", Quantity.DECODER, 8),
        ("NVJPG", Quantity.VIDEO, 8),
        ("NVOFA", Quantity.VIDEO, 2),
    ):
        for number in range(count):
            yield f"DCGM_FI_PROF_{engine}{number}_ACTIVE", quantity
            yield f"DCGM_FI_PROF_{engine}_UTIL_{number}_RATIO", quantity
    for pipe in ("TENSOR_IMMA", "TENSOR_HMMA", "TENSOR_DFMA", "INT"):
        yield f"DCGM_FI_PROF_PIPE_{pipe}_ACTIVE", Quantity.PIPES
        yield f"DCGM_FI_PROF_{pipe.removeprefix('TENSOR_')}_UTIL_RATIO", Quantity.PIPES


_DCGM_ONLY: Mapping[str, Quantity] = dict(_list_dcgm_only())
"""Fields that prove work and that gpusteward's agent does not export; all are ratios. Not among them: traffic between
Grace and Hopper (C2C), whose level on an idle GPU is not known."""

SCALES: Mapping[Unit, float] = {
    Unit.COUNT: 1.0,
    Unit.CELSIUS: 1.0,
    Unit.PERCENT: 0.01,
    Unit.MEGAHERTZ: 1e6,
    Unit.MEBIBYTES: 1048576.0,
    Unit.RATIO: 1.0,
    Unit.HERTZ: 1.0,
    Unit.BYTES: 1.0,
    Unit.WATTS: 1.0,
    Unit.MILLIJOULES: 0.001,
    Unit.JOULES: 1.0,
    Unit.BYTES_PER_SECOND: 1.0,
    Unit.KILOBYTES_PER_SECOND: 1000.0,
    Unit.NVLINK_MEGABYTES_PER_SECOND: 1024_000.0,  # DCGM divides KiB by 1000
}
"""Factor from the unit of a field to the base unit."""

_HAMI: tuple[UsageMetric, ...] = (
    *(
        UsageMetric(Quantity.CORE, name, CORE_AGGREGATIONS, 0.01)  # a percentage in spite of its name
        for name in ("hami_container_device_utilization_ratio", "Device_utilization_desc_of_container")
    ),
    *(
        UsageMetric(Quantity.MEMORY_USED, name, _BOTH)
        for name in ("hami_vgpu_memory_used_bytes", "vGPU_device_memory_usage_in_bytes")
    ),
    *(
        UsageMetric(Quantity.MEMORY_LIMIT, name, _LAST)
        for name in ("hami_vgpu_memory_limit_bytes", "vGPU_device_memory_limit_in_bytes")
    ),
    *(
        UsageMetric(Quantity.LAST_KERNEL, name, _LAST)  # seconds since then; absent before the first kernel
        for name in ("hami_container_last_kernel_elapsed_seconds", "Device_last_kernel_of_container")
    ),
)
"""The metrics of HAMi's monitor under their new and old names; Volcano's vGPU plugin has the old ones."""

_DEVICE = metrics.DEVICE_SIGNALS

# What a series of gpusteward's agent is about.
_ALLOCATION, _GPU = (Level.HOLDER, ()), (Level.DEVICE, ())
_CONTAINER = (Level.HOLDER, (Matcher("by", "=", "container"),))
_NOBODY = (Level.DEVICE, (Matcher("by", "=", "unattributed"),))
_HOST = (Level.DEVICE, (Matcher("by", "=", "host"),))

_NATIVE: tuple[tuple[Quantity, metrics.Metric, tuple[Aggregation, ...], tuple[Level, Matchers]], ...] = (
    (Quantity.PRESENCE, metrics.ALLOCATION_INFO, _LAST, _ALLOCATION),
    (Quantity.STARTED_AT, metrics.ALLOCATION_START, _LAST, _ALLOCATION),
    (Quantity.MEMORY_LIMIT, metrics.ALLOCATION_MEMORY_LIMIT, _LAST, _ALLOCATION),
    (Quantity.CORE, metrics.USE_UTILIZATION, CORE_AGGREGATIONS, _CONTAINER),
    (Quantity.BUSY, metrics.USE_BUSY_SECONDS, _INCREASE, _CONTAINER),
    (Quantity.MEMORY_USED, metrics.USE_MEMORY, _BOTH, _CONTAINER),
    (Quantity.PROCESSES, metrics.USE_PROCESSES, (Aggregation.PEAK, Aggregation.LAST), _CONTAINER),
    (Quantity.POWER, metrics.USE_POWER, _BOTH, _CONTAINER),
    (Quantity.UNATTRIBUTED, metrics.USE_UTILIZATION, _PEAK, _NOBODY),
    (Quantity.IDENTITY, metrics.GPU_INFO, _LAST, _GPU),
    (Quantity.CORE, metrics.GPU_UTILIZATION, _PEAK, _GPU),
    (Quantity.BUSY, metrics.GPU_BUSY_SECONDS, _INCREASE, _GPU),
    (Quantity.MEMORY_COPY, _DEVICE["memory_copy_ratio"], _BOTH, _GPU),
    (Quantity.MEMORY_TOTAL, _DEVICE["memory_total_bytes"], _LAST, _GPU),
    (Quantity.POWER, _DEVICE["power_watts"], _BOTH, _GPU),
    (Quantity.POWER_LIMIT, _DEVICE["enforced_power_limit_watts"], _LAST, _GPU),
    (Quantity.SM_CLOCK, _DEVICE["sm_clock_hertz"], _MEAN, _GPU),
    (Quantity.ENGINE, _DEVICE["gr_engine_ratio"], _BOTH, _GPU),
    (Quantity.SM_ACTIVE, _DEVICE["sm_active_ratio"], _PEAK, _GPU),
    (Quantity.TENSOR, _DEVICE["tensor_ratio"], _BOTH, _GPU),
    (Quantity.DRAM, _DEVICE["dram_ratio"], _BOTH, _GPU),
    (Quantity.VIDEO, metrics.USE_VIDEO_SECONDS, _INCREASE, _CONTAINER),
    (Quantity.UNATTRIBUTED_VIDEO, metrics.USE_VIDEO_SECONDS, _INCREASE, _NOBODY),
    (Quantity.OUTSIDE, metrics.GPU_OUTSIDE_SECONDS, _INCREASE, _GPU),
    (Quantity.HOST_PROCESSES, metrics.USE_PROCESSES, _PEAK, _HOST),
    (Quantity.ENCODER, _DEVICE["encoder_ratio"], _PEAK, _GPU),
    (Quantity.DECODER, _DEVICE["decoder_ratio"], _PEAK, _GPU),
    (Quantity.PCIE, _DEVICE["pcie_tx_bytes_per_second"], _PEAK, _GPU),
    (Quantity.PCIE, _DEVICE["pcie_rx_bytes_per_second"], _PEAK, _GPU),
    (Quantity.NVLINK, _DEVICE["nvlink_bytes_per_second"], _PEAK, _GPU),
)


def list_dcgm_names(signal: str) -> Iterator[tuple[str, float]]:
    """The metric names of a signal in DCGM, each with its factor to the base unit."""
    for name, field in SERVED.items():
        if isinstance(field, DcgmField) and field.signal == signal:
            yield name, SCALES[field.unit_of(name)]


def _list_dcgm(level: Level) -> Iterator[UsageMetric]:
    """Static values are always read per device; of devices nothing else but means and peaks."""
    for field, quantity, aggregations in _DCGM:
        is_static = quantity in STATIC_QUANTITIES
        of_level = aggregations if level is Level.HOLDER else tuple(each for each in aggregations if each in _BOTH)
        for name, scale in list_dcgm_names(field):
            if is_static:
                yield UsageMetric(quantity, name, _LAST, scale, Level.DEVICE)
            if of_level not in ((), _LAST) and not (is_static and level is Level.DEVICE):
                yield UsageMetric(quantity, name, of_level, scale, level)
    for name, quantity in _DCGM_ONLY.items():
        yield UsageMetric(quantity, name, _PEAK, level=level)


class SchemeMetrics(NamedTuple):
    """The metrics of one exporter at a site."""

    of_holders: tuple[UsageMetric, ...]  # also values of devices with the labels of their holders, as DCGM has them
    of_devices: tuple[UsageMetric, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MetricScheme:
    """An exporter: its metrics, and what its series mean. The rows are in `SCHEMES`."""

    name: str
    metrics: tuple[UsageMetric, ...]  # of all its versions
    presence: tuple[Quantity, ...]
    """What nearly every holder has, even if its core is not measured, most reliable first."""
    video: tuple[Quantity, ...]
    """All of these are needed to see the use of video engines: engine activity and busy time are those of the core."""
    needs: frozenset[Quantity] = frozenset()  # of holders; without these nothing shows use
    devices: tuple[UsageMetric, ...] = ()
    """Metrics of another exporter about its devices: itself it has none."""
    lists_allocations: bool = False
    """Allocations have series of their own, and so have devices, held or not; all others say whose use they are, also
    of those who hold nothing. So has gpusteward's agent only."""
    names_holder: bool = False
    """Every series has a value of the device, and names its holder."""
    shares_devices: bool = False  # every device may have further holders

    def __str__(self) -> str:
        return self.name

    @property
    def names(self) -> frozenset[str]:
        """Every metric name that can be read."""
        return frozenset(metric.name for metric in self.metrics)

    def list_metrics(self, names: Collection[str]) -> tuple[UsageMetric, ...]:
        """Its own among these names, in the order of its table; none without what shows use."""
        found = [metric for metric in self.metrics if metric.name in names]
        if not self.needs <= {metric.quantity for metric in found if metric.level is Level.HOLDER}:
            return ()
        if any(metric.quantity is Quantity.ENERGY for metric in found):  # of the values that are never the same, one
            found = [replace(one, aggregations=_BOTH) if one.quantity is Quantity.POWER else one for one in found]
        return tuple(found)

    def find_metrics(self, names: Collection[str]) -> SchemeMetrics:
        """Those among these names about holders, and those about devices."""
        found = self.list_metrics(names)
        if self.names_holder:
            return SchemeMetrics(found, ())
        holders, devices = (tuple(metric for metric in found if metric.level is level) for level in Level)
        others = (metric for metric in self.devices if found and metric.name in names)
        return SchemeMetrics(holders, (*devices, *others))


NATIVE = MetricScheme(
    "native",
    tuple(
        UsageMetric(quantity, metric.name, aggregations, level=level, matchers=matchers)
        for quantity, metric, aggregations, (level, matchers) in _NATIVE
    ),
    presence=(Quantity.PRESENCE,),
    video=(Quantity.VIDEO,),
    needs=frozenset({Quantity.PRESENCE, Quantity.CORE}),
    lists_allocations=True,
)
HAMI = MetricScheme(
    "hami",
    _HAMI,
    presence=(Quantity.MEMORY_LIMIT, Quantity.MEMORY_USED, Quantity.CORE),
    video=(Quantity.ENCODER, Quantity.DECODER),
    needs=frozenset({Quantity.CORE}),
    devices=tuple(_list_dcgm(Level.DEVICE)),
    shares_devices=True,
)
DCGM = MetricScheme(
    "dcgm",
    tuple(_list_dcgm(Level.HOLDER)),
    presence=(Quantity.MEMORY_USED, Quantity.CORE, Quantity.ENGINE),
    video=(Quantity.ENCODER, Quantity.DECODER),
    names_holder=True,
)
SCHEMES = (NATIVE, HAMI, DCGM)
"""Most trusted first."""
