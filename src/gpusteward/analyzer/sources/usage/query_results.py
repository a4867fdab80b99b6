"""Keys of holders and devices, their row numbers, and the results of one cycle as columns over these numbers.

A holder is a container on a device; a device is a GPU or a MIG instance. Each gets a row number when it is first seen,
which stays the same from cycle to cycle.

Filled from an engine by `promql.query_runner` and from scraped samples by `scrape.store_queries`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar, cast

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
from gpusteward.analyzer.sources.usage.schemes import MetricScheme
from gpusteward.analyzer.tables import Column, repeat_value
from gpusteward.core.messages import Message

Rows = NDArray[np.int64]
MAX_LABEL_LENGTH = 253
"""The rest is cut off. Names in Kubernetes are not longer, and labels are repeated in every response about their
allocation."""


class DeviceKey(NamedTuple):
    """Identifies a GPU or a MIG instance."""

    uuid: str
    instance: str  # MIG instance id, "" on a whole GPU
    cluster: str = ""  # cloned and simulated clusters have the same uuids


class DeviceSet:
    """Devices of all clusters. One exporter may name the cluster of a device and another one may not, and a site may
    begin to name it: a device without a cluster is the same as one of any cluster."""

    def __init__(self, devices: Iterable[DeviceKey] = ()) -> None:
        self._devices: set[DeviceKey] = set()
        self._named: set[tuple[str, str]] = set()  # without their cluster
        self._without_cluster: set[tuple[str, str]] = set()
        self.update(devices)

    def update(self, devices: Iterable[DeviceKey]) -> None:
        for device in devices:
            self._devices.add(device)
            (self._named if device.cluster else self._without_cluster).add((device.uuid, device.instance))

    def __contains__(self, device: DeviceKey) -> bool:
        name = (device.uuid, device.instance)
        return device in self._devices or name in (self._without_cluster if device.cluster else self._named)


class HolderKey(NamedTuple):
    """Identifies a container on a device."""

    uuid: str
    instance: str
    namespace: str
    pod: str
    container: str
    cluster: str = ""

    @property
    def device(self) -> DeviceKey:
        return DeviceKey(self.uuid, self.instance, self.cluster)

    @property
    def pod_key(self) -> "PodKey":
        return PodKey(self.namespace, self.pod, self.cluster)


class PodKey(NamedTuple):
    """Identifies a pod by its names."""

    namespace: str
    name: str
    cluster: str = ""


class HolderDetails(NamedTuple):
    """What the labels of a presence series say beyond the key. The last six come from gpusteward's agent only."""

    node: str = ""
    gpu: str = ""  # index on the node
    model: str = ""
    job: str = ""
    pod_uid: str = ""
    workload_kind: str = ""
    workload: str = ""
    share: str = ""
    user: str = ""
    used_by: str = ""  # the pod that uses the GPU in place of the holder
    pod_labels: str = ""  # those that are read, as `read_pod_labels` joins them

    def of_device(self) -> "HolderDetails":
        """The part that is the same for every holder of the device."""
        return HolderDetails(self.node, self.gpu, self.model, self.job)


class DeviceDetails(NamedTuple):
    """What the labels of a device's info series say beyond the key."""

    parent_uuid: str = ""  # of a MIG instance
    model: str = ""


class ScrapeTarget(NamedTuple):
    """A scraped exporter, as the engine labels its series."""

    job: str
    instance: str = ""
    cluster: str = ""


class PodLabelNames(str):
    """Names of labels of pods, joined by commas, where other details have the name of one label."""

    __slots__ = ()


def read_label(labels: Mapping[str, str], name: str) -> str:
    """The value of a label. Of several, joined by commas, all values: they identify a GPU whose series have no UUID."""
    if "," not in name:
        return labels.get(name, "")
    values = [labels.get(each, "") for each in name.split(",")]
    return "/".join(values) if all(values) else ""


def split_label(name: str, value: str) -> Iterable[tuple[str, str]]:
    """The labels that such a value was read from, with their values."""
    names = name.split(",")
    return zip(names, value.rsplit("/", len(names) - 1), strict=False)


_LABEL_END = "\x1f"


def read_pod_labels(labels: Mapping[str, str], names: str) -> str:
    """These labels of a series in one text; empty ones do not exist."""
    found = ((name, labels.get(name, "")[:MAX_LABEL_LENGTH]) for name in names.split(","))
    return _LABEL_END.join(f"{name}={value.replace(_LABEL_END, '?')}" for name, value in found if value)


def split_pod_labels(text: str) -> tuple[tuple[str, str], ...]:
    """Names and values of the labels in such a text."""
    pairs = (each.partition("=") for each in text.split(_LABEL_END)) if text else ()
    return tuple((name, value) for name, _, value in pairs)


def find_label(labels: Mapping[str, str], names: Sequence[str]) -> str:
    """The value of the first of these labels that the series has."""
    if names and isinstance(names[0], PodLabelNames):
        return read_pod_labels(labels, names[0])
    return next((value for name in names if (value := labels.get(name))), "")[:MAX_LABEL_LENGTH]


K = TypeVar("K", bound=HolderKey | DeviceKey)

_UNSHARED = 0
"""The part of a key that is not looked up among equal strings: hardly two rows have the same uuid."""


class RowIndex(ABC, Generic[K]):
    """Row numbers by key, in the order the keys were first seen."""

    def __init__(self, labels: K) -> None:
        """`labels`: the name of the label that holds each part of the key."""
        self._labels = labels
        self._make = cast("Callable[[Iterable[str]], K]", type(labels)._make)
        self._share = _make_sharing()
        self._parts = [(name, str if part == _UNSHARED else self._share) for part, name in enumerate(labels)]
        self.keys: list[K] = []
        self._device_numbers: Rows = np.empty(0, np.int64)
        self._device_rows: _DeviceRows | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @abstractmethod
    def find(self, keys: Sequence[K]) -> Rows:
        """The row of each key, -1 for an unknown one."""

    @abstractmethod
    def add(self, keys: Sequence[K]) -> Rows:
        """The row of each key; unknown keys get new rows."""

    def number_devices(self: "RowIndex[HolderKey]") -> Rows:
        """For each row a number; rows with the same number are on the same device."""
        if len(self._device_numbers) != len(self.keys):
            numbers: dict[DeviceKey, int] = {}
            found = (numbers.setdefault(key.device, len(numbers)) for key in self.keys)
            self._device_numbers = np.fromiter(found, np.int64, len(self.keys))
        return self._device_numbers

    def find_devices(self: "RowIndex[HolderKey]", devices: "RowIndex[DeviceKey]") -> Rows:
        """For each row the row of its device, -1 for an unknown one. Searched again when there are new rows."""
        found = self._device_rows
        sizes = len(self.keys), len(devices)
        if found is None or found.devices is not devices or found.sizes != sizes:
            rows = devices.find([key.device for key in self.keys])
            found = self._device_rows = _DeviceRows(devices, sizes, rows)
        return found.rows

    def _read_key(self, labels: Mapping[str, str]) -> K:
        return self._make([share(read_label(labels, name)[:MAX_LABEL_LENGTH]) for name, share in self._parts])


class _DeviceRows(NamedTuple):
    """The rows of devices, found when the two indexes had these sizes."""

    devices: RowIndex[DeviceKey]
    sizes: tuple[int, int]
    rows: Rows


def _make_sharing() -> Callable[[str], str]:
    """Keeps equal strings once: namespaces and nodes repeat by the thousand.

    A closure and not a bound method: a method would form a reference cycle that keeps the keys until the next garbage
    collection.
    """
    same: dict[str, str] = {}
    return lambda text: same.setdefault(text, text)


class LabelRowIndex(RowIndex[K]):
    """Rows by parsed labels, one series at a time."""

    def __init__(self, labels: K) -> None:
        super().__init__(labels)
        self._by_key: dict[K, int] = {}

    def find(self, keys: Sequence[K]) -> Rows:
        return np.fromiter((self._by_key.get(key, -1) for key in keys), np.int64, len(keys))

    def add(self, keys: Sequence[K]) -> Rows:
        return np.fromiter(map(self.add_key, keys), np.int64, len(keys))

    def add_key(self, key: K) -> int:
        """The row of this key, a new one if it is unknown."""
        row = self._by_key.get(key)
        if row is None:
            row = len(self.keys)
            self._by_key[key] = row
            self.keys.append(key)
        return row

    def add_labels(self, labels: Mapping[str, str]) -> int:
        """The row of these labels, a new one if it is unknown."""
        return self.add_key(self._read_key(labels))

    def copy(self) -> "LabelRowIndex[K]":
        """The rows as they are now, to read while another thread adds."""
        made = LabelRowIndex(self._labels)
        made._by_key, made.keys = self._by_key.copy(), self.keys.copy()
        return made


Flags = NDArray[np.bool_]
_NO_ROWS: Column = np.empty(0)
_OUTSIDE_WINDOW = (Aggregation.LAST, *EXCESSES)
"""What is no sample of a signal in the window."""


@dataclass(frozen=True, slots=True)
class ResultChunk:
    """A part of a query result by rows: values in base units, or details."""

    key: QueryKey
    rows: Rows
    values: Column | None = None
    details: Sequence[Any] = ()  # of holders or devices; of counted samples the target, where targets differ
    missing_stores: frozenset[str] = frozenset()  # of a distributed engine: they did not respond
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

    scheme: MetricScheme
    holders: RowIndex[HolderKey]
    devices: RowIndex[DeviceKey]
    reports_unheld_devices: bool = False  # whether devices without a holder have samples too
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
            for row, details, times in zip(chunk.rows.tolist(), chunk.details, chunk.times, strict=True):
                holder = self.holders.keys[row]
                self.seen.devices.setdefault(holder.device, []).append(times)
                if holder.pod:
                    self.last_details[row] = details
                    self.seen.add(row, details.pod_uid, times)
        elif chunk.values is not None:
            if chunk.details:
                self.counted.append(chunk)
            self.add_values(chunk.key, chunk.rows, chunk.values)
        elif chunk.key == PRESENCE_IN_WINDOW:
            self.last_details.update(zip(chunk.rows.tolist(), chunk.details, strict=True))
        elif chunk.key == PRESENCE_NOW:
            self.add_present(zip(chunk.rows.tolist(), chunk.details, strict=True))
        else:
            self.device_details.update(zip(chunk.rows.tolist(), chunk.details, strict=True))

    def add_values(self, key: QueryKey, rows: Rows, values: Column) -> None:
        """Merge values in base units; of several values for one row the largest is kept."""
        self._columns.setdefault(key, _NO_ROWS)
        np.fmax.at(self._grow(key, len(self.holders if key.level is Level.HOLDER else self.devices)), rows, values)

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
