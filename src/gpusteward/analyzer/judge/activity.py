"""The activity of each row: active, idle or unknown. Notices, idle costs and reclaim follow from it.

The idea: an exporter shows samples, so that work can be proven by one of them, but idleness only by all of them
together. The three answers are therefore not alike. Active needs a single value above its floor, of any signal that
the GPU reports. Idle needs every signal to be at or below its floor, enough samples to say so, and nothing that
contradicts it. All other rows are unknown, with the first reason in the order of `_find_doubts`.

Invariants:

- What was not measured is never 0. A missing sample, a signal without its peak or a blank value of DCGM can make a row
  unknown, never idle: somebody would lose a GPU because an exporter was restarted.
- Coverage limits idleness only. Work that was seen is work, however little of the window is covered.
- A floor exists only where a GPU without work reports more than 0: memory interface, PCIe and NVLink. Elsewhere it is
  exactly 0: NVML reports whole per cents of its sampling period, so the least work it can see is far above rounding
  errors.
- Mean and peak are looked at both. A gauge misses work between two samples; a mean made from the agent's busy-seconds
  counter does not, but a short burst in it can be too small for what only the peak shows.
- A pause is part of the work: a window is not idle while it overlaps one in which work was seen. Else every window
  between two requests would begin a new idle spell, and end it.
- Signals that only prove work (`WORK_PROOFS`) prove nothing by their absence.
- Power and the energy counter never prove work, as heat and other holders change them too. They are doubts: a GPU that
  draws the power of a working one is not called idle because its exporter shows zeros.

Whether work could have been missed between two samples is another question, with an answer of its own: `proof.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.allocation_columns import AllocationColumns, Mask
from gpusteward.analyzer.judge.gpu_models import Capacities
from gpusteward.analyzer.judge.valid_values import HIGHEST_RATIO, launched_kernels, valid_ratio
from gpusteward.analyzer.tables import ACTIVITIES, DOUBTS, Codes, Column, UsageTable
from gpusteward.core.usages import LEAST_TRAFFIC, Measure, Stat
from gpusteward.core.verdicts import Activity, Doubt

WORK_MEASURES = (Measure.CORE, Measure.MEMORY_COPY, Measure.ENGINE, Measure.TENSOR, Measure.DRAM)
"""A value above zero in any of these measures means work. A measure that the GPU does not report is ignored."""
WORK_PROOFS: Mapping[Measure, float] = {
    # DCGM 4.6 has percentages under the names of ratios: still work.
    **dict.fromkeys((Measure.ENCODER, Measure.DECODER, Measure.VIDEO, Measure.SM_ACTIVE, Measure.PIPES), 100.0),
    **dict.fromkeys((Measure.PCIE, Measure.NVLINK), 1e14),  # bytes per second: no link comes near it
}
"""Measures that are only reported where they prove work, each with its highest possible value: blank values of DCGM are
above. Their absence proves nothing."""


class ActivityRule(BaseModel):
    """What idle requires."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    coverage: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="Idle requires this part of the samples of the window. Two of twenty may be missing: a restart of "
        "the exporter, not an outage. gpu-reaper treats a gap of 3 minutes as a fault of the collector.",
    )
    least_samples: ClassVar[float] = 5
    """Idle requires this many samples in the window, where they are counted. A server that works half of the time shows
    no work in two samples in one window of four, in five samples in one of thirty. A guess."""
    dram_floor_ratio: ClassVar[float] = 0.005
    """Memory interface activity up to this counts as none: unused instances report a small constant (NVIDIA/DCGM issue
    65). Half a per cent would round to 0 in NVML. Other signals without a floor must be exactly 0."""
    pcie_floor_bytes_per_second: ClassVar[float] = 10e6
    """PCIe traffic up to this counts as none: an idle GPU that is monitored moves 10 to 500 kB/s. Loading a model or a
    batch moves hundreds of MB/s. A guess between the two. Below 1 MB/s nothing is read."""
    nvlink_floor_bytes_per_second: ClassVar[float] = LEAST_TRAFFIC
    """NVLink traffic up to this counts as none. Monitoring does not use NVLink, and 1 MB/s is the smallest step that
    DCGM reports."""
    power_ratio: ClassVar[float] = 0.4
    """A GPU without work is unknown if it draws more than this part of the range from idle power to its limit. A loaded
    model without requests draws 5 to 30 % of it; 40 % is a guess above that."""
    energy_watts: ClassVar[float] = 2
    """A GPU without work is unknown if by its energy counter a minute of the window exceeds the quiet ones of the
    window, or all of them exceed those of the hour, beyond twice their spread, by more watts than this. A request of 3
    s at 180 W above idle adds 5 to 9 W to its minute, the temperature of an idle GPU less than one. A guess between."""


@dataclass(frozen=True)
class Activities:
    codes: Codes
    doubt: Codes
    worked: Mask  # work was seen in this window
    paused: Mask  # no work in this window, but in an earlier one that overlaps it
    is_doubted: Mask  # something but energy would forbid to call it idle, whether or not it worked


def judge_activity(
    table: UsageTable,
    columns: AllocationColumns,
    *,
    capacities: Capacities,
    rule: ActivityRule,
    worked_at: Column,
    is_stale: bool,
) -> Activities:
    """Any work that was seen means active; idle needs proof; else unknown."""
    doubt = _find_doubts(table, columns, capacities=capacities, rule=rule, is_stale=is_stale)
    may_not_judge = np.isin(doubt, [DOUBTS.index(Doubt.STALE), DOUBTS.index(Doubt.SOURCE)])
    worked = find_work(table, rule) & ~may_not_judge  # stale or unusable values show no work either
    # Energy that no sample explains contradicts idleness; a pause does not claim it.
    may_pause = (doubt == 0) | (doubt == DOUBTS.index(Doubt.ENERGY))
    paused = (worked_at > table.at - table.window_seconds) & ~worked & may_pause
    active, idle, unknown = (ACTIVITIES.index(each) for each in (Activity.ACTIVE, Activity.IDLE, Activity.UNKNOWN))
    codes = np.select([worked | paused, doubt > 0], [active, unknown], idle).astype(np.int8)
    is_doubted = (doubt != 0) & (doubt != DOUBTS.index(Doubt.ENERGY))
    return Activities(codes, np.where(worked | paused, 0, doubt).astype(np.int8), worked, paused, is_doubted)


def find_work(table: UsageTable, rule: ActivityRule) -> Mask:
    """Whether any statistic of any signal is above its floor, or a kernel was launched."""
    worked = launched_kernels(table)
    for measure, stat in table.stats:
        if stat not in (Stat.PEAK, Stat.MEAN, Stat.LAST):
            continue
        if measure in WORK_MEASURES:
            worked |= valid_ratio(table, measure, stat) > find_floor(measure, rule)
        elif measure in WORK_PROOFS:
            column = table.column(measure, stat)
            worked |= (column > find_floor(measure, rule)) & (column <= WORK_PROOFS[measure])
    return worked


def is_work(measure: Measure, value: float, rule: ActivityRule) -> bool:
    """Whether one value of a measure means work, as above."""
    return find_floor(measure, rule) < value <= find_highest(measure)


def find_highest(measure: Measure) -> float:
    """A value above it is not one of this measure; 0: it shows no work."""
    return HIGHEST_RATIO if measure in (*WORK_MEASURES, Measure.BUSY) else WORK_PROOFS.get(measure, 0.0)


def find_floor(measure: Measure, rule: ActivityRule) -> float:
    """A value above it means work."""
    return {
        Measure.DRAM: rule.dram_floor_ratio,
        Measure.PCIE: rule.pcie_floor_bytes_per_second,
        Measure.NVLINK: rule.nvlink_floor_bytes_per_second,
    }.get(measure, 0.0)


def _find_doubts(
    table: UsageTable, columns: AllocationColumns, *, capacities: Capacities, rule: ActivityRule, is_stale: bool
) -> Codes:
    """The first reason why a row without work must not be judged idle."""
    is_marked = np.zeros(len(table), dtype=bool)
    is_marked[list(table.unknown)] = True
    # Both are needed: the peak is the proof; the mean may come from a counter, which misses nothing.
    peak, mean = (valid_ratio(table, Measure.CORE, stat) for stat in (Stat.PEAK, Stat.MEAN))
    # Only of devices that are not shared: otherwise the power belongs to others or is an estimate.
    above_idle = table.column(Measure.POWER, Stat.MEAN) - capacities.idle_watts
    power_ratio = above_idle / (capacities.power_limit_watts - capacities.idle_watts)
    doubts = {
        Doubt.STALE: np.full(len(table), is_stale),
        Doubt.SOURCE: is_marked,
        Doubt.NO_DATA: np.isnan(peak) | np.isnan(mean),
        Doubt.COVERAGE: ~(table.coverage >= rule.coverage),  # also where it is unknown
        Doubt.SPARSE: table.column(Measure.CORE, Stat.COUNT) < rule.least_samples,
        Doubt.PARTIAL: _lacks_peak(table),
        Doubt.POWER: columns.is_whole & (power_ratio > rule.power_ratio),
        Doubt.ENERGY: table.column(Measure.ENERGY, Stat.PEAK) > rule.energy_watts,
    }
    return np.select(list(doubts.values()), [DOUBTS.index(doubt) for doubt in doubts], 0).astype(np.int8)


def _lacks_peak(table: UsageTable) -> Mask:
    """A signal is reported, but without the peak that reclaim relies on."""
    lacks = np.zeros(len(table), dtype=bool)
    for measure in WORK_MEASURES:
        if (measure, Stat.MEAN) not in table.stats and (measure, Stat.LAST) not in table.stats:
            continue
        is_there = ~np.isnan(table.column(measure, Stat.MEAN)) | ~np.isnan(table.column(measure, Stat.LAST))
        lacks |= is_there & np.isnan(valid_ratio(table, measure, Stat.PEAK))
    return lacks
