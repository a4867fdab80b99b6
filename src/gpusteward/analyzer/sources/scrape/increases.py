"""How much a counter grew in a window, as Prometheus' `increase` tells it.

Samples hardly ever lie on both ends of a window: the growth between the first and the last is carried on to the ends
if those are near, half a step otherwise, and never to below zero. A value below the one before is a restart at zero.
"""

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.tables import Column

_NEAR = 1.1
"""So many mean distances of two samples: an end that is further away is where the series began or ended."""


def measure_increase(block: NDArray[np.float64], times: Column, *, start: float, end: float) -> Column:
    """The growth of every column; NaN for fewer than two samples."""
    is_there = ~np.isnan(block)
    count = is_there.sum(axis=0)
    grown = np.full(block.shape[1], np.nan)
    usable = np.flatnonzero(count >= 2)
    if len(usable):
        grown[usable] = _measure(block[:, usable], is_there[:, usable], times, start=start, end=end)
    return grown


def _measure(
    block: NDArray[np.float64], is_there: NDArray[np.bool_], times: Column, *, start: float, end: float
) -> Column:
    first, last = is_there.argmax(axis=0), len(times) - 1 - is_there[::-1].argmax(axis=0)
    columns = np.arange(block.shape[1])
    begun = block[first, columns]
    grown = block[last, columns] - begun + _restarted(block, is_there)
    sampled = times[last] - times[first]
    step = sampled / (is_there.sum(axis=0) - 1)
    before, after = times[first] - start, end - times[last]
    before = np.where(before < _NEAR * step, before, step / 2)
    after = np.where(after < _NEAR * step, after, step / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        from_zero = np.where((grown > 0) & (begun >= 0), sampled * begun / grown, np.inf)
    return np.asarray(grown * (sampled + np.minimum(before, from_zero) + after) / sampled)


def _restarted(block: NDArray[np.float64], is_there: NDArray[np.bool_]) -> Column:
    """What the counter had reached before each restart, in sum."""
    lines = np.where(is_there, np.arange(len(block))[:, None], 0)
    filled = np.take_along_axis(block, np.maximum.accumulate(lines, axis=0), axis=0)
    before, after = filled[:-1], filled[1:]
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(after < before, before, 0.0).sum(axis=0))
