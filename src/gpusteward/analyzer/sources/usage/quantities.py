"""What is queried (`Quantity`), of what (`Level`: holders or devices), and how the samples of a window become one
number (`Aggregation`). Which metrics of which exporter provide it, `schemes.py` says.

A holder is a container on a device; a device is a GPU or a MIG instance."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gpusteward.analyzer.sources.usage.selectors import Matchers
from gpusteward.core.usages import LEAST_TRAFFIC, Measure, Stat


class Quantity(StrEnum):
    """What is queried: the measures of the usage table, and the values that they are computed from."""

    CORE = "core"
    BUSY = "busy time"  # core integrated over time: a counter includes work between two samples of a gauge
    MEMORY_COPY = "memory copy"
    MEMORY_USED = "memory used"
    MEMORY_FREE = "memory free"
    MEMORY_RESERVED = "memory reserved"
    MEMORY_TOTAL = "memory total"
    MEMORY_LIMIT = "memory limit"  # of one holder
    POWER = "power"
    POWER_LIMIT = "power limit"
    ENERGY = "energy"
    SM_CLOCK = "SM clock"
    ENGINE = "engine"
    TENSOR = "tensor"
    DRAM = "DRAM"
    PROCESSES = "processes"
    LAST_KERNEL = "last kernel"  # when the container last launched one, in unix seconds
    ENCODER = "encoder"
    DECODER = "decoder"
    VIDEO = "video engines"
    SM_ACTIVE = "SM active"
    PIPES = "arithmetic pipes"
    PCIE = "PCIe traffic"
    NVLINK = "NVLink traffic"
    NO_VIDEO = "missing video signals"  # holders whose use of video engines is not reported
    UNATTRIBUTED = "unattributed use"
    UNATTRIBUTED_VIDEO = "unattributed use of video engines"
    OUTSIDE = "use by others than its holders"
    HOST_PROCESSES = "processes of the host"
    STARTED_AT = "start time"
    IDENTITY = "identity"  # of a device: its details
    UNHELD = "use without a holder"  # the core of a device that no holder is named for
    PRESENCE = "presence"  # of a holder: its details


class Aggregation(StrEnum):
    """How a window becomes one number; the value is the PromQL function."""

    MEAN = "avg_over_time"
    PEAK = "max_over_time"
    SPREAD = "stddev_over_time"
    COUNT = "count_over_time"
    INCREASE = "increase"  # of a counter; a reset to zero is no decrease
    EXCESS = "excess"  # of a counter: of minutes of the window above the others, see `promql.expressions`
    HOUR_EXCESS = "hour_excess"  # of a counter: of all minutes of the window above those of the hour
    CHANGES = "changes"  # how often the value changed
    LAST = "last"  # no function: the instant value
    TIMES = "times"  # of the samples in the window, in unix seconds


EXCESSES = frozenset({Aggregation.EXCESS, Aggregation.HOUR_EXCESS})
COUNTS = frozenset({Aggregation.COUNT, Aggregation.CHANGES})
"""Not in the unit of the metric."""


class Level(StrEnum):
    """What a series describes: a container on a device, or the device."""

    HOLDER = "holder"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class UsageMetric:
    """A metric of an exporter that provides a quantity. The tables below list them by exporter."""

    quantity: Quantity
    name: str
    aggregations: tuple[Aggregation, ...]
    scale: float = 1.0  # to the base unit
    level: Level = Level.HOLDER
    matchers: Matchers = ()  # which series of the metric are meant


class QueryKey(NamedTuple):
    """Identifies a query of a cycle, and the result column it fills."""

    level: Level
    quantity: Quantity
    aggregation: Aggregation

    def __str__(self) -> str:
        return f"{self.level} {self.quantity} {self.aggregation}"


PRESENCE_NOW = QueryKey(Level.HOLDER, Quantity.PRESENCE, Aggregation.LAST)
"""The holders that exist now, with their details."""
PRESENCE_IN_WINDOW = QueryKey(Level.HOLDER, Quantity.PRESENCE, Aggregation.PEAK)
"""The holders that existed in the window and do not exist now, with their details."""

PRESENCE_TIMES = QueryKey(Level.HOLDER, Quantity.PRESENCE, Aggregation.TIMES)
"""When holders of the window were seen, with their details; queried of those that have ended."""

CORE_COUNT = QueryKey(Level.HOLDER, Quantity.CORE, Aggregation.COUNT)
"""The samples that coverage is measured by."""

NO_VIDEO = QueryKey(Level.HOLDER, Quantity.NO_VIDEO, Aggregation.LAST)
IDLE_KEYS = frozenset(
    {
        NO_VIDEO,
        *(
            QueryKey(level, quantity, Aggregation.CHANGES)
            for level in Level
            for quantity in (Quantity.ENERGY, Quantity.POWER)
        ),
    }
)
"""What limits the proof of idleness."""

STATIC_QUANTITIES = frozenset(
    {
        Quantity.MEMORY_USED,
        Quantity.MEMORY_FREE,
        Quantity.MEMORY_RESERVED,
        Quantity.MEMORY_TOTAL,
        Quantity.POWER_LIMIT,
    }
)
"""The last values of a device that make up what does not change: its memory size and its power limit."""

SHOWS_GPUS = (Quantity.MEMORY_USED, Quantity.CORE, Quantity.ENGINE, Quantity.POWER)
"""What nearly every GPU has, most reliable first: an exporter may lack one of them, but hardly all."""

UNHELD_FLOOR = 0.05
"""Mean of the core over a window above which a device without a holder works: one sample after the end of a pod stays
below it."""

FLOORS: Mapping[Quantity, float] = {
    Quantity.ENCODER: 0.0,
    Quantity.DECODER: 0.0,
    Quantity.VIDEO: 0.0,
    Quantity.SM_ACTIVE: 0.0,
    Quantity.PIPES: 0.0,
    Quantity.PCIE: LEAST_TRAFFIC,
    Quantity.NVLINK: LEAST_TRAFFIC,
    Quantity.UNATTRIBUTED_VIDEO: 0.0,
    Quantity.OUTSIDE: 0.0,
    Quantity.HOST_PROCESSES: 0.0,
}
"""Signals that only prove work, or that somebody else is there, in base units: a source returns values above the floor
and nothing for the rest, so that an idle fleet costs no transfer and no memory."""

MEASURES: dict[Quantity, Measure] = {
    Quantity.CORE: Measure.CORE,
    Quantity.MEMORY_COPY: Measure.MEMORY_COPY,
    Quantity.MEMORY_USED: Measure.MEMORY_USED,
    Quantity.POWER: Measure.POWER,
    Quantity.POWER_LIMIT: Measure.POWER_LIMIT,
    Quantity.SM_CLOCK: Measure.SM_CLOCK,
    Quantity.ENGINE: Measure.ENGINE,
    Quantity.TENSOR: Measure.TENSOR,
    Quantity.DRAM: Measure.DRAM,
    Quantity.PROCESSES: Measure.PROCESSES,
    Quantity.ENCODER: Measure.ENCODER,
    Quantity.DECODER: Measure.DECODER,
    Quantity.VIDEO: Measure.VIDEO,
    Quantity.SM_ACTIVE: Measure.SM_ACTIVE,
    Quantity.PIPES: Measure.PIPES,
    Quantity.PCIE: Measure.PCIE,
    Quantity.NVLINK: Measure.NVLINK,
}
STATS: dict[Aggregation, Stat] = {
    Aggregation.MEAN: Stat.MEAN,
    Aggregation.PEAK: Stat.PEAK,
    Aggregation.SPREAD: Stat.SPREAD,
    Aggregation.COUNT: Stat.COUNT,
    Aggregation.LAST: Stat.LAST,
}


CORE_AGGREGATIONS = (Aggregation.MEAN, Aggregation.PEAK, Aggregation.SPREAD, Aggregation.COUNT)
