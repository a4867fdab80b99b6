"""`ScrapeSource`: usage from exporters that are scraped here, as a table."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from gpusteward.analyzer.sources.pod_processes import Pod, PodProcesses
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme, reports_unheld_devices
from gpusteward.analyzer.sources.scrape.charts import read_chart
from gpusteward.analyzer.sources.scrape.file_targets import FileList
from gpusteward.analyzer.sources.scrape.health_report import describe
from gpusteward.analyzer.sources.scrape.pod_targets import PodList
from gpusteward.analyzer.sources.scrape.process_pages import read_running
from gpusteward.analyzer.sources.scrape.query_answers import answer, count_fleet, find_dialects, remember
from gpusteward.analyzer.sources.scrape.records import Window
from gpusteward.analyzer.sources.scrape.scrape_loop import Rounds
from gpusteward.analyzer.sources.scrape.series import Rows
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.store import Shape, Store
from gpusteward.analyzer.sources.scrape.targets import NOTHING_SET, FixedList, KnownTargets, TargetList
from gpusteward.analyzer.sources.usage.coverage import ExpectedSamples
from gpusteward.analyzer.sources.usage.metric_schemes import MetricScheme
from gpusteward.analyzer.sources.usage.partial_tables import (
    AllocationCache,
    PartialTable,
    build_partial_table,
    choose_rows,
    merge_partial_tables,
)
from gpusteward.analyzer.sources.usage.presence import list_stale_rows
from gpusteward.analyzer.sources.usage.selectors import Matchers
from gpusteward.analyzer.sources.usage.stale_allocations import StaleAllocations
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import format_text
from gpusteward.core.usages import AllocationKey
from gpusteward.kubernetes.api import ApiServer


class ScrapeSource:
    """Scrapes from the moment it is made. One thread at a time may read."""

    def __init__(
        self,
        settings: ScrapeSettings,
        *,
        window_seconds: float,
        condition: Matchers = (),
        api: ApiServer | None = None,
        before: "ScrapeSource | None" = None,
    ) -> None:
        """`api`: where pods are looked for if neither targets nor a file are set. `before`: whose samples to go on
        with, where they fit. Raises ConfigurationError."""
        self._settings = settings
        self._window_seconds = window_seconds
        self._known = KnownTargets(_choose_lists(settings, api), limit=settings.target_limit)
        shape = _shape(settings, window_seconds, condition)
        same = before if before is not None and before.store.shape == shape else None
        self.store: Store = same.store if same else Store(shape)
        self._shelves: dict[MetricScheme, AllocationCache] = (
            same._shelves if same else {scheme: AllocationCache() for scheme in MetricScheme}
        )
        self._absences: dict[MetricScheme, StaleAllocations] = (
            same._absences if same else {scheme: StaleAllocations() for scheme in MetricScheme}
        )
        self._expectations = ExpectedSamples(window_seconds=window_seconds, fixed_interval=settings.interval)
        self._condition = condition
        self._found: tuple[DetectedScheme, ...] = ()
        self._has_history = False  # the window was given, so the first read need not wait for scrapes
        self._rounds = Rounds(self._known, self.store, settings)
        if self._known.origins:
            self._rounds.start()

    @property
    def request_counts(self) -> Mapping[str, int]:
        """Scrapes since the start by result: ok or failed."""
        return self._rounds.asked

    def ingest(self, target: str, page: bytes, at: float) -> int:
        """Take in a page as if it had been scraped at that moment; how many values were read.

        For history that exists already: moments of one target must rise.
        """
        self._has_history = True
        return self.store.ingest(target, page, at)

    def read(self, at: float) -> UsageTable:
        """Every allocation over the window before `at`. Raises SourceError when there is nothing to read from.

        At the start that is when every target has been tried once: a window that ended before would be empty.
        """
        if self._known.origins and not self._has_history:
            at = max(at, self._rounds.wait_for_first(2 * self._settings.timeout))
        if not len(self.store):
            raise SourceError(self._explain_nothing())
        self._found = find_dialects(self.store.list_names())
        window, rows = self.store.look_back(at, self._window_seconds)
        blocks = [self._read_dialect(found, window, rows, at) for found in self._found]
        chosen = choose_rows(blocks, [self._absences[found.scheme].without_samples for found in self._found])
        table = merge_partial_tables(blocks, chosen, at=at, window_seconds=self._window_seconds)
        return replace(table, fleet=count_fleet(window, rows))

    def _read_dialect(self, found: DetectedScheme, window: Window, rows: Rows, at: float) -> PartialTable:
        absences, shelf = self._absences[found.scheme], self._shelves[found.scheme]
        results = answer(found, window, rows, before=absences.list_previous_rows(rows.holders[found.scheme], at))
        if strangers := absences.find_without_details(list_stale_rows(results)):
            remember(results, found, window, strangers)
        block = build_partial_table(found.scheme, results, expected=self._expectations, allocations=shelf, at=at)
        absences.update(
            results, block, at, reports_unheld_devices=reports_unheld_devices(found.scheme, self._condition)
        )
        return block

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        """The course of one allocation before `at`, as far back as it is kept."""
        return read_chart(self.store, self._found, allocation, at=at, seconds=seconds)

    def read_processes(self, pods: Collection[Pod], at: float) -> PodProcesses:
        """What these pods run, as their agents tell it now. Raises SourceError."""
        return read_running(self.store, self._rounds, pods, at)

    def describe(self) -> Mapping[str, Any]:
        """Who is scraped, how that goes, and what was found, as plain data."""
        told = describe(
            self.store,
            self._known,
            dict(self._rounds.health),
            found=self._found,
            interval=self._settings.interval,
            asked=self.request_counts,
        )
        return told if self._known.origins else {**told, "failures": {"targets": NOTHING_SET}}

    def close(self) -> None:
        self._rounds.close()

    def _explain_nothing(self) -> str:
        if not self._known.origins:
            return NOTHING_SET
        health = dict(self._rounds.health)
        complaints = [*self._known.complaints.values(), *(state.error for state in health.values() if state.error)]
        if complaints:
            facts = {"count": len(health), "reason": complaints[0]}
            return format_text("none of {count} {count:|target|targets} could be read: {reason}", facts)
        return f"no targets were found: {', '.join(self._known.origins)}"


def _shape(settings: ScrapeSettings, window_seconds: float, condition: Matchers) -> Shape:
    return Shape(
        interval=settings.interval,
        keep_seconds=max(window_seconds, settings.keep_minutes * 60),
        series_limit=settings.series_limit,
        target_series_limit=settings.target_series_limit,
        target_label_limit_bytes=settings.target_label_limit_bytes,
        condition=condition,
    )


def _choose_lists(settings: ScrapeSettings, api: ApiServer | None) -> list[TargetList]:
    lists: list[TargetList] = []
    if settings.targets:
        lists.append(FixedList(settings))
    if settings.targets_file is not None:
        lists.append(FileList(settings.targets_file, settings))
    if not lists and api is not None:
        lists.append(PodList(api, settings))
    return lists
