"""`ActiveSource`: the source of the present settings; replaced between two cycles when the settings change, or when an
engine that is found by its Service has moved."""

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.live_readings import HostUse, PodProcesses, ReportedGpu
from gpusteward.analyzer.sources.owners.cluster_owners import open_api
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage.selectors import parse_condition
from gpusteward.analyzer.sources.usage_source import Chart, UsageSource
from gpusteward.analyzer.tables import ServerPod, UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import AllocationKey
from gpusteward.kubernetes.api import ApiServer, read_own_namespace
from gpusteward.logs import Log
from gpusteward.messages.errors import source_errors

if TYPE_CHECKING:
    from gpusteward.analyzer.sources.engine.found_engine import EngineService

log = Log(__name__)


class ActiveSource:
    """The source of the present settings: a `UsageSource` that passes calls on. A chart that is read while the source
    is replaced fails."""

    def __init__(self, settings: Settings, *, environ: Mapping[str, str] = os.environ) -> None:
        """Raises ConfigurationError."""
        self._environ = environ
        self._source: UsageSource | None = None  # None: the Service of the engine was not found yet
        self._closed_counts = Counter[str](ok=0, failed=0)  # requests of sources that were replaced
        self._is_closed = False
        self._adopt(settings)

    @property
    def source(self) -> UsageSource:
        """The source in use. Raises SourceError while there is none."""
        if self._source is None:
            raise SourceError(source_errors.ENGINE_NOT_FOUND)
        return self._source

    def adopt(self, settings: Settings) -> None:
        """Replace the source if its settings changed. Raises ConfigurationError, and then keeps the old one."""
        if _relevant_settings(settings) != _relevant_settings(self._settings) and not self._is_closed:
            self._adopt(settings)

    def _adopt(self, settings: Settings) -> None:
        finds_service = settings.prometheus.finds_service
        self._replace(None if finds_service else self._open(settings, self._source))
        self._settings = settings
        self._must_find = finds_service
        self._service: EngineService | None = None
        self._service_error = ""

    def _replace(self, source: UsageSource | None) -> None:
        before, self._source = self._source, source
        if before is not None:
            before.close()
            self._closed_counts.update(before.request_counts)

    def read(self, at: float) -> UsageTable:
        """Raises SourceError, also if the Service of the engine is not found."""
        if self._must_find:
            self._find_service()
        try:
            return self.source.read(at)
        except SourceError:
            self._must_find = self._settings.prometheus.finds_service
            raise

    def _find_service(self) -> None:
        """Raises SourceError. A Service that was used and is still the only one keeps its connections."""
        from gpusteward.analyzer.sources.engine.found_engine import find_engine_service

        try:
            api = open_api(self._settings.kubernetes, self._environ)
            service = find_engine_service(api, self._settings.prometheus)
        except SourceError as error:
            self._service_error = str(error)
            raise
        self._service_error, self._must_find = "", False
        if service != self._service:
            log.info("engine_found", service=service, url=service.url)
            self._replace(self._open_engine(self._settings, service.url))
            self._service = service

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        return self.source.read_series(allocation, at, seconds=seconds)

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> Sequence[Chart]:
        return self.source.read_work(allocations, at, seconds=seconds)

    def read_processes(self, pods: Collection[PodKey], at: float) -> PodProcesses:
        return self.source.read_processes(pods, at)

    def read_host_use(self, pods: Collection[PodKey], at: float, *, seconds: float) -> Mapping[PodKey, HostUse]:
        return self.source.read_host_use(pods, at, seconds=seconds)

    def read_servers(self, at: float, *, seconds: float) -> Sequence[ServerPod]:
        return self.source.read_servers(at, seconds=seconds)

    def read_gpus(self, node: str, cluster: str, at: float) -> Sequence[ReportedGpu]:
        return self.source.read_gpus(node, cluster, at)

    def describe(self) -> Mapping[str, Any]:
        """As of the source, and which Service of an engine it is."""
        found = {"service": str(self._service)} if self._service else {}
        failures = {"failures": {"service": self._service_error}} if self._service_error else {}
        return {**(self._source.describe() if self._source else {}), **found, **failures}

    @property
    def request_counts(self) -> Mapping[str, int]:
        """Requests since the start by result: ok or failed."""
        return self._closed_counts + Counter(self._source.request_counts if self._source else {})

    @property
    def target_counts(self) -> Mapping[str, int]:
        return self._source.target_counts if self._source else {}

    def close(self) -> None:
        self._is_closed = True
        if self._source is not None:
            self._source.close()

    def _open(self, settings: Settings, before: UsageSource | None) -> UsageSource:
        """The engine or engines if configured, else the scraped exporters. Imports only what is used."""
        addresses, pod_labels, limits = (
            settings.prometheus.addresses,
            settings.ledger.pod_labels,
            settings.memory.limits,
        )
        if len(addresses) == 1:
            return self._open_engine(settings, addresses[0])
        if addresses:
            from gpusteward.analyzer.sources.promql.several_engines import SeveralEngines

            workers = settings.scheduler.max_workers
            return SeveralEngines(settings.prometheus, max_workers=workers, pod_labels=pod_labels, limits=limits)
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

    def _open_engine(self, settings: Settings, url: str) -> UsageSource:
        from gpusteward.analyzer.sources.promql.source import PrometheusSource

        return PrometheusSource(
            settings.prometheus.with_url(url),
            max_workers=settings.scheduler.max_workers,
            pod_labels=settings.ledger.pod_labels,
            limits=settings.memory.limits,
        )

    def _find_api(self, settings: Settings) -> ApiServer | None:
        """The API server of the settings, else that of this cluster, else none."""
        if not settings.scrape.selector:
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
