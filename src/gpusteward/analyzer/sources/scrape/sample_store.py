"""One target: its pages become series with values, within its part of what may be kept. And the samples of all targets
together: `SampleStore` is safe to use from several threads."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.analyzer.sources.memory_limits import DEFAULT_LIMITS, TARGET_SHARE, MemoryLimits
from gpusteward.analyzer.sources.scrape import page_parser
from gpusteward.analyzer.sources.scrape.host_counters import HostCounters, PodName
from gpusteward.analyzer.sources.scrape.page_parser import (
    BY_ENCODED_NAME,
    FAMILIES,
    NO_MEMORY,
    ParsedLine,
    ParsedPage,
    ParseErrors,
    choose_families,
)
from gpusteward.analyzer.sources.scrape.series import (
    Labels,
    RowIndexes,
    SeriesLabels,
    SeriesTable,
    ServerLabels,
    count_text_bytes,
)
from gpusteward.analyzer.sources.scrape.series_values import SeriesValues, SeriesWindow
from gpusteward.analyzer.sources.scrape.targets import ReportedNode
from gpusteward.analyzer.sources.usage.inference_servers import NAMED_BY_TARGET, SERVER_LABELS, find_server_pod
from gpusteward.analyzer.sources.usage.label_mapping import (
    ALL_CLUSTERS,
    MAPPED_LABELS,
    ClusterChoice,
    LabelMapping,
    map_labels,
)
from gpusteward.analyzer.sources.usage.query_results import K, LabelRowIndex
from gpusteward.analyzer.sources.usage.schemes import SCHEMES, MetricScheme
from gpusteward.analyzer.sources.usage.selectors import Matchers
from gpusteward.core.node.containers import normalize_label
from gpusteward.logs import Log

_MAX_VALUE = 1e30
"""No measured value comes near it, and it fits into 32 bits."""
_ADDRESS = "instance"
"""The label that stands for the node where an exporter names none: the address of the target."""


@dataclass(frozen=True, slots=True)
class PageOrigin:
    """What is known of a target beside its pages."""

    labels: Labels = field(default_factory=dict)  # added to every series that has none of that name
    fixed_labels: Labels = field(default_factory=dict)  # replace those of the page
    pod_labels: Labels = field(default_factory=dict)  # name the pod that an inference server is
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
        self._server_labels = {**origin.labels, **origin.pod_labels, **origin.fixed_labels}
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
        self._label_names: dict[MetricScheme, set[str]] = {scheme: set() for scheme in SCHEMES}  # mapped ones only

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
            if family.scheme is None:
                continue
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
        values = (BY_ENCODED_NAME[line[: line.find(b"{")]].value_bytes for line in lines)
        lengths = np.fromiter(map(len, lines), np.int64, len(lines))
        is_read = (
            lengths <= page_parser.MAX_LINE_BYTES
        )  # a longer line is refused by itself and takes nothing from others
        texts = np.fromiter(map(count_text_bytes, lines), np.int64, len(lines))
        each = (np.ones(len(lines), np.int64), texts, self._capacity * np.fromiter(values, np.int64, len(lines)))
        sizes = [np.cumsum(size * is_read) for size in each]
        free = self._find_free(Kept(*(int(size[-1]) for size in sizes)))
        fitting = min(int(np.searchsorted(size, most, side="right")) for size, most in zip(sizes, free, strict=True))
        if refused := lines[fitting:]:
            self.errors.add(page_parser.NO_MEMORY, refused[-1][: page_parser.MAX_LINE_BYTES], times=len(refused))
        return lines[:fitting]

    def _add_series(self, line: ParsedLine, mappings: Mapping[MetricScheme, LabelMapping]) -> int:
        family = BY_ENCODED_NAME[line.name]
        if not family.needs(line.labels.get("by", "")):
            return page_parser.IGNORED
        label_bytes = count_text_bytes(line.line[: line.end])
        if family.scheme is None:
            server = self._read_server_labels(line)
            if server is None:
                return page_parser.IGNORED
            return self.series.add(self._series_labels.interpret_server(family, server, label_bytes=label_bytes))
        labels, mapping = {**self._labels, **line.labels, **self._fixed_labels}, mappings[family.scheme]
        if not self._set_node(labels, mapping.node):
            self.errors.add(page_parser.OTHER_NODE, line.line)
            return page_parser.IGNORED
        if not self._clusters.includes(labels.get(mapping.cluster, "")):
            return page_parser.IGNORED
        info = self._series_labels.interpret(family, labels, mapping, label_bytes=label_bytes)
        return self.series.add(info)

    def _read_server_labels(self, line: ParsedLine) -> ServerLabels | None:
        """What Prometheus would make of these labels: where the target has one of the same name, that of the page is
        renamed. None: nobody says which pod it is, or its cluster is not read."""
        own = self._server_labels
        labels = {f"exported_{name}" if name in own else name: value for name, value in line.labels.items()} | own
        pod = find_server_pod(labels)
        if pod is None or not self._clusters.includes(labels.get(self._clusters.label, pod.cluster)):
            return None
        is_named_by_target = NAMED_BY_TARGET in labels or find_server_pod(own) is None
        others = tuple((name, labels[name]) for name in SERVER_LABELS if name in labels)
        return ServerLabels(pod, is_named_by_target, others)

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
            self.series.keep(is_alive)
        self._known = {key: int(number[row]) for key, row in self._known.items() if row >= 0 and is_alive[row]}


log = Log(__name__)

_OUTLIER = 4
"""Targets of one site differ by less, so none makes room for another of the same kind."""
_STALE_SHARE = 16
"""Rows and texts of deleted pods are dropped when their series were this part of all that may be kept."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How much a store keeps, and of what."""

    interval: float  # seconds between two scrapes
    keep_seconds: float
    limits: MemoryLimits = DEFAULT_LIMITS
    condition: Matchers = ()
    clusters: ClusterChoice = ALL_CLUSTERS


@dataclass(frozen=True, slots=True)
class TargetSummary:
    """For people: the series of a target, and its malformed lines by reason with an example each."""

    series: int = 0
    error_counts: Mapping[str, int] = field(default_factory=dict)
    error_examples: Mapping[str, str] = field(default_factory=dict)


class StoreWindow(NamedTuple):
    series: SeriesWindow
    rows: RowIndexes
    at: float  # its end


class SampleStore:
    """The last values of every target."""

    def __init__(self, options: StoreOptions) -> None:
        self.options = options
        self._capacity = ceil(options.keep_seconds / options.interval) + 2
        self._series_labels = SeriesLabels(options.condition)
        self._targets: dict[str, TargetSamples] = {}
        self._hosts = HostCounters()
        self._kept: dict[str, Kept] = {}  # of each target
        self._lock = threading.Lock()
        limits = options.limits
        self._most = Kept(limits.series, limits.label_bytes, limits.window_bytes)
        self.kept = NOTHING  # of all targets

    def __len__(self) -> int:
        """Targets with samples."""
        return len(self._targets)

    @property
    def series(self) -> int:
        """Series of all targets. Figures for people are read without the lock, which a cycle may hold for a while."""
        return sum(len(samples.series) for samples in list(self._targets.values()))

    @property
    def nbytes(self) -> int:
        return sum(samples.values.nbytes for samples in list(self._targets.values()))

    def ingest(self, target: str, page: bytes, at: float, *, make_origin: Callable[[], PageOrigin] = PageOrigin) -> int:
        """Parse and keep a page of a target. `make_origin`: called for the first page of a target. Returns the number
        of values."""
        with self._lock:
            samples = self._targets[target] if target in self._targets else self._add_target(target, make_origin())
            values = samples.ingest(page, at)
            self._hosts.add(target, page, at, admits=samples.node.admits)
            before, self._kept[target] = self._kept.get(target, NOTHING), samples.kept
            self.kept = self.kept.plus(self._kept[target].minus(before))
            return values

    def add_failed_scrape(self, target: str, at: float) -> None:
        """A scrape failed, or the target was removed."""
        with self._lock:
            if target in self._targets:
                self._targets[target].values.add_failed_scrape(at)

    def drop_expired(self, at: float) -> None:
        """Drop targets that have not been scraped for as long as samples are kept."""
        with self._lock:
            for target, samples in list(self._targets.items()):
                if samples.scraped_at < at - self.options.keep_seconds:
                    self._drop(target)

    def read_window(self, at: float, seconds: float) -> StoreWindow:
        """Every series of every target over the window before `at`, with the rows they refer to."""
        with self._lock:
            self._drop_stale_rows()
            windows = [samples.values.read_window(at, seconds) for samples in self._targets.values()]
            return StoreWindow(_concatenate(windows), self._series_labels.copy_rows(), at)

    def list_names(self) -> set[str]:
        """The metric families that are kept now."""
        with self._lock:
            numbers = set[int]().union(*(samples.series.rows["family"].tolist() for samples in self._targets.values()))
        return {FAMILIES[number].name for number in numbers}

    def read_host_use(
        self, targets: Collection[str], names: Collection[PodName], at: float, *, seconds: float
    ) -> dict[PodName, HostUse]:
        """What pods use of their hosts, by what these targets report."""
        with self._lock:
            return {name: self._hosts.read(targets, name, at, seconds=seconds) for name in names}

    def may_report(self, target: str, node: str) -> bool:
        """Whether lines of a target that name this node may be used."""
        samples = self._targets.get(target)
        return samples is None or samples.node.admits(node)

    def describe_target(self, target: str) -> TargetSummary:
        samples = self._targets.get(target)
        if samples is None:
            return TargetSummary()
        return TargetSummary(len(samples.series), dict(samples.errors.counts), dict(samples.errors.examples))

    @contextmanager
    def lock_targets(self) -> Iterator[tuple[SeriesLabels, Mapping[str, TargetSamples]]]:
        """The rows, and the samples by target: locked, because both change together."""
        with self._lock:
            yield self._series_labels, self._targets

    def drop(self, target: str) -> None:
        with self._lock:
            self._drop(target)

    def _drop(self, target: str) -> None:
        if self._targets.pop(target, None):
            self.kept = self.kept.minus(self._kept.pop(target, NOTHING))
            self._hosts.drop(target)

    def _add_target(self, target: str, origin: PageOrigin) -> TargetSamples:
        samples = TargetSamples(
            replace(origin, labels={"instance": target, "job": "scrape", **origin.labels}),
            self._series_labels,
            clusters=self.options.clusters,
            capacity=self._capacity,
            find_free=lambda needed: self._find_free(target, needed),
        )
        self._targets[target] = samples
        return samples

    def _find_free(self, target: str, needed: Kept) -> Kept:
        """How much more may be kept of a target. While the store is full, the target that has most makes room for one
        that needs far less."""
        own = self._kept.get(target, NOTHING)
        if self._kept and self.kept.plus(needed).find_share(self._most) > 1:
            largest = max(self._kept, key=lambda name: self._kept[name].find_share(self._most))
            if self._kept[largest].find_share(self._most) > _OUTLIER * own.plus(needed).find_share(self._most):
                log.warning("samples_dropped", target=largest, reason=NO_MEMORY)
                self._drop(largest)
                self._drop_stale_rows()
        free = self._most.minus(self.kept)
        of_target = Kept(*(most // TARGET_SHARE for most in self._most)).minus(own)
        return Kept(*map(min, free, of_target))

    def _drop_stale_rows(self) -> None:
        """Pods come and go; the rows of deleted ones would stay for ever."""
        before = self._series_labels
        stale, stale_bytes = before.interpreted - self.series, before.interpreted_bytes - self.kept.label_bytes
        if stale <= self._most.series // _STALE_SHARE and stale_bytes <= self._most.label_bytes // _STALE_SHARE:
            return
        self._series_labels = SeriesLabels(self.options.condition)
        self._series_labels.interpreted = self.series
        self._series_labels.interpreted_bytes = self.kept.label_bytes
        tables = [samples.series for samples in self._targets.values()]
        holders = {
            scheme: _renumber(
                index,
                self._series_labels.holders[scheme],
                [table.rows["holder"][table.find_holders(scheme)] for table in tables],
            )
            for scheme, index in before.holders.items()
        }
        devices = _renumber(before.devices, self._series_labels.devices, [table.rows["device"] for table in tables])
        for samples in self._targets.values():
            samples.renumber(self._series_labels, holders, devices)


def _renumber(before: LabelRowIndex[K], after: LabelRowIndex[K], alive: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    """The new number of each row, -1 for those that no series has."""
    numbers = np.full(len(before), -1, np.int32)
    rows = np.unique(np.concatenate([*alive, np.empty(0, np.int32)]))
    for row in rows[rows >= 0].tolist():
        numbers[row] = after.add_key(before.keys[row])
    return numbers


def _concatenate(windows: list[SeriesWindow]) -> SeriesWindow:
    columns = {
        column.name: np.concatenate([getattr(window, column.name) for window in windows] or [np.empty(0)])
        for column in fields(SeriesWindow)
    }
    return SeriesWindow(**columns)
