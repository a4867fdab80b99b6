"""The source that the settings speak of now; other settings bring another engine, between two cycles."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from gpusteward.analyzer.read.prometheus.source import PrometheusSource
from gpusteward.analyzer.read.sources import Chart
from gpusteward.analyzer.settings.gathered import Settings
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.usages import Holding


class CurrentSource:
    """A `UsageSource` that can be turned to another engine. Charts that are being read then fail and say so."""

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigurationError."""
        self._chosen = _choice(settings)
        self._source = _open(settings)
        self._asked_before = Counter[str](ok=0, failed=0)  # of engines that are gone
        self._is_closed = False

    @property
    def asked(self) -> Mapping[str, int]:
        """Requests since the start by result: ok or failed."""
        return self._asked_before + Counter(self._source.asked)

    def adopt(self, settings: Settings) -> None:
        """Turn to another engine if the settings say so. Raises ConfigurationError; the old one then stays."""
        if _choice(settings) == self._chosen or self._is_closed:
            return
        before, self._source = self._source, _open(settings)
        self._chosen = _choice(settings)
        before.close()
        self._asked_before.update(before.asked)

    def read(self, at: float) -> UsageTable:
        return self._source.read(at)

    def read_series(self, holding: Holding, at: float, *, seconds: float) -> Chart:
        return self._source.read_series(holding, at, seconds=seconds)

    def describe(self) -> Mapping[str, Any]:
        return self._source.describe()

    def close(self) -> None:
        self._is_closed = True
        self._source.close()


def _choice(settings: Settings) -> tuple[object, int]:
    return settings.prometheus, settings.scheduler.max_workers


def _open(settings: Settings) -> PrometheusSource:
    return PrometheusSource(settings.prometheus, max_workers=settings.scheduler.max_workers)
