"""The source that the settings speak of now; other settings bring another one, between two cycles."""

import os
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.pod_processes import Pod, Running
from gpusteward.analyzer.sources.promql.matchers import parse_condition
from gpusteward.analyzer.sources.usage_source import Chart, UsageSource
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import AllocationKey
from gpusteward.kubernetes.api import ApiServer


class CountingSource(UsageSource, Protocol):
    """A source that counts what it asks others for."""

    @property
    def asked(self) -> Mapping[str, int]: ...


class CurrentSource:
    """A `UsageSource` that can be turned to another one. Charts that are being read then fail and say so."""

    def __init__(self, settings: Settings, *, environ: Mapping[str, str] = os.environ) -> None:
        """Raises ConfigurationError."""
        self._environ = environ
        self._chosen = _choice(settings)
        self._source = self._open(settings)
        self._asked_before = Counter[str](ok=0, failed=0)  # of sources that are gone
        self._is_closed = False

    @property
    def asked(self) -> Mapping[str, int]:
        """Requests since the start by result: ok or failed."""
        return self._asked_before + Counter(self._source.asked)

    @property
    def source(self) -> CountingSource:
        """The one in use."""
        return self._source

    def adopt(self, settings: Settings) -> None:
        """Turn to another source if the settings say so. Raises ConfigurationError; the old one then stays."""
        if _choice(settings) == self._chosen or self._is_closed:
            return
        before = self._source
        self._source = self._open(settings, before)
        self._chosen = _choice(settings)
        before.close()
        self._asked_before.update(before.asked)

    def read(self, at: float) -> UsageTable:
        return self._source.read(at)

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        return self._source.read_series(allocation, at, seconds=seconds)

    def read_processes(self, pods: Collection[Pod], at: float) -> Running:
        return self._source.read_processes(pods, at)

    def describe(self) -> Mapping[str, Any]:
        return self._source.describe()

    def close(self) -> None:
        self._is_closed = True
        self._source.close()

    def _open(self, settings: Settings, before: CountingSource | None = None) -> CountingSource:
        """An engine where one is set, else the exporters themselves. Only what is used is loaded."""
        if settings.prometheus.url:
            from gpusteward.analyzer.sources.promql.source import PrometheusSource

            return PrometheusSource(settings.prometheus, max_workers=settings.scheduler.max_workers)
        from gpusteward.analyzer.sources.scrape.source import ScrapeSource

        return ScrapeSource(
            settings.scrape,
            window_seconds=settings.prometheus.window_seconds,
            condition=parse_condition(settings.prometheus.query_condition),
            api=self._find_api(settings),
            before=before if isinstance(before, ScrapeSource) else None,
        )

    def _find_api(self, settings: Settings) -> ApiServer | None:
        """The API server of the settings, else of this cluster, else none."""
        if settings.scrape.kubernetes == "never":
            return None
        if settings.kubernetes.api_url:
            return ApiServer(settings.kubernetes.api_url, timeout_seconds=settings.kubernetes.timeout)
        try:
            return ApiServer.from_cluster(self._environ)
        except SourceError:
            return None


def _choice(settings: Settings) -> tuple[object, ...]:
    if settings.prometheus.url:
        return settings.prometheus, settings.scheduler.max_workers
    judged = settings.prometheus.window_seconds, settings.prometheus.query_condition
    return settings.scrape, settings.kubernetes, judged
