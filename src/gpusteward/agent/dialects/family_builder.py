"""A sheet of samples on its way to become families: metrics in the order they were first spoken of."""

from collections.abc import Sequence

from gpusteward.core.exposition import Family, Samples
from gpusteward.core.metrics import Metric


class Rows:
    """Several facts about things of one kind; everything told about one thing carries the same labels."""

    def __init__(self, columns: Sequence[Samples]) -> None:
        self._columns = columns

    def write(self, labels: str, *values: float | None) -> None:
        """A value for each metric. `None` is unknown and leaves no sample."""
        for column, value in zip(self._columns, values, strict=True):
            if value is not None:
                column.append((labels, value))


class Sheet:
    """Collects samples by metric."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def rows(self, *metrics: Metric) -> Rows:
        """Where things that these metrics are about are written, one after another."""
        return Rows([self.column(metric) for metric in metrics])

    def column(self, metric: Metric) -> Samples:
        return self._families.setdefault(metric.name, Family(metric, [])).samples

    def families(self) -> list[Family]:
        return list(self._families.values())
