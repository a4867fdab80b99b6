"""The last values of one target in arrays of fixed size: one line per scrape, one column per series.

All series of a target are scraped together, so they share their scrape times. NaN means no value: the series was not
on the page, or the scrape failed.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.promql.expressions import (
    HOUR_SECONDS,
    HOUR_STEP_SECONDS,
    SPREADS,
    STEP_RANGE_SECONDS,
    STEP_SECONDS,
)
from gpusteward.analyzer.tables import Column

Lines = NDArray[np.int64]

_SPARE_COLUMNS = 8
_BLOCK_COLUMNS = 512
LOOK_BACK_SECONDS = 300.0
"""As far back as Prometheus looks for a last value."""
_NEAR_STEPS = 1.1
"""An end of the window that is further from the samples, in mean sample distances, is where the series began or
ended. The value is Prometheus' own."""


class ScrapeTimes:
    """The times of the last scrapes, in a ring."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.times: Column = np.full(capacity, -np.inf)
        self.head = -1  # line of the last scrape

    @property
    def last(self) -> float:
        return float(self.times[self.head]) if self.head >= 0 else -np.inf

    def advance(self, at: float) -> int:
        """The line for a scrape at that time. After a clock was set back, all earlier scrapes are dropped."""
        if at < self.last:
            self.times[:] = -np.inf
        self.head = (self.head + 1) % self.capacity
        self.times[self.head] = at
        return self.head

    def find_lines(self, start: float, end: float) -> Lines:
        """Lines after `start` up to `end`, oldest first."""
        order = np.arange(self.head + 1, self.head + 1 + self.capacity) % self.capacity
        times = self.times[order]
        return order[(times > start) & (times <= end)]


class RingBuffer:
    """Values of a growing number of columns."""

    def __init__(self, capacity: int, dtype: type[np.float32] | type[np.float64]) -> None:
        self._capacity = capacity
        self._dtype = dtype
        self.width = 0
        self._values: NDArray[np.float32 | np.float64] = np.full((capacity, 0), np.nan, dtype)

    @property
    def nbytes(self) -> int:
        return self._values.nbytes

    def widen(self, width: int) -> None:
        if width > self._values.shape[1]:
            wider = np.full((self._capacity, width + _SPARE_COLUMNS + width // 8), np.nan, self._dtype)
            wider[:, : self.width] = self._values[:, : self.width]
            self._values = wider
        self.width = width

    def write(self, line: int, values: Column) -> None:
        self._values[line, : self.width] = values

    def read(self, lines: Lines) -> NDArray[np.float64]:
        return np.asarray(self._values[lines, : self.width], np.float64)

    def read_blocks(self, lines: Lines) -> Iterator[NDArray[np.float64]]:
        """The same, some columns at a time: what is computed of them takes several times their memory. At least one."""
        for start in range(0, max(self.width, 1), _BLOCK_COLUMNS):
            end = min(start + _BLOCK_COLUMNS, self.width)
            yield np.asarray(self._values[lines, start:end], np.float64)

    def read_columns(self, columns: Lines, lines: Lines) -> NDArray[np.float64]:
        return np.asarray(self._values[np.ix_(lines, columns)], np.float64)

    def keep(self, columns: Lines) -> None:
        """Only these columns, in this order."""
        kept = self._values[:, columns]
        self.width = len(columns)
        self._values = np.ascontiguousarray(kept)


def aggregate_gauges(block: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean, peak, spread and count of every column of a window, one row each; NaN where there was no sample. Lines of
    the window are samples."""
    if not block.size:
        return np.full((4, block.shape[1]), np.nan)
    is_there = ~np.isnan(block)
    count = is_there.sum(axis=0).astype(np.float64)
    count[count == 0] = np.nan
    mean = np.where(is_there, block, 0.0).sum(axis=0) / count
    deviation = np.where(is_there, block - mean, 0.0)
    spread = np.sqrt((deviation * deviation).sum(axis=0) / count)
    return np.stack((mean, np.fmax.reduce(block, axis=0), spread, count))


def measure_increase(block: NDArray[np.float64], times: Column, *, start: float, end: float) -> Column:
    """The increase of every counter as Prometheus' `increase` computes it; NaN for fewer than two samples.

    Samples are rarely at both ends of the window. The increase between the first and the last is extrapolated to the
    ends of the window if those are near, by half a step otherwise, and never to below zero. A value below the one
    before is a restart at zero.
    """
    is_there = ~np.isnan(block)
    count = is_there.sum(axis=0)
    increase = np.full(block.shape[1], np.nan)
    usable = np.flatnonzero(count >= 2)
    if len(usable):
        increase[usable] = _extrapolate(block[:, usable], is_there[:, usable], times, start=start, end=end)
    return increase


def measure_excess(
    block: NDArray[np.float64], times: Column, *, at: float, window_seconds: float
) -> tuple[Column, Column]:
    """Of the highest minute of the window, and of its lowest, as `promql.expressions.write_excess` describes them; NaN
    where there are no two samples."""
    minutes = np.array([_measure_rate(block, times, end) for end in _list_steps(at, window_seconds, STEP_SECONDS)])
    hour = np.array([_measure_rate(block, times, end) for end in _list_steps(at, HOUR_SECONDS, HOUR_STEP_SECONDS)])
    if not len(minutes):  # a window without the end of a minute
        nothing = np.full(block.shape[1], np.nan)
        return nothing, nothing
    return _exceed(np.fmax.reduce(minutes, axis=0), minutes), _exceed(np.fmin.reduce(minutes, axis=0), hour)


def _exceed(compared: Column, steps: NDArray[np.float64]) -> Column:
    excess = np.full(steps.shape[1], np.nan)
    known = np.flatnonzero(np.isfinite(steps).any(axis=0))
    if len(known):
        median, lowest = np.nanmedian(steps[:, known], axis=0), np.fmin.reduce(steps[:, known], axis=0)
        excess[known] = compared[known] - SPREADS * median + (SPREADS - 1) * lowest
    return excess


def _list_steps(at: float, seconds: float, resolution: float) -> Iterator[float]:
    """As Prometheus evaluates a subquery: at whole multiples of its resolution."""
    end = at // resolution * resolution
    while end > at - seconds + 0.001:
        yield end
        end -= resolution


def _measure_rate(block: NDArray[np.float64], times: Column, end: float) -> Column:
    start = end - STEP_RANGE_SECONDS
    is_within = (times > start) & (times <= end)
    return measure_increase(block[is_within], times[is_within], start=start, end=end) / STEP_RANGE_SECONDS


def count_changes(block: NDArray[np.float64]) -> Column:
    """How often each column changed from one value to the next; NaN without any value."""
    is_there = ~np.isnan(block)
    filled = _repeat_last(block, is_there)
    has_changed = (filled[1:] != filled[:-1]) & ~np.isnan(filled[:-1])
    return np.where(is_there.any(axis=0), has_changed.sum(axis=0), np.nan)


def _extrapolate(
    block: NDArray[np.float64], is_there: NDArray[np.bool_], times: Column, *, start: float, end: float
) -> Column:
    first, last = is_there.argmax(axis=0), len(times) - 1 - is_there[::-1].argmax(axis=0)
    columns = np.arange(block.shape[1])
    first_value = block[first, columns]
    increase = block[last, columns] - first_value + sum_before_restarts(block, is_there)
    sampled = times[last] - times[first]
    step = sampled / (is_there.sum(axis=0) - 1)
    before, after = times[first] - start, end - times[last]
    before = np.where(before < _NEAR_STEPS * step, before, step / 2)
    after = np.where(after < _NEAR_STEPS * step, after, step / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        since_zero = np.where((increase > 0) & (first_value >= 0), sampled * first_value / increase, np.inf)
    return np.asarray(increase * (sampled + np.minimum(before, since_zero) + after) / sampled)


def sum_before_restarts(block: NDArray[np.float64], is_there: NDArray[np.bool_]) -> Column:
    """The sum of the last values before each restart."""
    filled = _repeat_last(block, is_there)
    before, after = filled[:-1], filled[1:]
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(after < before, before, 0.0).sum(axis=0))


def _repeat_last(block: NDArray[np.float64], is_there: NDArray[np.bool_]) -> NDArray[np.float64]:
    """With the last value where there is none."""
    lines = np.where(is_there, np.arange(len(block))[:, None], 0)
    return np.take_along_axis(block, np.maximum.accumulate(lines, axis=0), axis=0) if len(block) else block
