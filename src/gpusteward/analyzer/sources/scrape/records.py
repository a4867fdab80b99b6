"""One target: its series, their last values, and what was wrong with its pages."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.scrape import lines
from gpusteward.analyzer.sources.scrape.increases import measure_increase
from gpusteward.analyzer.sources.scrape.lines import Faults, Stranger, scan
from gpusteward.analyzer.sources.scrape.metric_filter import EVERY_NAME, FAMILIES, Wanted, choose_names
from gpusteward.analyzer.sources.scrape.ring_buffers import LOOK_BACK_SECONDS, Moments, Ring, fold
from gpusteward.analyzer.sources.scrape.series import Clerk, Labels
from gpusteward.analyzer.sources.scrape.series_index import Numbers, Roll
from gpusteward.analyzer.sources.usage.label_mapping import CANDIDATES, LabelMapping, map_labels
from gpusteward.analyzer.sources.usage.metric_schemes import MetricScheme
from gpusteward.analyzer.tables import Column

Course = tuple[Column, Column]  # moments and values

_LARGEST = 1e30
"""No measure comes near it, and it still fits into 32 bits."""
_SPELLED = frozenset(name for names in CANDIDATES.values() for name in names)
_NO_NUMBERS: Numbers = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Window:
    """Series over a window, a number each; NaN where there was no sample."""

    family: NDArray[np.int16]
    traits: NDArray[np.uint8]
    holder: NDArray[np.int32]
    device: NDArray[np.int32]
    said: NDArray[np.object_]
    place: NDArray[np.object_]
    mean: Column
    peak: Column
    spread: Column
    count: Column
    last: Column
    increase: Column


class Room(NamedTuple):
    """How much more may be kept of a target; below 0 where a limit was lowered."""

    lines: int
    label_bytes: int


class Record:
    """What is kept of one target. Not safe to use from several threads at once: the store sees to that."""

    def __init__(self, labels: Labels, clerk: Clerk, *, capacity: int, find_room: Callable[[], Room]) -> None:
        """`labels` are added to every series that has none of that name; `find_room`: how much more may be kept."""
        self._labels = labels
        self._clerk = clerk
        self._find_room = find_room
        self._capacity = capacity
        self.faults = Faults()
        self.roll = Roll()
        self.answered_at = -np.inf  # when a page was last read
        self._pages = 0
        self._known: dict[int, int] = {}  # hash of a line without its value -> its series
        self._names: dict[MetricScheme, set[str]] = {
            scheme: set() for scheme in MetricScheme
        }  # of labels, as far as they matter
        self._moments = Moments(capacity)
        self._gauges, self._counters = Ring(capacity, np.float32), Ring(capacity, np.float64)
        self._gauge_series, self._counter_series = _NO_NUMBERS, _NO_NUMBERS  # of each column
        self._latest: Column = np.empty(0)
        self._seen = _NO_NUMBERS  # number of the page each series was last on

    def __len__(self) -> int:
        """Lines that are known: series, and those that are none of ours."""
        return len(self._known)

    @property
    def nbytes(self) -> int:
        return self._gauges.nbytes + self._counters.nbytes

    def ingest(self, page: bytes, at: float) -> int:
        """Take in a page; how many values were read."""
        if at == self._moments.last:
            return 0
        scanned = scan(page, self._known, choose_names(page), faults=self.faults, at=at)
        if scanned.strangers:
            self._meet(scanned.strangers, scanned.rows, scanned.values, at=at)
        rows, values = np.array(scanned.rows, np.int64), np.array(scanned.values, np.float64)
        self._note_odd(rows, values)
        self._pages += 1
        self._latest.fill(np.nan)
        self._latest[rows[::-1]] = values[::-1]  # of duplicates the first
        self._seen[rows] = self._pages
        self._write(at)
        self.answered_at = at
        if self._pages % max(self._capacity // 4, 1) == 0:
            self._forget_gone()
        return len(rows)

    def miss(self, at: float) -> None:
        """A scrape that failed: from here on nothing is known of any series."""
        self._latest.fill(np.nan)
        if at > self._moments.last:
            self._write(at)

    def look_back(self, at: float, seconds: float) -> Window:
        """Every series over the window before `at`."""
        places = self._moments.within(at - seconds, at)
        folded = fold(self._gauges.take(places))
        counted = self._counters.take(places)
        grown = measure_increase(counted, self._moments.times[places], start=at - seconds, end=at)
        return Window(
            self.roll.family,
            self.roll.traits,
            self.roll.holder,
            self.roll.device,
            self.roll.said,
            self.roll.place,
            mean=self._spread_out(self._gauge_series, folded.mean),
            peak=self._spread_out(self._gauge_series, folded.peak),
            spread=self._spread_out(self._gauge_series, folded.spread),
            count=self._spread_out(self._gauge_series, folded.count),
            last=self._find_last(at),
            increase=self._spread_out(self._counter_series, grown),
        )

    def read_courses(self, family: Wanted, holders: Collection[int], *, at: float, seconds: float) -> Iterator[Course]:
        """Moments and values of the gauges of a family about these holders."""
        places = self._moments.within(at - seconds, at)
        for column, series in enumerate(self._gauge_series.tolist()):
            if self.roll.is_one_of(series, family, holders):
                values = self._gauges.take_column(column, places)
                is_there = ~np.isnan(values)
                yield self._moments.times[places][is_there], values[is_there]

    def renumber(
        self, clerk: Clerk, holders: Mapping[MetricScheme, NDArray[np.int32]], devices: NDArray[np.int32]
    ) -> None:
        """Another clerk, who has other numbers for the same rows."""
        self._clerk = clerk
        self.roll.renumber(holders, devices)

    def _meet(self, strangers: list[bytes], rows: list[int], values: list[float], *, at: float) -> None:
        """Lines that were not on a page before."""
        read = [found for line in self._admit(strangers) if (found := lines.read_stranger(line, faults=self.faults))]
        for one in read:
            self._names[EVERY_NAME[one.name].scheme] |= _SPELLED.intersection((*one.labels, *self._labels))
        spellings = {scheme: map_labels(names) for scheme, names in self._names.items()}
        for one in read:
            if one.key not in self._known:
                self._known[one.key] = self._add(one, spellings)
            value = lines.read_value(one.line, one.end, faults=self.faults, at=at)
            if value is not None and self._known[one.key] != lines.IGNORED:
                rows.append(self._known[one.key])
                values.append(value)
        self._make_space()

    def _admit(self, strangers: list[bytes]) -> list[bytes]:
        """As many as there is room for. The others are not even taken apart: a page full of them must not cost time
        that belongs to other targets."""
        room = self._find_room()
        admitted = self._cut(strangers, max(room.lines, 0), lines.TOO_MANY)
        # One that is too long will be refused for itself, and takes nothing from others.
        sizes = (len(line) if len(line) <= lines.LONGEST_LINE else 0 for line in admitted)
        return self._cut(admitted, bisect_right(list(accumulate(sizes)), room.label_bytes), lines.TOO_MUCH_TEXT)

    def _cut(self, strangers: list[bytes], place: int, reason: str) -> list[bytes]:
        if refused := strangers[place:]:
            self.faults.note(reason, refused[-1][: lines.LONGEST_LINE], times=len(refused))
        return strangers[:place]

    def _add(self, stranger: Stranger, spellings: Mapping[MetricScheme, LabelMapping]) -> int:
        family = EVERY_NAME[stranger.name]
        if not family.is_about(stranger.labels.get("by", "")):
            return lines.IGNORED
        labels = {**self._labels, **stranger.labels}
        fact = self._clerk.file(family, labels, spellings[family.scheme], label_bytes=stranger.end)
        return self.roll.add(fact)

    def _make_space(self) -> None:
        """For series that are new."""
        known = len(self._latest)
        families = self.roll.family[known:].tolist()
        gauges = [known + place for place, number in enumerate(families) if FAMILIES[number].is_windowed_gauge]
        counters = [known + place for place, number in enumerate(families) if FAMILIES[number].is_windowed_counter]
        self._gauge_series = np.append(self._gauge_series, gauges).astype(np.int64)
        self._counter_series = np.append(self._counter_series, counters).astype(np.int64)
        self._gauges.widen(len(self._gauge_series))
        self._counters.widen(len(self._counter_series))
        self._latest = np.append(self._latest, np.full(len(families), np.nan))
        self._seen = np.append(self._seen, np.full(len(families), self._pages))

    def _note_odd(self, rows: Numbers, values: Column) -> None:
        odd = ~(np.abs(values) < _LARGEST)
        if odd.any():
            values[odd] = np.nan
            self.faults.note(lines.NOT_FINITE, times=int(odd.sum()))
        if twice := len(rows) - len(np.unique(rows)):
            self.faults.note(lines.DUPLICATE, times=twice)

    def _write(self, at: float) -> None:
        place = self._moments.advance(at)
        self._gauges.write(place, self._latest[self._gauge_series])
        self._counters.write(place, self._latest[self._counter_series])

    def _find_last(self, at: float) -> Column:
        """What the last scrape up to `at` said; what has no window is only known as it is now."""
        places = self._moments.within(at - LOOK_BACK_SECONDS, at)
        if not len(places):
            return np.full(len(self.roll), np.nan)
        last = self._latest.copy()
        if places[-1] != self._moments.head:
            last[self._gauge_series] = self._gauges.take(places[-1:])[0]
        return last

    def _spread_out(self, series: Numbers, values: Column) -> Column:
        column = np.full(len(self.roll), np.nan)
        column[series] = values
        return column

    def _forget_gone(self) -> None:
        """Series that are in no line of the rings any more. What is ignored is forgotten with them: if it is still
        there, it is a stranger once more."""
        alive = self._seen > self._pages - self._capacity
        if alive.all():
            return
        number = np.cumsum(alive) - 1  # the new one
        gauges, counters = alive[self._gauge_series], alive[self._counter_series]
        self._gauges.keep(np.flatnonzero(gauges))
        self._counters.keep(np.flatnonzero(counters))
        self._gauge_series = number[self._gauge_series[gauges]]
        self._counter_series = number[self._counter_series[counters]]
        self.roll.keep(np.flatnonzero(alive))
        self._latest, self._seen = self._latest[alive], self._seen[alive]
        self._known = {key: int(number[row]) for key, row in self._known.items() if row >= 0 and alive[row]}
