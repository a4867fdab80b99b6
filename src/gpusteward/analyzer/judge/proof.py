"""How each row was proven: by a signal that includes all of the time, or by samples only."""

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.allocation_columns import Mask
from gpusteward.analyzer.judge.capacities import Capacities
from gpusteward.analyzer.judge.history import Past
from gpusteward.analyzer.judge.last_kernels import lacks_kernels
from gpusteward.analyzer.judge.valid_ratios import valid_ratio
from gpusteward.analyzer.tables import PROOFS, Codes, Column, UsageTable
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Proof


class ProofRule(BaseModel):
    """When the energy counter proves idleness where neither busy time nor engine activity is measured.

    The idle power of two boards of one model differs by more than short work adds, so the counter is compared with the
    power samples of the same GPU: work that no sample saw is energy that the samples do not explain.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    energy_ratio: float = Field(
        default=0.002,
        gt=0,
        description="Part of the power limit by which the mean power of the energy counter may exceed that of the "
        "power samples. 3 s of work at half of the power range every 5 minutes add 0.5 % of the range, health checks "
        "of 0.2 s every 30 s about 0.3 %.",
    )
    power_swing_ratio: float = Field(
        default=0.05,
        gt=0,
        description="Part of the power limit by which the highest power sample may exceed their mean: a sample within "
        "a burst would explain the energy of the others.",
    )
    energy_seconds: float = Field(
        default=3600,
        ge=0,
        description="How long the two must agree without a break. Work of 3 s leaves a trace of a few watts in ten "
        "minutes; noise of that size does not last for an hour. A guess.",
    )


def find_quiet_since(table: UsageTable, capacities: Capacities, *, past: Past, rule: ProofRule) -> Column:
    """Start of the consecutive overlapping windows whose power samples explain all energy; NaN where there are none."""
    begins = np.fmax(table.at - table.window_seconds, table.started_at)
    since = np.where(past.seen_at >= begins, past.quiet_since, np.nan)
    return np.where(_is_explained(table, capacities, rule), np.where(np.isnan(since), begins, since), np.nan)


def find_video_at(table: UsageTable, past: Past) -> Column:
    """When a gauge last showed a video engine at work that no counter includes. Engine activity is that of the core."""
    worked = np.zeros(len(table), dtype=bool)
    for measure in (Measure.ENCODER, Measure.DECODER, Measure.VIDEO):
        worked |= table.column(measure, Stat.PEAK) > 0
    is_counted = table.column(Measure.VIDEO, Stat.MEAN) > 0
    return np.where(worked & ~is_counted, table.at, past.video_at)


def judge_proof(table: UsageTable, *, is_idle: Mask, quiet_since: Column, video_at: Column, rule: ProofRule) -> Codes:
    """Energy and the last kernel can only prove that there was no work. Where a pod used a video engine that is only
    sampled, the time of the core proves nothing: it may do so again between two samples."""
    is_counted = ~np.isnan(valid_ratio(table, Measure.BUSY, Stat.MEAN)) | (is_idle & lacks_kernels(table))
    is_quiet = is_idle & (table.at - quiet_since >= rule.energy_seconds)
    is_proven = (is_counted & np.isnan(video_at)) | is_quiet
    codes = np.where(is_proven, PROOFS.index(Proof.INTEGRATED), PROOFS.index(Proof.SAMPLED))
    return codes.astype(np.int8)


def _is_explained(table: UsageTable, capacities: Capacities, rule: ProofRule) -> Mask:
    """A counter that stands still, or has another unit, explains nothing."""
    mean, peak = (table.column(Measure.POWER, stat) for stat in (Stat.MEAN, Stat.PEAK))
    energy, limit = table.column(Measure.ENERGY, Stat.MEAN), capacities.power_limit_watts
    is_counted = energy > mean / 2
    is_steady = peak - mean <= rule.power_swing_ratio * limit
    return is_counted & is_steady & (energy - mean <= rule.energy_ratio * limit)
