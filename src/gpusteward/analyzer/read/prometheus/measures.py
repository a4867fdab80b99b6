"""Measures from quantities: what a holder has of its own, and its part of what only the device tells."""

import numpy as np

from gpusteward.analyzer.read.prometheus.dialects import Dialect
from gpusteward.analyzer.read.prometheus.quantities import MEASURES, STATS, Fold, Level, Quantity
from gpusteward.analyzer.read.prometheus.rosters import Roster
from gpusteward.analyzer.tables import Column
from gpusteward.core.usages import Measure, Stat

Stats = dict[tuple[Measure, Stat], Column]

_OF_HOLDER = (Quantity.CORE, Quantity.MEMORY_USED, Quantity.PROCESSES)
_DIVIDED = (Quantity.MEMORY_COPY, Quantity.ENGINE, Quantity.TENSOR, Quantity.DRAM)
_SAME_FOR_ALL = (Quantity.POWER_LIMIT, Quantity.SM_CLOCK)
_FOLDS = (Fold.MEAN, Fold.PEAK, Fold.SPREAD, Fold.LAST)


def measure(roster: Roster, window_seconds: float) -> Stats:
    """Every measure that somebody told, in base units."""
    stats = _measure_holders(roster)
    _count_busy_time(roster, stats, window_seconds)
    stats[Measure.MEMORY_TOTAL, Stat.LAST] = _memory_total(roster)
    if roster.dialect is not Dialect.DCGM:
        stats |= _measure_devices(roster, stats, window_seconds)
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


def _count_busy_time(roster: Roster, stats: Stats, window_seconds: float) -> None:
    """Where busy time is counted, the mean is made of it: work that began and ended between two samples is in it.

    The peak is never below the mean; one that no sample saw is that high at least.
    """
    if not roster.gathered.has(Level.HOLDER, Quantity.BUSY, Fold.INCREASE):
        return
    busy = busy_ratio(roster, Level.HOLDER, window_seconds)
    mean, peak = stats[Measure.CORE, Stat.MEAN], stats[Measure.CORE, Stat.PEAK]
    stats[Measure.CORE, Stat.MEAN] = np.where(np.isfinite(busy), busy, mean)
    stats[Measure.CORE, Stat.PEAK] = np.where(np.isfinite(busy), np.maximum(peak, busy), peak)


def busy_ratio(roster: Roster, level: Level, window_seconds: float) -> Column:
    """Part of the window that was worked. An engine guesses what lies between its samples and the window's ends, so it
    may tell a little more than there is."""
    return np.minimum(roster.take(level, Quantity.BUSY, Fold.INCREASE) / window_seconds, 1.0)


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


def _measure_devices(roster: Roster, stats: Stats, window_seconds: float) -> Stats:
    told: Stats = {}
    for quantity in (*_DIVIDED, *_SAME_FOR_ALL, Quantity.POWER):
        for fold in _FOLDS:
            if roster.gathered.has(Level.DEVICE, quantity, fold):
                told[MEASURES[quantity], STATS[fold]] = roster.take(Level.DEVICE, quantity, fold)
    parts = _parts(roster, stats[Measure.CORE, Stat.MEAN], window_seconds)
    for quantity in _DIVIDED:
        _divide(roster, told, MEASURES[quantity], parts, stats[Measure.CORE, Stat.PEAK])
    _divide_power(roster, told, parts)
    return told


def _parts(roster: Roster, core: Column, window_seconds: float) -> Column:
    """The part of each sharing row in what the device did, by share of use; of an idle device by equal parts.

    1 where it is not shared, or where the device's own use is unknown: rather too much activity than too little.
    """
    counted = busy_ratio(roster, Level.DEVICE, window_seconds)
    device = np.where(np.isfinite(counted), counted, roster.take(Level.DEVICE, Quantity.CORE, Fold.MEAN))
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
