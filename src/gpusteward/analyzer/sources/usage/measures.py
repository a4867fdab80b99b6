"""Measures from quantities: what a holder has of its own, and its part of what only the device tells."""

from dataclasses import dataclass

import numpy as np

from gpusteward.analyzer.sources.usage.dialects import Dialect
from gpusteward.analyzer.sources.usage.presence import Roster
from gpusteward.analyzer.sources.usage.quantities import MEASURES, STATS, Fold, Level, Quantity
from gpusteward.analyzer.tables import Column
from gpusteward.core.usages import Measure, Stat

Stats = dict[tuple[Measure, Stat], Column]

_OF_HOLDER = (Quantity.CORE, Quantity.MEMORY_USED, Quantity.PROCESSES)
_DIVIDED = (Quantity.MEMORY_COPY, Quantity.ENGINE, Quantity.TENSOR, Quantity.DRAM)
_SAME_FOR_ALL = (Quantity.POWER_LIMIT, Quantity.SM_CLOCK)
WELL_SEEN = 0.9
"""The judge calls nothing idle below it (`judge.activity.coverage`)."""
_FOLDS = (Fold.MEAN, Fold.PEAK, Fold.SPREAD, Fold.LAST)


@dataclass(frozen=True, slots=True)
class Seen:
    """How long the window is, and which part of it was seen of each row."""

    window_seconds: float
    coverage: Column


def measure(roster: Roster, seen: Seen) -> Stats:
    """Every measure that somebody told, in base units."""
    stats = _measure_holders(roster)
    _count_busy_time(roster, stats, seen)
    stats[Measure.MEMORY_TOTAL, Stat.LAST] = _memory_total(roster)
    if roster.dialect is not Dialect.DCGM:
        stats |= _measure_devices(roster, stats, seen)
    elif roster.gathered.has(Level.DEVICE, Quantity.POWER_LIMIT, Fold.LAST):
        stats[Measure.POWER_LIMIT, Stat.LAST] = roster.take(Level.DEVICE, Quantity.POWER_LIMIT, Fold.LAST)
    _stand_in_for_copy(roster, stats)
    return stats


def _measure_holders(roster: Roster) -> Stats:
    quantities = tuple(MEASURES) if roster.dialect is Dialect.DCGM else _OF_HOLDER
    told = {
        (MEASURES[quantity], STATS[fold]): roster.take(Level.HOLDER, quantity, fold)
        for quantity in quantities
        for fold in (*_FOLDS, Fold.COUNT)
        if roster.gathered.has(Level.HOLDER, quantity, fold)
    }
    for stat in (Stat.MEAN, Stat.PEAK):
        told.setdefault((Measure.CORE, stat), np.full(len(roster), np.nan))
    return told


def _count_busy_time(roster: Roster, stats: Stats, seen: Seen) -> None:
    """Where busy time is counted, the mean is made of it: work that began and ended between two samples is in it.

    The peak is never below the mean; one that no sample saw is that high at least.
    """
    if not roster.gathered.has(Level.HOLDER, Quantity.BUSY, Fold.INCREASE):
        return
    mean = _mean_core(roster, Level.HOLDER, stats[Measure.CORE, Stat.MEAN], seen)
    stats[Measure.CORE, Stat.MEAN] = mean
    stats[Measure.CORE, Stat.PEAK] = np.maximum(stats[Measure.CORE, Stat.PEAK], mean)


def _mean_core(roster: Roster, level: Level, sampled: Column, seen: Seen) -> Column:
    """Part of the time that was worked, as it is counted; as it was sampled where nobody counts.

    Busy time of a window is divided by what was seen of it: a series that began in the window has done nothing before,
    which says nothing of how it works. Where much is missing nobody knows whether it is the beginning, which was not
    counted, or a gap in the middle, which was: then neither of the two may be understated.
    """
    busy = roster.take(level, Quantity.BUSY, Fold.INCREASE) / seen.window_seconds
    is_whole = seen.coverage >= WELL_SEEN
    counted = np.where(is_whole, busy / np.where(is_whole, seen.coverage, 1.0), np.fmax(busy, sampled))
    # An engine guesses what lies between its samples and the window's ends, so it may tell a little more than there is.
    return np.where(np.isfinite(busy), np.minimum(counted, 1.0), sampled)


def _stand_in_for_copy(roster: Roster, stats: Stats) -> None:
    """A MIG instance has no memory copy utilization: the activity of its memory interface says the same."""
    for stat in (Stat.MEAN, Stat.PEAK):
        if (dram := stats.get((Measure.DRAM, stat))) is not None and roster.in_slices.any():
            copy = stats.get((Measure.MEMORY_COPY, stat), np.full(len(roster), np.nan))
            stats[Measure.MEMORY_COPY, stat] = np.where(roster.in_slices & ~np.isfinite(copy), dram, copy)


def _memory_total(roster: Roster) -> Column:
    """What the holder may use, else what the device has: as told, or used + free + reserved."""
    used, free, reserved = (
        roster.take(Level.DEVICE, quantity, Fold.LAST)
        for quantity in (Quantity.MEMORY_USED, Quantity.MEMORY_FREE, Quantity.MEMORY_RESERVED)
    )
    summed = used + free + np.nan_to_num(reserved)  # older exporters do not tell what is reserved
    for told in (
        roster.take(Level.DEVICE, Quantity.MEMORY_TOTAL, Fold.LAST),
        roster.take(Level.HOLDER, Quantity.MEMORY_LIMIT, Fold.LAST),
    ):
        summed = np.where(np.isfinite(told) & (told > 0), told, summed)
    return summed


def _measure_devices(roster: Roster, stats: Stats, seen: Seen) -> Stats:
    told: Stats = {}
    for quantity in (*_DIVIDED, *_SAME_FOR_ALL, Quantity.POWER):
        for fold in _FOLDS:
            if roster.gathered.has(Level.DEVICE, quantity, fold):
                told[MEASURES[quantity], STATS[fold]] = roster.take(Level.DEVICE, quantity, fold)
    parts = _parts(roster, stats[Measure.CORE, Stat.MEAN], seen)
    for quantity in _DIVIDED:
        _divide(roster, told, MEASURES[quantity], parts, stats[Measure.CORE, Stat.PEAK])
    _divide_power(roster, told, parts)
    return told


def _parts(roster: Roster, core: Column, seen: Seen) -> Column:
    """The part of each sharing row in what the device did, by share of use; of an idle device by equal parts.

    1 where it is not shared, or where the device's own use is unknown: rather too much activity than too little.
    """
    device = _mean_core(roster, Level.DEVICE, roster.take(Level.DEVICE, Quantity.CORE, Fold.MEAN), seen)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(device > 0, np.minimum(core / device, 1.0), 1.0 / roster.neighbours)
    return np.where(roster.shared & np.isfinite(device), parts, 1.0)


def _divide(roster: Roster, told: Stats, name: Measure, parts: Column, core_peak: Column) -> None:
    """A neighbour's work is not ours: means by our part, peaks only if we worked at all."""
    if (name, Stat.MEAN) in told:
        told[name, Stat.MEAN] = told[name, Stat.MEAN] * parts
    if (name, Stat.PEAK) in told:
        others = roster.shared & (core_peak == 0) & (roster.take(Level.DEVICE, Quantity.CORE, Fold.PEAK) > 0)
        told[name, Stat.PEAK] = np.where(others, 0.0, told[name, Stat.PEAK])


def _divide_power(roster: Roster, told: Stats, parts: Column) -> None:
    """The agent divides power itself; of HAMi's rows it is divided here."""
    divided = roster.shared | roster.in_slices
    for fold in (Fold.MEAN, Fold.PEAK):
        device = told.get((Measure.POWER, STATS[fold]))
        if roster.gathered.has(Level.HOLDER, Quantity.POWER, fold):
            own = roster.take(Level.HOLDER, Quantity.POWER, fold)
            told[Measure.POWER, STATS[fold]] = own if device is None else np.where(divided, own, device)
        elif device is not None:
            told[Measure.POWER, STATS[fold]] = device * parts
