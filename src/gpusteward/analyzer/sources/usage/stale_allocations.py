"""Allocations of the last cycle that are absent now, and may only have stopped reporting.

When a node fails, its exporter fails with it, and after one window none of its samples are left. Its allocations have
not ended because of that; without them the rest of their workload would look idle. They are kept for an hour, unless
there is evidence that they have ended: their GPU reports without them, or their pod reports from another node.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from gpusteward.analyzer.sources.usage.partial_tables import PartialTable
from gpusteward.analyzer.sources.usage.quantities import PRESENCE_IN_WINDOW, PRESENCE_NOW
from gpusteward.analyzer.sources.usage.query_results import QueryResults
from gpusteward.analyzer.sources.usage.row_index import DeviceKey, DeviceSet, HolderKey, RowIndex

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

    def update(self, results: QueryResults, table: PartialTable, at: float, *, reports_unheld_devices: bool) -> None:
        """Note the rows of this cycle. `reports_unheld_devices`: whether a GPU without a holder is reported as well."""
        stale = dict(_list_stale(results, table))
        if PRESENCE_NOW in results.failures:  # absence means nothing
            self.without_samples, self._rows = frozenset(), _pack(table.holder_rows)
            return
        has_samples = results.has_samples
        self.without_samples = frozenset(position for position, row in stale.items() if not has_samples[row])
        dropped = set(self._list_dropped(results, table, stale, reports_unheld_devices=reports_unheld_devices))
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

    def _list_dropped(
        self, results: QueryResults, table: PartialTable, stale: StaleRows, *, reports_unheld_devices: bool
    ) -> Iterator[HolderRow]:
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
        if not reports_unheld_devices:
            reporting_nodes = {(keys[row].cluster, details.node) for row, details in present.items() if details.node}
        new_nodes = {_pod_of(keys[row]): results.present[row].node for row in results.present.keys() - known}
        for position, row in stale.items():
            allocation = table.allocations[position]
            has_moved = row in known and new_nodes.get(_pod_of(keys[row]), allocation.node) != allocation.node
            gpu, node = DeviceKey(allocation.gpu_uuid, "", allocation.cluster), (allocation.cluster, allocation.node)
            if has_moved or gpu in reporting or node in reporting_nodes:
                yield row


def _pod_of(key: HolderKey) -> tuple[str, str, str]:
    return key.cluster, key.namespace, key.pod


def _list_stale(results: QueryResults, table: PartialTable) -> Iterator[tuple[TableRow, HolderRow]]:
    """Every stale row is unknown, so only the unknown rows are checked: usually a few."""
    for position in table.unknown:
        row = table.holder_rows[position]
        if row not in results.present:
            yield position, row


def _pack(rows: Iterable[HolderRow]) -> "array[int]":
    """8 bytes each; a list of numbers takes 40."""
    return array("q", rows)


def keep_latest(since: dict[HolderKey, float], limit: int) -> dict[HolderKey, float]:
    """The `limit` entries with the latest times."""
    return since if len(since) <= limit else dict(sorted(since.items(), key=lambda item: item[1])[-limit:])
