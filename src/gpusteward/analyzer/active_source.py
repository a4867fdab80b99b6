"""`ActiveSource`: the source of the present settings; replaced between two cycles when the settings change."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.live_readings import Pod, PodProcesses, ReportedGpu
from gpusteward.analyzer.sources.owners.cluster_owners import open_api
from gpusteward.analyzer.sources.usage.selectors import parse_condition
from gpusteward.analyzer.sources.usage_source import Chart, CountingSource
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import AllocationKey
from gpusteward.kubernetes.api import ApiServer, read_own_namespace
from gpusteward.logs import Log

log = Log(__name__)


class ActiveSource:
    """A `UsageSource` that passes calls on to a replaceable one. Charts being read during a replacement fail."""

    def __init__(self, settings: Settings, *, environ: Mapping[str, str] = os.environ) -> None:
        """Raises ConfigurationError."""
        self._environ = environ
        self._opened_for = _relevant_settings(settings)
        self._source = self._open(settings)
        self._closed_counts = Counter[str](ok=0, failed=0)  # requests of sources that were replaced
        self._is_closed = False

    @property
    def request_counts(self) -> Mapping[str, int]:
        """Requests since the start by result: ok or failed."""
        return self._closed_counts + Counter(self._source.request_counts)

    @property
    def target_counts(self) -> Mapping[str, int]:
        return self._source.target_counts

    @property
    def source(self) -> CountingSource:
        """The source in use."""
        return self._source

    def adopt(self, settings: Settings) -> None:
        """Replace the source if its settings changed. Raises ConfigurationError, and then keeps the old one."""
        if _relevant_settings(settings) == self._opened_for or self._is_closed:
            return
        before = self._source
        self._source = self._open(settings, before)
        self._opened_for = _relevant_settings(settings)
        before.close()
        self._closed_counts.update(before.request_counts)

    def read(self, at: float) -> UsageTable:
        return self._source.read(at)

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        return self._source.read_series(allocation, at, seconds=seconds)

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> Sequence[Chart]:
        return self._source.read_work(allocations, at, seconds=seconds)

    def read_processes(self, pods: Collection[Pod], at: float) -> PodProcesses:
        return self._source.read_processes(pods, at)

    def read_gpus(self, node: str, cluster: str, at: float) -> Sequence[ReportedGpu]:
        return self._source.read_gpus(node, cluster, at)

    def describe(self) -> Mapping[str, Any]:
        return self._source.describe()

    def close(self) -> None:
        self._is_closed = True
        self._source.close()

    def _open(self, settings: Settings, before: CountingSource | None = None) -> CountingSource:
        """The engine or engines if configured, else the scraped exporters. Imports only what is used."""
        addresses, max_workers = settings.prometheus.addresses, settings.scheduler.max_workers
        pod_labels, limits = settings.ledger.pod_labels, settings.memory.limits
        if len(addresses) > 1:
            from gpusteward.analyzer.sources.promql.several_engines import SeveralEngines

            return SeveralEngines(settings.prometheus, max_workers=max_workers, pod_labels=pod_labels, limits=limits)
        if addresses or settings.prometheus.finds_service:
            from gpusteward.analyzer.sources.promql.source import PrometheusSource

            def open_engine(url: str) -> CountingSource:
                engine = settings.prometheus.with_url(url)
                return PrometheusSource(engine, max_workers=max_workers, pod_labels=pod_labels, limits=limits)

            return open_engine(addresses[0]) if addresses else self._find_engine(settings, open_engine)
        from gpusteward.analyzer.sources.scrape.source import ScrapeSource

        return ScrapeSource(
            settings.scrape,
            window_seconds=settings.prometheus.window_seconds,
            condition=parse_condition(settings.prometheus.query_condition),
            clusters=replace(settings.prometheus.cluster_choice, pod_labels=pod_labels),
            api=self._find_api(settings),
            own_cluster=settings.kubernetes.cluster,
            own_namespace=read_own_namespace(self._environ),
            limits=limits,
            before=before if isinstance(before, ScrapeSource) else None,
        )

    def _find_engine(self, settings: Settings, open_engine: Callable[[str], CountingSource]) -> CountingSource:
        from gpusteward.analyzer.sources.engine.found_engine import EngineService, FoundEngine, find_engine_service

        def find() -> EngineService:
            return find_engine_service(open_api(settings.kubernetes, self._environ), settings.prometheus)

        return FoundEngine(find, open_engine)

    def _find_api(self, settings: Settings) -> ApiServer | None:
        """The API server of the settings, else that of this cluster, else none."""
        if settings.scrape.kubernetes == "never":
            return None
        try:
            return open_api(settings.kubernetes, self._environ)
        except SourceError:
            return None


def _relevant_settings(settings: Settings) -> tuple[object, ...]:
    if settings.prometheus.addresses:
        return settings.prometheus, settings.scheduler.max_workers, settings.memory
    if settings.prometheus.finds_service:
        return settings.prometheus, settings.scheduler.max_workers, settings.memory, settings.kubernetes
    engine = settings.prometheus
    shared = engine.window_seconds, engine.query_condition, engine.cluster_choice
    return settings.scrape, settings.kubernetes, settings.memory, shared
