"""The results of one cycle for one metric scheme, as columns over row numbers.

Filled from an engine by `promql.query_runner` and from scraped samples by `scrape.store_queries`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.usage.quantities import (
    EXCESSES,
    PRESENCE_IN_WINDOW,
    PRESENCE_NOW,
    PRESENCE_TIMES,
    Aggregation,
    Level,
    Quantity,
    QueryKey,
)
from gpusteward.analyzer.sources.usage.row_index import (
    DeviceDetails,
    DeviceKey,
    HolderDetails,
    HolderKey,
    RowIndex,
    Rows,
    ScrapeTarget,
)
from gpusteward.analyzer.tables import Column, repeat_value
from gpusteward.core.messages import Message

Flags = NDArray[np.bool_]
_NO_ROWS: Column = np.empty(0)
_OUTSIDE_WINDOW = (Aggregation.LAST, *EXCESSES)
"""What is no sample of a signal in the window."""


@dataclass(frozen=True, slots=True)
class ResultChunk:
    """A part of a query result by rows: values in base units, or the details of holders or devices."""

    key: QueryKey
    rows: Rows
    values: Column | None = None
    holder_details: Sequence[HolderDetails] = ()
    device_details: Sequence[DeviceDetails] = ()
    missing_stores: frozenset[str] = frozenset()  # of a distributed engine: they did not respond
    targets: Sequence[ScrapeTarget] = ()  # of counted samples, where targets have different intervals
    times: Sequence[Column] = ()  # of samples, where these are queried


@dataclass
class SampleTimes:
    """The times of samples in the window, in unix seconds, as far as they were queried."""

    holders: dict[int, dict[str, list[Column]]] = field(default_factory=dict)  # row -> uid of the pod -> of each series
    devices: dict[DeviceKey, list[Column]] = field(default_factory=dict)  # with any holder or without

    def add(self, row: int, pod_uid: str, times: Column) -> None:
        self.holders.setdefault(row, {}).setdefault(pod_uid, []).append(times)

    def keep(self, rows: Collection[int]) -> None:
        """Of holders only these."""
        self.holders = {row: self.holders[row] for row in rows if row in self.holders}


@dataclass
class QueryResults:
    """All results about one metric scheme in one cycle; the row indexes are kept from cycle to cycle."""

    holders: RowIndex[HolderKey]
    devices: RowIndex[DeviceKey]
    present: dict[int, HolderDetails] = field(default_factory=dict)  # holder rows that exist now
    device_details: dict[int, DeviceDetails] = field(default_factory=dict)  # device rows that exist now
    reported_by_two_nodes: set[int] = field(default_factory=set)  # holder rows; only one node can have the device
    failures: dict[QueryKey, Message] = field(default_factory=dict)  # reasons
    missing_stores: dict[QueryKey, frozenset[str]] = field(default_factory=dict)  # of partial responses
    exporter_rows: set[int] = field(default_factory=set)
    """Holder rows that name the exporter's own pod, by relabeling: nobody holds their device."""
    hit_limit: bool = False  # the engine refused a query because it selects too much
    lacks_video: bool = False  # the scheme has no signal of video engines
    previous_rows: Sequence[int] = ()  # holder rows of earlier cycles that are not known to have ended
    last_details: dict[int, HolderDetails] = field(default_factory=dict)  # of holder rows that do not exist now
    counted: list[ResultChunk] = field(default_factory=list)  # samples by target, where the intervals differ
    seen: SampleTimes = field(default_factory=SampleTimes)
    _columns: dict[QueryKey, Column] = field(default_factory=dict)

    def add(self, chunk: ResultChunk) -> None:
        """Merge a part of a query result."""
        if chunk.missing_stores:
            known = self.missing_stores.get(chunk.key, frozenset())
            self.missing_stores[chunk.key] = known | chunk.missing_stores
        if chunk.key == PRESENCE_TIMES:
            self._add_times(chunk)
        elif chunk.values is not None:
            if chunk.targets:
                self.counted.append(chunk)
            self.add_values(chunk.key, chunk.rows, chunk.values)
        elif chunk.key == PRESENCE_IN_WINDOW:
            self.last_details.update(zip(chunk.rows.tolist(), chunk.holder_details, strict=True))
        elif chunk.key == PRESENCE_NOW:
            self.add_present(zip(chunk.rows.tolist(), chunk.holder_details, strict=True))
        else:
            self.device_details.update(zip(chunk.rows.tolist(), chunk.device_details, strict=True))

    def add_values(self, key: QueryKey, rows: Rows, values: Column) -> None:
        """Merge values in base units; of several values for one row the largest is kept."""
        self._columns.setdefault(key, _NO_ROWS)
        np.fmax.at(self._grow(key, len(self.holders if key.level is Level.HOLDER else self.devices)), rows, values)

    def _add_times(self, chunk: ResultChunk) -> None:
        for row, details, times in zip(chunk.rows.tolist(), chunk.holder_details, chunk.times, strict=True):
            key = self.holders.keys[row]
            self.seen.devices.setdefault(key.device, []).append(times)
            if key.pod:
                self.last_details[row] = details
                self.seen.add(row, details.pod_uid, times)

    def fill_gaps(self, key: QueryKey, column: Column) -> None:
        """Use values of an earlier cycle where this one has none."""
        now = self._grow(key, max(len(column), len(self._columns.get(key, _NO_ROWS))))
        now[: len(column)] = np.where(np.isnan(now[: len(column)]), column, now[: len(column)])

    def add_present(self, holders: Iterable[tuple[int, HolderDetails]]) -> None:
        """Holders that exist now. Two exporters may report the same device, but only one node can have it."""
        present = self.present
        for row, details in holders:
            if (first := present.setdefault(row, details)) is not details and first.node != details.node:
                self.reported_by_two_nodes.add(row)

    @property
    def has_samples(self) -> Flags:
        """Which holder rows have a sample of any signal in the window."""
        found = np.zeros(len(self.holders), dtype=bool)
        for key, column in self._columns.items():
            # The excess of a window is computed from samples before it too.
            if key.level is Level.HOLDER and key.aggregation not in _OUTSIDE_WINDOW:
                found[: len(column)] |= np.isfinite(column)
        return found

    @property
    def is_empty(self) -> bool:
        """Whether no query returned anything."""
        return not self.present and not self._columns

    def list_keys(self) -> list[QueryKey]:
        """The columns that have values."""
        return list(self._columns)

    def has(self, level: Level, quantity: Quantity, aggregation: Aggregation) -> bool:
        return (level, quantity, aggregation) in self._columns

    def column(self, level: Level, quantity: Quantity, aggregation: Aggregation) -> Column:
        """One value per row, NaN where there is none."""
        key = QueryKey(level, quantity, aggregation)
        size = len(self.holders if level is Level.HOLDER else self.devices)
        return self._grow(key, size) if key in self._columns else repeat_value(np.nan, size)

    def _grow(self, key: QueryKey, size: int) -> Column:
        """The column, extended to the present number of rows."""
        column = self._columns.get(key, _NO_ROWS)
        if len(column) < size:
            column = self._columns[key] = np.concatenate((column, np.full(size - len(column), np.nan)))
        return column
