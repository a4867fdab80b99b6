"""Which holders exist: the rows of one metric scheme that go into the usage table."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.usage.quantities import PRESENCE_NOW, Aggregation, Level, Quantity
from gpusteward.analyzer.sources.usage.query_results import (
    DeviceDetails,
    DeviceKey,
    DeviceSet,
    Flags,
    HolderDetails,
    HolderKey,
    QueryResults,
    Rows,
)
from gpusteward.analyzer.tables import Column, repeat_value
from gpusteward.core.node.gpus import Share

_NOT_SHARED = frozenset({"", Share.EXCLUSIVE, Share.MIG})
NO_DETAILS = HolderDetails()
_NO_DEVICE_DETAILS = DeviceDetails()


@dataclass(frozen=True)
class RowGroups:
    """Rows on the same device, or on the same board."""

    numbers: NDArray[np.int64]  # rows with the same number are in one group
    is_alone: Flags  # rows whose group has no other pod

    def has_any(self, rows: Flags) -> Flags:
        """For each row whether any row of its group is one of these."""
        return has_any(self.numbers, rows)


def has_any(numbers: NDArray[np.int64], rows: Flags) -> Flags:
    """For each row whether any row of the same number is one of these."""
    found = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=bool)
    found[numbers[rows]] = True
    return found[numbers]


class PresenceTable:
    """Holders that exist now, then stale ones: seen in the window or in the last cycle, and absent now.

    A holder that is absent while its device still reports has ended, and is left out (`absent_holders.py`).
    """

    def __init__(self, results: QueryResults, rows: Sequence[int] | None = None) -> None:
        """`rows`: only these holders, present or not."""
        self.scheme = results.scheme
        self.results = results
        keys = results.holders.keys
        present = list_present_rows(results) if rows is None else list(rows)
        stale: dict[int, None] = {}
        if rows is None:
            previous = _list_stale_previous_rows(results, set(present))
            stale = dict.fromkeys((*list_stale_rows(results), *previous))
        self.rows = [*present, *stale]
        self.keys: list[HolderKey] = [keys[row] for row in self.rows]
        self.is_stale: Flags = np.arange(len(self.rows)) >= len(present)
        self._rows: Rows = np.array(self.rows, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, level: Level, quantity: Quantity, aggregation: Aggregation) -> Column:
        """A result column for these rows; of a device its own value, else that of its parent GPU."""
        if not self.results.has(level, quantity, aggregation):
            return repeat_value(np.nan, len(self))
        column = self.results.column(level, quantity, aggregation)
        if level is Level.HOLDER:
            return column if self._has_all_rows else column[self._rows]  # without a copy in most cycles
        padded = np.append(column, np.nan)  # row -1: no such device
        own, parents = padded[self._device_rows], self._parent_rows
        return own if parents is None else np.where(np.isfinite(own), own, padded[parents])

    def device_column(self, quantity: Quantity, aggregation: Aggregation) -> Column:
        """What the device reports of itself; DCGM reports it with the labels of the holder."""
        return self.column(self._device_level, quantity, aggregation)

    def reports(self, quantity: Quantity, aggregation: Aggregation) -> bool:
        """Whether any device reports this quantity of itself."""
        return self.results.has(self._device_level, quantity, aggregation)

    @property
    def _device_level(self) -> Level:
        return Level.HOLDER if self.scheme.names_holder else Level.DEVICE

    @cached_property
    def _has_all_rows(self) -> bool:
        """Whether these are all known rows, in their order."""
        return np.array_equal(self._rows, np.arange(len(self.results.holders)))

    @cached_property
    def details(self) -> list[HolderDetails]:
        """The details of each row: present ones, else the last known ones, else those shared by holders of its GPU."""
        present = self.results.present
        if all(map(present.__contains__, self.rows)):
            return [present[row] for row in self.rows]
        keys = self.results.holders.keys
        by_gpu = {_gpu_of(keys[row]): details.of_device() for row, details in present.items()}
        last = self.results.last_details
        return [present.get(row) or last.get(row) or by_gpu.get(_gpu_of(keys[row]), NO_DETAILS) for row in self.rows]

    @cached_property
    def device_details(self) -> list[DeviceDetails]:
        """The details of the device of each row."""
        known = self.results.device_details
        if not known:
            return [_NO_DEVICE_DETAILS] * len(self)
        return [known.get(row, _NO_DEVICE_DETAILS) for row in self._device_rows.tolist()]

    @cached_property
    def reported_by_two_nodes(self) -> Flags:
        return np.isin(self._rows, list(self.results.reported_by_two_nodes))

    @cached_property
    def is_mig(self) -> Flags:
        return np.array([bool(key.instance) for key in self.keys], dtype=bool)

    @cached_property
    def is_shared(self) -> Flags:
        """Rows whose device has or may have other holders. dcgm-exporter reports several with virtual GPUs only."""
        if self.scheme.shares_devices:
            return np.full(len(self), True)
        if self.scheme.names_holder:
            return self.holders_on_device > 1
        return np.array([details.share not in _NOT_SHARED for details in self.details], dtype=bool)

    @cached_property
    def device_numbers(self) -> NDArray[np.int64]:
        """Rows with the same number are on the same device."""
        return self.results.holders.number_devices()[self._rows]

    @cached_property
    def devices(self) -> RowGroups:
        """Rows on the same device."""
        return self._group(self.device_numbers)

    @cached_property
    def boards(self) -> RowGroups:
        """Rows on the same board, where the agent knows the parent of a MIG instance."""
        if not self.is_mig.any():
            return self.devices
        parents = (details.parent_uuid for details in self.device_details)
        numbers: dict[DeviceKey, int] = {}
        found = [
            numbers.setdefault(DeviceKey(parent, "", key.cluster) if parent else key.device, len(numbers))
            for parent, key in zip(parents, self.keys, strict=True)
        ]
        return self._group(np.array(found, np.int64))

    def _group(self, numbers: NDArray[np.int64]) -> RowGroups:
        """Containers of one pod do not count as others: their pod is the holder."""
        sizes = np.bincount(numbers, minlength=1)[numbers] if len(numbers) else numbers
        is_alone = np.asarray(sizes <= 1)
        pods: dict[int, set[tuple[str, str]]] = {}
        shared = np.flatnonzero(~is_alone).tolist()
        for row in shared:
            key = self.keys[row]
            pods.setdefault(int(numbers[row]), set()).add((key.namespace, key.pod))
        is_alone[shared] = [len(pods[int(numbers[row])]) == 1 for row in shared]
        return RowGroups(numbers, is_alone)

    @cached_property
    def holders_on_device(self) -> Column:
        """The number of rows on the device of each row."""
        return np.bincount(self.device_numbers, minlength=1)[self.device_numbers].astype(np.float64)

    @cached_property
    def _device_rows(self) -> Rows:
        return self.results.holders.find_devices(self.results.devices)[self._rows]

    @cached_property
    def _parent_rows(self) -> Rows | None:
        """For each row the row of its parent GPU, -1 for none; None: no row has one."""
        parents = [details.parent_uuid for details in self.device_details]
        if not any(parents):
            return None
        keys = [DeviceKey(parent, "", key.cluster) for parent, key in zip(parents, self.keys, strict=True)]
        rows = self.results.devices.find(keys)
        return np.where(np.array(parents, dtype=bool), rows, -1)


def count_devices(results: QueryResults) -> int:
    """Devices that report now, with a holder or without; 0 for HAMi, which does not report the latter."""
    if results.scheme.lists_allocations:
        return len(results.device_details)
    if not results.scheme.names_holder:
        return 0
    return len(np.unique(results.holders.number_devices()[list(results.present)]))


def list_present_rows(results: QueryResults) -> list[int]:
    """Holders that exist now."""
    rows, keys = _with_pod(results, list(results.present)), results.holders.keys
    clusters = {keys[row].cluster for row in rows}
    if len(clusters) < 2 or "" not in clusters:
        return rows
    # Not of holders that name their cluster now: an engine returns their earlier series for a while.
    named = {keys[row][:-1] for row in rows if keys[row].cluster}
    return [row for row in rows if keys[row].cluster or keys[row][:-1] not in named]


def _gpu_of(key: HolderKey) -> DeviceKey:
    return DeviceKey(key.uuid, "", key.cluster)


def list_unlisted_rows(results: QueryResults, ended: Collection[int] = ()) -> list[int]:
    """Holders with samples in the window, or of the last cycle, that are not present, without those that have ended."""
    return _list_missing(results, results.previous_rows, ended)


def list_stale_rows(results: QueryResults) -> list[int]:
    """Holders with samples in the window that are absent now, together with their device."""
    return _without_reporting_devices(results, _list_missing(results))


def list_ended_rows(results: QueryResults) -> list[int]:
    """Holders with samples in the window that are absent now, while their device reports."""
    if PRESENCE_NOW in results.failures:
        return []  # absence means nothing
    missing = _list_missing(results)
    if not missing:
        return []
    keys = results.holders.keys
    reporting = _list_reporting_devices(results)
    present = {keys[row][:-1] for row in results.present}  # without the cluster: one may have got another cluster name
    return [row for row in missing if keys[row].device in reporting and keys[row][:-1] not in present]


def _list_missing(results: QueryResults, further: Sequence[int] = (), known: Collection[int] = ()) -> list[int]:
    """Holders with samples in the window, and further ones, that are absent now, without the known ones."""
    is_missing = results.has_samples
    is_missing[list(further)] = True
    is_missing[[*results.present, *known]] = False
    return _with_pod(results, np.flatnonzero(is_missing).tolist())


def _with_pod(results: QueryResults, rows: list[int]) -> list[int]:
    keys, exporters = results.holders.keys, results.exporter_rows
    held = [row for row in rows if keys[row].pod]
    return [row for row in held if row not in exporters] if exporters else held


def _list_stale_previous_rows(results: QueryResults, present: set[int]) -> list[int]:
    """Holders of the last cycle that are absent now: the presence query failed, or their device has not reported for
    longer than the window. Neither means that they have ended."""
    if present.issuperset(results.previous_rows):
        return []  # most cycles
    missing = [row for row in results.previous_rows if row not in present]
    return missing if PRESENCE_NOW in results.failures else _without_reporting_devices(results, missing)


def _without_reporting_devices(results: QueryResults, rows: list[int]) -> list[int]:
    """The rows whose device does not report either."""
    if not rows:
        return []
    keys, previous = results.holders.keys, set(results.previous_rows)
    reporting = _list_reporting_devices(results)
    # Without their cluster: a stale one of the same names as one that is new has got another cluster name.
    renamed = {keys[row][:-1] for row in results.present if row not in previous} if previous else set()
    return [row for row in rows if keys[row].device not in reporting and keys[row][:-1] not in renamed]


def _list_reporting_devices(results: QueryResults) -> DeviceSet:
    keys = results.holders.keys
    reporting = DeviceSet(keys[row].device for row in results.present)
    reporting.update(results.devices.keys[row] for row in results.device_details)
    return reporting
