"""Reads usage once more right before a write that stops pods: whether they have begun to work since the verdict.

What the write rests on must be fresh to the end. The newest sample of every GPU may be two scrape intervals old, at
least 30 s and at most 60 s; its age is that of the sample itself. From the answer to the write at most `WRITE_SECONDS`
pass, by the monotonic clock: whatever can block comes before this check.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gpusteward.analyzer.judge.activity import ActivityRule, is_work
from gpusteward.analyzer.judge.valid_ratios import HIGHEST_RATIO
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.core.usages import AllocationKey, Measure
from gpusteward.messages import reclaim as messages

SHORTEST_AGE_SECONDS, LONGEST_AGE_SECONDS = 30.0, 60.0
"""The newest sample may be two scrape intervals old, within these limits."""
READ_SECONDS = 10.0
"""The answer may take this long: Lease and switch were asked for before it."""
WRITE_SECONDS = 5.0
"""From the answer to the write."""
LOOK_BACK_SECONDS = 180.0
"""Before the verdict: counters need a sample before the first that the verdict has not seen."""


class WorkSource(Protocol):
    """Part of `sources.usage_source.UsageSource`."""

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> Sequence[Chart]:
        """Everything about each of these allocations that can prove work in the last seconds, with the times of the
        samples. Raises SourceError."""


class Checked(NamedTuple):
    """What was read."""

    problem: Message | None  # why the pods must not be stopped now
    write_before: float  # by the monotonic clock


@dataclass(frozen=True)
class UsageCheck:
    """Of the GPUs that an action takes away."""

    source: WorkSource | None
    allocations: Sequence[AllocationKey]
    verdict_at: float
    rule: ActivityRule
    clock: Callable[[], float]

    def look(self) -> Checked:
        """Never raises."""
        began, at = time.monotonic(), self.clock()
        seconds = max(0.0, at - self.verdict_at) + LOOK_BACK_SECONDS
        if self.source is None:
            return Checked(messages.USAGE_UNREADABLE.fill(reason=messages.NO_USAGE_SOURCE), began)
        try:
            charts = self.source.read_work(self.allocations, at, seconds=seconds)
        except SourceError as error:
            return Checked(messages.USAGE_UNREADABLE.fill(reason=error.as_message()), began)
        answered = time.monotonic()
        problem = find_problem(charts, at=at + answered - began, rule=self.rule)
        if problem is None and answered - began > READ_SECONDS:
            problem = messages.USAGE_SLOW.fill(seconds=answered - began, most=READ_SECONDS)
        return Checked(problem, answered + WRITE_SECONDS)


def find_problem(charts: Sequence[Chart], *, at: float, rule: ActivityRule) -> Message | None:
    """Why these allocations may not be idle any more: work by any signal that the judge knows, or no recent sample."""
    for chart in charts:
        if any(is_work(measure, value, rule) for measure, points in chart.lines.items() for _, value in points):
            return messages.WORK_SEEN.fill(**_name(chart))
    for chart in charts:
        times = sorted({moment for moment, value in chart.lines.get(Measure.CORE, ()) if value <= HIGHEST_RATIO})
        if not times:
            return messages.NO_SAMPLE.fill(**_name(chart))
        most = find_longest_age(times)
        if at - times[-1] > most:
            return messages.WAITS_FOR_SAMPLE.fill(**_name(chart), seconds=at - times[-1], most=most)
    return None


def find_longest_age(times: Sequence[float]) -> float:
    """How old the newest sample of a GPU may be, from the times of its samples: two scrape intervals. With a single
    sample the interval is not known, and the shortest age holds."""
    gaps = sorted(after - before for before, after in itertools.pairwise(times))
    interval = gaps[len(gaps) // 2] if gaps else 0.0
    return min(max(2 * interval, SHORTEST_AGE_SECONDS), LONGEST_AGE_SECONDS)


def _name(chart: Chart) -> dict[str, str]:
    return {"gpu": chart.allocation.gpu_uuid, "pod": chart.allocation.container.pod}
