"""Signatures of allocations with work: keep-alive, starved, bursty."""

from collections.abc import Callable, Mapping

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.allocation_columns import Mask
from gpusteward.analyzer.judge.signatures.evidence import RUN_THROUGH_KINDS, Evidence, Streak
from gpusteward.analyzer.judge.valid_ratios import first_known
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Signature


class KeepAliveRule(BaseModel):
    """Artificial load against reclaim: flat, low, without memory traffic, and constant for a long time.

    This blames a user, so the required evidence is strong and the action is never more than a notice. Public scripts
    of this kind use 1 to 40 % of a GPU.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lowest_ratio: float = Field(
        default=0.015,
        ge=0,
        lt=1,
        description="Mean core utilization below which it is never keep-alive: at 1 % the memory traffic of real work "
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
        description="Memory traffic over core utilization up to which there is no memory traffic. A loop over one "
        "small matrix stays in caches; a server under a low, even load reads its weights: about half. A guess between "
        "the two.",
    )
    memory_swing_ratio: float = Field(
        default=0.01, ge=0, description="Part of its memory that may vary. Such a loop allocates once."
    )
    least_seconds: float = Field(
        default=1800,
        ge=0,
        description="How long all of this must hold without a break. A burst of requests is flat for a minute or two, "
        "an even load for a quarter of an hour; there is no hurry to accuse.",
    )
    least_samples: float = Field(
        default=8,
        ge=2,
        description="Samples a window needs, where they are counted: few samples may be equal by chance.",
    )


class StarvedRule(BaseModel):
    """Low utilization while waiting for input: a data loader, a slow file system, too few CPU cores."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: tuple[str, ...] = Field(
        default=tuple(RUN_THROUGH_KINDS),
        description="Owner kinds that are expected to work from start to end. A server with few requests is not "
        "starved: mean, peak and spread of the two look alike, only the owner kind tells them apart.",
    )
    highest_ratio: float = Field(
        default=0.3,
        gt=0,
        le=1,
        description="Mean core utilization below which it is low. job_defense_shield warns below 25 %, OpenPAI "
        "below 30 %.",
    )
    memory_held_ratio: float = Field(
        default=0.05, ge=0, description="Part of the memory it must hold: gpu-reaper's threshold for a loaded GPU."
    )


class BurstyRule(BaseModel):
    """Work with pauses: requests, notebook cells."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spread_to_mean: float = Field(
        default=0.5,
        gt=0,
        description="Standard deviation over mean from which work is bursty. Work that is on for x of the time has "
        "sqrt(1/x - 1): 0.5 is on for 80 % of the time.",
    )
    peak_to_mean: float = Field(default=2.0, gt=1, description="The same, where the spread is not measured.")


class ActiveRules(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    keep_alive: KeepAliveRule = Field(default_factory=KeepAliveRule, description="Artificial load.")
    starved: StarvedRule = Field(default_factory=StarvedRule, description="Waiting for input.")
    bursty: BurstyRule = Field(default_factory=BurstyRule, description="Work with pauses.")


def find_streaks(evidence: Evidence, rule: KeepAliveRule) -> Streak:
    """A streak continues if this window overlaps the last one at the same level; else it begins with this window."""
    table, past = evidence.table, evidence.past
    mean = evidence.stat(Measure.CORE, Stat.MEAN)
    begins = np.fmax(table.at - table.window_seconds, table.started_at)
    continues = (past.seen_at >= begins) & (np.abs(mean - past.flat_ratio) <= rule.rise_ratio)
    is_constant = (
        _is_flat(evidence, rule) & _has_no_memory_traffic(evidence, rule) & _has_constant_memory(evidence, rule)
    )
    return Streak(
        np.where(is_constant, np.where(continues, past.flat_since, begins), np.nan),
        np.where(is_constant, np.where(continues, past.flat_ratio, mean), np.nan),
    )


def is_keep_alive(evidence: Evidence, rules: ActiveRules) -> Mask:
    lasts_long = evidence.table.at - evidence.streak.since >= rules.keep_alive.least_seconds
    return evidence.activities.worked & lasts_long


def is_starved(evidence: Evidence, rules: ActiveRules) -> Mask:
    rule = rules.starved
    is_low = evidence.stat(Measure.CORE, Stat.MEAN) < rule.highest_ratio
    is_loaded = ~(evidence.memory_held_ratio < rule.memory_held_ratio)
    return evidence.activities.worked & is_low & is_loaded & evidence.runs_through(rule.kinds)


def is_bursty(evidence: Evidence, rules: ActiveRules) -> Mask:
    rule = rules.bursty
    mean, spread = evidence.stat(Measure.CORE, Stat.MEAN), evidence.stat(Measure.CORE, Stat.SPREAD)
    peaks = np.isnan(spread) & (evidence.stat(Measure.CORE, Stat.PEAK) > rule.peak_to_mean * mean)
    swings = spread > rule.spread_to_mean * mean
    return evidence.activities.paused | (evidence.activities.worked & (peaks | swings))


ACTIVE_SIGNATURES: Mapping[Signature, Callable[[Evidence, ActiveRules], Mask]] = {
    Signature.KEEP_ALIVE: is_keep_alive,
    Signature.STARVED: is_starved,
    Signature.BURSTY: is_bursty,
}
"""In the order in which they are tried."""


def _is_flat(evidence: Evidence, rule: KeepAliveRule) -> Mask:
    """Mean, peak and spread must all be known."""
    mean, peak = evidence.stat(Measure.CORE, Stat.MEAN), evidence.stat(Measure.CORE, Stat.PEAK)
    is_low = (mean >= rule.lowest_ratio) & (mean <= rule.highest_ratio)
    is_even = (evidence.stat(Measure.CORE, Stat.SPREAD) <= rule.spread_ratio) & (peak - mean <= rule.rise_ratio)
    return is_low & is_even & ~(evidence.samples < rule.least_samples)


def _has_no_memory_traffic(evidence: Evidence, rule: KeepAliveRule) -> Mask:
    """False where memory traffic is not measured."""
    traffic = first_known(*(evidence.stat(measure, Stat.MEAN) for measure in (Measure.MEMORY_COPY, Measure.DRAM)))
    return traffic <= rule.copy_to_core_ratio * evidence.stat(Measure.CORE, Stat.MEAN)


def _has_constant_memory(evidence: Evidence, rule: KeepAliveRule) -> Mask:
    peak, mean = (evidence.stat(Measure.MEMORY_USED, stat) for stat in (Stat.PEAK, Stat.MEAN))
    swing = first_known(evidence.stat(Measure.MEMORY_USED, Stat.SPREAD), peak - mean)
    return ~(swing > rule.memory_swing_ratio * evidence.memory_held_bytes)
