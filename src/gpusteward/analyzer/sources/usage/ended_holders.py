"""Holders that had samples in the window and have ended: their device reports without them.

They are no allocations any more, so they have no row in the usage table. The ledger records the time from the last
cycle until they ended; of a pod that lived between two cycles that is all its time. A pod that was restarted keeps its
name, and often its GPU: where metrics do not have the uid of pods, all of its lives are one series, and only the times
of its samples tell them apart.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.sources.usage.coverage import ExpectedSamples
from gpusteward.analyzer.sources.usage.metric_schemes import MetricScheme
from gpusteward.analyzer.sources.usage.partial_tables import AllocationCache, measure_coverage
from gpusteward.analyzer.sources.usage.presence import PresenceTable, list_ended_rows, list_present_rows
from gpusteward.analyzer.sources.usage.quantities import CORE_COUNT, FLOORS, Aggregation, Level, Quantity
from gpusteward.analyzer.sources.usage.query_results import Flags, QueryResults
from gpusteward.analyzer.sources.usage.row_index import HolderKey
from gpusteward.analyzer.sources.usage.unknown_rows import HIGHEST_CORE
from gpusteward.analyzer.tables import Column, EndedHolder
from gpusteward.core.usages import AllocationKey

MAX_INTERRUPTED = 1000
"""Holders that lack samples and are asked for. More of them are those of a new engine, which has nothing earlier."""
_MISSED = 1.5
"""Scrape intervals. Samples that are further apart have another one missing between them."""


def list_rows_to_ask(scheme: MetricScheme, results: QueryResults, *, expected: ExpectedSamples, at: float) -> list[int]:
    """Holder rows whose samples tell more than their number: those that have ended, and those that are present and lack
    samples of the window: an earlier pod of the same name may have ended."""
    present = np.array(list_present_rows(results), np.int64)
    counts = results.column(*CORE_COUNT)[present]
    few = present[counts <= np.fmax.reduce(counts, initial=0.0) - _MISSED]  # most rows need not be looked at closely
    if len(few):
        presence = PresenceTable(scheme, results, rows=few.tolist())
        coverage, counts = measure_coverage(presence, expected, at), presence.column(*CORE_COUNT)
        few = few[(1 - coverage) * counts >= _MISSED * coverage]
    return [*list_ended_rows(results), *(few.tolist() if len(few) <= MAX_INTERRUPTED else ())]


def build_ended_holders(
    scheme: MetricScheme, results: QueryResults, *, expected: ExpectedSamples, at: float, reports_unheld_devices: bool
) -> list[EndedHolder]:
    """Those that ended among the holders whose samples were found, without those whose scrape interval is not known
    yet. `reports_unheld_devices`: whether a device without a holder has samples too."""
    rows = list(results.seen.holders)
    if not rows:
        return []
    presence = PresenceTable(scheme, results, rows=rows)
    intervals = measure_coverage(presence, expected, at) * expected.window_seconds / presence.column(*CORE_COUNT)
    by_device = scheme is MetricScheme.DCGM and reports_unheld_devices
    found: list[EndedHolder] = []
    for row, allocation, interval, works in zip(
        rows, AllocationCache().find_keys(presence), intervals.tolist(), _find_work(presence).tolist(), strict=True
    ):
        stays = sorted(_find_stays(results, row, interval, by_device=by_device)) if np.isfinite(interval) else []
        following = [stay.first_at - interval / 2 for stay in stays[1:]]
        if row in results.present:
            stays = stays[:-1]  # without the one that is there now
        for stay, returned_at in zip(stays, [*following, np.nan], strict=False):
            last_at, seconds = min(stay.last_at, at), stay.last_at - stay.first_at + interval
            found.append(EndedHolder(_of_pod(allocation, stay.pod_uid), last_at, interval, seconds, works, returned_at))
    return found


class _Stay(NamedTuple):
    """The first and the last sample of one pod."""

    first_at: float
    last_at: float
    pod_uid: str


def _find_stays(results: QueryResults, row: int, interval: float, *, by_device: bool) -> Iterator[_Stay]:
    """One of each uid. Without uids, a pod ended where a sample of it is missing. `by_device`: only if the device has
    one there: otherwise a scrape is missing, and not the pod."""
    key: HolderKey = results.holders.keys[row]
    for pod_uid, series in results.seen.holders[row].items():
        times = np.unique(np.concatenate(series))
        breaks = np.flatnonzero(np.diff(times) > _MISSED * interval).tolist() if not pod_uid else []
        if by_device and breaks:
            of_device = np.concatenate(results.seen.devices[key.device])
            breaks = [each for each in breaks if _has_any(of_device, times[each], times[each + 1])]
        edges = [0, *(each + 1 for each in breaks), len(times)]
        for first, end in pairwise(edges):
            yield _Stay(float(times[first]), float(times[end - 1]), pod_uid)


def _has_any(times: Column, after: float, before: float) -> bool:
    return bool(((times > after) & (times < before)).any())


def _of_pod(allocation: AllocationKey, pod_uid: str) -> AllocationKey:
    """The start of a pod that is there now is not that of an earlier one of its name."""
    container = allocation.container
    if container.pod_uid == pod_uid and container.started_at is None:
        return allocation
    return replace(allocation, container=replace(container, pod_uid=pod_uid, started_at=None))


def _find_work(presence: PresenceTable) -> Flags:
    """Whether work was seen that is its own: dcgm-exporter gives every holder of a shared GPU the use of the device."""
    core = presence.column(Level.HOLDER, Quantity.CORE, Aggregation.PEAK)
    works: Flags = (core > 0) & (core <= HIGHEST_CORE)
    works |= presence.column(Level.HOLDER, Quantity.BUSY, Aggregation.INCREASE) > 0
    for quantity in FLOORS:
        for aggregation in (Aggregation.PEAK, Aggregation.INCREASE):
            works |= np.isfinite(presence.column(Level.HOLDER, quantity, aggregation))
    if presence.scheme is not MetricScheme.DCGM:
        return works
    keys = presence.results.holders.keys
    now = Counter(keys[row].device for row in presence.results.present if keys[row].pod)
    is_alone: Flags = np.array([now[key.device] < 2 for key in presence.keys], dtype=bool)
    return works & is_alone
