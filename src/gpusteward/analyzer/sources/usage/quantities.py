"""What is asked for, and how a window is summed up."""

from dataclasses import dataclass
from enum import StrEnum

from gpusteward.core.usages import Measure, Stat


class Quantity(StrEnum):
    """What the engine is asked for: the measures, and what they are made of."""

    CORE = "core"
    BUSY = "busy time"  # core integrated over time: a counter sees what begins and ends between two samples of a gauge
    MEMORY_COPY = "memory copy"
    MEMORY_USED = "memory used"
    MEMORY_FREE = "memory free"
    MEMORY_RESERVED = "memory reserved"
    MEMORY_TOTAL = "memory total"
    MEMORY_LIMIT = "memory limit"  # what one holder may use
    POWER = "power"
    POWER_LIMIT = "power limit"
    SM_CLOCK = "SM clock"
    ENGINE = "engine"
    TENSOR = "tensor"
    DRAM = "DRAM"
    PROCESSES = "processes"
    UNATTRIBUTED = "unattributed use"
    STARTED_AT = "start time"
    IDENTITY = "identity"  # of a device
    PRESENCE = "presence"  # of an allocation: the roll call


class Fold(StrEnum):
    """How a window becomes one number; the value is the PromQL function."""

    MEAN = "avg_over_time"
    PEAK = "max_over_time"
    SPREAD = "stddev_over_time"
    COUNT = "count_over_time"
    INCREASE = "increase"  # of a counter; restarts at zero are no decrease
    LAST = "last"  # no function: the instant value


class Level(StrEnum):
    """Whom a number is about."""

    HOLDER = "holder"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class Signal:
    """A metric as this site has it."""

    quantity: Quantity
    metric: str
    folds: tuple[Fold, ...]
    scale: float = 1.0  # to the base unit
    level: Level = Level.HOLDER
    only: tuple[tuple[str, str, str], ...] = ()  # further conditions: label, operator, value


Asked = tuple[Level, Quantity, Fold]
LASTING = frozenset(
    {
        Quantity.MEMORY_USED,
        Quantity.MEMORY_FREE,
        Quantity.MEMORY_RESERVED,
        Quantity.MEMORY_TOTAL,
        Quantity.POWER_LIMIT,
    }
)
"""Last values of a device that make up what stays: its memory, and its power limit."""
ROLL_CALL: Asked = (Level.HOLDER, Quantity.PRESENCE, Fold.LAST)
LAST_WORDS: Asked = (Level.HOLDER, Quantity.PRESENCE, Fold.PEAK)
"""What those said at an earlier roll call of this window who do not answer any more."""

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
}
STATS: dict[Fold, Stat] = {
    Fold.MEAN: Stat.MEAN,
    Fold.PEAK: Stat.PEAK,
    Fold.SPREAD: Stat.SPREAD,
    Fold.COUNT: Stat.COUNT,
    Fold.LAST: Stat.LAST,
}
