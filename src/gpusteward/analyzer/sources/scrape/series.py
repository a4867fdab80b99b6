"""What one series is about: which family, whose, of which device, and what its labels say besides."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag

from gpusteward.analyzer.sources.promql.query_plan import (
    DEVICE_DETAIL_LABELS,
    detail_labels,
    device_matchers,
    holder_matchers,
)
from gpusteward.analyzer.sources.scrape.metric_filter import Wanted
from gpusteward.analyzer.sources.usage.label_mapping import LabelMapping
from gpusteward.analyzer.sources.usage.metric_schemes import MetricScheme
from gpusteward.analyzer.sources.usage.row_index import (
    DeviceDetails,
    DeviceKey,
    HolderDetails,
    HolderKey,
    LabelRowIndex,
)
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers

ROLES = LabelMapping("uuid", "instance", "namespace", "pod", "container", "node", "gpu", "model", "job")
"""Labels under one name each, whatever an exporter calls them."""

Labels = Mapping[str, str]
Details = HolderDetails | DeviceDetails
Place = tuple[str, str]  # node, model


class Trait(IntFlag):
    """What the questions of a cycle tell series apart by."""

    HELD = 1  # by a pod
    SLICED = 2  # about a MIG instance
    IN_CONTAINER = 4
    UNATTRIBUTED = 8
    OF_HOLDERS = 16  # the condition of the settings lets it speak of holders
    OF_DEVICES = 32  # and of devices


@dataclass(frozen=True, slots=True)
class Fact:
    """One series, as far as anybody asks."""

    family: Wanted
    traits: int
    holder: int  # row among the holders of its dialect
    device: int  # row among all devices
    label_bytes: int  # of its line without the value
    said: Details | None = None  # at a roll call, or by a device of itself
    place: Place | None = None  # of a whole GPU: counted in the fleet


@dataclass(frozen=True, slots=True)
class Rows:
    """Every holder and device by number, as of one moment."""

    holders: Mapping[MetricScheme, LabelRowIndex[HolderKey]]
    devices: LabelRowIndex[DeviceKey]


class Clerk:
    """Knows every holder and device by number. One for all targets."""

    def __init__(self, condition: Matchers = ()) -> None:
        self.holders = {scheme: LabelRowIndex(ROLES.holder) for scheme in MetricScheme}
        self.devices = LabelRowIndex(ROLES.device)
        self._for_holders = holder_matchers(condition)
        self._for_devices = device_matchers(condition)
        self._same: dict[Details, Details] = {}  # equal texts once: many series say the same
        self._places: dict[Place, Place] = {}
        self.filed_bytes = 0  # of labels, those of series long gone too

    def __len__(self) -> int:
        """Holders that are known, and texts that are shared."""
        return sum(map(len, self.holders.values())) + len(self._same) + len(self._places)

    def list_rows(self) -> Rows:
        """Who is known now; later ones are not added."""
        return Rows({scheme: keys.copy() for scheme, keys in self.holders.items()}, self.devices.copy())

    def file(self, family: Wanted, labels: Labels, mapping: LabelMapping, *, label_bytes: int) -> Fact:
        """What a series with these labels is about."""
        self.filed_bytes += label_bytes
        roles = _read_roles(labels, mapping)
        place = (roles["node"], roles["model"])
        return Fact(
            family,
            self._find_traits(labels, roles),
            self.holders[family.scheme].add_labels(roles),
            self.devices.add_labels(roles),
            label_bytes,
            self._read_details(family, labels, roles),
            self._places.setdefault(place, place) if _is_whole(family, labels, roles) else None,
        )

    def _find_traits(self, labels: Labels, roles: Labels) -> int:
        traits = Trait(0)
        for trait, is_so in (
            (Trait.HELD, roles["pod"] != ""),
            (Trait.SLICED, roles["instance"] != ""),
            (Trait.IN_CONTAINER, labels.get("by") == "container"),
            (Trait.UNATTRIBUTED, labels.get("by") == "unattributed"),
            (Trait.OF_HOLDERS, all(fits(matcher, labels) for matcher in self._for_holders)),
            (Trait.OF_DEVICES, all(fits(matcher, labels) for matcher in self._for_devices)),
        ):
            traits |= trait if is_so else Trait(0)
        return int(traits)

    def _read_details(self, family: Wanted, labels: Labels, roles: Labels) -> Details | None:
        if family.is_identity:
            return self._share(DeviceDetails._make(_take(labels, DEVICE_DETAIL_LABELS)))
        if not family.is_called:
            return None
        return self._share(HolderDetails._make(_take({**labels, **roles}, detail_labels(family.scheme, ROLES))))

    def _share(self, texts: Details) -> Details:
        return self._same.setdefault(texts, texts)


def fits(matcher: Matcher, labels: Labels) -> bool:
    """Whether labels meet a condition; a label that is not there is empty."""
    value = labels.get(matcher.label, "")
    if matcher.operator in ("=", "!="):
        return (value == matcher.value) is (matcher.operator == "=")
    return bool(re.fullmatch(matcher.value, value)) is (matcher.operator == "=~")


def _read_roles(labels: Labels, mapping: LabelMapping) -> dict[str, str]:
    return {role: labels.get(getattr(mapping, role), "") for role in LabelMapping.__slots__}


def _take(labels: Labels, names: Sequence[str]) -> list[str]:
    return [labels.get(name, "") for name in names]


def _is_whole(family: Wanted, labels: Labels, roles: Labels) -> bool:
    """A device that counts in the fleet; DCGM names a MIG instance by its parent's uuid, so that counts too."""
    if family.scheme is MetricScheme.NATIVE:
        return family.is_identity and not roles["instance"] and not labels.get("parent_uuid")
    return family.scheme is MetricScheme.DCGM and family.is_called
