"""The samples of all targets, within limits. Safe to use from several threads."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.memory_limits import DEFAULT_LIMITS, TARGET_SHARE, MemoryLimits
from gpusteward.analyzer.sources.scrape.page_parser import FAMILIES, NO_MEMORY
from gpusteward.analyzer.sources.scrape.series import RowIndexes, SeriesLabels
from gpusteward.analyzer.sources.scrape.series_values import SeriesWindow
from gpusteward.analyzer.sources.scrape.target_samples import NOTHING, Kept, PageOrigin, TargetSamples
from gpusteward.analyzer.sources.usage.label_mapping import ALL_CLUSTERS, ClusterChoice
from gpusteward.analyzer.sources.usage.query_results import K, LabelRowIndex
from gpusteward.analyzer.sources.usage.selectors import Matchers
from gpusteward.logs import Log

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
            before = samples.kept
            values = samples.ingest(page, at)
            self.kept = self.kept.plus(samples.kept.minus(before))
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
            numbers = set[int]().union(*(samples.series.families for samples in self._targets.values()))
        return {FAMILIES[number].name for number in numbers}

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
        if samples := self._targets.pop(target, None):
            self.kept = self.kept.minus(samples.kept)

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
        own = self._targets[target].kept
        if self.kept.plus(needed).find_share(self._most) > 1:
            largest = max(self._targets.values(), key=lambda samples: samples.kept.find_share(self._most))
            if largest.kept.find_share(self._most) > _OUTLIER * own.plus(needed).find_share(self._most):
                name = next(name for name, samples in self._targets.items() if samples is largest)
                log.warning("samples_dropped", target=name, reason=NO_MEMORY)
                self._drop(name)
                self._drop_stale_rows()
        free = self._most.minus(self.kept)
        of_target = Kept(*(most // TARGET_SHARE for most in self._most)).minus(own)
        return Kept(*map(min, free, of_target))

    def _drop_stale_rows(self) -> None:
        """Pods come and go; the rows of deleted ones would stay for ever."""
        if self._series_labels.interpreted - self.series <= self._most.series // _STALE_SHARE:
            return
        before, self._series_labels = self._series_labels, SeriesLabels(self.options.condition)
        self._series_labels.interpreted = self.series
        alive = {rows for samples in self._targets.values() for rows in samples.series.list_rows()}
        holders = {
            scheme: _renumber(
                index, self._series_labels.holders[scheme], {rows.holder for rows in alive if rows.scheme is scheme}
            )
            for scheme, index in before.holders.items()
        }
        devices = _renumber(before.devices, self._series_labels.devices, {rows.device for rows in alive})
        for samples in self._targets.values():
            samples.renumber(self._series_labels, holders, devices)


def _renumber(before: LabelRowIndex[K], after: LabelRowIndex[K], alive: set[int]) -> NDArray[np.int32]:
    numbers = np.full(len(before), -1, np.int32)
    for row in sorted(alive):
        numbers[row] = after.add_key(before.keys[row])
    return numbers


def _concatenate(windows: list[SeriesWindow]) -> SeriesWindow:
    columns = {
        column.name: np.concatenate([getattr(window, column.name) for window in windows] or [np.empty(0)])
        for column in fields(SeriesWindow)
    }
    return SeriesWindow(**columns)
