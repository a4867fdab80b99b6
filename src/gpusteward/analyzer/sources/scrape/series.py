"""The series of the targets: what their labels contain, and the series of one target in arrays."""

import re
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from gpusteward.analyzer.sources.scrape.page_parser import FAMILIES, MetricFamily
from gpusteward.analyzer.sources.usage.label_mapping import LabelMapping
from gpusteward.analyzer.sources.usage.quantities import MetricScheme
from gpusteward.analyzer.sources.usage.query_results import (
    DeviceDetails,
    DeviceKey,
    HolderDetails,
    HolderKey,
    LabelRowIndex,
    read_label,
    read_pod_labels,
)
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers
from gpusteward.analyzer.tables import NodeModel

UNIFIED_LABELS = LabelMapping(*(field.name for field in fields(LabelMapping)))
"""One name for each label, whatever an exporter calls it."""

Labels = Mapping[str, str]
Details = HolderDetails | DeviceDetails
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


@dataclass(frozen=True, slots=True)
class SeriesInfo:
    """What is kept of the labels of one series."""

    family: MetricFamily
    traits: int
    holder: int  # row among the holders of its scheme
    device: int  # row among all devices
    label_bytes: int  # of its line without the value
    details: Details | None = None  # of a series that shows which holders or devices exist
    fleet_key: NodeModel | None = None  # of a whole GPU


@dataclass(frozen=True, slots=True)
class RowIndexes:
    """Row numbers of all holders and devices at one time."""

    holders: Mapping[MetricScheme, LabelRowIndex[HolderKey]]
    devices: LabelRowIndex[DeviceKey]


class SeriesLabels:
    """Interprets the labels of series and numbers their holders and devices. One for all targets."""

    def __init__(self, condition: Matchers = ()) -> None:
        self.holders = {scheme: LabelRowIndex(UNIFIED_LABELS.holder) for scheme in MetricScheme}
        self.devices = LabelRowIndex(UNIFIED_LABELS.device)
        self._holder_matchers = holder_matchers(condition)
        self._device_matchers = device_matchers(condition)
        self._details: dict[Details, Details] = {}  # equal ones once: many series have the same
        self._fleet_keys: dict[NodeModel, NodeModel] = {}
        self.interpreted = 0  # series, also dropped ones, whose rows and texts are still here

    def copy_rows(self) -> RowIndexes:
        """The rows as they are now; later ones are not added."""
        return RowIndexes({scheme: keys.copy() for scheme, keys in self.holders.items()}, self.devices.copy())

    def interpret(self, family: MetricFamily, labels: Labels, mapping: LabelMapping, *, label_bytes: int) -> SeriesInfo:
        unified = _unify(labels, mapping)
        self.interpreted += 1
        return SeriesInfo(
            family,
            self._find_traits(labels, unified),
            self.holders[family.scheme].add_labels(unified),
            self.devices.add_labels(unified),
            label_bytes,
            self._read_details(family, labels, unified, mapping.pod_labels),
            self._read_fleet_key(family, labels, unified),
        )

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
            details = DeviceDetails._make(_select(labels, DEVICE_DETAIL_LABELS))
        elif family.shows_presence:
            names = detail_labels(family.scheme, UNIFIED_LABELS)
            details = HolderDetails._make(_select({**labels, **unified}, names))
            details = details._replace(pod_labels=read_pod_labels(labels, pod_labels))
        else:
            return None
        return self._details.setdefault(details, details)

    def _read_fleet_key(self, family: MetricFamily, labels: Labels, unified: Labels) -> NodeModel | None:
        if not _is_whole_gpu(family, labels, unified):
            return None
        key = NodeModel(unified["node"], unified["model"], unified["cluster"])
        return self._fleet_keys.setdefault(key, key)


def is_match(matcher: Matcher, labels: Labels) -> bool:
    """Whether labels satisfy a matcher; a missing label is empty."""
    value = labels.get(matcher.label, "")
    if matcher.operator in ("=", "!="):
        return (value == matcher.value) is (matcher.operator == "=")
    return bool(re.fullmatch(matcher.value, value)) is (matcher.operator == "=~")


def _unify(labels: Labels, mapping: LabelMapping) -> dict[str, str]:
    unified = {role: labels.get(getattr(mapping, role), "") for role in LabelMapping.__slots__}
    unified["uuid"] = read_label(labels, mapping.uuid)
    return unified


def _select(labels: Labels, names: Sequence[str]) -> list[str]:
    return [labels.get(name, "") for name in names]


def _is_whole_gpu(family: MetricFamily, labels: Labels, unified: Labels) -> bool:
    """Counts in the fleet. DCGM gives a MIG instance the uuid of its parent, so its series count too."""
    if family.scheme is MetricScheme.NATIVE:
        return family.shows_devices and not unified["instance"] and not labels.get("parent_uuid")
    return family.scheme is MetricScheme.DCGM and family.shows_gpus


class SeriesChoice(NamedTuple):
    """Series of a family about some holders or devices."""

    family: MetricFamily
    rows: Collection[int]  # of holders
    of_devices: bool = False  # ... or of devices
    traits: int = 0  # which they must have


class SeriesRows(NamedTuple):
    scheme: MetricScheme
    holder: int
    device: int


class SeriesTable:
    """The series of one target in columns: kept as objects, those of a thousand nodes would be 100 MB."""

    def __init__(self) -> None:
        self._family, self._traits = array("h"), array("B")
        self._holder, self._device = array("i"), array("i")
        self._details: list[Details | None] = []
        self._fleet_key: list[NodeModel | None] = []
        self._label_bytes = array("H")
        self.label_bytes = 0  # of all series
        self.value_bytes = 0  # of one sample of all series

    def __len__(self) -> int:
        return len(self._family)

    @property
    def families(self) -> set[int]:
        """Numbers of the families that have series."""
        return set(self._family)

    @property
    def family(self) -> NDArray[np.int16]:
        return np.array(self._family, np.int16)

    @property
    def traits(self) -> NDArray[np.uint8]:
        return np.array(self._traits, np.uint8)

    @property
    def holder(self) -> NDArray[np.int32]:
        return np.array(self._holder, np.int32)

    @property
    def device(self) -> NDArray[np.int32]:
        return np.array(self._device, np.int32)

    @property
    def details(self) -> NDArray[np.object_]:
        return _make_object_array(self._details)

    @property
    def fleet_key(self) -> NDArray[np.object_]:
        return _make_object_array(self._fleet_key)

    def add(self, info: SeriesInfo) -> int:
        """The number of a new series."""
        self._family.append(info.family.number)
        self._traits.append(info.traits)
        self._holder.append(info.holder)
        self._device.append(info.device)
        self._details.append(info.details)
        self._fleet_key.append(info.fleet_key)
        self._label_bytes.append(info.label_bytes)
        self.label_bytes += info.label_bytes
        self.value_bytes += info.family.value_bytes
        return len(self) - 1

    def keep(self, series: SeriesNumbers) -> None:
        """Only these, in this order."""
        kept = series.tolist()
        self._family = array("h", [self._family[row] for row in kept])
        self._traits = array("B", [self._traits[row] for row in kept])
        self._holder = array("i", [self._holder[row] for row in kept])
        self._device = array("i", [self._device[row] for row in kept])
        self._details = [self._details[row] for row in kept]
        self._fleet_key = [self._fleet_key[row] for row in kept]
        self._label_bytes = array("H", [self._label_bytes[row] for row in kept])
        self.label_bytes = sum(self._label_bytes)
        self.value_bytes = sum(FAMILIES[number].value_bytes for number in self._family)

    def is_chosen(self, series: int, choice: SeriesChoice) -> bool:
        row = (self._device if choice.of_devices else self._holder)[series]
        is_wanted = self._family[series] == choice.family.number and row in choice.rows
        return is_wanted and self._traits[series] & choice.traits == choice.traits

    def has_any(self, holders: Collection[int], devices: Collection[int] = ()) -> bool:
        """Whether a series is about one of these, or about a holder of the same number in another scheme."""
        return not (set(self._holder).isdisjoint(holders) and set(self._device).isdisjoint(devices))

    def list_rows(self) -> Iterable[SeriesRows]:
        for number, holder, device in zip(self._family, self._holder, self._device, strict=True):
            yield SeriesRows(FAMILIES[number].scheme, holder, device)

    def renumber(self, holders: Mapping[MetricScheme, NDArray[np.int32]], devices: NDArray[np.int32]) -> None:
        """Replace the row numbers of holders and devices: old number -> new number."""
        rows = zip(self._family, self._holder, strict=True)
        self._holder = array("i", [int(holders[FAMILIES[number].scheme][row]) for number, row in rows])
        self._device = array("i", [int(devices[row]) for row in self._device])


def _make_object_array(values: Sequence[object]) -> NDArray[np.object_]:
    return np.fromiter(values, object, len(values))
