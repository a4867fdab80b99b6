"""One target: its pages become series with values, within its part of what may be kept."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.scrape import page_parser
from gpusteward.analyzer.sources.scrape.page_parser import (
    BY_ENCODED_NAME,
    ParsedLine,
    ParsedPage,
    ParseErrors,
    choose_families,
)
from gpusteward.analyzer.sources.scrape.series import Labels, SeriesLabels, SeriesTable
from gpusteward.analyzer.sources.scrape.series_values import SeriesValues
from gpusteward.analyzer.sources.scrape.targets import ReportedNode
from gpusteward.analyzer.sources.usage.label_mapping import (
    ALL_CLUSTERS,
    MAPPED_LABELS,
    ClusterChoice,
    LabelMapping,
    map_labels,
)
from gpusteward.analyzer.sources.usage.quantities import MetricScheme
from gpusteward.core.containers import normalize_label

_MAX_VALUE = 1e30
"""No measured value comes near it, and it fits into 32 bits."""
_ADDRESS = "instance"
"""The label that stands for the node where an exporter names none: the address of the target."""


@dataclass(frozen=True, slots=True)
class PageOrigin:
    """What is known of a target beside its pages."""

    labels: Labels = field(default_factory=dict)  # added to every series that has none of that name
    fixed_labels: Labels = field(default_factory=dict)  # replace those of the page
    node: ReportedNode = field(default_factory=lambda: ReportedNode(may_be_any=True))


class Kept(NamedTuple):
    """How much is kept of one target or of all, or may be kept; negative: too much."""

    series: int  # also lines that are ignored
    label_bytes: int
    window_bytes: int

    def plus(self, other: "Kept") -> "Kept":
        return Kept(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def minus(self, other: "Kept") -> "Kept":
        return Kept(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))

    def find_share(self, most: "Kept") -> float:
        """Of what may be kept, by what there is most of."""
        return max(mine / limit for mine, limit in zip(self, most, strict=True))


NOTHING = Kept(0, 0, 0)


class TargetSamples:
    """Not safe to use from several threads at once: the store holds a lock."""

    def __init__(
        self,
        origin: PageOrigin,
        series_labels: SeriesLabels,
        *,
        capacity: int,
        find_free: Callable[[Kept], Kept],
        clusters: ClusterChoice = ALL_CLUSTERS,
    ) -> None:
        """`capacity`: scrapes that are kept. `find_free`: how much more may be kept, where so much is needed."""
        self._labels, self._fixed_labels, self.node = origin.labels, origin.fixed_labels, origin.node
        self._series_labels = series_labels
        self._find_free = find_free
        self._clusters = clusters
        self._mapped_labels = MAPPED_LABELS | {clusters.label}
        self._pod_labels = frozenset(map(normalize_label, clusters.pod_labels))
        self._capacity = capacity
        self.errors = ParseErrors()
        self.series = SeriesTable()
        self.values = SeriesValues(self.series, capacity)
        self.scraped_at = -np.inf  # when a page was last parsed
        self._known: dict[int, int] = {}  # hash of a line without its value -> its series
        self._label_names: dict[MetricScheme, set[str]] = {scheme: set() for scheme in MetricScheme}  # mapped ones only

    @property
    def kept(self) -> Kept:
        return Kept(len(self._known), self.series.label_bytes, self.series.value_bytes * self._capacity)

    def ingest(self, page: bytes, at: float) -> int:
        """Parse and keep a page. Returns the number of values."""
        if at == self.values.written_at:
            return 0
        if not len(self.series):
            self.node.forget()
        families = choose_families(page)
        parsed = page_parser.parse_page(page, self._known, families, errors=self.errors, at=at)
        if parsed.unknown_lines:
            self._add_unknown(parsed, at=at)
        rows, values = np.array(parsed.rows, np.int64), np.array(parsed.values, np.float64)
        is_invalid = ~(np.abs(values) < _MAX_VALUE)
        if is_invalid.any():
            values[is_invalid] = np.nan
            self.errors.add(page_parser.NOT_FINITE, times=int(is_invalid.sum()))
        if duplicates := len(rows) - len(np.unique(rows)):
            self.errors.add(page_parser.DUPLICATE, times=duplicates)
        self.values.add_page(rows, values, at)
        self.scraped_at = at
        if self.values.is_due_to_drop:
            self._drop_expired_series()
        return len(rows)

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
                pod_labels = {name for name in line.labels if normalize_label(name) in self._pod_labels}
                self._label_names[family.scheme] |= pod_labels
        choice = self._clusters
        mappings = {
            scheme: map_labels(names, cluster_label=choice.label, pod_labels=choice.pod_labels)
            for scheme, names in self._label_names.items()
        }
        for line in found:
            if line.key not in self._known:
                self._known[line.key] = self._add_series(line, mappings)
            value = page_parser.parse_value(line.line, line.end, errors=self.errors, at=at)
            if value is not None and self._known[line.key] != page_parser.IGNORED:
                parsed.rows.append(self._known[line.key])
                parsed.values.append(value)
        self.values.add_columns()

    def _select_within_limits(self, parsed: ParsedPage) -> list[bytes]:
        """Lines beyond the limits are not parsed: a page full of them must not delay other targets."""
        if (unread := parsed.unknown_count - len(parsed.unknown_lines)) > 0:
            self.errors.add(page_parser.NO_MEMORY, times=unread)
        lines = parsed.unknown_lines
        sizes = list(accumulate(map(self._measure_line, lines), Kept.plus))
        free = self._find_free(sizes[-1])
        fitting = min(bisect_right(sizes, most, key=lambda size: size[field]) for field, most in enumerate(free))
        if refused := lines[fitting:]:
            self.errors.add(page_parser.NO_MEMORY, refused[-1][: page_parser.MAX_LINE_BYTES], times=len(refused))
        return lines[:fitting]

    def _measure_line(self, line: bytes) -> Kept:
        """What is kept of a new series. A line that is too long is refused by itself and takes nothing from others."""
        if len(line) > page_parser.MAX_LINE_BYTES:
            return NOTHING
        return Kept(1, len(line), BY_ENCODED_NAME[line[: line.find(b"{")]].value_bytes * self._capacity)

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

    def _drop_expired_series(self) -> None:
        """Drop series without a value in any kept scrape. Lines that are ignored are parsed again where they still
        exist: what was refused may be about a node that is known now."""
        is_alive = self.values.find_alive()
        number = np.cumsum(is_alive) - 1  # the new one
        if not is_alive.all():
            self.values.keep(is_alive)
            self.series.keep(np.flatnonzero(is_alive))
        self._known = {key: int(number[row]) for key, row in self._known.items() if row >= 0 and is_alive[row]}
