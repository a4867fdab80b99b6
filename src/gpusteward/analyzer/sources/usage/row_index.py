"""Keys of holders and devices, and their row numbers.

A holder is a container on a device; a device is a GPU or a MIG instance. Each gets a row number when it is first seen,
and query results are columns over these numbers. Row numbers stay the same from cycle to cycle.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

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


class HolderDetails(NamedTuple):
    """What the labels of a presence series say beyond the key. The last five come from gpusteward's agent only."""

    node: str = ""
    gpu: str = ""  # index on the node
    model: str = ""
    job: str = ""
    pod_uid: str = ""
    workload_kind: str = ""
    workload: str = ""
    share: str = ""
    user: str = ""
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
