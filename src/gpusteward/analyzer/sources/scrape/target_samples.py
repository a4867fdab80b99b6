"""The samples of one target: its series, their last values, and the parse errors of its pages."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.memory_limits import measure_text
from gpusteward.analyzer.sources.promql.expressions import HOUR_SECONDS, STEP_RANGE_SECONDS
from gpusteward.analyzer.sources.scrape import page_parser
from gpusteward.analyzer.sources.scrape.page_parser import (
    BY_ENCODED_NAME,
    FAMILIES,
    MOST_VARIED,
    ParsedLine,
    ParsedPage,
    ParseErrors,
    choose_families,
)
from gpusteward.analyzer.sources.scrape.ring_buffers import (
    LOOK_BACK_SECONDS,
    Lines,
    RingBuffer,
    ScrapeTimes,
    aggregate_gauges,
    count_changes,
    join_stats,
    measure_excess,
    measure_increase,
)
from gpusteward.analyzer.sources.scrape.series import (
    Labels,
    SeriesChoice,
    SeriesLabels,
    SeriesNumbers,
    SeriesTable,
    SeriesTrait,
)
from gpusteward.analyzer.sources.scrape.targets import ReportedNode
from gpusteward.analyzer.sources.usage.label_mapping import (
    ALL_CLUSTERS,
    MAPPED_LABELS,
    ClusterChoice,
    LabelMapping,
    map_labels,
)
from gpusteward.analyzer.sources.usage.quantities import MetricScheme
from gpusteward.analyzer.sources.usage.query_results import HolderDetails
from gpusteward.analyzer.tables import Column
from gpusteward.core.containers import normalize_label

_MAX_VALUE = 1e30
"""No measured value comes near it, and it fits into 32 bits."""
_ADDRESS = "instance"
"""The label that stands for the node where an exporter names none: the address of the target."""
LINE_BYTES = 250
"""A series apart from its values and texts: (354 - 100 - 161) MB for 160,000 series (bench/results/scrape.md) are 580
bytes each, with a line of 250 bytes and its part of the rows below; it has an entry in a dict and nine columns."""
_ROW_BYTES = 700
"""The key of a new holder or its details, with half of what is computed for it: as in `engine/label_text_index.py`."""
_MEASURED_LINES = 20_000
"""Of so many new lines the memory is measured, even if none is free: it shows whether a target needs little."""
_IGNORED_BYTES = 120
"""An entry in a dict, and the number that is its key."""
_TARGET_BYTES = 8_000
"""A target without series."""
_NO_SERIES: SeriesNumbers = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class SeriesWindow:
    """Series over a window, one entry per series in each column; NaN where there was no sample."""

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


@dataclass(frozen=True, slots=True)
class PageOrigin:
    """What is known of a target beside its pages."""

    labels: Labels = field(default_factory=dict)  # added to every series that has none of that name
    fixed_labels: Labels = field(default_factory=dict)  # replace those of the page
    node: ReportedNode = field(default_factory=lambda: ReportedNode(may_be_any=True))


class FreeCapacity(NamedTuple):
    """How much more may be kept of a target; negative after a limit was lowered."""

    lines: int
    label_bytes: int
    bytes: int  # of memory


class TargetSamples:
    """Not safe to use from several threads at once: the store holds a lock."""

    def __init__(
        self,
        origin: PageOrigin,
        series_labels: SeriesLabels,
        *,
        capacity: int,
        find_free: Callable[[int], FreeCapacity],
        clusters: ClusterChoice = ALL_CLUSTERS,
    ) -> None:
        """`capacity`: scrapes that are kept."""
        self._labels, self._fixed_labels, self.node = origin.labels, origin.fixed_labels, origin.node
        self._series_labels = series_labels
        self._find_free = find_free
        self._clusters = clusters
        self._mapped_labels = MAPPED_LABELS | {clusters.label}
        self._pod_labels = frozenset(map(normalize_label, clusters.pod_labels))
        self._capacity = capacity
        self.errors = ParseErrors()
        self.series = SeriesTable()
        self.memory_bytes = _TARGET_BYTES  # an estimate
        self._sizes = array("Q")  # of each series, in bytes
        self._memory_limit = 0  # for the present page
        self.scraped_at = -np.inf  # when a page was last parsed
        self._pages = 0
        self._known: dict[int, int] = {}  # hash of a line without its value -> its series
        self._label_names: dict[MetricScheme, set[str]] = {scheme: set() for scheme in MetricScheme}  # mapped ones only
        self._times = ScrapeTimes(capacity)
        self._gauges, self._counters = RingBuffer(capacity, np.float32), RingBuffer(capacity, np.float64)
        self._gauge_series, self._counter_series = _NO_SERIES, _NO_SERIES  # the series of each column
        self._latest: Column = np.empty(0)
        self._floors: Column = np.empty(0)  # of series without a column until a value is above it; else infinite
        self._last_page = _NO_SERIES  # number of the last page with this series
        self._page_times: Column = np.full(capacity, np.nan)  # by number of the page, in a ring

    def __len__(self) -> int:
        """Known lines: series, and lines that are ignored."""
        return len(self._known)

    @property
    def nbytes(self) -> int:
        return self._gauges.nbytes + self._counters.nbytes

    def ingest(self, page: bytes, at: float) -> int:
        """Parse and keep a page. Returns the number of values."""
        if at == self._times.last:
            return 0
        if not len(self.series):
            self.node.forget()
        free = self._find_free(0)
        most = max(min(free.lines, max(free.bytes // LINE_BYTES, _MEASURED_LINES)), 0)
        families = choose_families(page)
        parsed = page_parser.parse_page(page, self._known, families, errors=self.errors, at=at, max_unknown=most)
        if parsed.unknown_lines:
            self._add_unknown(parsed, at=at)
        rows, values = np.array(parsed.rows, np.int64), np.array(parsed.values, np.float64)
        self._check_values(rows, values)
        self._pages += 1
        self._page_times[self._pages % self._capacity] = at
        self._latest.fill(np.nan)
        self._latest[rows[::-1]] = values[::-1]  # the first of duplicates
        self._last_page[rows] = self._pages
        self._add_work_columns()
        self._write(at)
        self.scraped_at = at
        if self._pages % max(self._capacity // 4, 1) == 0:
            self._drop_expired_series()
        return len(rows)

    def add_failed_scrape(self, at: float) -> None:
        """No series has a value at this time."""
        self._latest.fill(np.nan)
        if at > self._times.last:
            self._write(at)

    def read_window(self, at: float, seconds: float) -> SeriesWindow:
        """Every series over the window before `at`."""
        lines = self._times.find_lines(at - seconds, at)
        stats = join_stats([aggregate_gauges(block) for block in self._gauges.read_blocks(lines)])
        times = self._times.times[lines]
        increases = [
            measure_increase(block, times, start=at - seconds, end=at) for block in self._counters.read_blocks(lines)
        ]
        increase = np.concatenate(increases)
        excess, hour_excess = self._measure_excess(at, seconds)
        return SeriesWindow(
            family=self.series.family,
            traits=self.series.traits,
            holder=self.series.holder,
            device=self.series.device,
            details=self.series.details,
            fleet_key=self.series.fleet_key,
            mean=self._expand(self._gauge_series, stats.mean),
            peak=self._expand(self._gauge_series, stats.peak),
            spread=self._expand(self._gauge_series, stats.spread),
            count=self._expand(self._gauge_series, stats.count),
            last=self._read_last(at),
            increase=self._expand(self._counter_series, increase),
            excess=excess,
            hour_excess=hour_excess,
            changes=self._count_changes(lines),
        )

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
        return np.flatnonzero(np.isin(self.series.family[series], MOST_VARIED))

    def read_gauges(self, choice: SeriesChoice, *, at: float, seconds: float) -> Iterator[TimeSeries]:
        """The samples of the chosen gauges."""
        lines = self._times.find_lines(at - seconds, at)
        for column, series in enumerate(self._gauge_series.tolist()):
            if self.series.is_chosen(series, choice):
                values = self._gauges.read_column(column, lines)
                is_there = ~np.isnan(values)
                yield TimeSeries(self._times.times[lines][is_there], values[is_there])

    def read_presence(
        self, scheme: MetricScheme, holders: Collection[int], *, at: float, seconds: float
    ) -> Iterator["PresenceTimes"]:
        """When these holders were on pages, by the samples of their gauges. Series that show presence may have none:
        those that ended on the same page are of the same pod. The agent also reports the use of pods that do not hold
        the device, which have no presence."""
        if not self.series.has_any(holders):
            return
        family, holder, device = self.series.family, self.series.holder, self.series.device
        details = self.series.details
        is_read = np.isin(family, [each.number for each in FAMILIES if each.scheme is scheme])
        is_read &= self.series.traits & int(SeriesTrait.FOR_HOLDERS) != 0
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

    def read_samples(self, choice: SeriesChoice, *, at: float, seconds: float) -> Iterator[TimeSeries]:
        """The samples of the chosen gauges or counters; of those that only prove work and have not, zeros."""
        yield from self.read_gauges(choice, at=at, seconds=seconds)
        lines = self._times.find_lines(at - seconds, at)
        times, last_times = self._times.times[lines], self._find_last_times(at - seconds)
        for series in np.flatnonzero(np.isfinite(self._floors)).tolist():
            if self.series.is_chosen(series, choice):
                own = times[times <= last_times[series]]  # when it was there before, is not kept
                yield TimeSeries(own, np.zeros(len(own)))
        for column, series in enumerate(self._counter_series.tolist()):
            if self.series.is_chosen(series, choice):
                values = self._counters.read_column(column, lines)
                is_there = ~np.isnan(values)
                yield TimeSeries(self._times.times[lines][is_there], values[is_there])

    def renumber(
        self,
        series_labels: SeriesLabels,
        holders: Mapping[MetricScheme, NDArray[np.int32]],
        devices: NDArray[np.int32],
    ) -> None:
        """Use other row numbers of holders and devices from now on."""
        self._series_labels = series_labels
        self.series.renumber(holders, devices)

    def _add_unknown(self, parsed: ParsedPage, *, at: float) -> None:
        """Add the series of unknown lines, and their values to the page."""
        lines = self._select_within_limits(parsed)
        found = [line for each in lines if (line := page_parser.parse_line(each, errors=self.errors))]
        for line in found:
            names = self._mapped_labels.intersection((*line.labels, *self._labels))
            family = BY_ENCODED_NAME[line.name]
            self._label_names[family.scheme] |= names
            if family.shows_presence:
                self._label_names[family.scheme] |= self._find_pod_labels(line.labels)
        choice = self._clusters
        mappings = {
            scheme: map_labels(names, cluster_label=choice.label, pod_labels=choice.pod_labels)
            for scheme, names in self._label_names.items()
        }
        for line in found:
            if line.key not in self._known and self.memory_bytes > self._memory_limit:
                self.errors.add(page_parser.NO_MEMORY, line.line)
                continue
            if line.key not in self._known:
                self._known[line.key] = self._add_measured_series(line, mappings)
            value = page_parser.parse_value(line.line, line.end, errors=self.errors, at=at)
            if value is not None and self._known[line.key] != page_parser.IGNORED:
                parsed.rows.append(self._known[line.key])
                parsed.values.append(value)
        self._add_columns()

    def _find_pod_labels(self, labels: Iterable[str]) -> set[str]:
        return {name for name in labels if normalize_label(name) in self._pod_labels}

    def _select_within_limits(self, parsed: ParsedPage) -> list[bytes]:
        """Lines beyond the limits are not parsed: a page full of them must not delay other targets."""
        needed = list(accumulate(self._measure_lines(parsed.unknown_lines)))
        free = self._find_free(needed[-1])
        self._memory_limit = self.memory_bytes + free.bytes
        if (unread := parsed.unknown_count - len(parsed.unknown_lines)) > 0:
            is_limited = parsed.unknown_count > free.lines
            self.errors.add(page_parser.TOO_MANY if is_limited else page_parser.NO_MEMORY, times=unread)
        selected = self._cut(parsed.unknown_lines, max(free.lines, 0), page_parser.TOO_MANY)
        selected = self._cut(selected, bisect_right(needed, free.bytes), page_parser.NO_MEMORY)
        # A line that is too long is refused by itself and takes nothing from others.
        sizes = (len(line) if len(line) <= page_parser.MAX_LINE_BYTES else 0 for line in selected)
        fitting = bisect_right(list(accumulate(sizes)), free.label_bytes)
        return self._cut(selected, fitting, page_parser.TOO_MUCH_TEXT)

    def _measure_lines(self, lines: Iterable[bytes]) -> Iterator[int]:
        """The memory that each takes; a series that is on the page twice is kept once."""
        seen: set[int] = set()
        for line in lines:
            key = hash(line[: line.rfind(b"} ")])
            yield 0 if key in seen else self._measure_line(line)
            seen.add(key)

    def _measure_line(self, line: bytes) -> int:
        """The memory that a new series takes."""
        family = BY_ENCODED_NAME[line[: line.find(b"{")]]
        values = (8 * family.is_windowed_counter + 4 * family.is_windowed_gauge) * self._capacity
        return LINE_BYTES + measure_text(line[: page_parser.MAX_LINE_BYTES]) + values * 9 // 8  # with spare columns

    def _cut(self, lines: list[bytes], count: int, reason: str) -> list[bytes]:
        if refused := lines[count:]:
            self.errors.add(reason, refused[-1][: page_parser.MAX_LINE_BYTES], times=len(refused))
        return lines[:count]

    def _add_measured_series(self, line: ParsedLine, mappings: Mapping[MetricScheme, LabelMapping]) -> int:
        rows_before = len(self._series_labels)
        series = self._add_series(line, mappings)
        if series == page_parser.IGNORED:
            self.memory_bytes += _IGNORED_BYTES
            return series
        row_bytes = _ROW_BYTES + measure_text(line.line)  # results and records of the ledger still have its texts later
        size = self._measure_line(line.line) + (len(self._series_labels) - rows_before) * row_bytes
        self._sizes.append(size)
        self.memory_bytes += size
        self._series_labels.total_bytes += size
        return series

    def _add_series(self, line: ParsedLine, mappings: Mapping[MetricScheme, LabelMapping]) -> int:
        family = BY_ENCODED_NAME[line.name]
        if not family.needs(line.labels.get("by", "")):
            return page_parser.IGNORED
        labels, mapping = {**self._labels, **line.labels, **self._fixed_labels}, mappings[family.scheme]
        if not self._set_node(labels, mapping.node):
            self.errors.add(page_parser.OTHER_NODE, line.line)
            return page_parser.IGNORED
        if not self._clusters.includes(labels.get(mapping.cluster, "")):
            return page_parser.IGNORED
        info = self._series_labels.interpret(family, labels, mapping, label_bytes=line.end)
        return self.series.add(info)

    def _set_node(self, labels: dict[str, str], label: str) -> bool:
        """Whether the target may report the node that these labels name; replaces other names of its own node."""
        if label == _ADDRESS:  # the exporter names no node
            labels[label] = self._labels.get(label, "") if self.node.is_only else labels[label]
            return True
        node = self.node.admit(labels.get(label, ""))
        if label and node is not None:
            labels[label] = node
        return node is not None

    def _add_columns(self) -> None:
        """For new series."""
        known = len(self._latest)
        families = self.series.family[known:].tolist()
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

    def _add_work_columns(self) -> None:
        """For series that only prove work, when they do for the first time: on an idle GPU they take no memory."""
        new = np.flatnonzero(self._latest > self._floors)
        if len(new):
            self._gauge_series = np.append(self._gauge_series, new)
            self._gauges.widen(len(self._gauge_series))
            self._floors[new] = np.inf

    def _check_values(self, rows: SeriesNumbers, values: Column) -> None:
        """Remove values that are not finite; count them and duplicates."""
        is_invalid = ~(np.abs(values) < _MAX_VALUE)
        if is_invalid.any():
            values[is_invalid] = np.nan
            self.errors.add(page_parser.NOT_FINITE, times=int(is_invalid.sum()))
        if duplicates := len(rows) - len(np.unique(rows)):
            self.errors.add(page_parser.DUPLICATE, times=duplicates)

    def _write(self, at: float) -> None:
        line = self._times.advance(at)
        self._gauges.write(line, self._latest[self._gauge_series])
        self._counters.write(line, self._latest[self._counter_series])

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

    def _drop_expired_series(self) -> None:
        """Drop series without a value in any kept scrape. Ignored lines are dropped too and parsed again if present."""
        is_alive = self._last_page > self._pages - self._capacity
        if is_alive.all():
            self._forget_ignored()
            return
        number = np.cumsum(is_alive) - 1  # the new one
        gauges, counters = is_alive[self._gauge_series], is_alive[self._counter_series]
        self._gauges.keep(np.flatnonzero(gauges))
        self._counters.keep(np.flatnonzero(counters))
        self._gauge_series = number[self._gauge_series[gauges]]
        self._counter_series = number[self._counter_series[counters]]
        self.series.keep(np.flatnonzero(is_alive))
        self._latest, self._last_page = self._latest[is_alive], self._last_page[is_alive]
        self._floors = self._floors[is_alive]
        self._forget_ignored()
        self._known = {key: int(number[row]) for key, row in self._known.items() if is_alive[row]}
        self._sizes = array("Q", compress(self._sizes, is_alive.tolist()))
        self.memory_bytes = _TARGET_BYTES + sum(self._sizes)

    def _forget_ignored(self) -> None:
        """They are parsed again where they still exist: what was refused may be about a node that is known now."""
        known = {key: row for key, row in self._known.items() if row >= 0}
        self.memory_bytes -= (len(self._known) - len(known)) * _IGNORED_BYTES
        self._known = known
