"""Holders that are absent now: ended ones, whose device reports without them, and those that may only have stopped
reporting. Both sources use them after they have built the table of a scheme.

Ended holders are no allocations any more, so they have no row in the usage table. The ledger records the time from the
last cycle until they ended; of a pod that lived between two cycles that is all its time. A pod that was restarted keeps
its name, and often its GPU: where metrics do not have the uid of pods, all of its lives are one series, and only the
times of its samples tell them apart.

When a node fails, its exporter fails with it, and after one window none of its samples are left. Its allocations have
not ended because of that; without them the rest of their workload would look idle. They are kept for an hour, unless
there is evidence that they have ended: their GPU reports without them, or their pod reports from another node.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.sources.usage.coverage import ExpectedSamples
from gpusteward.analyzer.sources.usage.findings import NOTHING, UnheldWork, find_unheld_work
from gpusteward.analyzer.sources.usage.partial_tables import (
    AllocationCache,
    PartialTable,
    build_partial_table,
    measure_coverage,
)
from gpusteward.analyzer.sources.usage.presence import PresenceTable, count_devices, list_ended_rows, list_present_rows
from gpusteward.analyzer.sources.usage.quantities import (
    CORE_COUNT,
    FLOORS,
    PRESENCE_IN_WINDOW,
    PRESENCE_NOW,
    Aggregation,
    Level,
    Quantity,
)
from gpusteward.analyzer.sources.usage.query_results import (
    DeviceKey,
    DeviceSet,
    Flags,
    HolderKey,
    QueryResults,
    RowIndex,
)
from gpusteward.analyzer.sources.usage.unknown_rows import HIGHEST_CORE
from gpusteward.analyzer.tables import EndedHolder
from gpusteward.core.usages import AllocationKey

MAX_INTERRUPTED = 1000
"""Holders that lack samples and are asked for. More of them are those of a new engine, which has nothing earlier."""
_MISSED = 1.5
"""Scrape intervals. Samples that are further apart have another one missing between them."""


def list_rows_to_ask(results: QueryResults, *, expected: ExpectedSamples, at: float) -> list[int]:
    """Holder rows whose samples tell more than their number: those that have ended, and those that are present and lack
    samples of the window: an earlier pod of the same name may have ended."""
    present = np.array(list_present_rows(results), np.int64)
    counts = results.column(*CORE_COUNT)[present]
    few = present[counts <= np.fmax.reduce(counts, initial=0.0) - _MISSED]  # most rows need not be looked at closely
    if len(few):
        presence = PresenceTable(results, rows=few.tolist())
        coverage, counts = measure_coverage(presence, expected, at), presence.column(*CORE_COUNT)
        few = few[(1 - coverage) * counts >= _MISSED * coverage]
    return [*list_ended_rows(results), *(few.tolist() if len(few) <= MAX_INTERRUPTED else ())]


def build_ended_holders(results: QueryResults, *, expected: ExpectedSamples, at: float) -> list[EndedHolder]:
    """Those that ended among the holders whose samples were found, without those whose scrape interval is not known
    yet."""
    rows = list(results.seen.holders)
    if not rows:
        return []
    presence = PresenceTable(results, rows=rows)
    intervals = measure_coverage(presence, expected, at) * expected.window_seconds / presence.column(*CORE_COUNT)
    found: list[EndedHolder] = []
    for row, allocation, interval, works in zip(
        rows, AllocationCache().find_keys(presence), intervals.tolist(), _find_work(presence).tolist(), strict=True
    ):
        stays = sorted(_find_stays(results, row, interval)) if np.isfinite(interval) else []
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


def _find_stays(results: QueryResults, row: int, interval: float) -> Iterator[_Stay]:
    """One of each uid. Without uids, a pod ended where a sample of it is missing. Where devices without a holder
    report, only if its device has one there: otherwise a scrape is missing, and not the pod."""
    by_device = results.scheme.names_holder and results.reports_unheld_devices
    key: HolderKey = results.holders.keys[row]
    for pod_uid, series in results.seen.holders[row].items():
        times = np.unique(np.concatenate(series))
        breaks = np.flatnonzero(np.diff(times) > _MISSED * interval).tolist() if not pod_uid else []
        if by_device and breaks:
            of_device = np.concatenate(results.seen.devices[key.device])
            breaks = [each for each in breaks if ((of_device > times[each]) & (of_device < times[each + 1])).any()]
        edges = [0, *(each + 1 for each in breaks), len(times)]
        for first, end in pairwise(edges):
            yield _Stay(float(times[first]), float(times[end - 1]), pod_uid)


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
    if not presence.scheme.names_holder:
        return works
    keys = presence.results.holders.keys
    now = Counter(keys[row].device for row in presence.results.present if keys[row].pod)
    is_alone: Flags = np.array([now[key.device] < 2 for key in presence.keys], dtype=bool)
    return works & is_alone


MAX_STALE_SECONDS = 3600.0
"""Enough to bring a node back, or to remove it from the cluster, which recreates its pods elsewhere."""
MAX_STALE_ALLOCATIONS = 50_000
"""The size of the largest measured site. Bounds memory if exporters report new GPUs at every scrape."""

TableRow = int  # row of a partial table
HolderRow = int  # row of the index of holders
StaleRows = Mapping[TableRow, HolderRow]


class StaleAllocations:
    """The rows of one metric scheme from cycle to cycle."""

    def __init__(self) -> None:
        self._keys: list[HolderKey] = []  # of the row numbers below
        self._rows = _pack(())  # of the last cycle, without those that have ended
        self._ended: list[HolderRow] = []  # ended, with samples still in the window
        self._stale_since: dict[HolderKey, float] = {}
        self.without_samples: frozenset[TableRow] = frozenset()
        """Rows of the last partial table that have no sample in the window and are only kept as stale."""

    def list_previous_rows(self, holders: RowIndex[HolderKey], at: float) -> Sequence[HolderRow]:
        """The rows of the last cycle that are not known to have ended, as numbered in `holders`."""
        if holders.keys is not self._keys:
            self._renumber(holders)
        expired = {key for key, since in self._stale_since.items() if abs(at - since) > MAX_STALE_SECONDS}
        if expired:
            self._rows = _pack(row for row in self._rows if self._keys[row] not in expired)
            self._stale_since = {key: since for key, since in self._stale_since.items() if key not in expired}
        return self._rows

    @property
    def ended_rows(self) -> Sequence[HolderRow]:
        """Rows that have ended, with samples still in the window; numbered as in `list_previous_rows`."""
        return self._ended

    def _renumber(self, holders: RowIndex[HolderKey]) -> None:
        """The index is a new one, or a copy, in which the same keys have the same numbers."""
        if holders.keys[: len(self._keys)] != self._keys:
            rows, ended = ([self._keys[row] for row in group] for group in (self._rows, self._ended))
            self._rows, self._ended = _pack(holders.add(rows).tolist()), holders.add(ended).tolist()
        self._keys = holders.keys

    def find_without_details(self, stale: Sequence[HolderRow]) -> set[HolderRow]:
        """Stale rows that were never in a table while they reported, so that their details are unknown."""
        return set(stale).difference(self._rows, self._ended) if stale else set()

    def update(self, results: QueryResults, table: PartialTable, at: float) -> None:
        """Note the rows of this cycle."""
        # Every stale row is unknown, so only the unknown rows are checked: usually a few.
        unknown = ((position, table.holder_rows[position]) for position in table.unknown)
        stale = {position: row for position, row in unknown if row not in results.present}
        if PRESENCE_NOW in results.failures:  # absence means nothing
            self.without_samples, self._rows = frozenset(), _pack(table.holder_rows)
            return
        has_samples = results.has_samples
        self.without_samples = frozenset(position for position, row in stale.items() if not has_samples[row])
        dropped = set(self._list_dropped(results, table, stale))
        kept = [results.holders.keys[row] for row in stale.values() if row not in dropped]
        # While a part of the engine does not respond, it is not the exporter that is late.
        is_partial = PRESENCE_NOW in results.missing_stores
        since = {key: at if is_partial else self._stale_since.get(key, at) for key in kept}
        self._stale_since = keep_latest(since, MAX_STALE_ALLOCATIONS)
        expired = {row for row in stale.values() if results.holders.keys[row] not in self._stale_since}
        is_ended = np.zeros(len(has_samples), dtype=bool)
        is_ended[[*self._rows, *self._ended]] = True
        self._rows = _pack(row for row in table.holder_rows if row not in expired)
        is_ended[self._rows] = False
        self._ended = np.flatnonzero(is_ended & has_samples).tolist()

    def _list_dropped(self, results: QueryResults, table: PartialTable, stale: StaleRows) -> Iterator[HolderRow]:
        """Stale rows that are not kept for the next cycle."""
        if not stale:
            return
        yield from self._ended
        if PRESENCE_IN_WINDOW in results.failures:
            yield from self.find_without_details([*stale.values()])  # so that their details are queried again
        keys, known = results.holders.keys, set(self._rows)
        present = results.present
        reporting = DeviceSet(DeviceKey(keys[row].uuid, "", keys[row].cluster) for row in present)
        devices = (results.devices.keys[row] for row in results.device_details)
        reporting.update(device._replace(instance="") for device in devices)
        reporting_nodes: set[tuple[str, str]] = set()
        if not results.reports_unheld_devices:
            reporting_nodes = {(keys[row].cluster, details.node) for row, details in present.items() if details.node}
        new_nodes = {keys[row].pod_key: results.present[row].node for row in results.present.keys() - known}
        for position, row in stale.items():
            allocation = table.allocations[position]
            has_moved = row in known and new_nodes.get(keys[row].pod_key, allocation.node) != allocation.node
            gpu, node = DeviceKey(allocation.gpu_uuid, "", allocation.cluster), (allocation.cluster, allocation.node)
            if has_moved or gpu in reporting or node in reporting_nodes:
                yield row


def _pack(rows: Iterable[HolderRow]) -> "array[int]":
    """8 bytes each; a list of numbers takes 40."""
    return array("q", rows)


def keep_latest(since: dict[HolderKey, float], limit: int) -> dict[HolderKey, float]:
    """The `limit` entries with the latest times."""
    return since if len(since) <= limit else dict(sorted(since.items(), key=lambda item: item[1])[-limit:])


@dataclass
class SchemeState:
    """What is kept of one metric scheme from cycle to cycle, for the table of its next one."""

    allocations: AllocationCache = field(default_factory=AllocationCache)
    stale: StaleAllocations = field(default_factory=StaleAllocations)
    unheld_work: UnheldWork = NOTHING  # of the last cycle
    devices: int = 0  # that report now

    def build_table(self, results: QueryResults, *, expected: ExpectedSamples, at: float) -> PartialTable:
        """The usage of every holder, with those that have ended."""
        self.unheld_work = find_unheld_work(results, expected.window_seconds)
        self.devices = count_devices(results)
        table = build_partial_table(results, expected=expected, allocations=self.allocations, at=at)
        table = replace(table, ended=build_ended_holders(results, expected=expected, at=at))
        self.stale.update(results, table, at)
        return table
