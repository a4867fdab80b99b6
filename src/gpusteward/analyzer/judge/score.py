"""The score, 0 to 100: four weighted parts; and the state, the range that it falls into. Both are gpu-oour's."""

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.allocation_columns import Mask
from gpusteward.analyzer.judge.gpu_models import Capacities
from gpusteward.analyzer.judge.valid_values import valid_ratio
from gpusteward.analyzer.tables import ACTIVITIES, STATES, Codes, Column, UsageTable
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, State

HIGHEST_SCORE = 100.0


class Scoring(BaseModel):
    """Weights of the parts. The defaults are gpu-oour's; their origin is unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu_util_weight: float = Field(default=0.5, ge=0, description="Weight of core utilization.")
    mem_copy_weight: float = Field(default=0.2, ge=0, description="Weight of memory copy utilization.")
    mem_used_weight: float = Field(default=0.2, ge=0, description="Weight of memory used against its total.")
    power_weight: float = Field(default=0.1, ge=0, description="Weight of power drawn against its limit.")


def score_usage(table: UsageTable, capacities: Capacities, *, scoring: Scoring) -> Column:
    """0 to 100 from the window's means, NaN where core utilization is unknown.

    With all parts known it is gpu-oour's score. The weight of an unknown part goes to the known ones: gpu-oour counts
    it as 0, so that no MIG instance (no copy utilization, no power of its own) could ever score above 70.
    """
    parts = measure_parts(table, capacities)
    weights = np.array(
        [scoring.gpu_util_weight, scoring.mem_copy_weight, scoring.mem_used_weight, scoring.power_weight]
    )
    known = ~np.isnan(parts)
    known_weight = weights @ known
    weighted = weights @ np.where(known, parts, 0.0)
    score = np.minimum(weighted / known_weight * weights.sum(), HIGHEST_SCORE)
    return np.where(known[0] & (known_weight > 0), score, np.nan)


def measure_parts(table: UsageTable, capacities: Capacities) -> Column:
    """Core or video engine, copy, memory and power of each row, 0 to 100: one row of the array per part."""
    use = valid_ratio(table, Measure.CORE, Stat.MEAN)
    for measure in (Measure.ENCODER, Measure.DECODER, Measure.VIDEO):  # transcoding hardly uses the core
        if (measure, Stat.MEAN) in table.stats:
            use = np.where(np.isnan(use), np.nan, np.fmax(use, valid_ratio(table, measure, Stat.MEAN)))
    used, drawn = table.column(Measure.MEMORY_USED, Stat.MEAN), table.column(Measure.POWER, Stat.MEAN)
    parts = (
        use,
        valid_ratio(table, Measure.MEMORY_COPY, Stat.MEAN),
        used / capacities.memory_bytes,
        drawn / capacities.power_limit_watts,
    )
    return np.clip(np.stack(parts), 0.0, 1.0) * 100.0


class Thresholds(BaseModel):
    """The limits between the states. All three defaults are gpu-oour's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low_utilization: float = Field(default=20, ge=0, le=100, description="Below this score a GPU is low.")
    idle: float = Field(default=10, ge=0, le=100, description="Below this score a GPU is idle.")
    high: float = Field(default=70, ge=0, le=100, description="From this score on a GPU is high.")

    @property
    def contradict(self) -> bool:
        """Whether the values contradict each other. gpu-oour has no order: `low_utilization` is always valid."""
        if "low_utilization" in self.model_fields_set:
            return self.idle > self.high and {"idle", "high"} <= self.model_fields_set
        return not self.idle <= self.low_utilization <= self.high

    def in_order(self) -> "Thresholds":
        """idle <= low_utilization <= high: the other two are adjusted to `low_utilization`."""
        low = self.low_utilization
        wanted = {"idle": min(self.idle, low), "high": max(self.high, low)}
        return self.model_copy(update={name: value for name, value in wanted.items() if value != getattr(self, name)})


def name_states(score: Column, activity: Codes, *, thresholds: Thresholds) -> Codes:
    """By score, except that a row with the activity idle has the state idle, however much memory it holds.

    By score alone a loaded model without requests would be "normal": 90 % of the memory is 18 points.
    """
    is_idle = activity == ACTIVITIES.index(Activity.IDLE)
    return np.select(
        [
            is_idle,
            np.isnan(score),
            score < thresholds.idle,
            score < thresholds.low_utilization,
            score < thresholds.high,
        ],
        [STATES.index(state) for state in (State.IDLE, State.UNKNOWN, State.IDLE, State.LOW, State.NORMAL)],
        STATES.index(State.HIGH),
    ).astype(np.int8)


def find_low(score: Column, state: Codes, *, thresholds: Thresholds) -> Mask:
    """gpu-oour's "low": a score below the threshold, or idle with a higher score because of held memory."""
    is_idle: Mask = np.equal(state, STATES.index(State.IDLE)) & ~np.isnan(score)
    return is_idle | np.less(score, thresholds.low_utilization)
