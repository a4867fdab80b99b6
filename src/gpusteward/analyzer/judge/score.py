"""The score, 0 to 100: four weighted parts. The formula is gpu-oour's."""

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.capacities import Capacities
from gpusteward.analyzer.judge.valid_ratios import valid_ratio
from gpusteward.analyzer.tables import Column, UsageTable
from gpusteward.core.usages import Measure, Stat

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
    weights = _weights_of(scoring)
    known = ~np.isnan(parts)
    known_weight = weights @ known
    weighted = weights @ np.where(known, parts, 0.0)
    score = np.minimum(weighted / known_weight * weights.sum(), HIGHEST_SCORE)
    return np.where(known[0] & (known_weight > 0), score, np.nan)


def measure_parts(table: UsageTable, capacities: Capacities) -> Column:
    """Core, copy, memory and power of each row, 0 to 100: one row of the array per part."""
    used, drawn = table.column(Measure.MEMORY_USED, Stat.MEAN), table.column(Measure.POWER, Stat.MEAN)
    parts = (
        _measure_use(table),
        valid_ratio(table, Measure.MEMORY_COPY, Stat.MEAN),
        used / capacities.memory_bytes,
        drawn / capacities.power_limit_watts,
    )
    return np.clip(np.stack(parts), 0.0, 1.0) * 100.0


def _measure_use(table: UsageTable) -> Column:
    """Core utilization, or that of a video engine if it is higher: transcoding hardly uses the core."""
    use = valid_ratio(table, Measure.CORE, Stat.MEAN)
    for measure in (Measure.ENCODER, Measure.DECODER, Measure.VIDEO):
        if (measure, Stat.MEAN) in table.stats:
            use = np.where(np.isnan(use), np.nan, np.fmax(use, valid_ratio(table, measure, Stat.MEAN)))
    return use


def _weights_of(scoring: Scoring) -> Column:
    return np.array([scoring.gpu_util_weight, scoring.mem_copy_weight, scoring.mem_used_weight, scoring.power_weight])
