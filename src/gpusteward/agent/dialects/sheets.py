"""A sheet of samples on its way to become families: metrics in the order they were first written."""

from gpusteward.core.exposition import Family
from gpusteward.core.metrics import Metric

Labels = tuple[tuple[str, str], ...]


class Sheet:
    """Collects samples by metric. A value of `None` is unknown and leaves no sample."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def write(self, labels: str, *values: tuple[Metric, float | None]) -> None:
        """Write several facts about the same thing, whose labels are rendered already."""
        for metric, value in values:
            if value is not None:
                self._family(metric).samples.append((labels, value))

    def families(self) -> list[Family]:
        return list(self._families.values())

    def _family(self, metric: Metric) -> Family:
        family = self._families.get(metric.name)
        if family is None:
            family = self._families[metric.name] = Family(metric, [])
        return family
