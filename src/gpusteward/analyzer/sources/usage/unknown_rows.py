"""Rows that must not be judged, each with the reason.

Among them zeros that other signals contradict: exporters write 0 for a pod whose processes they could not find, and
some combinations of driver and board report no process utilization at all. While the device works, such a zero is
unknown.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.usage.measures import FULL_COVERAGE, Stats
from gpusteward.analyzer.sources.usage.presence import PresenceTable, has_any
from gpusteward.analyzer.sources.usage.quantities import (
    CORE_COUNT,
    FLOORS,
    MEASURES,
    PRESENCE_NOW,
    Aggregation,
    Level,
    Quantity,
    QueryKey,
)
from gpusteward.analyzer.sources.usage.query_results import Flags
from gpusteward.analyzer.sources.usage.shared_devices import OutsideUse, find_copied_rows
from gpusteward.analyzer.tables import Column
from gpusteward.core.messages import Message
from gpusteward.core.usages import Measure, Stat
from gpusteward.messages import unknown_reasons

ACTIVE_RATIO = 0.02
"""Engine, memory copy or DRAM activity above this is work: an idle GPU stays below one per cent."""
BUSY_POWER_RATIO = 0.5
"""Of the power limit. A loaded model that does nothing keeps small boards (A10, T4, L4) at up to 40 % of theirs."""
BUSY_POWER_WATTS = 250.0
"""Where no limit is known: no board idles above it."""
DRAM_NOISE_RATIO = 0.005
"""Unused devices report a small constant; the judge's `judge.activity.dram_floor_ratio`."""
HIGHEST_CORE = 1.05
"""Dead processes make drivers report several hundred per cent; rounding alone stays below this."""

_ACTIVITY = (Quantity.MEMORY_COPY, Quantity.ENGINE, Quantity.TENSOR, Quantity.DRAM)
_WINDOW = (Aggregation.MEAN, Aggregation.PEAK)
_ESSENTIAL = (
    (Quantity.CORE, Aggregation.MEAN),
    (Quantity.CORE, Aggregation.PEAK),
    (Quantity.CORE, Aggregation.COUNT),
    (Quantity.BUSY, Aggregation.INCREASE),
    *((quantity, aggregation) for quantity in _ACTIVITY for aggregation in _WINDOW),
    *((quantity, aggregation) for quantity in FLOORS for aggregation in (*_WINDOW, Aggregation.INCREASE)),
    (Quantity.LAST_KERNEL, Aggregation.LAST),
    (Quantity.ENERGY, Aggregation.EXCESS),
    (Quantity.ENERGY, Aggregation.HOUR_EXCESS),
    (Quantity.UNATTRIBUTED, Aggregation.PEAK),
    (Quantity.MEMORY_USED, Aggregation.MEAN),
    (Quantity.POWER, Aggregation.MEAN),
)
"""If one of these queries fails, a verdict would rest on less data than the site has."""


def find_unknown_rows(presence: PresenceTable, stats: Stats, coverage: Column) -> dict[int, Message]:
    """The reason of each row that must not be judged. If there are several, the first of `_list_reasons` counts."""
    unknown: dict[int, Message] = {}
    for flags, reason in _list_reasons(presence, stats, coverage):
        for row in np.flatnonzero(flags).tolist():
            if row not in unknown:
                unknown[row] = reason if isinstance(reason, Message) else reason(row)
    return unknown


_Reason = Message | Callable[[int], Message]  # a function of the row where each has its own


def _list_reasons(presence: PresenceTable, stats: Stats, coverage: Column) -> Iterator[tuple[Flags, _Reason]]:
    core_mean, core_peak = stats[Measure.CORE, Stat.MEAN], stats[Measure.CORE, Stat.PEAK]
    yield presence.reported_by_two_nodes, unknown_reasons.REPORTED_BY_TWO_NODES
    yield from _failed_queries(presence, core_peak)
    yield from _unproven_responses(presence)
    yield presence.is_stale, unknown_reasons.NO_CURRENT_SAMPLE
    is_unmeasured = ~np.isfinite(core_mean) | ~np.isfinite(core_peak)
    yield from _unmeasured_mig(presence, is_unmeasured & ~(coverage > 0))
    yield is_unmeasured, unknown_reasons.NO_CORE
    is_counted = np.isfinite(presence.column(Level.HOLDER, Quantity.CORE, Aggregation.COUNT))
    # How many to expect is not known yet: of idleness that says nothing, but one sample with work is work.
    is_uncovered = ~np.isfinite(coverage) & ~_shows_work(presence, stats)
    yield is_counted & is_uncovered, unknown_reasons.NEW_EXPORTER
    yield is_uncovered, unknown_reasons.UNCOUNTED_SAMPLES
    yield core_peak > HIGHEST_CORE, unknown_reasons.IMPOSSIBLE_CORE
    if presence.scheme.names_holder and presence.is_shared.any():
        is_copied = find_copied_rows(presence)
        yield is_copied & (core_peak > 0), unknown_reasons.COPIED_USE
    outside = OutsideUse(presence)
    # Signals of the device, such as its traffic, are not those of a holder where somebody else uses it.
    video = presence.column(Level.HOLDER, Quantity.VIDEO, Aggregation.INCREASE)
    yield outside.is_used & ~(core_peak > 0) & ~(video > 0), outside.explain
    yield _contradicted_zeros(presence, stats), unknown_reasons.CONTRADICTED_ZERO
    yield _unattributed_work(presence, stats), unknown_reasons.UNATTRIBUTED
    if presence.results.has(Level.DEVICE, Quantity.UNATTRIBUTED, Aggregation.PEAK):
        unattributed = presence.column(Level.DEVICE, Quantity.UNATTRIBUTED, Aggregation.PEAK)
        is_zero = (core_peak == 0) & ~_has_own_work(stats, len(presence))
        yield is_zero & (unattributed > ACTIVE_RATIO), unknown_reasons.UNATTRIBUTED
    yield _works_without_holders(presence, stats), outside.explain
    for stores in presence.results.missing_stores.values():
        yield ~(coverage >= FULL_COVERAGE), _explain_partial(stores)


def _failed_queries(presence: PresenceTable, core_peak: Column) -> Iterator[tuple[Flags, Message]]:
    """A signal that adds proof of work is not missed where the core proves it."""
    failures = presence.results.failures
    if reason := failures.get(PRESENCE_NOW):
        yield presence.is_stale, unknown_reasons.PRESENCE_FAILED.fill(error=reason)
    for level in Level:
        for quantity, aggregation in _ESSENTIAL:
            if reason := failures.get(QueryKey(level, quantity, aggregation)):
                column = presence.column(level, quantity, aggregation)
                adds_proof = quantity in FLOORS or quantity in (Quantity.LAST_KERNEL, Quantity.ENERGY)
                is_missed = ~np.isfinite(column) & ~((core_peak > 0) & adds_proof)
                yield is_missed, unknown_reasons.QUERY_FAILED.fill(quantity=quantity, error=reason)


def _unproven_responses(presence: PresenceTable) -> Iterator[tuple[Flags, Message]]:
    """A row is complete although stores of the engine did not respond if its samples cover the window without them: a
    replica has them. That proves nothing for results that lack other stores than the counts, and for absent holders."""
    missing = presence.results.missing_stores
    counted = missing.get(CORE_COUNT, frozenset())
    for key, stores in missing.items():
        is_proven = key.quantity is Quantity.PRESENCE or stores <= counted
        yield presence.is_stale | np.full(len(presence), not is_proven), _explain_partial(stores)


def _explain_partial(stores: frozenset[str]) -> Message:
    return unknown_reasons.PARTIAL_RESPONSE.fill(stores=", ".join(sorted(stores)))


def _unmeasured_mig(presence: PresenceTable, has_no_sample: Flags) -> Iterator[tuple[Flags, Message]]:
    """MIG instances without any sample in the window: waiting does not help where nothing measures them."""
    is_unmeasured = has_no_sample & presence.is_mig
    if not presence.scheme.lists_allocations:
        yield is_unmeasured, unknown_reasons.UNEXPORTED_MIG
    else:
        yield is_unmeasured & presence.is_shared, unknown_reasons.SHARED_MIG
        # Where the GPU reports engine activity, the core is derived from it.
        engine = presence.column(Level.DEVICE, Quantity.ENGINE, Aggregation.PEAK)
        yield is_unmeasured & ~np.isfinite(engine), unknown_reasons.UNMEASURED_MIG


def _works_without_holders(presence: PresenceTable, stats: Stats) -> Flags:
    """Rows of a device that works while no holder does, where the agent is too old to say whether that is use by
    others: HAMi's zeros on such a device are contradicted above."""
    if not presence.scheme.lists_allocations:
        return np.zeros(len(presence), dtype=bool)
    # Signals of the device, such as SM activity, say no more about whose use it is than its core does.
    works = (stats[Measure.CORE, Stat.PEAK] > 0) | (
        presence.column(Level.HOLDER, Quantity.VIDEO, Aggregation.INCREASE) > 0
    )
    device_works = presence.column(Level.DEVICE, Quantity.CORE, Aggregation.PEAK) > ACTIVE_RATIO
    return device_works & ~presence.devices.has_any(works)


def _unattributed_work(presence: PresenceTable, stats: Stats) -> Flags:
    """Rows without work of their own on a device whose work no holder accounts for."""
    device, board = presence.devices, presence.boards
    works = device.has_any(_find_use(presence, stats) > 0) | device.is_alone
    is_unattributed = presence.column(Level.DEVICE, Quantity.UNATTRIBUTED_VIDEO, Aggregation.INCREASE) > 0
    for quantity in _ACTIVITY:
        floor = DRAM_NOISE_RATIO if quantity is Quantity.DRAM else 0.0
        is_unattributed |= (presence.device_column(quantity, Aggregation.PEAK) > floor) & ~works
    for quantity in FLOORS:
        if quantity in MEASURES and presence.reports(quantity, Aggregation.PEAK):
            own = stats.get((MEASURES[quantity], Stat.PEAK), np.full(len(presence), np.nan))
            is_reported = np.isfinite(presence.device_column(quantity, Aggregation.PEAK))
            is_unattributed |= is_reported & ~board.has_any(np.isfinite(own))
    is_zero: Flags = (stats[Measure.CORE, Stat.PEAK] == 0) & ~_has_own_work(stats, len(presence))
    return is_unattributed & is_zero


def _find_use(presence: PresenceTable, stats: Stats) -> Column:
    """The use of each row; where the agent reports it, all use of its device: that of processes of the host too."""
    use = np.fmax(stats[Measure.CORE, Stat.PEAK], np.where(_has_own_work(stats, len(presence)), 1.0, np.nan))
    if presence.scheme.lists_allocations:
        for quantity, aggregation in ((Quantity.CORE, Aggregation.PEAK), (Quantity.BUSY, Aggregation.INCREASE)):
            use = np.fmax(use, presence.column(Level.DEVICE, quantity, aggregation))
    return use


def _has_own_work(stats: Stats, size: int) -> Flags:
    """Rows with a signal that only proves work."""
    found = np.zeros(size, dtype=bool)
    for quantity in FLOORS:
        if quantity in MEASURES and (peak := stats.get((MEASURES[quantity], Stat.PEAK))) is not None:
            found |= np.isfinite(peak)
    return found


def _shows_work(presence: PresenceTable, stats: Stats) -> Flags:
    """Rows with a signal above zero that is theirs: of a device with one holder all of them are."""
    works = (stats[Measure.CORE, Stat.PEAK] > 0) | _has_own_work(stats, len(presence))
    is_alone = presence.devices.is_alone
    for quantity in (Quantity.ENGINE, Quantity.TENSOR, Quantity.MEMORY_COPY):
        works |= is_alone & (presence.device_column(quantity, Aggregation.PEAK) > 0)
    return works


def _contradicted_zeros(presence: PresenceTable, stats: Stats) -> Flags:
    """Compares the core of the holders with the other signals of their device. A video engine at work, or traffic,
    explains them as well as the core does; and so does activity of a device with one holder: DCGM averages that of the
    engine over all of the time, while the core is that of one second."""
    ratios = [Quantity.MEMORY_COPY, Quantity.DRAM]
    if not presence.scheme.names_holder or not presence.is_mig.any():
        ratios.append(Quantity.ENGINE)
    activity = np.full(len(presence), np.nan)
    for quantity in ratios:
        activity = np.fmax(activity, presence.device_column(quantity, Aggregation.PEAK))
    if presence.scheme.devices:
        activity = np.fmax(activity, presence.column(Level.DEVICE, Quantity.CORE, Aggregation.PEAK))
    power = np.where(presence.is_mig, np.nan, presence.device_column(Quantity.POWER, Aggregation.MEAN))
    limit = presence.column(Level.DEVICE, Quantity.POWER_LIMIT, Aggregation.LAST)
    use = _find_use(presence, stats)
    if not presence.scheme.devices:
        is_alone = presence.devices.is_alone & ~presence.is_mig
        for quantity in (Quantity.ENGINE, Quantity.TENSOR, Quantity.MEMORY_COPY):
            use = np.where(is_alone, np.fmax(use, presence.device_column(quantity, Aggregation.PEAK)), use)
    return find_contradicted_zeros(use, device=presence.device_numbers, activity=activity, power=power, limit=limit)


def find_contradicted_zeros(
    core_peak: Column, *, device: NDArray[np.int64], activity: Column, power: Column, limit: Column
) -> Flags:
    """Rows with a core of 0 where no holder of the device works according to its core, and yet the device works.

    `device` numbers the device of each row; `activity` is the highest of its other ratios; all but `power` are peaks.
    """
    if not len(core_peak):
        return np.zeros(0, dtype=bool)
    draws_power = np.where(np.isfinite(limit), power > BUSY_POWER_RATIO * limit, power > BUSY_POWER_WATTS)
    works = (activity > ACTIVE_RATIO) | draws_power
    return np.asarray((core_peak == 0) & ~has_any(device, core_peak > 0) & has_any(device, works))
