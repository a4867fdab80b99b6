"""The last values of one target, in arrays of fixed size: one line a scrape, one column a series.

All series of a target are scraped together, so they share their moments. NaN is no value: a series that was not on the
page, or a scrape that failed.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.tables import Column

Places = NDArray[np.int64]

_SPARE = 8
LOOK_BACK_SECONDS = 300.0
"""As far back as Prometheus looks for a last value."""


@dataclass(frozen=True, slots=True)
class Folded:
    """A window of each column as numbers; NaN where there was no sample."""

    mean: Column
    peak: Column
    spread: Column
    count: Column


class Moments:
    """When scrapes were made; a ring."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.times: Column = np.full(capacity, -np.inf)
        self.head = -1  # line of the last scrape

    @property
    def last(self) -> float:
        return float(self.times[self.head]) if self.head >= 0 else -np.inf

    def advance(self, at: float) -> int:
        """The line for a scrape at that moment. A clock that was set back starts anew."""
        if at < self.last:
            self.times[:] = -np.inf
        self.head = (self.head + 1) % self.capacity
        self.times[self.head] = at
        return self.head

    def within(self, start: float, end: float) -> Places:
        """Lines after `start` up to `end`, oldest first."""
        order = np.arange(self.head + 1, self.head + 1 + self.capacity) % self.capacity
        times = self.times[order]
        return order[(times > start) & (times <= end)]


class Ring:
    """Values of a growing number of columns."""

    def __init__(self, capacity: int, kind: type[np.float32] | type[np.float64]) -> None:
        self._capacity = capacity
        self._kind = kind
        self.width = 0
        self._values: NDArray[np.float32 | np.float64] = np.full((capacity, 0), np.nan, kind)

    @property
    def nbytes(self) -> int:
        return self._values.nbytes

    def widen(self, width: int) -> None:
        if width > self._values.shape[1]:
            grown = np.full((self._capacity, width + _SPARE + width // 8), np.nan, self._kind)
            grown[:, : self.width] = self._values[:, : self.width]
            self._values = grown
        self.width = width

    def write(self, line: int, values: Column) -> None:
        self._values[line, : self.width] = values

    def take(self, lines: Places) -> NDArray[np.float64]:
        return np.asarray(self._values[lines, : self.width], np.float64)

    def take_column(self, column: int, lines: Places) -> Column:
        return np.asarray(self._values[lines, column], np.float64)

    def keep(self, columns: Places) -> None:
        """Only these columns, in this order."""
        kept = self._values[:, columns]
        self.width = len(columns)
        self._values = np.ascontiguousarray(kept)


def fold(block: NDArray[np.float64]) -> Folded:
    """Every column of a window: lines are samples."""
    if not block.size:
        nothing = np.full(block.shape[1], np.nan)
        return Folded(nothing, nothing, nothing, nothing)
    is_there = ~np.isnan(block)
    count = is_there.sum(axis=0).astype(np.float64)
    count[count == 0] = np.nan
    mean = np.where(is_there, block, 0.0).sum(axis=0) / count
    away = np.where(is_there, block - mean, 0.0)
    spread = np.sqrt((away * away).sum(axis=0) / count)
    return Folded(mean, np.fmax.reduce(block, axis=0), spread, count)
