"""`PrometheusSource`: the usage table from a Prometheus-compatible engine."""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpusteward.analyzer.setting_values import mask_password
from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.live_readings import HostUse, PodProcesses, ReportedGpu
from gpusteward.analyzer.sources.memory_limits import DEFAULT_LIMITS, MemoryLimits
from gpusteward.analyzer.sources.promql.discovery import (
    VICTORIA,
    DiscoveryResult,
    discover,
    has_new_nodes,
)
from gpusteward.analyzer.sources.promql.expressions import Window
from gpusteward.analyzer.sources.promql.fleet import SharedUuids
from gpusteward.analyzer.sources.promql.host_use import read_host_use
from gpusteward.analyzer.sources.promql.on_demand_queries import (
    read_chart,
    read_node_gpus,
    read_pod_processes,
    read_work,
)
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme
from gpusteward.analyzer.sources.promql.recording_rules import RuleFreshness
from gpusteward.analyzer.sources.promql.request_queries import read_servers
from gpusteward.analyzer.sources.promql.sample_timing import SampleLag
from gpusteward.analyzer.sources.promql.scheme_reader import MAX_ENDED_ROWS, PARTIAL_RESPONSES, ReadCycle, SchemeReader
from gpusteward.analyzer.sources.promql.site_checks import SiteChecks
from gpusteward.analyzer.sources.usage.findings import (
    PodsOnTwoNodes,
    find_contradictions,
    find_failures,
)
from gpusteward.analyzer.sources.usage.partial_tables import choose_rows, merge_partial_tables
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage.schemes import SCHEMES
from gpusteward.analyzer.sources.usage.selectors import parse_condition
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.analyzer.tables import ServerPod, SiteFinding, UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message, same_text
from gpusteward.core.usages import AllocationKey
from gpusteward.logs import Log
from gpusteward.messages import unknown_reasons
from gpusteward.messages.errors import source_errors

log = Log(__name__)

_NO_METRICS = "metrics"  # key among the failures; whether GPUs should be there, `gpu_presence` finds out
MAX_SKEW_SECONDS = 60.0
"""If the clocks of engine and analyzer differ by more, their windows do not match."""
_HIDDEN_SECONDS = 30.0
"""VictoriaMetrics hides samples for so long (`-search.latencyOffset`)."""


class PrometheusSource:
    """Reads all of one engine: discovers what it has, queries it, merges the results. `read` is not thread-safe."""

    def __init__(
        self,
        settings: PrometheusSettings,
        *,
        max_workers: int | None = None,
        max_ended_rows: int = MAX_ENDED_ROWS,
        pod_labels: tuple[str, ...] = (),
        limits: MemoryLimits = DEFAULT_LIMITS,
    ) -> None:
        """`max_ended_rows`: rows of ended allocations that may stay in memory. `pod_labels`: labels of pods to read.
        Raises ConfigurationError for settings that cannot be used."""
        self._settings = settings
        self._clusters = replace(settings.cluster_choice, pod_labels=pod_labels)
        self._engine = Engine(settings, max_workers=max_workers, limits=limits)
        self._condition = parse_condition(settings.query_condition)
        self._reader = SchemeReader(self._engine, settings, self._condition, max_ended_rows=max_ended_rows)
        self._rule_freshness = RuleFreshness(settings.window_seconds)
        self._discovered: DiscoveryResult | None = None
        self._cycles_until_discovery = 0
        self._shared_uuids = SharedUuids(self._engine, self._condition)
        self._checks = SiteChecks(self._engine, self._condition)
        self._failures: dict[str, Message] = {}
        self._lag = SampleLag()
        self._twins = PodsOnTwoNodes()
        self._is_partial = False  # stores of a distributed engine did not respond in the last cycle
        self._schemes_in_table: set[Hashable] = set()  # keys of the schemes with rows in the last table

    @property
    def discovered(self) -> DiscoveryResult | None:
        """What was found, None before the first discovery."""
        return self._discovered

    @property
    def target_counts(self) -> Mapping[str, int]:
        """None: the engine scrapes."""
        return {}

    @property
    def request_counts(self) -> Mapping[str, int]:
        """Requests since the start by result: ok or failed."""
        return self._engine.request_counts

    @property
    def series_limit(self) -> int:
        """How many series one query may select now: as configured, or fewer if the engine refused that many."""
        return self._reader.series_limit

    def describe(self) -> Mapping[str, Any]:
        """What was found, as plain data, and which queries failed in the last cycle."""
        found = self._discovered.as_plain() if self._discovered else {}
        lag = None if self._lag.seconds is None else round(self._lag.seconds, 1)
        failures = {name: reason.en for name, reason in self._failures.items()}
        return {"url": mask_password(self._settings.url), **found, "lag_seconds": lag, "failures": failures}

    def find_lag(self, at: float) -> float:
        """How long before `at` the window should end, because all samples arrive late by the same; discovers the site
        first if that is due. Raises SourceError."""
        discovered = self._discover(at)
        hidden = _HIDDEN_SECONDS if discovered.engine == VICTORIA else 0.0
        return self._lag.measure(self._engine, discovered.schemes, discovered.intervals, at=at, hidden=hidden)

    def read(self, at: float, *, lag: float | None = None) -> UsageTable:
        """Every allocation over the window before `at`; none for an engine with series but without GPU metrics. `lag`:
        how long before `at` the window ends; None: find it.

        Raises SourceError for an engine without any series, such as an empty tenant, and when nothing could be read,
        also of one scheme only: its rows must neither vanish nor come from a scheme that is trusted less.
        """
        lag = self.find_lag(at) if lag is None else lag
        at -= lag
        discovered = self._discovered or self._discover(at)
        self._failures = {}
        if not discovered.schemes and self._settings.clusters:
            self._failures["prometheus.clusters"] = source_errors.NO_SUCH_CLUSTERS
        elif not discovered.schemes:
            self._failures[_NO_METRICS] = source_errors.NO_GPU_METRICS
        # A rule over late samples records a window without the last ones.
        rules = frozenset[str]() if lag else self._choose_rules(discovered, at)
        cycle = ReadCycle(at, Window(self._settings.window_seconds, rules), self._failures)
        schemes = discovered.schemes
        tables = [self._reader.read(detected, cycle) for detected in schemes]
        states = [self._reader.state_of(detected) for detected in schemes]
        chosen = choose_rows(tables, [state.stale.without_samples for state in states])
        chosen = self._shared_uuids.leave_out(schemes, tables, chosen)
        table = merge_partial_tables(tables, chosen, at=at, window_seconds=self._settings.window_seconds)
        self._schemes_in_table = {detected.key for detected, rows in zip(schemes, chosen, strict=True) if rows}
        table = self._twins.mark(replace(table, lag_seconds=lag))
        table = self._checks.check(table, schemes, [state.devices for state in states])
        self._failures.update(self._list_failures(table, schemes))
        servers, failures = self._read_servers(discovered, at, seconds=self._settings.window_seconds)
        self._failures.update(failures)
        table = replace(table, servers=servers)
        self._finish_cycle(len(table))
        table = self._checks.mark_two_nodes(table)
        return self._mark_skew(replace(table, findings=tuple(self._find_findings(table, schemes))))

    def _read_servers(
        self, discovered: DiscoveryResult, at: float, *, seconds: float
    ) -> tuple[Sequence[ServerPod], dict[str, Message]]:
        """What inference servers say of their requests; a query that fails costs only that."""
        fixed = self._settings.scrape_interval_seconds
        intervals = {**({"": fixed} if fixed else {}), **discovered.intervals.seconds}
        return read_servers(self._engine, discovered.servers, at=at, window_seconds=seconds, intervals=intervals)

    def _list_failures(self, table: UsageTable, schemes: Sequence[DetectedScheme]) -> Iterator[tuple[str, Message]]:
        if shared := self._shared_uuids.describe(schemes):
            yield "UUID", shared
        # While a part of the engine does not respond, GPUs are not counted; that is said already.
        is_partial = self._is_partial or PARTIAL_RESPONSES in self._failures
        if self._checks.fleet_error and not is_partial:
            yield "number of GPUs", self._checks.fleet_error
        if twins := self._twins.describe():
            yield "clusters", twins
        yield from self._checks.list_failures(table, schemes)

    def _find_findings(self, table: UsageTable, schemes: Sequence[DetectedScheme]) -> Iterator[SiteFinding]:
        yield from find_failures({name: why for name, why in self._failures.items() if name != _NO_METRICS})
        unheld = [self._reader.state_of(detected).unheld_work for detected in schemes]
        is_working = any(part.working for part in unheld)
        labels = self._checks.list_labels(schemes, table.at) if is_working else ()
        yield from find_contradictions(table, unheld, labels)
        yield from self._checks.find_findings(table, schemes, is_unheld_work=is_working)

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        """The chart of one allocation before `at`. Raises SourceError."""
        schemes = (self._discovered or self._discover(at)).schemes
        return read_chart(self._engine, schemes, allocation, at=at, seconds=seconds, step=self._settings.step_seconds)

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> list[Chart]:
        """Everything about each of these allocations that can prove work before `at`. Raises SourceError."""
        schemes = (self._discovered or self._discover(at)).schemes
        return read_work(self._engine, schemes, allocations, at=at, seconds=seconds)

    def read_processes(self, pods: Collection[PodKey], at: float) -> PodProcesses:
        """The processes of these pods, where gpusteward's agent reports them. Raises SourceError."""
        schemes = (self._discovered or self._discover(at)).schemes
        return read_pod_processes(self._engine, schemes, pods, at)

    def read_host_use(self, pods: Collection[PodKey], at: float, *, seconds: float) -> dict[PodKey, HostUse]:
        """What these pods used of their hosts, from gpusteward's agent and cAdvisor. Raises SourceError."""
        schemes = (self._discovered or self._discover(at)).schemes
        return read_host_use(self._engine, schemes, pods, at=at, seconds=seconds)

    def read_servers(self, at: float, *, seconds: float) -> Sequence[ServerPod]:
        """What inference servers say of their requests before `at`. Raises SourceError."""
        return self._read_servers(self._discovered or self._discover(at), at, seconds=seconds)[0]

    def read_gpus(self, node: str, cluster: str, at: float) -> Sequence[ReportedGpu]:
        """The GPUs of a node, from gpusteward's agent and dcgm-exporter. Raises SourceError."""
        schemes = (self._discovered or self._discover(at)).schemes
        return read_node_gpus(self._engine, schemes, node, cluster, at)

    def close(self) -> None:
        self._engine.close()

    def _discover(self, at: float) -> DiscoveryResult:
        """The last result, or a new one when it is due."""
        last = self._discovered
        if last is None or self._cycles_until_discovery <= 0 or has_new_nodes(self._engine, last, at):
            window_seconds = self._settings.window_seconds
            found = discover(self._engine, self._condition, self._clusters, at=at, window_seconds=window_seconds)
            found = replace(found, schemes=self._shared_uuids.divide(found.schemes, at))
            last = self._keep_stale_schemes(found)
            if not last.has_series and not last.schemes:
                raise SourceError(source_errors.ENGINE_WITHOUT_DATA)
            self._discovered = last
            self._cycles_until_discovery = self._settings.relearn_cycles
            self._reader.expire()
            self._checks.expire()
            self._checks.gpu_jobs |= last.intervals.of_gpus - {""}
            self._reader.expected.update(last.intervals)
            schemes = ",".join(detected.scheme.name for detected in last.schemes)
            log.info("site_discovered", engine=last.engine, schemes=schemes or "none")
        self._cycles_until_discovery -= 1
        return last

    def _keep_stale_schemes(self, found: DiscoveryResult) -> DiscoveryResult:
        """A scheme that reports nothing now is not found; it is kept while it has rows in the table."""
        keys = {detected.detected_key for detected in found.schemes}
        stale = [
            detected
            for detected in (self._discovered.schemes if self._discovered else ())
            if detected.detected_key not in keys and detected.key in self._schemes_in_table
        ]
        schemes = sorted((*found.schemes, *stale), key=lambda one: SCHEMES.index(one.scheme))
        return replace(found, schemes=tuple(schemes)) if stale else found

    def _choose_rules(self, discovered: DiscoveryResult, at: float) -> frozenset[str]:
        if not discovered.rules or not self._settings.use_recording_rules:
            return frozenset()
        rules = self._rule_freshness.choose_rules(self._engine, discovered.rules, discovered.schemes, at)
        if self._rule_freshness.problem:
            self._failures["recording rules"] = same_text(self._rule_freshness.problem)
        return rules

    def _finish_cycle(self, table_rows: int) -> None:
        self._reader.finish_cycle(table_rows)
        was_partial, self._is_partial = self._is_partial, PARTIAL_RESPONSES in self._failures
        if was_partial and not self._is_partial:
            self._cycles_until_discovery = 0  # the stores that did not respond may have further metrics
        if self._reader.expected.new_jobs:
            self._cycles_until_discovery = 0  # their scrape interval will be known soon
        if not table_rows:
            self._discovered = None  # the metrics may have been renamed: discover again in the next cycle

    def _mark_skew(self, table: UsageTable) -> UsageTable:
        skew = self._engine.skew_seconds
        table = replace(table, clock_skew=skew)
        if skew is None or abs(skew) <= MAX_SKEW_SECONDS:
            return table
        reason = unknown_reasons.CLOCK_SKEW.fill(seconds=abs(skew))
        return replace(table, unknown=dict.fromkeys(range(len(table)), reason))
