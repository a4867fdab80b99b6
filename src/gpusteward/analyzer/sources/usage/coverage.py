"""Coverage: samples seen / samples expected.

A gap is a fault of the collection, never idleness, so the expected number must not shrink with the number seen. It
follows from the scrape interval of each job, learned from `up` (promql/scrape_intervals.py). Where there is no `up`
(remote write from elsewhere), the highest counts of the job in the last hour are used instead; an outage that began
before the first read cannot be distinguished from a longer interval then. Rows of a new job are not judged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpusteward.analyzer.tables import Column

LOOK_BACK_SECONDS = 3600.0
_QUANTILE = 0.95
"""Of the counts of a job: ignores a few rows that were scraped twice."""


@dataclass(frozen=True)
class ScrapeIntervals:
    """What is known of the scrape jobs."""

    seconds: Mapping[str, float] = field(default_factory=dict)  # by job, where `up` shows it
    established: frozenset[str] = frozenset()  # jobs that had samples ten minutes ago


class ExpectedSamples:
    """How many samples a window should contain, by scrape job. Remembered, so that an outage does not lower it."""

    def __init__(self, *, window_seconds: float, fixed_interval: float | None = None) -> None:
        self.window_seconds = window_seconds
        self._fixed = fixed_interval
        self._intervals: dict[str, float] = {}
        self._counts: dict[str, list[tuple[float, float]]] = {}  # job -> time, highest count
        self._jobs: set[str] = set()  # of the rows seen so far
        self._established: set[str] = set()
        self.new_jobs: set[str] = set()  # jobs of rows seen since `update` that are too new to know their interval

    def update(self, intervals: ScrapeIntervals) -> None:
        """Jobs that are missing in `intervals` keep what was known before."""
        self._intervals |= intervals.seconds
        self._established |= intervals.established
        self.new_jobs.clear()

    def measure_coverage(self, counts: Column, jobs: Sequence[str], at: float) -> Column:
        """Coverage of each row, 0 to 1; NaN where nothing was counted."""
        expected = np.full(len(counts), np.nan)
        numbers: dict[str, int] = {}
        job_numbers = np.array([numbers.setdefault(job, len(numbers)) for job in jobs], dtype=np.int64)
        self._jobs |= numbers.keys() - {""}
        for job, number in numbers.items():
            is_of_job = job_numbers == number
            expected[is_of_job] = self._expect(job, counts[is_of_job], at)
        coverage: Column = np.minimum(counts / expected, 1.0)
        return coverage

    def _expect(self, job: str, counts: Column, at: float) -> float:
        interval = self._fixed or self._intervals.get(job) or (None if job else self._shortest_interval())
        if interval:
            return max(self.window_seconds / interval, 1.0)
        known = counts[np.isfinite(counts)]
        if not len(known):
            return np.nan
        if job not in self._established:
            self.new_jobs.add(job)
            return np.nan
        highest = float(np.quantile(known, _QUANTILE, method="higher"))
        recent = [(when, count) for when, count in self._counts.get(job, ()) if abs(at - when) <= LOOK_BACK_SECONDS]
        self._counts[job] = [*recent, (at, highest)]
        return max(count for _, count in self._counts[job])

    def _shortest_interval(self) -> float | None:
        """For rows whose job is unknown, such as stale ones: the shortest interval of the jobs they may belong to."""
        seen = [seconds for job, seconds in self._intervals.items() if job in self._jobs]
        return min(seen or self._intervals.values(), default=None)
