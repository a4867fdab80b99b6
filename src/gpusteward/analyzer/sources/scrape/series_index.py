"""The series of one target: what each is about, in arrays."""

from array import array
from collections.abc import Collection, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.scrape.metric_filter import FAMILIES, Wanted
from gpusteward.analyzer.sources.scrape.series import Details, Fact, Place
from gpusteward.analyzer.sources.usage.metric_schemes import MetricScheme

Numbers = NDArray[np.int64]


class Roll:
    """Facts in columns: kept as objects, those of a thousand nodes would be 100 MB."""

    def __init__(self) -> None:
        self._family, self._traits = array("h"), array("B")
        self._holder, self._device = array("i"), array("i")
        self._said: list[Details | None] = []
        self._place: list[Place | None] = []
        self._label_bytes = array("H")
        self.label_bytes = 0  # of all

    def __len__(self) -> int:
        return len(self._family)

    @property
    def families(self) -> set[int]:
        """Numbers of the families that are here."""
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
    def said(self) -> NDArray[np.object_]:
        return np.fromiter(self._said, object, len(self))

    @property
    def place(self) -> NDArray[np.object_]:
        return np.fromiter(self._place, object, len(self))

    def add(self, fact: Fact) -> int:
        """The number of a new series."""
        self._family.append(fact.family.number)
        self._traits.append(fact.traits)
        self._holder.append(fact.holder)
        self._device.append(fact.device)
        self._said.append(fact.said)
        self._place.append(fact.place)
        self._label_bytes.append(fact.label_bytes)
        self.label_bytes += fact.label_bytes
        return len(self) - 1

    def keep(self, series: Numbers) -> None:
        """Only these, in this order."""
        kept = series.tolist()
        self._family = array("h", [self._family[row] for row in kept])
        self._traits = array("B", [self._traits[row] for row in kept])
        self._holder = array("i", [self._holder[row] for row in kept])
        self._device = array("i", [self._device[row] for row in kept])
        self._said = [self._said[row] for row in kept]
        self._place = [self._place[row] for row in kept]
        self._label_bytes = array("H", [self._label_bytes[row] for row in kept])
        self.label_bytes = sum(self._label_bytes)

    def is_one_of(self, series: int, family: Wanted, holders: Collection[int]) -> bool:
        return self._family[series] == family.number and self._holder[series] in holders

    def knows_any(self, holders: Collection[int]) -> bool:
        """Whether a series is about one of these, or about one of the same number in another dialect."""
        return not set(self._holder).isdisjoint(holders)

    def list_rows(self) -> Iterable[tuple[MetricScheme, int, int]]:
        """Dialect, holder and device of every series."""
        for number, holder, device in zip(self._family, self._holder, self._device, strict=True):
            yield FAMILIES[number].scheme, holder, device

    def renumber(self, holders: Mapping[MetricScheme, NDArray[np.int32]], devices: NDArray[np.int32]) -> None:
        """Holders and devices have other numbers now."""
        rows = zip(self._family, self._holder, strict=True)
        self._holder = array("i", [int(holders[FAMILIES[number].scheme][row]) for number, row in rows])
        self._device = array("i", [int(devices[row]) for row in self._device])
