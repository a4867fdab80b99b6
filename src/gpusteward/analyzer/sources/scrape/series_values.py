"""The values of the series of one target, line by line as it was scraped, and what is read from them.

Of a series whose window is needed, the last values are in a column of a ring buffer; of all others only the last one.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.promql.expressions import HOUR_SECONDS, STEP_RANGE_SECONDS
from gpusteward.analyzer.sources.scrape.page_parser import FAMILIES, MOST_VARIED
from gpusteward.analyzer.sources.scrape.ring_buffers import (
    LOOK_BACK_SECONDS,
    Lines,
    RingBuffer,
    ScrapeTimes,
    aggregate_gauges,
    count_changes,
    measure_excess,
    measure_increase,
)
from gpusteward.analyzer.sources.scrape.series import SeriesChoice, SeriesNumbers, SeriesTable, SeriesTrait
from gpusteward.analyzer.sources.usage.query_results import HolderDetails
from gpusteward.analyzer.sources.usage.schemes import MetricScheme
from gpusteward.analyzer.tables import Column

_NO_SERIES: SeriesNumbers = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class SeriesWindow:
    """Series over a window, one entry per series in each column; NaN where there was no sample. From `mean` on the
    columns are named after aggregations."""

    family: NDArray[np.int16]
    traits: NDArray[np.uint8]
    holder: NDArray[np.int32]
    device: NDArray[np.int32]
    details: NDArray[np.object_]
    fleet_key: NDArray[np.object_]
    mean: Column
    peak: Column
    spread: Column
    count: Column
    last: Column
    increase: Column
    excess: Column  # of energy counters
    hour_excess: Column
    changes: Column  # of energy counters, and of power


class TimeSeries(NamedTuple):
    times: Column
    values: Column


class PresenceTimes(NamedTuple):
    """When a holder was on pages of its target, and when its device was, with any holder or without."""

    holder: int
    details: HolderDetails
    times: Column
    device_times: Column


class SeriesValues:
    """The columns have the numbers of the series in a `SeriesTable`."""

    def __init__(self, series: SeriesTable, capacity: int) -> None:
        """`capacity`: scrapes that are kept."""
        self.series = series
        self._capacity = capacity
        self._pages = 0
        self._times = ScrapeTimes(capacity)
        self._gauges, self._counters = RingBuffer(capacity, np.float32), RingBuffer(capacity, np.float64)
        self._gauge_series, self._counter_series = _NO_SERIES, _NO_SERIES  # the series of each column
        self._latest: Column = np.empty(0)
        self._floors: Column = np.empty(0)  # of series without a column until a value is above it; else infinite
        self._last_page = _NO_SERIES  # number of the last page with this series
        self._page_times: Column = np.full(capacity, np.nan)  # by number of the page, in a ring

    @property
    def nbytes(self) -> int:
        return self._gauges.nbytes + self._counters.nbytes

    @property
    def written_at(self) -> float:
        """The time of the last scrape, also of one that failed."""
        return self._times.last

    def add_page(self, rows: SeriesNumbers, values: Column, at: float) -> None:
        """The values of a page by series; of duplicates the first one is used."""
        self._pages += 1
        self._page_times[self._pages % self._capacity] = at
        self._latest.fill(np.nan)
        self._latest[rows[::-1]] = values[::-1]
        self._last_page[rows] = self._pages
        # Series that only prove work get a column when they do for the first time: on an idle GPU they take no memory.
        works = np.flatnonzero(self._latest > self._floors)
        if len(works):
            self._gauge_series = np.append(self._gauge_series, works)
            self._gauges.widen(len(self._gauge_series))
            self._floors[works] = np.inf
        self._write(at)

    def add_failed_scrape(self, at: float) -> None:
        """No series has a value at this time."""
        self._latest.fill(np.nan)
        if at > self._times.last:
            self._write(at)

    def _write(self, at: float) -> None:
        line = self._times.advance(at)
        self._gauges.write(line, self._latest[self._gauge_series])
        self._counters.write(line, self._latest[self._counter_series])

    def add_columns(self) -> None:
        """For new series."""
        known = len(self._latest)
        families = self.series.rows["family"][known:].tolist()
        floors = [FAMILIES[number].floor for number in families]
        self._floors = np.append(self._floors, [np.inf if floor is None else floor for floor in floors])
        gauges = [
            known + index
            for index, number in enumerate(families)
            if FAMILIES[number].is_windowed_gauge and floors[index] is None
        ]
        counters = [known + index for index, number in enumerate(families) if FAMILIES[number].is_windowed_counter]
        self._gauge_series = np.append(self._gauge_series, gauges).astype(np.int64)
        self._counter_series = np.append(self._counter_series, counters).astype(np.int64)
        self._gauges.widen(len(self._gauge_series))
        self._counters.widen(len(self._counter_series))
        self._latest = np.append(self._latest, np.full(len(families), np.nan))
        self._last_page = np.append(self._last_page, np.full(len(families), self._pages))

    @property
    def is_due_to_drop(self) -> bool:
        """Whether it is time to look for series that have ended."""
        return self._pages % max(self._capacity // 4, 1) == 0

    def find_alive(self) -> NDArray[np.bool_]:
        """Series with a value in any kept scrape."""
        return np.asarray(self._last_page > self._pages - self._capacity)

    def keep(self, is_alive: NDArray[np.bool_]) -> None:
        """Only these series, which get new numbers in the same order."""
        number = np.cumsum(is_alive) - 1
        gauges, counters = is_alive[self._gauge_series], is_alive[self._counter_series]
        self._gauges.keep(np.flatnonzero(gauges))
        self._counters.keep(np.flatnonzero(counters))
        self._gauge_series = number[self._gauge_series[gauges]]
        self._counter_series = number[self._counter_series[counters]]
        self._latest, self._last_page = self._latest[is_alive], self._last_page[is_alive]
        self._floors = self._floors[is_alive]

    def read_window(self, at: float, seconds: float) -> SeriesWindow:
        """Every series over the window before `at`."""
        lines = self._times.find_lines(at - seconds, at)
        stats = np.hstack([aggregate_gauges(block) for block in self._gauges.read_blocks(lines)])
        mean, peak, spread, count = (self._expand(self._gauge_series, column) for column in stats)
        times = self._times.times[lines]
        blocks = self._counters.read_blocks(lines)
        increase = np.concatenate([measure_increase(block, times, start=at - seconds, end=at) for block in blocks])
        excess, hour_excess = self._measure_excess(at, seconds)
        return SeriesWindow(
            **{
                name: self.series.rows[name]
                for name in ("family", "traits", "holder", "device", "details", "fleet_key")
            },
            mean=mean,
            peak=peak,
            spread=spread,
            count=count,
            last=self._read_last(at),
            increase=self._expand(self._counter_series, increase),
            excess=excess,
            hour_excess=hour_excess,
            changes=self._count_changes(lines),
        )

    def read_block(self, series: SeriesNumbers, *, at: float, seconds: float) -> tuple[Column, NDArray[np.float64]]:
        """The scrapes of the window before `at`, and what each of these series had then, one column each; NaN where it
        had nothing."""
        lines = self._times.find_lines(at - seconds, at)
        block = np.full((len(lines), len(series)), np.nan)
        for buffer, columns in ((self._gauges, self._gauge_series), (self._counters, self._counter_series)):
            chosen = np.flatnonzero(np.isin(columns, series))
            block[:, np.searchsorted(series, columns[chosen])] = buffer.read_columns(chosen, lines)
        return self._times.times[lines], block

    def _measure_excess(self, at: float, seconds: float) -> tuple[Column, Column]:
        """Of energy counters; reads an hour, whatever the window is."""
        columns = self._find_most_varied(self._counter_series)
        lines = self._times.find_lines(at - HOUR_SECONDS - STEP_RANGE_SECONDS, at)
        block = self._counters.read_columns(columns, lines)
        of_minutes, of_window = measure_excess(block, self._times.times[lines], at=at, window_seconds=seconds)
        series = self._counter_series[columns]
        return self._expand(series, of_minutes), self._expand(series, of_window)

    def _count_changes(self, lines: Lines) -> Column:
        gauges, counters = (self._find_most_varied(each) for each in (self._gauge_series, self._counter_series))
        series = np.concatenate((self._gauge_series[gauges], self._counter_series[counters]))
        blocks = self._gauges.read_columns(gauges, lines), self._counters.read_columns(counters, lines)
        return self._expand(series, np.concatenate([count_changes(block) for block in blocks]))

    def _find_most_varied(self, series: SeriesNumbers) -> SeriesNumbers:
        """The columns of power and energy among those of these series."""
        return np.flatnonzero(np.isin(self.series.rows["family"][series], MOST_VARIED))

    def read_samples(self, choice: SeriesChoice, *, at: float, seconds: float) -> Iterator[TimeSeries]:
        """The samples of the chosen gauges or counters; of those that only prove work and have not, zeros."""
        lines = self._times.find_lines(at - seconds, at)
        times, is_chosen = self._times.times[lines], self.series.choose(choice)
        for buffer, columns in ((self._gauges, self._gauge_series), (self._counters, self._counter_series)):
            for values in buffer.read_columns(np.flatnonzero(is_chosen[columns]), lines).T:
                is_there = ~np.isnan(values)
                yield TimeSeries(times[is_there], values[is_there])
        last_times = self._find_last_times(at - seconds)
        for series in np.flatnonzero(np.isfinite(self._floors) & is_chosen).tolist():
            own = times[times <= last_times[series]]  # when it was there before, is not kept
            yield TimeSeries(own, np.zeros(len(own)))

    def read_presence(
        self, scheme: MetricScheme, holders: Collection[int], *, at: float, seconds: float
    ) -> Iterator["PresenceTimes"]:
        """When these holders were on pages, by the samples of their gauges. Series that show presence may have none:
        those that ended on the same page are of the same pod. The agent also reports the use of pods that do not hold
        the device, which have no presence."""
        if not self.series.has_any(holders):
            return
        rows = self.series.rows
        family, holder, device, details = rows["family"], rows["holder"], rows["device"], rows["details"]
        is_read = self.series.find_holders(scheme) & (rows["traits"] & int(SeriesTrait.FOR_HOLDERS) != 0)
        is_own = np.isin(holder, list(holders)) & is_read
        shown = {
            (int(holder[row]), int(self._last_page[row])): details[row]
            for row in np.flatnonzero(is_own).tolist()
            if FAMILIES[family[row]].shows_presence
        }
        lines = self._times.find_lines(at - seconds, at)
        columns = np.flatnonzero((is_read & np.isin(device, device[is_own]))[self._gauge_series])
        is_there = ~np.isnan(self._gauges.read_columns(columns, lines))
        on_device = device[self._gauge_series[columns]]
        for number, row in enumerate(self._gauge_series[columns].tolist()):
            found = shown.get((int(holder[row]), int(self._last_page[row]))) if is_own[row] else None
            if found is not None and is_there[:, number].any():
                of_device = is_there[:, on_device == device[row]].any(axis=1)
                times = self._times.times[lines]
                yield PresenceTimes(int(holder[row]), found, times[is_there[:, number]], times[of_device])

    def _find_last_times(self, start: float) -> Column:
        """When each series was last on a page; NaN: not after `start`, or longer ago than pages are kept."""
        times = self._page_times[self._last_page % self._capacity]
        return np.where((self._last_page > self._pages - self._capacity) & (times > start), times, np.nan)

    def _read_last(self, at: float) -> Column:
        """The values of the last scrape up to `at`; series without a window only have the present value."""
        lines = self._times.find_lines(at - LOOK_BACK_SECONDS, at)
        if not len(lines):
            return np.full(len(self.series), np.nan)
        last = self._latest.copy()
        if lines[-1] != self._times.head:
            last[self._gauge_series] = self._gauges.read(lines[-1:])[0]
        return last

    def _expand(self, series: SeriesNumbers, values: Column) -> Column:
        """Values of some series -> a column of all series."""
        column = np.full(len(self.series), np.nan)
        column[series] = values
        return column
