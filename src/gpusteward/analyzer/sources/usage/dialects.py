"""Metric names and units, by who exports them: gpusteward's agent, HAMi, DCGM in all its spellings."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum

from gpusteward.analyzer.sources.usage.quantities import LASTING, Fold, Level, Quantity, Signal
from gpusteward.core import metrics
from gpusteward.core.dcgm import DcgmField, Unit
from gpusteward.core.dcgm_names import SERVED


class Dialect(StrEnum):
    """Who speaks of an allocation, in the order of trust."""

    NATIVE = "native"
    HAMI = "hami"
    DCGM = "dcgm"


CORE_FOLDS = (Fold.MEAN, Fold.PEAK, Fold.SPREAD, Fold.COUNT)
_BOTH = (Fold.MEAN, Fold.PEAK)
_MEAN = (Fold.MEAN,)
_LAST = (Fold.LAST,)
_GROWTH = (Fold.INCREASE,)

_DCGM: tuple[tuple[str, Quantity, tuple[Fold, ...]], ...] = (
    ("utilization_ratio", Quantity.CORE, CORE_FOLDS),
    ("memory_copy_ratio", Quantity.MEMORY_COPY, _BOTH),
    ("memory_used_bytes", Quantity.MEMORY_USED, _BOTH),
    ("memory_free_bytes", Quantity.MEMORY_FREE, _LAST),
    ("memory_reserved_bytes", Quantity.MEMORY_RESERVED, _LAST),
    ("memory_total_bytes", Quantity.MEMORY_TOTAL, _LAST),
    ("power_watts", Quantity.POWER, _BOTH),
    ("enforced_power_limit_watts", Quantity.POWER_LIMIT, _LAST),
    ("power_limit_watts", Quantity.POWER_LIMIT, _LAST),
    ("sm_clock_hertz", Quantity.SM_CLOCK, _MEAN),
    ("gr_engine_ratio", Quantity.ENGINE, _BOTH),
    ("tensor_ratio", Quantity.TENSOR, _BOTH),
    ("dram_ratio", Quantity.DRAM, _BOTH),
)
"""Signals of `core.signals` that the analyzer asks DCGM's fields for."""

SCALES: Mapping[Unit, float] = {
    Unit.PERCENT: 0.01,
    Unit.MEGAHERTZ: 1e6,
    Unit.MEBIBYTES: 1048576.0,
    Unit.RATIO: 1.0,
    Unit.HERTZ: 1.0,
    Unit.BYTES: 1.0,
    Unit.WATTS: 1.0,
}
"""From a field's unit to the base unit."""

_HAMI: tuple[tuple[tuple[str, str], Quantity, tuple[Fold, ...], float], ...] = (
    (
        ("hami_container_device_utilization_ratio", "Device_utilization_desc_of_container"),
        Quantity.CORE,
        CORE_FOLDS,
        0.01,  # a percentage, whatever the name says
    ),
    (("hami_vgpu_memory_used_bytes", "vGPU_device_memory_usage_in_bytes"), Quantity.MEMORY_USED, _BOTH, 1.0),
    (("hami_vgpu_memory_limit_bytes", "vGPU_device_memory_limit_in_bytes"), Quantity.MEMORY_LIMIT, _LAST, 1.0),
)
"""HAMi's monitor under its new and its old names; Volcano's vGPU plugin has the old ones."""

HAMI_NAMES = frozenset(name for names, _, _, _ in _HAMI for name in names)

_IN_CONTAINER = (("by", "=", "container"),)
_UNNAMED = (("by", "=", "unattributed"),)
_DEVICE = metrics.DEVICE_SIGNALS

_NATIVE: tuple[Signal, ...] = (
    Signal(Quantity.PRESENCE, metrics.ALLOCATION_INFO.name, _LAST),
    Signal(Quantity.STARTED_AT, metrics.ALLOCATION_START.name, _LAST),
    Signal(Quantity.MEMORY_LIMIT, metrics.ALLOCATION_MEMORY_LIMIT.name, _LAST),
    Signal(Quantity.CORE, metrics.USE_UTILIZATION.name, CORE_FOLDS, only=_IN_CONTAINER),
    Signal(Quantity.BUSY, metrics.USE_BUSY_SECONDS.name, _GROWTH, only=_IN_CONTAINER),
    Signal(Quantity.MEMORY_USED, metrics.USE_MEMORY.name, _BOTH, only=_IN_CONTAINER),
    Signal(Quantity.PROCESSES, metrics.USE_PROCESSES.name, (Fold.PEAK, Fold.LAST), only=_IN_CONTAINER),
    Signal(Quantity.POWER, metrics.USE_POWER.name, _BOTH, only=_IN_CONTAINER),
    Signal(Quantity.UNATTRIBUTED, metrics.USE_UTILIZATION.name, (Fold.PEAK,), level=Level.DEVICE, only=_UNNAMED),
    Signal(Quantity.IDENTITY, metrics.GPU_INFO.name, _LAST, level=Level.DEVICE),
    Signal(Quantity.CORE, metrics.GPU_UTILIZATION.name, (Fold.PEAK,), level=Level.DEVICE),
    Signal(Quantity.BUSY, metrics.GPU_BUSY_SECONDS.name, _GROWTH, level=Level.DEVICE),
    Signal(Quantity.MEMORY_COPY, _DEVICE["memory_copy_ratio"].name, _BOTH, level=Level.DEVICE),
    Signal(Quantity.MEMORY_TOTAL, _DEVICE["memory_total_bytes"].name, _LAST, level=Level.DEVICE),
    Signal(Quantity.POWER, _DEVICE["power_watts"].name, _BOTH, level=Level.DEVICE),
    Signal(Quantity.POWER_LIMIT, _DEVICE["enforced_power_limit_watts"].name, _LAST, level=Level.DEVICE),
    Signal(Quantity.SM_CLOCK, _DEVICE["sm_clock_hertz"].name, _MEAN, level=Level.DEVICE),
    Signal(Quantity.ENGINE, _DEVICE["gr_engine_ratio"].name, _BOTH, level=Level.DEVICE),
    Signal(Quantity.TENSOR, _DEVICE["tensor_ratio"].name, _BOTH, level=Level.DEVICE),
    Signal(Quantity.DRAM, _DEVICE["dram_ratio"].name, _BOTH, level=Level.DEVICE),
)


def native_signals(names: Collection[str]) -> tuple[Signal, ...]:
    """gpusteward's own families, as far as they are there; none without claims and use."""
    needed = {metrics.ALLOCATION_INFO.name, metrics.USE_UTILIZATION.name}
    return tuple(signal for signal in _NATIVE if signal.metric in names) if needed <= set(names) else ()


def hami_signals(names: Collection[str]) -> tuple[Signal, ...]:
    """HAMi's per-container families, as far as they are there; none without use."""
    found = tuple(
        Signal(quantity, name, folds, scale)
        for spellings, quantity, folds, scale in _HAMI
        for name in spellings
        if name in names
    )
    return found if any(signal.quantity is Quantity.CORE for signal in found) else ()


def dcgm_signals(names: Collection[str], *, level: Level = Level.HOLDER) -> tuple[Signal, ...]:
    """DCGM's fields in every spelling that is there. What lasts is said of the device, whoever holds it."""
    return tuple(
        signal
        for field, quantity, folds in _DCGM
        for name, scale in _spellings(field)
        if name in names
        for signal in _of_level(Signal(quantity, name, folds, scale, level))
    )


def _of_level(signal: Signal) -> Iterator[Signal]:
    lasting = replace(signal, folds=_LAST, level=Level.DEVICE)
    if signal.quantity in LASTING:
        yield lasting
    if signal.folds != _LAST and signal.level is Level.HOLDER:
        yield signal
    elif signal.folds != _LAST and signal.quantity not in LASTING:
        yield replace(signal, folds=tuple(fold for fold in signal.folds if fold in _BOTH))


def dcgm_names() -> Iterator[str]:
    """Every name the analyzer could ask DCGM's exporters for."""
    for signal, _, _ in _DCGM:
        yield from (name for name, _ in _spellings(signal))


def _spellings(signal: str) -> Iterator[tuple[str, float]]:
    for name, field in SERVED.items():
        if isinstance(field, DcgmField) and field.signal == signal:
            yield name, SCALES[field.unit_of(name)]
