"""Active, idle or unknown: report on the mean, reclaim on the peak."""

from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.capacities import Capacities
from gpusteward.analyzer.judge.clamped_ratios import clamped_ratio
from gpusteward.analyzer.judge.keys import Keys, Mask
from gpusteward.analyzer.tables import ACTIVITIES, DOUBTS, Codes, Column, UsageTable
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, Doubt

SIGNALS = (Measure.CORE, Measure.MEMORY_COPY, Measure.ENGINE, Measure.TENSOR, Measure.DRAM)
"""Each of them tells of work; one that a GPU does not have tells nothing."""


class ActivityRule(BaseModel):
    """What idle asks for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    coverage: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="Idle needs this part of the window's samples. Two of twenty may miss: a restart of the exporter, "
        "not an outage. gpu-reaper calls a gap of 3 minutes a fault of the collector.",
    )
    least_samples: float = Field(
        default=5,
        ge=1,
        description="Idle needs this many samples in the window, where they are counted. A server at work half of the "
        "time shows nothing in two of them in one window of four, in five in one of thirty. A guess.",
    )
    dram_floor_ratio: float = Field(
        default=0.005,
        ge=0,
        lt=1,
        description="Memory interface activity up to this is none: unused instances read a small constant "
        "(NVIDIA/DCGM issue 65). Half a per cent would round to 0 in NVML. All other signals must be exactly 0.",
    )
    power_ratio: float = Field(
        default=0.4,
        gt=0,
        description="A GPU without work that draws more than this part of the way from idle power to its limit is "
        "unknown. A loaded but resting model draws 5 to 30 % of the way; 40 % is a guess above that.",
    )


@dataclass(frozen=True)
class Activities:
    codes: Codes
    doubt: Codes
    worked: Mask  # work was seen in this very window
    paused: Mask  # none was, but in a window that overlaps with this one


def judge_activity(
    table: UsageTable, keys: Keys, *, capacities: Capacities, rule: ActivityRule, worked_at: Column, is_stale: bool
) -> Activities:
    """Work that was seen makes active, however little of the window was seen. Idle needs proof; unknown is the rest.

    Zero is exactly 0: NVML counts in whole per cents of its sampling period, so the least work it can see is far
    above rounding dust. What runs between two samples of a gauge and is over before the next is seen by none of them;
    a mean made from the agent's busy-seconds counter sees it, which is why the mean counts here beside the peak.
    For the same reason a window is not idle while it overlaps with one in which work was seen: a pause as short as
    that is a part of working.
    """
    doubt = _find_doubts(table, keys, capacities=capacities, rule=rule, is_stale=is_stale)
    may_not_judge = np.isin(doubt, [DOUBTS.index(Doubt.STALE), DOUBTS.index(Doubt.SOURCE)])
    worked = find_work(table, rule) & ~may_not_judge
    paused = (worked_at > table.at - table.window_seconds) & ~worked & (doubt == 0)
    active, idle, unknown = (ACTIVITIES.index(each) for each in (Activity.ACTIVE, Activity.IDLE, Activity.UNKNOWN))
    codes = np.select([worked | paused, doubt > 0], [active, unknown], idle).astype(np.int8)
    return Activities(codes, np.where(worked, 0, doubt).astype(np.int8), worked, paused)


def find_work(table: UsageTable, rule: ActivityRule) -> Mask:
    """Whether any signal, summed up in any way, is above nothing."""
    worked = np.zeros(len(table), dtype=bool)
    for measure in SIGNALS:
        floor = rule.dram_floor_ratio if measure is Measure.DRAM else 0.0
        for stat in (Stat.PEAK, Stat.MEAN, Stat.LAST):
            worked |= clamped_ratio(table, measure, stat) > floor
    return worked


def _find_doubts(table: UsageTable, keys: Keys, *, capacities: Capacities, rule: ActivityRule, is_stale: bool) -> Codes:
    """The first reason why a row without work must not be called idle."""
    doubts = {
        Doubt.STALE: np.full(len(table), is_stale),
        Doubt.SOURCE: _is_refused(table),
        Doubt.NO_DATA: _lacks_core(table),
        Doubt.COVERAGE: ~(table.coverage >= rule.coverage),
        Doubt.SPARSE: table.column(Measure.CORE, Stat.COUNT) < rule.least_samples,
        Doubt.PARTIAL: _lacks_peak(table),
        Doubt.POWER: _draws_power(table, keys, capacities=capacities, rule=rule),
    }
    return np.select(list(doubts.values()), [DOUBTS.index(doubt) for doubt in doubts], 0).astype(np.int8)


def _is_refused(table: UsageTable) -> Mask:
    refused = np.zeros(len(table), dtype=bool)
    refused[list(table.unknown)] = True
    return refused


def _lacks_core(table: UsageTable) -> Mask:
    """Both are needed: the peak is the proof, the mean may come from a counter and know what no sample saw."""
    peak, mean = (clamped_ratio(table, Measure.CORE, stat) for stat in (Stat.PEAK, Stat.MEAN))
    return np.isnan(peak) | np.isnan(mean)


def _lacks_peak(table: UsageTable) -> Mask:
    """A signal the row has, but not as what reclaim leans on."""
    lacks = np.zeros(len(table), dtype=bool)
    for measure in SIGNALS:
        is_there = ~np.isnan(table.column(measure, Stat.MEAN)) | ~np.isnan(table.column(measure, Stat.LAST))
        lacks |= is_there & np.isnan(clamped_ratio(table, measure, Stat.PEAK))
    return lacks


def _draws_power(table: UsageTable, keys: Keys, *, capacities: Capacities, rule: ActivityRule) -> Mask:
    """Only of a device that nobody shares: else the power is somebody else's, or an estimate."""
    drawn = table.column(Measure.POWER, Stat.MEAN)
    way = (drawn - capacities.idle_watts) / (capacities.power_limit_watts - capacities.idle_watts)
    return keys.is_whole & (way > rule.power_ratio)
