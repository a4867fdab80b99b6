"""`ActiveSource`: the source of the present settings; replaced between two cycles when the settings change."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.owners.cluster_owners import open_api
from gpusteward.analyzer.sources.usage.selectors import parse_condition
from gpusteward.analyzer.sources.usage_source import ReplaceableSource, UsageSource
from gpusteward.core.errors import SourceError
from gpusteward.kubernetes.api import ApiServer, read_own_namespace
from gpusteward.logs import Log

log = Log(__name__)


class ActiveSource(ReplaceableSource):
    """The source of the present settings."""

    def __init__(self, settings: Settings, *, environ: Mapping[str, str] = os.environ) -> None:
        """Raises ConfigurationError."""
        super().__init__()
        self._environ = environ
        self._opened_for = _relevant_settings(settings)
        self._source = self._open(settings)
        self._is_closed = False

    def adopt(self, settings: Settings) -> None:
        """Replace the source if its settings changed. Raises ConfigurationError, and then keeps the old one."""
        if _relevant_settings(settings) != self._opened_for and not self._is_closed:
            self._replace(self._open(settings, self._source))
            self._opened_for = _relevant_settings(settings)

    def close(self) -> None:
        self._is_closed = True
        super().close()

    def _open(self, settings: Settings, before: UsageSource | None = None) -> UsageSource:
        """The engine or engines if configured, else the scraped exporters. Imports only what is used."""
        addresses, max_workers = settings.prometheus.addresses, settings.scheduler.max_workers
        pod_labels, limits = settings.ledger.pod_labels, settings.memory.limits
        if len(addresses) > 1:
            from gpusteward.analyzer.sources.promql.several_engines import SeveralEngines

            return SeveralEngines(settings.prometheus, max_workers=max_workers, pod_labels=pod_labels, limits=limits)
        if addresses or settings.prometheus.finds_service:
            from gpusteward.analyzer.sources.promql.source import PrometheusSource

            def open_engine(url: str) -> UsageSource:
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

    def _find_engine(self, settings: Settings, open_engine: Callable[[str], UsageSource]) -> UsageSource:
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
