"""Samples seen / expected. A gap is a fault of the collection, never idleness, so what is expected must not shrink
with what was seen.

How often a job is scraped is learned from `up` (pace.py). Where there is no `up` (remote write by others), the densest
rows of the job stand in, as remembered over the last hour: an outage that began before the first look cannot be told
from a longer interval then. Of a job that is new nothing is known, and so its rows are not judged.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from gpusteward.analyzer.sources.usage.scrape_intervals import Pace
from gpusteward.analyzer.tables import Column

LOOK_BACK_SECONDS = 3600.0
_MANY = 0.95
"""This quantile of the counts of a job: above a few that were scraped twice, below none that missed a sample."""


class Expectations:
    """How many samples a window should hold, by scrape job; remembered, because an outage must not lower it."""

    def __init__(self, *, window_seconds: float, fixed_interval: float | None = None) -> None:
        self.window_seconds = window_seconds
        self._fixed = fixed_interval
        self.intervals: Mapping[str, float] = {}
        self._seen: dict[str, list[tuple[float, float]]] = {}
        self._jobs: set[str] = set()  # whose rows were seen here
        self._grown: set[str] = set()
        self.young: set[str] = set()  # jobs of rows seen since it was learned, too new to tell how often they speak

    def learn(self, pace: Pace) -> None:
        """What is known of each job; one of which nothing is known now keeps what was known before."""
        self.intervals = {**self.intervals, **pace.intervals}
        self._grown |= pace.grown
        self.young.clear()

    def cover(self, counts: Column, jobs: Sequence[str], at: float) -> Column:
        """Coverage of each row, 0 to 1; NaN where nothing was counted."""
        expected = np.full(len(counts), np.nan)
        numbers: dict[str, int] = {}
        places = np.array([numbers.setdefault(job, len(numbers)) for job in jobs], dtype=np.int64)
        self._jobs |= numbers.keys() - {""}
        for name, number in numbers.items():
            mine = places == number
            expected[mine] = self._expect(name, counts[mine], at)
        covered: Column = np.minimum(counts / expected, 1.0)
        return covered

    def _expect(self, job: str, counts: Column, at: float) -> float:
        interval = self._fixed or self.intervals.get(job) or (None if job else self._shortest_interval())
        if interval:
            return max(self.window_seconds / interval, 1.0)
        known = counts[np.isfinite(counts)]
        if not len(known):
            return np.nan
        if job not in self._grown:
            self.young.add(job)
            return np.nan
        densest = float(np.quantile(known, _MANY, method="higher"))
        kept = [(when, count) for when, count in self._seen.get(job, ()) if abs(at - when) <= LOOK_BACK_SECONDS]
        self._seen[job] = [*kept, (at, densest)]
        return max(count for _, count in self._seen[job])

    def _shortest_interval(self) -> float | None:
        """For rows whose job is not known, as of a silent node: the densest of the jobs they could be of."""
        mine = [seconds for job, seconds in self.intervals.items() if job in self._jobs]
        return min(mine or self.intervals.values(), default=None)
