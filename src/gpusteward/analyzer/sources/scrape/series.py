"""What one series is about: which family, whose, of which device, and what its labels say besides."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag

from gpusteward.analyzer.sources.promql.matchers import Matcher, Matchers
from gpusteward.analyzer.sources.promql.plan import DEVICE_DETAILS, NATIVE_DETAILS, asks_devices, asks_holders
from gpusteward.analyzer.sources.scrape.metric_filter import Wanted
from gpusteward.analyzer.sources.usage.dialects import Dialect
from gpusteward.analyzer.sources.usage.keys import Details, LabelKeys
from gpusteward.analyzer.sources.usage.label_mapping import Spelling

ROLES = Spelling("uuid", "instance", "namespace", "pod", "container", "node", "gpu", "model", "job")
"""Labels under one name each, whatever an exporter calls them."""

Labels = Mapping[str, str]
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

    holders: Mapping[Dialect, LabelKeys]
    devices: LabelKeys


class Clerk:
    """Knows every holder and device by number. One for all targets."""

    def __init__(self, condition: Matchers = ()) -> None:
        self.holders = {dialect: LabelKeys(ROLES.holder) for dialect in Dialect}
        self.devices = LabelKeys(ROLES.device)
        self._for_holders = asks_holders(condition)
        self._for_devices = asks_devices(condition)
        self._same: dict[Details, Details] = {}  # equal texts once: many series say the same
        self._places: dict[Place, Place] = {}
        self.filed_bytes = 0  # of labels, those of series long gone too

    def __len__(self) -> int:
        """Holders that are known, and texts that are shared."""
        return sum(map(len, self.holders.values())) + len(self._same) + len(self._places)

    def list_rows(self) -> Rows:
        """Who is known now; later ones are not added."""
        return Rows({dialect: keys.copy() for dialect, keys in self.holders.items()}, self.devices.copy())

    def file(self, family: Wanted, labels: Labels, spelling: Spelling, *, label_bytes: int) -> Fact:
        """What a series with these labels is about."""
        self.filed_bytes += label_bytes
        roles = _read_roles(labels, spelling)
        place = (roles["node"], roles["model"])
        return Fact(
            family,
            self._find_traits(labels, roles),
            self.holders[family.dialect].add(roles),
            self.devices.add(roles),
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
            return self._share(_take(labels, DEVICE_DETAILS))
        if not family.is_called:
            return None
        more = NATIVE_DETAILS if family.dialect is Dialect.NATIVE else ()
        return self._share((*_take(roles, ("node", "gpu", "model", "job")), *_take(labels, more)))

    def _share(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        return self._same.setdefault(texts, texts)


def fits(matcher: Matcher, labels: Labels) -> bool:
    """Whether labels meet a condition; a label that is not there is empty."""
    value = labels.get(matcher.label, "")
    if matcher.operator in ("=", "!="):
        return (value == matcher.value) is (matcher.operator == "=")
    return bool(re.fullmatch(matcher.value, value)) is (matcher.operator == "=~")


def _read_roles(labels: Labels, spelling: Spelling) -> dict[str, str]:
    return {role: labels.get(getattr(spelling, role), "") for role in Spelling.__slots__}


def _take(labels: Labels, names: Sequence[str]) -> Details:
    return tuple([labels.get(name, "") for name in names])


def _is_whole(family: Wanted, labels: Labels, roles: Labels) -> bool:
    """A device that counts in the fleet; DCGM names a MIG instance by its parent's uuid, so that counts too."""
    if family.dialect is Dialect.NATIVE:
        return family.is_identity and not roles["instance"] and not labels.get("parent_uuid")
    return family.dialect is Dialect.DCGM and family.is_called
