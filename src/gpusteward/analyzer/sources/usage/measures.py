"""Quantities -> measures: what a holder uses itself, and its part of what only the device reports."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from gpusteward.analyzer.sources.usage.presence import PresenceTable
from gpusteward.analyzer.sources.usage.quantities import (
    EXCESSES,
    FLOORS,
    MEASURES,
    NO_VIDEO,
    STATS,
    Aggregation,
    Level,
    Quantity,
    QueryKey,
)
from gpusteward.analyzer.sources.usage.query_results import Flags
from gpusteward.analyzer.sources.usage.shared_devices import OutsideUse, find_copied_rows
from gpusteward.analyzer.tables import Column
from gpusteward.core.usages import Measure, Stat

Stats = dict[tuple[Measure, Stat], Column]

_OF_HOLDER = (Quantity.CORE, Quantity.MEMORY_USED, Quantity.PROCESSES)
_DIVIDED = (Quantity.MEMORY_COPY, Quantity.ENGINE, Quantity.TENSOR, Quantity.DRAM)
_VIDEO = (Quantity.ENCODER, Quantity.DECODER, Quantity.VIDEO)
_SAME_FOR_ALL = (Quantity.POWER_LIMIT, Quantity.SM_CLOCK)
FULL_COVERAGE = 0.9
"""Below it the judge calls nothing idle (`judge.activity.coverage`)."""
_MEAN_AND_PEAK = (Aggregation.MEAN, Aggregation.PEAK)
_AGGREGATIONS = (Aggregation.MEAN, Aggregation.PEAK, Aggregation.SPREAD, Aggregation.LAST)


@dataclass(frozen=True, slots=True)
class WindowCoverage:
    """The length of the window, and how much of it is covered by samples of each row."""

    window_seconds: float
    coverage: Column


def compute_measures(presence: PresenceTable, window: WindowCoverage) -> Stats:
    """Every measure with data, in base units."""
    stats = _measure_holders(presence)
    _apply_busy_time(presence, stats, window)
    if presence.scheme.names_holder:
        stats |= _integrate_engine(presence, window) | _compare_energy(presence, window)
    stats |= _find_last_kernels(presence)
    stats |= _find_missing_video(presence)
    stats[Measure.MEMORY_TOTAL, Stat.LAST] = _memory_total(presence)
    if not presence.scheme.names_holder:
        stats |= _measure_devices(presence, stats, window)
    elif presence.results.has(Level.DEVICE, Quantity.POWER_LIMIT, Aggregation.LAST):
        limit = presence.column(Level.DEVICE, Quantity.POWER_LIMIT, Aggregation.LAST)
        stats[Measure.POWER_LIMIT, Stat.LAST] = limit
    if presence.scheme.names_holder and presence.is_shared.any():
        _divide_copies(presence, stats)
    _replace_copy_of_mig(presence, stats)
    _attribute_work(presence, stats, window)
    others = OutsideUse(presence).processes
    if np.isfinite(others).any():
        stats[Measure.OTHER_PROCESSES, Stat.PEAK] = others
    return stats


def _measure_holders(presence: PresenceTable) -> Stats:
    quantities = tuple(MEASURES) if presence.scheme.names_holder else _OF_HOLDER
    stats = {
        (MEASURES[quantity], STATS[aggregation]): presence.column(Level.HOLDER, quantity, aggregation)
        for quantity in quantities
        for aggregation in _AGGREGATIONS
        if presence.results.has(Level.HOLDER, quantity, aggregation)
    }
    if presence.results.has(Level.HOLDER, Quantity.CORE, Aggregation.COUNT):
        stats[Measure.CORE, Stat.COUNT] = presence.column(Level.HOLDER, Quantity.CORE, Aggregation.COUNT)
    for stat in (Stat.MEAN, Stat.PEAK):
        stats.setdefault((Measure.CORE, stat), np.full(len(presence), np.nan))
    return stats


def _apply_busy_time(presence: PresenceTable, stats: Stats, window: WindowCoverage) -> None:
    """Where busy time is counted, it gives the mean: it includes work that began and ended between two samples.

    The peak is never below the mean; work that no sample saw reached at least the mean.
    """
    if not presence.results.has(Level.HOLDER, Quantity.BUSY, Aggregation.INCREASE):
        return
    mean = _mean_core(presence, Level.HOLDER, stats[Measure.CORE, Stat.MEAN], window)
    is_counted = np.isfinite(presence.column(Level.HOLDER, Quantity.BUSY, Aggregation.INCREASE))
    stats[Measure.CORE, Stat.MEAN] = mean
    stats[Measure.CORE, Stat.PEAK] = np.maximum(stats[Measure.CORE, Stat.PEAK], mean)
    stats[Measure.BUSY, Stat.MEAN] = np.where(is_counted, mean, np.nan)


def _mean_core(presence: PresenceTable, level: Level, sampled: Column, window: WindowCoverage) -> Column:
    """The fraction of time with work: counted where busy time is known, else as sampled.

    Busy time is divided by the covered part of the window: a series that began in the window had no busy time before,
    which says nothing about how it works. Where much is missing, it is unknown whether that is the beginning, which was
    not counted, or a gap in the middle, which was: then the larger value is used, so that use is not understated.
    """
    busy = presence.column(level, Quantity.BUSY, Aggregation.INCREASE) / window.window_seconds
    is_covered = window.coverage >= FULL_COVERAGE
    counted = np.where(is_covered, busy / np.where(is_covered, window.coverage, 1.0), np.fmax(busy, sampled))
    # An engine extrapolates to the ends of the window, so the result may be slightly above the truth.
    return np.where(np.isfinite(busy), np.minimum(counted, 1.0), sampled)


def _integrate_engine(presence: PresenceTable, window: WindowCoverage) -> Stats:
    """Engine activity as busy time: DCGM integrates it from one collection to the next, unlike GPU_UTIL.

    It must cover the window: profiling can be paused for a while. Of a device with several holders only zero says
    anything about each of them.
    """
    if not presence.results.has(Level.HOLDER, Quantity.ENGINE, Aggregation.COUNT):
        return {}
    mean, peak, count = (
        presence.column(Level.HOLDER, Quantity.ENGINE, aggregation)
        for aggregation in (Aggregation.MEAN, Aggregation.PEAK, Aggregation.COUNT)
    )
    cores = presence.column(Level.HOLDER, Quantity.CORE, Aggregation.COUNT)
    is_covered = (count >= FULL_COVERAGE * cores) & (window.coverage >= FULL_COVERAGE)
    has_others = presence.is_shared | (presence.holders_on_device > 1)
    is_own = ~has_others | (peak == 0)
    # The longest time without a sample: all that are missing may be missing in a row.
    missing = np.maximum(_expected_samples(presence, window) - count, 0.0)
    return {
        (Measure.BUSY, Stat.MEAN): np.where(is_covered & is_own, mean, np.nan),
        (Measure.ENGINE, Stat.STEP): _scrape_interval(presence, window) * (1 + np.round(missing)),
    }


def _expected_samples(presence: PresenceTable, window: WindowCoverage) -> Column:
    return presence.column(Level.HOLDER, Quantity.CORE, Aggregation.COUNT) / window.coverage


def _scrape_interval(presence: PresenceTable, window: WindowCoverage) -> Column:
    return window.window_seconds / _expected_samples(presence, window)


def _compare_energy(presence: PresenceTable, window: WindowCoverage) -> Stats:
    """By how many watts minutes of the window exceed the quiet ones, on a device no holder of which shows work; and how
    often power or energy have a new value, which is how often the exporter collects.

    Where the scrape interval does not divide a minute, minutes have different numbers of collections: their increase
    varies without any work.
    """
    stats: Stats = {}
    is_quiet = _shows_no_work(presence)
    for quantity, measure in ((Quantity.ENERGY, Measure.ENERGY), (Quantity.POWER, Measure.POWER)):
        if QueryKey(Level.HOLDER, quantity, Aggregation.CHANGES) in presence.results.failures:
            stats[measure, Stat.STEP] = np.zeros(len(is_quiet))  # not read: proves nothing
        elif presence.results.has(Level.HOLDER, quantity, Aggregation.CHANGES):
            changes = presence.column(Level.HOLDER, quantity, Aggregation.CHANGES)
            with np.errstate(divide="ignore"):
                stats[measure, Stat.STEP] = np.where(is_quiet, window.window_seconds / changes, np.nan)
    if any(presence.results.has(Level.HOLDER, Quantity.ENERGY, each) for each in EXCESSES):
        of_minutes, of_window = (presence.column(Level.HOLDER, Quantity.ENERGY, each) for each in EXCESSES)
        excess = np.fmax(of_minutes, of_window)
        per_minute = 60 / _scrape_interval(presence, window)
        is_regular = (per_minute > 0.95) & (np.abs(per_minute - np.round(per_minute)) < 0.05 * per_minute)
        is_explained = presence.devices.has_any(~is_quiet)
        stats[Measure.ENERGY, Stat.PEAK] = np.where(is_regular & ~presence.is_mig & ~is_explained, excess, np.nan)
    return stats


def _find_missing_video(presence: PresenceTable) -> Stats:
    """0 samples where the use of video engines is not reported."""
    lacks = np.isfinite(presence.column(*NO_VIDEO)) & _shows_no_work(presence)
    results = presence.results
    lacks |= results.lacks_video or NO_VIDEO in results.failures
    return {(Measure.VIDEO, Stat.COUNT): np.where(lacks, 0.0, np.nan)} if lacks.any() else {}


def _shows_no_work(presence: PresenceTable) -> Flags:
    """What only a verdict of idle needs is read of these rows from an engine, and used of no others from anywhere."""
    return ~(presence.column(Level.HOLDER, Quantity.CORE, Aggregation.PEAK) > 0)


def _find_last_kernels(presence: PresenceTable) -> Stats:
    """HAMi records one time for all GPUs of a container: which of them the kernel ran on is known if it has one."""
    launched = presence.column(Level.HOLDER, Quantity.LAST_KERNEL, Aggregation.LAST)
    if not np.isfinite(launched).any():
        return {}
    containers = [key._replace(uuid="", instance="") for key in presence.keys]
    gpus = Counter(containers)
    is_only_gpu = np.fromiter((gpus[container] == 1 for container in containers), dtype=bool, count=len(containers))
    return {
        (Measure.CONTAINER_KERNEL, Stat.LAST): launched,
        (Measure.LAST_KERNEL, Stat.LAST): np.where(is_only_gpu, launched, np.nan),
    }


def _replace_copy_of_mig(presence: PresenceTable, stats: Stats) -> None:
    """A MIG instance has no memory copy utilization; the activity of its memory interface is used instead."""
    for stat in (Stat.MEAN, Stat.PEAK):
        if (dram := stats.get((Measure.DRAM, stat))) is not None and presence.is_mig.any():
            copy = stats.get((Measure.MEMORY_COPY, stat), np.full(len(presence), np.nan))
            stats[Measure.MEMORY_COPY, stat] = np.where(presence.is_mig & ~np.isfinite(copy), dram, copy)


def _memory_total(presence: PresenceTable) -> Column:
    """The memory limit of the holder, else the memory of the device: as reported, or used + free + reserved."""
    used, free, reserved = (
        presence.column(Level.DEVICE, quantity, Aggregation.LAST)
        for quantity in (Quantity.MEMORY_USED, Quantity.MEMORY_FREE, Quantity.MEMORY_RESERVED)
    )
    total = used + free + np.nan_to_num(reserved)  # older exporters do not report reserved memory
    for reported in (
        presence.column(Level.DEVICE, Quantity.MEMORY_TOTAL, Aggregation.LAST),
        presence.column(Level.HOLDER, Quantity.MEMORY_LIMIT, Aggregation.LAST),
    ):
        total = np.where(np.isfinite(reported) & (reported > 0), reported, total)
    return total


def _measure_devices(presence: PresenceTable, holder_stats: Stats, window: WindowCoverage) -> Stats:
    stats: Stats = {}
    for quantity in (*_DIVIDED, *_SAME_FOR_ALL, Quantity.POWER):
        for aggregation in _AGGREGATIONS:
            if presence.results.has(Level.DEVICE, quantity, aggregation):
                stats[MEASURES[quantity], STATS[aggregation]] = presence.column(Level.DEVICE, quantity, aggregation)
    parts = _parts_of_device(presence, holder_stats[Measure.CORE, Stat.MEAN], window)
    device_peak = presence.column(Level.DEVICE, Quantity.CORE, Aggregation.PEAK)
    is_of_others = presence.is_shared & (holder_stats[Measure.CORE, Stat.PEAK] == 0) & (device_peak > 0)
    for quantity in _DIVIDED:
        _divide(stats, MEASURES[quantity], parts, is_of_others)
    _divide_power(presence, stats, parts)
    return stats


def _parts_of_device(presence: PresenceTable, core: Column, window: WindowCoverage) -> Column:
    """The part of each row in the use of a shared device: by its core, or equal parts if the device is idle.

    1 where the device is not shared or its use is unknown: activity may be overstated, never understated.
    """
    sampled = presence.column(Level.DEVICE, Quantity.CORE, Aggregation.MEAN)
    device = _mean_core(presence, Level.DEVICE, sampled, window)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(device > 0, np.minimum(core / device, 1.0), 1.0 / presence.holders_on_device)
    return np.where(presence.is_shared & np.isfinite(device), parts, 1.0)


def _divide(stats: Stats, measure: Measure, parts: Column, is_of_others: Flags) -> None:
    """Means are divided by use; a peak counts only for rows that worked at all, unless no holder of the device did."""
    if (measure, Stat.MEAN) in stats:
        stats[measure, Stat.MEAN] = stats[measure, Stat.MEAN] * parts
    if (measure, Stat.PEAK) in stats:
        stats[measure, Stat.PEAK] = stats[measure, Stat.PEAK] * np.where(is_of_others, 0.0, 1.0)  # NaN stays


def _divide_copies(presence: PresenceTable, stats: Stats) -> None:
    """dcgm-exporter with virtual GPUs repeats the values of a device for each pod on it: they are divided by core
    utilization, or equally where that is repeated too. Whose memory it is, is unknown then."""
    is_copied = find_copied_rows(presence)
    mean, peak = (np.nan_to_num(stats[Measure.CORE, stat]) for stat in (Stat.MEAN, Stat.PEAK))
    devices = presence.device_numbers
    total = np.bincount(devices, weights=mean, minlength=1)[devices]
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where((total > 0) & ~is_copied, mean / total, 1.0 / presence.holders_on_device)
    parts = np.where(presence.is_shared, parts, 1.0)
    works = np.bincount(devices, weights=peak, minlength=1)[devices] > 0
    for quantity in _DIVIDED:
        _divide(stats, MEASURES[quantity], parts, presence.is_shared & (peak == 0) & works)
    for stat in (Stat.MEAN, Stat.PEAK):
        if (used := stats.get((Measure.MEMORY_USED, stat))) is not None and is_copied.any():
            stats[Measure.MEMORY_SHARED, stat] = np.where(is_copied, used, np.nan)
        for measure, factor in ((Measure.POWER, parts), (Measure.MEMORY_USED, np.where(is_copied, np.nan, 1.0))):
            if (measure, stat) in stats:
                stats[measure, stat] = stats[measure, stat] * factor


def _attribute_work(presence: PresenceTable, stats: Stats, window: WindowCoverage) -> None:
    """Signals that only prove work. The agent counts the use of video engines per container; the other values are those
    of the device, and of its board for a MIG instance. NaN where it is not the work of this holder."""
    own_video = presence.column(Level.HOLDER, Quantity.VIDEO, Aggregation.INCREASE) / window.window_seconds
    if np.isfinite(own_video).any():
        stats[Measure.VIDEO, Stat.MEAN] = stats[Measure.VIDEO, Stat.PEAK] = own_video
    proofs = [quantity for quantity in FLOORS if quantity in MEASURES]
    pairs = [(quantity, each) for quantity in proofs for each in _MEAN_AND_PEAK if presence.reports(quantity, each)]
    if not pairs:
        return
    is_alone = presence.boards.is_alone
    is_by_video, is_by_core = is_alone | (own_video > 0), is_alone | (stats[Measure.CORE, Stat.PEAK] > 0)
    for quantity, aggregation in pairs:
        is_own = is_by_video if quantity in _VIDEO else is_by_core
        column = np.where(is_own, presence.device_column(quantity, aggregation), np.nan)
        stats.pop((MEASURES[quantity], STATS[aggregation]), None)
        if np.isfinite(column).any():
            stats[MEASURES[quantity], STATS[aggregation]] = column


def _divide_power(presence: PresenceTable, stats: Stats, parts: Column) -> None:
    """gpusteward's agent divides power itself; for HAMi it is divided here."""
    is_divided = presence.is_shared | presence.is_mig
    for aggregation in (Aggregation.MEAN, Aggregation.PEAK):
        device = stats.get((Measure.POWER, STATS[aggregation]))
        if presence.results.has(Level.HOLDER, Quantity.POWER, aggregation):
            own = presence.column(Level.HOLDER, Quantity.POWER, aggregation)
            stats[Measure.POWER, STATS[aggregation]] = own if device is None else np.where(is_divided, own, device)
        elif device is not None:
            stats[Measure.POWER, STATS[aggregation]] = device * parts
