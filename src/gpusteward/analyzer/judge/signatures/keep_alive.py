"""Work made up to dodge culling: flat, low, moving no data, and constant for a long time."""

from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.clamped_ratios import first_known
from gpusteward.analyzer.judge.keys import Mask
from gpusteward.analyzer.judge.signatures.evidence import Evidence
from gpusteward.analyzer.tables import Column
from gpusteward.core.usages import Measure, Stat


class KeepAliveRule(BaseModel):
    """An accusation, so it asks for much and never goes beyond a notice. Public scripts of this sort burn 1 to 40 %."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lowest_ratio: float = Field(
        default=0.015,
        ge=0,
        lt=1,
        description="Mean core utilization below which nobody is accused: at 1 % the data that honest work moves "
        "rounds to the same whole per cent as none.",
    )
    highest_ratio: float = Field(default=0.45, gt=0, le=1, description="Mean core utilization up to which it is low.")
    spread_ratio: float = Field(
        default=0.01, ge=0, description="Standard deviation up to which it is flat: one step of NVML's whole per cents."
    )
    rise_ratio: float = Field(
        default=0.02,
        ge=0,
        description="How far the peak may be above the mean, and the mean from where it was: two such steps.",
    )
    copy_to_core_ratio: float = Field(
        default=0.05,
        ge=0,
        description="Memory traffic against core utilization up to which it moves no data. A loop over one small "
        "matrix stays in caches; a server under a low, even load reads its weights: about half. A guess between them.",
    )
    memory_swing_ratio: float = Field(
        default=0.01, ge=0, description="Part of its memory that may come and go. Such a loop allocates once."
    )
    least_seconds: float = Field(
        default=1800,
        ge=0,
        description="How long it must have been all that without a break, window joined to window. A burst of requests "
        "is flat for a minute or two, an even load for a quarter of an hour; there is no hurry to accuse.",
    )
    least_samples: float = Field(
        default=8, ge=2, description="Samples a window needs, where they are counted: any two may be alike."
    )


@dataclass(frozen=True)
class Streak:
    """An unbroken row of windows that look made up, all at one level; NaN where this window does not."""

    since: Column  # unix seconds
    ratio: Column  # core utilization in the first of them


def find_streaks(evidence: Evidence, rule: KeepAliveRule) -> Streak:
    """Goes on where this window begins before the last one ended, at the same level; else begins with this window."""
    table, past = evidence.table, evidence.past
    mean = evidence.stat(Measure.CORE, Stat.MEAN)
    begins = np.fmax(table.at - table.window_seconds, table.started_at)
    goes_on = (past.seen_at >= begins) & (np.abs(mean - past.flat_ratio) <= rule.rise_ratio)
    looks_made_up = _is_flat(evidence, rule) & _moves_nothing(evidence, rule) & _is_pinned(evidence, rule)
    return Streak(
        np.where(looks_made_up, np.where(goes_on, past.flat_since, begins), np.nan),
        np.where(looks_made_up, np.where(goes_on, past.flat_ratio, mean), np.nan),
    )


def is_keep_alive(evidence: Evidence, streak: Streak, *, rule: KeepAliveRule) -> Mask:
    return evidence.activities.worked & (evidence.table.at - streak.since >= rule.least_seconds)


def _is_flat(evidence: Evidence, rule: KeepAliveRule) -> Mask:
    """What is not known cannot accuse: mean, peak and spread must be there."""
    mean, peak = evidence.stat(Measure.CORE, Stat.MEAN), evidence.stat(Measure.CORE, Stat.PEAK)
    is_low = (mean >= rule.lowest_ratio) & (mean <= rule.highest_ratio)
    is_even = (evidence.stat(Measure.CORE, Stat.SPREAD) <= rule.spread_ratio) & (peak - mean <= rule.rise_ratio)
    return is_low & is_even & ~(evidence.samples < rule.least_samples)


def _moves_nothing(evidence: Evidence, rule: KeepAliveRule) -> Mask:
    """Where nobody measures what it moves, nobody can say that it moves nothing."""
    moved = first_known(*(evidence.stat(measure, Stat.MEAN) for measure in (Measure.MEMORY_COPY, Measure.DRAM)))
    return moved <= rule.copy_to_core_ratio * evidence.stat(Measure.CORE, Stat.MEAN)


def _is_pinned(evidence: Evidence, rule: KeepAliveRule) -> Mask:
    peak, mean = (evidence.stat(Measure.MEMORY_USED, stat) for stat in (Stat.PEAK, Stat.MEAN))
    swing = first_known(evidence.stat(Measure.MEMORY_USED, Stat.SPREAD), peak - mean)
    return ~(swing > rule.memory_swing_ratio * evidence.memory_held_bytes)
