"""Coverage: samples seen / samples expected.

A gap is a fault of the collection, never idleness, so the expected number must not shrink with the number seen. It
follows from the scrape interval, learned from `up` (promql/sample_timing.py): that of the fastest target of the job,
and a longer one only for targets that were seen to have it. Where there is no `up` (remote write from elsewhere), the
highest counts of the job in the last hour are used instead; an outage that began before the first read cannot be
distinguished from a longer interval then. Rows of a new job are not judged.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpusteward.analyzer.sources.usage.query_results import ScrapeTarget
from gpusteward.analyzer.tables import Column

LOOK_BACK_SECONDS = 3600.0
_QUANTILE = 0.95
"""Of the counts of a job: ignores a few rows that were scraped twice."""


@dataclass(frozen=True)
class ScrapeIntervals:
    """What is known of the scrape jobs and of their targets."""

    seconds: Mapping[str, float] = field(default_factory=dict)  # by job, where `up` shows it: of its fastest target
    established: frozenset[str] = frozenset()  # jobs that had samples ten minutes ago
    targets: Mapping[ScrapeTarget, float] = field(default_factory=dict)  # that are slower than the fastest of their job
    at_most: Mapping[ScrapeTarget, float] = field(default_factory=dict)
    """Targets with a gap in the last minutes: their interval is at most this."""
    of_gpus: frozenset[str] = frozenset()  # jobs with GPU metrics ten minutes ago

    @property
    def longest_of_gpus(self) -> float | None:
        """The longest interval at which GPUs are scraped; None: not known."""
        of_jobs = [seconds for job, seconds in self.seconds.items() if job in self.of_gpus]
        return max(
            [*of_jobs, *(seconds for one, seconds in self.targets.items() if one.job in self.of_gpus)], default=None
        )

    def count_slow_targets(self) -> Mapping[tuple[str, float], int]:
        """(job, seconds) -> number of slower targets."""
        return Counter((target.job, seconds) for target, seconds in self.targets.items())


class ExpectedSamples:
    """How many samples a window should contain, by scrape target. Remembered, so that an outage does not lower it."""

    def __init__(self, *, window_seconds: float, fixed_interval: float | None = None) -> None:
        self.window_seconds = window_seconds
        self._fixed = fixed_interval
        self._intervals: dict[str, float] = {}
        self._targets: dict[ScrapeTarget, float] = {}  # slower than the fastest of their job
        self._counts: dict[str, list[tuple[float, float]]] = {}  # job -> time, highest count
        self._jobs: set[str] = set()  # of the rows seen so far
        self._established: set[str] = set()
        self.new_jobs: set[str] = set()  # jobs of rows seen since `update` that are too new to know their interval

    @property
    def depends_on_target(self) -> bool:
        """Whether targets have different intervals, so that the target of each counted series must be known."""
        known = {self._intervals.get(job) for job in self._jobs}
        return self._fixed is None and (bool(self._targets) or len(known) > 1)

    def update(self, intervals: ScrapeIntervals) -> None:
        """Jobs that are missing in `intervals` keep what was known before, and so do targets with a gap."""
        self._intervals |= intervals.seconds
        self._established |= intervals.established
        kept = {
            target: seconds for target, seconds in self._targets.items() if seconds <= intervals.at_most.get(target, 0)
        }
        self._targets = kept | dict(intervals.targets)
        self.new_jobs.clear()

    def measure_coverage(self, counts: Column, targets: Sequence[ScrapeTarget], at: float) -> Column:
        """Coverage by each of these counts, 0 to 1; NaN where nothing was counted."""
        numbers: dict[ScrapeTarget, int] = {}
        target_numbers = np.array([numbers.setdefault(one, len(numbers)) for one in targets], dtype=np.int64)
        jobs: dict[str, list[int]] = {}
        for target, number in numbers.items():
            jobs.setdefault(target.job, []).append(number)
        self._jobs |= jobs.keys() - {""}
        expected = np.array([self._expect(target) for target in numbers])
        for job, own in jobs.items():
            if np.isnan(expected[own]).any():
                expected[own] = self._expect_as_seen(job, counts[np.isin(target_numbers, own)], at)
        coverage: Column = np.minimum(counts / expected[target_numbers], 1.0) if len(counts) else np.empty(0)
        return coverage

    def _expect(self, target: ScrapeTarget) -> float:
        """NaN where the interval is unknown."""
        own = self._targets.get(target) or self._targets.get(target._replace(cluster=""))  # `up` may lack the label
        interval = self._fixed or own or self._intervals.get(target.job)
        if not interval and not target.job:  # as of a stale row: the shortest of the jobs that it may belong to
            seen = [seconds for job, seconds in self._intervals.items() if job in self._jobs]
            interval = min(seen or self._intervals.values(), default=None)
        return max(self.window_seconds / interval, 1.0) if interval else np.nan

    def _expect_as_seen(self, job: str, counts: Column, at: float) -> float:
        """The highest count of the last hour."""
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
