"""The series of the targets: what their labels contain, and the series of one target in arrays."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from enum import IntFlag
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.promql.query_plan import (
    DEVICE_DETAIL_LABELS,
    detail_labels,
    device_matchers,
    holder_matchers,
)
from gpusteward.analyzer.sources.scrape.page_parser import FAMILIES, FIRST_OF_SERVERS, MetricFamily
from gpusteward.analyzer.sources.usage.inference_servers import ServerPodName
from gpusteward.analyzer.sources.usage.label_mapping import LabelMapping
from gpusteward.analyzer.sources.usage.query_results import (
    DeviceDetails,
    DeviceKey,
    HolderDetails,
    HolderKey,
    LabelRowIndex,
    read_label,
    read_pod_labels,
)
from gpusteward.analyzer.sources.usage.schemes import SCHEMES, MetricScheme
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers
from gpusteward.analyzer.tables import NodeModel

UNIFIED_LABELS = LabelMapping(*(field.name for field in fields(LabelMapping)))
"""One name for each label, whatever an exporter calls it."""

Labels = Mapping[str, str]


class ServerLabels(NamedTuple):
    """What the labels of a series of an inference server say."""

    pod: ServerPodName
    is_named_by_target: bool  # a page says itself which pod it is of, and may say what it likes
    others: tuple[tuple[str, str], ...]


Details = HolderDetails | DeviceDetails | ServerLabels
SeriesNumbers = NDArray[np.int64]


class SeriesTrait(IntFlag):
    """Properties that the queries of a cycle select series by."""

    HAS_POD = 1
    IS_MIG = 2
    BY_CONTAINER = 4
    BY_UNATTRIBUTED = 8
    BY_HOST = 16
    FOR_HOLDERS = 32  # matches prometheus.query_condition as far as it is about holders
    FOR_DEVICES = 64  # ... as far as it is about devices


class SeriesInfo(NamedTuple):
    """What is kept of the labels of one series."""

    family: int  # its number
    traits: int
    holder: int  # row among the holders of its scheme; -1: none
    device: int  # row among all devices; -1: none
    label_bytes: int  # of its line without the value, as `count_text_bytes` counts them
    details: Details | None  # of a series that shows which holders or devices exist, or of an inference server
    fleet_key: NodeModel | None  # of a whole GPU


_SERIES = np.dtype(
    [
        ("family", np.int16),
        ("traits", np.uint8),
        ("holder", np.int32),
        ("device", np.int32),
        ("label_bytes", np.uint32),
        ("details", object),
        ("fleet_key", object),
    ]
)
"""A `SeriesInfo` in an array: kept as objects, the series of a thousand nodes would be 100 MB."""
_VALUE_BYTES = np.array([family.value_bytes for family in FAMILIES])


def count_text_bytes(line: bytes) -> int:
    """How much memory its labels may take: Python keeps a text with one rare character in four bytes per character."""
    return len(line) if line.isascii() else 4 * len(line)


@dataclass(frozen=True, slots=True)
class RowIndexes:
    """Row numbers of all holders and devices at one time."""

    holders: Mapping[MetricScheme, LabelRowIndex[HolderKey]]
    devices: LabelRowIndex[DeviceKey]


class SeriesLabels:
    """Interprets the labels of series and numbers their holders and devices. One for all targets."""

    def __init__(self, condition: Matchers = ()) -> None:
        self.holders = {scheme: LabelRowIndex(UNIFIED_LABELS.holder) for scheme in SCHEMES}
        self.devices = LabelRowIndex(UNIFIED_LABELS.device)
        self._holder_matchers = holder_matchers(condition)
        self._device_matchers = device_matchers(condition)
        self._details: dict[Details, Details] = {}  # equal ones once: many series have the same
        self._fleet_keys: dict[NodeModel, NodeModel] = {}
        self.interpreted = 0  # series, also dropped ones, whose rows and texts are still here
        self.interpreted_bytes = 0  # of their labels

    def copy_rows(self) -> RowIndexes:
        """The rows as they are now; later ones are not added."""
        return RowIndexes({scheme: keys.copy() for scheme, keys in self.holders.items()}, self.devices.copy())

    def interpret(self, family: MetricFamily, labels: Labels, mapping: LabelMapping, *, label_bytes: int) -> SeriesInfo:
        assert family.scheme is not None
        self.interpreted += 1
        self.interpreted_bytes += label_bytes
        unified = {role: labels.get(getattr(mapping, role), "") for role in LabelMapping.__slots__}
        unified["uuid"] = read_label(labels, mapping.uuid)
        fleet_key = None
        if _is_whole_gpu(family, labels, unified):
            fleet_key = NodeModel(unified["node"], unified["model"], unified["cluster"])
        return SeriesInfo(
            family.number,
            self._find_traits(labels, unified),
            self.holders[family.scheme].add_labels(unified),
            self.devices.add_labels(unified),
            label_bytes,
            self._read_details(family, labels, unified, mapping.pod_labels),
            None if fleet_key is None else self._fleet_keys.setdefault(fleet_key, fleet_key),
        )

    def interpret_server(self, family: MetricFamily, labels: ServerLabels, *, label_bytes: int) -> SeriesInfo:
        self.interpreted += 1
        self.interpreted_bytes += label_bytes
        return SeriesInfo(family.number, 0, -1, -1, label_bytes, self._details.setdefault(labels, labels), None)

    def _find_traits(self, labels: Labels, unified: Labels) -> int:
        by = labels.get("by")
        found = (
            (SeriesTrait.HAS_POD, unified["pod"] != ""),
            (SeriesTrait.IS_MIG, unified["instance"] != ""),
            (SeriesTrait.BY_CONTAINER, by == "container"),
            (SeriesTrait.BY_UNATTRIBUTED, by == "unattributed"),
            (SeriesTrait.BY_HOST, by == "host"),
            (SeriesTrait.FOR_HOLDERS, all(is_match(matcher, labels) for matcher in self._holder_matchers)),
            (SeriesTrait.FOR_DEVICES, all(is_match(matcher, labels) for matcher in self._device_matchers)),
        )
        return sum(trait for trait, is_set in found if is_set)  # of plain numbers: this is done for every new series

    def _read_details(self, family: MetricFamily, labels: Labels, unified: Labels, pod_labels: str) -> Details | None:
        details: Details
        if family.shows_devices:
            details = DeviceDetails._make(labels.get(name, "") for name in DEVICE_DETAIL_LABELS)
        elif family.shows_presence and family.scheme is not None:
            every = {**labels, **unified}
            details = HolderDetails._make(every.get(name, "") for name in detail_labels(family.scheme, UNIFIED_LABELS))
            details = details._replace(pod_labels=read_pod_labels(labels, pod_labels))
        else:
            return None
        return self._details.setdefault(details, details)


def is_match(matcher: Matcher, labels: Labels) -> bool:
    """Whether labels satisfy a matcher; a missing label is empty."""
    value = labels.get(matcher.label, "")
    if matcher.operator in ("=", "!="):
        return (value == matcher.value) is (matcher.operator == "=")
    return bool(re.fullmatch(matcher.value, value)) is (matcher.operator == "=~")


def _is_whole_gpu(family: MetricFamily, labels: Labels, unified: Labels) -> bool:
    """Counts in the fleet. DCGM gives a MIG instance the uuid of its parent, so its series count too."""
    assert family.scheme is not None
    if family.scheme.lists_allocations:
        return family.shows_devices and not unified["instance"] and not labels.get("parent_uuid")
    return family.scheme.names_holder and family.shows_gpus


class SeriesChoice(NamedTuple):
    """Series of a family about some holders or devices."""

    family: MetricFamily
    rows: Collection[int]  # of holders
    of_devices: bool = False  # ... or of devices
    traits: int = 0  # which they must have


class SeriesTable:
    """The series of one target, by their numbers."""

    def __init__(self) -> None:
        self._rows = np.empty(0, _SERIES)
        self._new: list[SeriesInfo] = []

    def __len__(self) -> int:
        return len(self._rows) + len(self._new)

    @property
    def rows(self) -> NDArray[np.void]:
        """An array of `SeriesInfo`."""
        if self._new:
            self._rows, self._new = np.concatenate((self._rows, np.array(self._new, _SERIES))), []
        return self._rows

    @property
    def label_bytes(self) -> int:
        """Of all series."""
        return int(self.rows["label_bytes"].sum(dtype=np.int64))

    @property
    def value_bytes(self) -> int:
        """Of one sample of all series."""
        return int(_VALUE_BYTES[self.rows["family"]].sum())

    def add(self, info: SeriesInfo) -> int:
        """The number of a new series."""
        self._new.append(info)
        return len(self) - 1

    def keep(self, is_kept: NDArray[np.bool_]) -> None:
        """Only these, in their order."""
        self._rows = self.rows[is_kept]

    def find_servers(self) -> SeriesNumbers:
        """The series of inference servers."""
        return np.flatnonzero(self.rows["family"] >= FIRST_OF_SERVERS)

    def choose(self, choice: SeriesChoice) -> NDArray[np.bool_]:
        """Which series are chosen."""
        rows = self.rows
        is_chosen = np.isin(rows["device" if choice.of_devices else "holder"], list(choice.rows))
        is_chosen &= rows["family"] == choice.family.number
        is_chosen &= (rows["traits"] & choice.traits) == choice.traits
        return is_chosen

    def has_any(self, holders: Collection[int], devices: Collection[int] = ()) -> bool:
        """Whether a series is about one of these, or about a holder of the same number in another scheme."""
        own = set(self.rows["holder"].tolist()), set(self.rows["device"].tolist())
        return not (own[0].isdisjoint(holders) and own[1].isdisjoint(devices))

    def find_holders(self, scheme: MetricScheme) -> NDArray[np.bool_]:
        """Which series name their holder by the rows of this scheme."""
        return np.isin(self.rows["family"], [family.number for family in FAMILIES if family.scheme is scheme])

    def renumber(self, holders: Mapping[MetricScheme, NDArray[np.int32]], devices: NDArray[np.int32]) -> None:
        """Replace the row numbers of holders and devices: old number -> new number; -1 stays."""
        for scheme, numbers in holders.items():
            own = self.find_holders(scheme)
            self.rows["holder"][own] = numbers[self.rows["holder"][own]]
        self.rows["device"] = np.append(devices, np.int32(-1))[self.rows["device"]]
