"""`ScrapeSource`: a usage table from exporters that are scraped here."""

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from gpusteward import __version__
from gpusteward.analyzer.sources.live_readings import (
    GPU_METRICS,
    NATIVE_LABELS,
    PROCESS_METRICS,
    HostUse,
    LiveSample,
    PodProcesses,
    ReportedGpu,
    collect_processes,
    collect_readings,
    find_labels,
)
from gpusteward.analyzer.sources.memory_limits import DEFAULT_LIMITS, MemoryLimits
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme, reports_unheld_devices
from gpusteward.analyzer.sources.scrape.page_parser import ParseErrors, parse_line, parse_value, split_lines
from gpusteward.analyzer.sources.scrape.sample_store import PageOrigin, SampleStore, StoreOptions, StoreWindow
from gpusteward.analyzer.sources.scrape.scrape_loop import ScrapeLoop, TargetHealth
from gpusteward.analyzer.sources.scrape.server_requests import read_servers
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.store_queries import (
    add_last_details,
    add_sample_times,
    count_fleet,
    detect_schemes,
    read_chart,
    read_work,
    run_queries,
)
from gpusteward.analyzer.sources.scrape.targets import ReportedNode, TargetRegistry, make_target_lists
from gpusteward.analyzer.sources.usage.absent_holders import SchemeState, list_rows_to_ask
from gpusteward.analyzer.sources.usage.coverage import ExpectedSamples
from gpusteward.analyzer.sources.usage.findings import (
    PodsOnTwoNodes,
    find_contradictions,
    find_failures,
)
from gpusteward.analyzer.sources.usage.inference_servers import list_possible_servers
from gpusteward.analyzer.sources.usage.label_mapping import ALL_CLUSTERS, ClusterChoice
from gpusteward.analyzer.sources.usage.partial_tables import (
    PartialTable,
    choose_rows,
    merge_partial_tables,
)
from gpusteward.analyzer.sources.usage.presence import list_stale_rows
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage.schemes import NATIVE, SCHEMES, MetricScheme
from gpusteward.analyzer.sources.usage.selectors import Matchers
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.analyzer.tables import ServerPod, UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import same_text
from gpusteward.core.usages import AllocationKey
from gpusteward.kubernetes.api import ApiServer
from gpusteward.messages.errors import source_errors as messages

_CLUSTER = "cluster"
MAX_SAMPLES = 20_000
"""Of one target, read on demand."""
MAX_STATES = 200
MAX_FAILURES = 50
_GPU_METRICS = frozenset(name.encode() for name in GPU_METRICS)
_PROCESS_METRICS = frozenset(name.encode() for name in PROCESS_METRICS)


class ScrapeSource:
    """Scrapes from its creation until it is closed. One thread at a time may read."""

    def __init__(
        self,
        settings: ScrapeSettings,
        *,
        window_seconds: float,
        condition: Matchers = (),
        clusters: ClusterChoice = ALL_CLUSTERS,
        api: ApiServer | None = None,
        own_cluster: str = "",
        own_namespace: str = "",
        limits: MemoryLimits = DEFAULT_LIMITS,
        before: "ScrapeSource | None" = None,
    ) -> None:
        """`api`: lists pods, which are in `own_cluster` and, unless the settings name others, in `own_namespace`, if
        neither targets nor a file are set. `before`: a source with the samples to continue with, if they fit the
        settings. Raises ConfigurationError."""
        self._settings = settings
        self._window_seconds = window_seconds
        labels = {clusters.label or _CLUSTER: own_cluster}
        lists = make_target_lists(settings, api, own_namespace=own_namespace, labels=labels)
        self._registry = TargetRegistry(lists, limit=settings.target_limit)
        options = StoreOptions(
            interval=settings.interval,
            keep_seconds=window_seconds * settings.keep_windows,
            limits=limits,
            condition=condition,
            clusters=clusters,
        )
        same = before if before is not None and before.store.options == options else None
        self.store: SampleStore = same.store if same else SampleStore(options)
        self._states: dict[MetricScheme, SchemeState] = (
            same._states if same else {scheme: SchemeState() for scheme in SCHEMES}
        )
        self._expected = ExpectedSamples(window_seconds=window_seconds, fixed_interval=settings.interval)
        self._condition = condition
        self._schemes: tuple[DetectedScheme, ...] = ()
        self._twins = PodsOnTwoNodes()
        self._has_history = False  # samples were added by `ingest`, so the first read need not wait for scrapes
        self._loop = ScrapeLoop(self._registry, self.store, settings, limits=limits)
        if self._registry.origins:
            self._loop.start()

    @property
    def target_counts(self) -> Mapping[str, int]:
        """Targets by the state of their last scrape: up, down."""
        health = self._loop.health.copy().values()  # another thread scrapes
        down = sum(bool(state.error) for state in health)
        return {"up": len(health) - down, "down": down}

    @property
    def request_counts(self) -> Mapping[str, int]:
        """Scrapes since the start by result: ok or failed."""
        return self._loop.scrape_counts

    def ingest(
        self, target: str, page: bytes, at: float, *, node: str = "", pod_labels: Mapping[str, str] | None = None
    ) -> int:
        """Add a page as if it had been scraped at that time. Returns the number of values.

        For existing history; the times of one target must increase. `node`: the only one that it reports, if known.
        `pod_labels`: of the pod that it is, as scraping would write them.
        """
        self._has_history = True
        reported = ReportedNode(node) if node else ReportedNode(may_be_any=True)
        origin = PageOrigin(pod_labels=pod_labels or {}, node=reported)
        return self.store.ingest(target, page, at, make_origin=lambda: origin)

    def read(self, at: float) -> UsageTable:
        """Every allocation over the window before `at`. Raises SourceError if no target has samples.

        The first read waits until every target has been tried once: a window that ended before would be empty.
        """
        if self._registry.origins and not self._has_history:
            at = max(at, self._loop.wait_for_first_round(2 * self._settings.timeout))
        if not len(self.store):
            health, origins = dict(self._loop.health), self._registry.origins
            errors = [*self._registry.errors.values(), *(state.error for state in health.values() if state.error)]
            if errors and origins:
                raise SourceError(messages.NO_TARGET_READ, count=len(health), reason=errors[0])
            raise SourceError(messages.NO_TARGETS if origins else messages.NO_SOURCE, origins=", ".join(origins))
        self._schemes = detect_schemes(self.store.list_names())
        window = self.store.read_window(at, self._window_seconds)
        tables = [self._read_scheme(detected, window, at) for detected in self._schemes]
        states = [self._states[detected.scheme] for detected in self._schemes]
        chosen = choose_rows(tables, [state.stale.without_samples for state in states])
        table = self._twins.mark(merge_partial_tables(tables, chosen, at=at, window_seconds=self._window_seconds))
        failures = {name: same_text(reason) for name, reason in self._registry.errors.items()}
        if twins := self._twins.describe():
            failures["clusters"] = twins
        contradictions = find_contradictions(table, [state.unheld_work for state in states], ())
        findings = (*find_failures(failures), *contradictions)
        table = replace(table, fleet=count_fleet(window), findings=findings, clock_skew=self._find_clock_skew())
        return replace(table, servers=self.read_servers(at, seconds=self._window_seconds))

    def _find_clock_skew(self) -> float | None:
        """The middle one of all targets that respond: neither a node with a wrong clock decides, nor a target that
        lies."""
        found = [one.clock_offset for one in self._loop.health.copy().values() if not one.error]
        known = sorted(offset for offset in found if offset is not None)
        return known[len(known) // 2] + time.monotonic() - time.time() if known else None

    def _read_scheme(self, detected: DetectedScheme, window: StoreWindow, at: float) -> PartialTable:
        scheme, state = detected.scheme, self._states[detected.scheme]
        previous_rows = state.stale.list_previous_rows(window.rows.holders[scheme], at)
        results = run_queries(detected, window, previous_rows=previous_rows)
        results.reports_unheld_devices = reports_unheld_devices(scheme, self._condition)
        if without_details := state.stale.find_without_details(list_stale_rows(results)):
            add_last_details(results, window, without_details)
        if rows := list_rows_to_ask(results, expected=self._expected, at=at):
            add_sample_times(results, self.store, rows, at=at, seconds=self._window_seconds)
        return state.build_table(results, expected=self._expected, at=at)

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        """The chart of one allocation before `at`, as far back as samples are kept."""
        return read_chart(self.store, self._schemes, allocation, at=at, seconds=seconds)

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> list[Chart]:
        """Everything about each of these allocations that can prove work before `at`, with the times of the scrapes."""
        return read_work(self.store, self._schemes, allocations, at=at, seconds=seconds)

    def read_processes(self, pods: Collection[PodKey], at: float) -> PodProcesses:
        """The processes of these pods, from pages fetched now. Raises SourceError if all their agents fail."""
        parts = [
            self._read_processes([pod for pod in pods if pod.cluster == cluster], cluster, at)
            for cluster in sorted({pod.cluster for pod in pods})
        ]
        processes = [process for part in parts for process in part.processes]
        return PodProcesses(processes, frozenset(pod for part in parts for pod in part.reported))

    def _read_processes(self, pods: Collection[PodKey], cluster: str, at: float) -> PodProcesses:
        """A page does not name its cluster: the target does."""
        names = frozenset((pod.namespace, pod.name) for pod in pods)

        def read(target: str, page: bytes) -> list[LiveSample]:
            own = (
                sample._replace(labels={**sample.labels, _CLUSTER: cluster})
                for sample in _parse_samples(page, _PROCESS_METRICS, at)
                if (sample.labels.get("namespace", ""), sample.labels.get("pod", "")) in names
                and self.store.may_report(target, sample.labels.get("node", ""))
            )
            return list(islice(own, MAX_SAMPLES))

        samples = self._loop.fetch_now(self._find_targets(pods), read)
        return collect_processes(chain.from_iterable(samples), pods, replace(NATIVE_LABELS, cluster=_CLUSTER))

    def read_host_use(self, pods: Collection[PodKey], at: float, *, seconds: float) -> dict[PodKey, HostUse]:
        """From the counters of gpusteward's agents. Nothing scrapes cAdvisor: what they do not have is unknown."""
        found: dict[PodKey, HostUse] = {}
        for cluster in sorted({pod.cluster for pod in pods}):
            own = [pod for pod in pods if pod.cluster == cluster]
            names = [(pod.namespace, pod.name) for pod in own]
            uses = self.store.read_host_use(self._find_targets(own), names, at, seconds=seconds)
            found |= {pod: use for pod, use in zip(own, uses.values(), strict=True) if use != HostUse()}
        return found

    def read_servers(self, at: float, *, seconds: float) -> Sequence[ServerPod]:
        """Those among the targets; nothing scrapes servers by itself."""
        return read_servers(self.store, at=at, seconds=seconds)

    def read_gpus(self, node: str, cluster: str, at: float) -> list[ReportedGpu]:
        """The GPUs of a node, from pages fetched now. Raises SourceError if all its exporters fail."""
        del cluster  # a target knows its node; nodes of the same name in two clusters have different GPUs

        def read(_: str, page: bytes) -> list[LiveSample]:
            return list(islice(_parse_samples(page, _GPU_METRICS, at), MAX_SAMPLES))

        with self.store.lock_targets() as (_labels, targets):
            names = [target for target, samples in targets.items() if samples.node.node == node]
        pages = self._loop.fetch_now(names, read)
        return collect_readings((sample, find_labels(sample.metric)) for sample in chain.from_iterable(pages))

    def _find_targets(self, pods: Collection[PodKey]) -> list[str]:
        """Targets that report these pods."""
        with self.store.lock_targets() as (series_labels, targets):
            keys = series_labels.holders[NATIVE].keys
            holders = frozenset(row for row, key in enumerate(keys) if key.pod_key in pods)
            return [target for target, samples in targets.items() if samples.series.has_any(holders)]

    def describe(self) -> Mapping[str, Any]:
        """The targets, failing ones first, their scrapes, and what was found there, as plain data for people."""
        targets = [self._describe_target(name, state) for name, state in sorted(dict(self._loop.health).items())]
        failed = {target["target"]: target["error"] for target in targets if target["error"]}
        bad_lines = Counter[str]()
        for target in targets:
            bad_lines.update(target["bad_lines"])
        failures = {**self._registry.errors, **dict(list(failed.items())[:MAX_FAILURES])}
        if twins := self._twins.describe():
            failures["clusters"] = twins.en
        return {
            "url": "",
            "engine": "gpusteward",
            "version": __version__,
            "scrape_intervals_seconds": {"scrape": self._settings.interval},
            # Each target may have its own labels.
            "dialects": [{**detected.describe(), "labels": {}} for detected in self._schemes],
            "inference_servers": list_possible_servers(self.store.list_names()),
            "origins": list(self._registry.origins),
            "targets": len(targets),
            "targets_up": len(targets) - len(failed),
            "targets_left_out": self._registry.omitted,
            "scrapes": {"ok": self.request_counts.get("ok", 0), "failed": self.request_counts.get("failed", 0)},
            "series": self.store.series,
            "bad_lines": dict(bad_lines),
            "failures": failures if self._registry.origins else {"targets": messages.NO_SOURCE.en},
            "states": sorted(targets, key=lambda target: not (target["error"] or target["bad_lines"]))[:MAX_STATES],
        }

    def _describe_target(self, name: str, state: TargetHealth) -> dict[str, Any]:
        summary = self.store.describe_target(name)
        return {
            "target": name,
            "error": state.error,
            "failures_in_a_row": state.failures_in_a_row,
            "scrapes": state.scrapes,
            "scraped_at": state.scraped_at,
            "seconds": round(state.seconds, 4),
            "page_bytes": state.page_bytes,
            "values": state.values,
            "series": summary.series,
            "bad_lines": summary.error_counts,
            "examples": summary.error_examples,
        }

    def close(self) -> None:
        self._loop.close()


def _parse_samples(page: bytes, metrics: Collection[bytes], at: float) -> Iterator[LiveSample]:
    """Of these metrics. Malformed lines are counted by the regular scrapes, not here."""
    errors = ParseErrors()
    for line in split_lines(page):
        if line[: line.find(b"{")] in metrics and (parsed := parse_line(line, errors=errors)):
            value = parse_value(line, parsed.end, errors=errors, at=at)
            if value is not None:
                yield LiveSample(parsed.name.decode(), parsed.labels, value)
