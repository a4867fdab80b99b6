"""Signatures of allocations with work: keep-alive, health-check, starved, bursty. Stalled, and what proves keep-alive,
are in `stalled.py` and `keep_alive.py`."""

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.activity import WORK_MEASURES
from gpusteward.analyzer.judge.allocation_columns import Mask
from gpusteward.analyzer.judge.requests import NEVER_UNUSED
from gpusteward.analyzer.judge.signatures.evidence import Evidence, Streak
from gpusteward.analyzer.judge.signatures.keep_alive import KeepAliveRule, is_exempt, works_on_host
from gpusteward.analyzer.judge.signatures.stalled import StalledRule, is_stalled, waits_for_requests
from gpusteward.analyzer.judge.valid_values import first_known
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Signature


class StarvedRule(BaseModel):
    """Low utilization while waiting for input: a data loader, a slow file system, too few CPU cores.

    Only of kinds that are expected to work from start to end. A server with few requests is not starved: mean, peak and
    spread of the two look alike, only the owner kind tells them apart.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    highest_ratio: float = Field(
        default=0.3,
        gt=0,
        le=1,
        description="Mean core utilization below which it is low. job_defense_shield warns below 25 %, OpenPAI "
        "below 30 %.",
    )
    memory_held_ratio: ClassVar[float] = 0.05
    """Part of the memory it must hold: gpu-reaper's threshold for a loaded GPU."""


BURSTY_SPREAD_TO_MEAN = 0.5
"""Standard deviation over mean from which work is bursty. Work that is on for x of the time has sqrt(1/x - 1): 0.5 is
on for 80 % of the time."""
BURSTY_PEAK_TO_MEAN = 2.0
"""The same, where the spread is not measured."""


class HealthCheckRule(BaseModel):
    """Only short, regular blips: the health checks of a server that nobody uses.

    Real requests differ from them: they come irregularly, so that windows differ, or take longer, which shows in the
    peak. Where only samples are read, neither can be seen. The action is never more than a notice.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    highest_ratio: ClassVar[float] = 0.01
    """Share of time with work below which there may be health checks only: 0.2 s every 30 s is 0.7 %. A request of 3 s
    every 5 minutes is 1 %."""
    highest_peak_ratio: ClassVar[float] = 0.08
    """Peak of engine activity, or of core utilization, up to which a blip is short. gpusteward's agent averages over 5
    s: 0.2 s is 4 %, rounded up to the driver's samples 7 %; a second of work is 20 %."""
    swing_ratio: ClassVar[float] = 0.25
    """Part by which a window may differ from the first one: twenty checks or nineteen."""
    highest_pcie_bytes_per_second: ClassVar[float] = 100e6
    """Peak of PCIe traffic, where it is reported, up to which it may be the input and the result of a check. Loading a
    model or a batch moves hundreds of MB/s."""
    memory_swing_ratio: ClassVar[float] = 0.01
    """Part of its memory that may vary."""
    least_seconds: float = Field(
        default=7200,
        ge=0,
        description="How long all of this must hold without a break. A second of work every 5 minutes shows in one of "
        "five samples of the agent; in two hours it is missed in one of 200 cases.",
    )


class ActiveRules(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    keep_alive: KeepAliveRule = Field(default_factory=KeepAliveRule, description="Artificial load.")
    stalled: StalledRule = Field(default_factory=StalledRule, description="Busy without doing anything.")
    starved: StarvedRule = Field(default_factory=StarvedRule, description="Waiting for input.")
    health_check: HealthCheckRule = Field(default_factory=HealthCheckRule, description="Health checks only.")


def find_streaks(evidence: Evidence, rules: ActiveRules) -> Streak:
    """A streak continues if this window overlaps the last one at the same level; else it begins with this window. The
    levels of the two kinds do not overlap."""
    table, past = evidence.table, evidence.past
    begins = np.fmax(table.at - table.window_seconds, table.started_at)
    is_flat, is_blip = _is_constant(evidence, rules.keep_alive), _has_blips(evidence, rules.health_check)
    level = np.where(is_blip, evidence.stat(Measure.BUSY, Stat.MEAN), evidence.stat(Measure.CORE, Stat.MEAN))
    rise = np.where(is_blip, rules.health_check.swing_ratio * past.flat_ratio, rules.keep_alive.rise_ratio)
    was_blip = past.flat_ratio < rules.health_check.highest_ratio
    continues = (past.seen_at >= begins) & (np.abs(level - past.flat_ratio) <= rise) & (was_blip == is_blip)
    return Streak(
        np.where(is_flat | is_blip, np.where(continues, past.flat_since, begins), np.nan),
        np.where(is_flat | is_blip, np.where(continues, past.flat_ratio, level), np.nan),
    )


def is_keep_alive(evidence: Evidence, rules: ActiveRules) -> Mask:
    """Suspected by a low level without memory traffic, or proven at any level with witnesses."""
    lasts_long = evidence.table.at - evidence.streak.since >= rules.keep_alive.least_seconds
    is_suspected = lasts_long & ~_has_level_of_blips(evidence, rules) & ~works_on_host(evidence, rules.keep_alive)
    found = evidence.activities.worked & (is_suspected | (evidence.level.is_proven & ~evidence.level.may_hang))
    return found & ~is_exempt(evidence, found, rules.keep_alive)


def is_health_check(evidence: Evidence, rules: ActiveRules) -> Mask:
    """Never a kind that runs through: a job at one per cent waits for something. Memory that grew is being used."""
    has_grown = evidence.growth.grew_at > evidence.streak.since
    lasts_long = evidence.table.at - evidence.streak.since >= rules.health_check.least_seconds
    is_blip = evidence.activities.worked & lasts_long & _has_level_of_blips(evidence, rules)
    return is_blip & ~has_grown & ~evidence.runs_through


def _has_level_of_blips(evidence: Evidence, rules: ActiveRules) -> Mask:
    return evidence.streak.ratio < rules.health_check.highest_ratio


def is_starved(evidence: Evidence, rules: ActiveRules) -> Mask:
    rule = rules.starved
    is_low = evidence.stat(Measure.CORE, Stat.MEAN) < rule.highest_ratio
    is_loaded = ~(evidence.memory_held_ratio < rule.memory_held_ratio)
    may_starve = is_low & is_loaded & ~evidence.uses_video
    return evidence.activities.worked & may_starve & evidence.runs_through


def is_bursty(evidence: Evidence, rules: ActiveRules) -> Mask:  # noqa: ARG001 - as its protocol
    """Work with pauses: requests, notebook cells."""
    mean, spread = evidence.stat(Measure.CORE, Stat.MEAN), evidence.stat(Measure.CORE, Stat.SPREAD)
    peaks = np.isnan(spread) & (evidence.stat(Measure.CORE, Stat.PEAK) > BURSTY_PEAK_TO_MEAN * mean)
    swings = spread > BURSTY_SPREAD_TO_MEAN * mean
    return evidence.activities.paused | (evidence.activities.worked & (peaks | swings))


ACTIVE_SIGNATURES: Mapping[Signature, Callable[[Evidence, ActiveRules], Mask]] = {
    Signature.NO_REQUESTS: lambda evidence, rules: waits_for_requests(evidence, rules.stalled),
    Signature.STALLED: lambda evidence, rules: is_stalled(evidence, rules.stalled),
    Signature.KEEP_ALIVE: is_keep_alive,
    Signature.HEALTH_CHECK: is_health_check,
    Signature.STARVED: is_starved,
    Signature.BURSTY: is_bursty,
}
"""In the order in which they are tried."""


def _has_blips(evidence: Evidence, rule: HealthCheckRule) -> Mask:
    """Gauges are not compared: one sample within a blip reads up to 100 %."""
    duty = evidence.stat(Measure.BUSY, Stat.MEAN)
    is_short = first_known(*(evidence.stat(measure, Stat.PEAK) for measure in (Measure.ENGINE, Measure.CORE)))
    has_blips = (duty > 0) & (duty < rule.highest_ratio) & (is_short <= rule.highest_peak_ratio)
    for measure in WORK_MEASURES:
        if measure not in (Measure.CORE, Measure.MEMORY_COPY):
            has_blips &= ~(evidence.stat(measure, Stat.MEAN) >= rule.highest_ratio)
    for measure, stat in evidence.table.stats:
        if measure in NEVER_UNUSED:
            has_blips &= ~(evidence.table.column(measure, stat) > 0)
    has_blips &= ~(evidence.stat(Measure.PCIE, Stat.PEAK) > rule.highest_pcie_bytes_per_second)
    return has_blips & _has_constant_memory(evidence, rule.memory_swing_ratio)


def _is_constant(evidence: Evidence, rule: KeepAliveRule) -> Mask:
    """Mean, peak, spread and memory traffic must all be known."""
    mean, peak = evidence.stat(Measure.CORE, Stat.MEAN), evidence.stat(Measure.CORE, Stat.PEAK)
    is_low = (mean >= rule.lowest_ratio) & (mean <= rule.highest_ratio)
    is_even = (evidence.stat(Measure.CORE, Stat.SPREAD) <= rule.spread_ratio) & (peak - mean <= rule.rise_ratio)
    is_flat = is_low & is_even & ~(evidence.samples < rule.least_samples)
    traffic = first_known(*(evidence.stat(measure, Stat.MEAN) for measure in (Measure.MEMORY_COPY, Measure.DRAM)))
    has_no_traffic = traffic <= rule.copy_to_core_ratio * mean
    return is_flat & has_no_traffic & _has_constant_memory(evidence, rule.memory_swing_ratio)


def _has_constant_memory(evidence: Evidence, swing_ratio: float) -> Mask:
    peak, mean = (evidence.stat(Measure.MEMORY_USED, stat) for stat in (Stat.PEAK, Stat.MEAN))
    swing = first_known(evidence.stat(Measure.MEMORY_USED, Stat.SPREAD), peak - mean)
    return ~(swing > swing_ratio * evidence.memory_held_bytes)
