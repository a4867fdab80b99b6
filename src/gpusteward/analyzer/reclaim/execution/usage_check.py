"""Reads usage once more right before a write that stops pods: whether they have begun to work since the verdict.

What the write rests on must be fresh to the end. The newest sample of every signal of every GPU may be two scrape
intervals old, at least 30 s and at most 60 s; its age is that of the sample itself. A signal that has stopped while
others go on says nothing any more: profiling is paused while somebody uses Nsight. From the question to the write at
most `WRITE_SECONDS` pass, by the monotonic clock: whatever can block comes before this check.
"""

import itertools
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gpusteward.analyzer.judge.activity import WORK_MEASURES, ActivityRule, find_floor, find_highest, is_work
from gpusteward.analyzer.judge.requests import NEVER_UNUSED, UNUSED_RATIO
from gpusteward.analyzer.judge.valid_values import CLOCK_SECONDS, HIGHEST_RATIO
from gpusteward.analyzer.sources.usage.inference_servers import join_servers
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage_source import Chart, Points, UsageSource
from gpusteward.analyzer.tables import ServerPod, UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.core.usages import AllocationKey, Measure, Stat
from gpusteward.messages import reclaim as messages

SHORTEST_AGE_SECONDS, LONGEST_AGE_SECONDS = 30.0, 60.0
"""The newest sample may be two scrape intervals old, within these limits."""
WRITE_SECONDS = 5.0
"""From the question to the write, and so at most as long from the first of several answers."""
READ_SECONDS = 4.0
"""All answers may take this long: a second is left to send the write."""
LOOK_BACK_SECONDS = 300.0
"""Before the verdict, which rests on samples that are up to so much older (`LAST_KERNEL` of a series that has ended
without a stale marker): every signal that it had is read here, even if only to find out that it has stopped."""

LEAST_SILENCE_SECONDS = 600.0
"""Of which servers must prove that there was no request: one or two samples may be missing."""
LOWEST_BLANK = 1e6
"""A ratio above it is a value that DCGM does not have: the lowest of these, of 32 bits, reads 2.1e7."""


class Checked(NamedTuple):
    """What was read."""

    problem: Message | None  # why the pods must not be stopped now
    write_before: float  # by the monotonic clock


@dataclass(frozen=True)
class UsageCheck:
    """Of the GPUs that an action takes away."""

    source: UsageSource | None
    allocations: Sequence[AllocationKey]
    verdict_at: float
    rule: ActivityRule
    clock: Callable[[], float]
    work_seconds: float | None = None  # of a pool: only work of the last seconds; None: since before the verdict
    counts_silence: bool = False  # what the action rests on: its servers have no requests, its GPUs hardly work
    other_pods: Collection[PodKey] = ()  # without GPUs, of the same workload: one of them may lead the others

    def look(self) -> Checked:
        """Never raises."""
        began, at = time.monotonic(), self.clock()
        seconds = max(0.0, at - self.verdict_at) + LOOK_BACK_SECONDS
        if self.source is None:
            return Checked(messages.USAGE_UNREADABLE.fill(reason=messages.NO_USAGE_SOURCE), began)
        try:
            charts = self.source.read_work(self.allocations, at, seconds=seconds)
            servers = self._read_servers(self.source, at, seconds=seconds) if self.counts_silence else ()
        except SourceError as error:
            return Checked(messages.USAGE_UNREADABLE.fill(reason=error.as_message()), began)
        answered = time.monotonic()
        may_work = self.counts_silence
        since = at - (seconds if self.work_seconds is None else self.work_seconds)
        problem = find_problem(charts, since=since, at=at + answered - began, rule=self.rule, may_work=may_work)
        problem = problem or next((messages.REQUESTS_SEEN.fill(pod=pod) for pod in servers), None)
        if problem is None and answered - began > READ_SECONDS:
            problem = messages.USAGE_SLOW.fill(seconds=answered - began, most=READ_SECONDS)
        return Checked(problem, began + WRITE_SECONDS)

    def _read_servers(self, source: UsageSource, at: float, *, seconds: float) -> list[str]:
        """The pods whose servers do not prove that there was no request. Raises SourceError."""
        seconds = max(seconds, LEAST_SILENCE_SECONDS)
        servers = [self._name_workload(one) for one in source.read_servers(at, seconds=seconds)]
        table = UsageTable(at, seconds, self.allocations, servers=servers)
        silent = join_servers(table).column(Measure.SILENT, Stat.LOWEST)
        return [one.container.pod for one, is_so in zip(self.allocations, silent, strict=True) if is_so != 1]

    def _name_workload(self, server: ServerPod) -> ServerPod:
        """The server of a pod without GPUs belongs to the workload only if the API server has just said so."""
        pod = server.container
        is_other = any(
            (one.namespace, one.name) == (pod.namespace, pod.pod) and pod.cluster in ("", one.cluster)
            for one in self.other_pods
        )
        workload = self.allocations[0].container.workload if is_other and self.allocations else None
        return server if workload is None else replace(server, container=replace(pod, workload=workload))


def find_problem(
    charts: Sequence[Chart], *, since: float, at: float, rule: ActivityRule, may_work: bool = False
) -> Message | None:
    """Why these allocations may not be idle any more: work by any signal that the judge knows, use by others, or no
    recent sample. `may_work`: as rarely as health checks do."""
    for chart in charts:
        if may_work and works_rarely(chart):
            continue
        if any(_is_work(measure, points, since=since, rule=rule) for measure, points in chart.lines.items()):
            return messages.WORK_SEEN.fill(**_name(chart))
    for chart in charts:
        if any(value > 0 for _, value in chart.lines.get(Measure.OUTSIDE, ())):
            return messages.USE_BY_OTHERS_SEEN.fill(**_name(chart))
    for chart in charts:
        for measure in dict.fromkeys((Measure.CORE, *chart.lines)):
            problem = _find_age_problem(chart, measure, at=at)
            if problem is not None:
                return problem
    return None


def works_rarely(chart: Chart) -> bool:
    """As `judge.requests.find_unused_work`: less than one per cent of the time, by a counter of busy time."""
    busy = chart.lines.get(Measure.BUSY, ())
    if not busy:
        return False
    last = max(moment for moment, _ in busy)
    # A request that began just now is in no sample of its server yet: the last minute counts for itself.
    recent = [(moment, value) for moment, value in busy if moment > last - LONGEST_AGE_SECONDS]
    others = (chart.lines.get(each, ()) for each in WORK_MEASURES if each not in (Measure.CORE, Measure.MEMORY_COPY))
    moves = any(value > 0 for measure in NEVER_UNUSED for _, value in chart.lines.get(measure, ()))
    return all(_mean(points) < UNUSED_RATIO for points in (busy, recent, *others) if points) and not moves


def _mean(points: Points) -> float:
    return sum(value for _, value in points) / len(points)


def _is_work(measure: Measure, points: Points, *, since: float, rule: ActivityRule) -> bool:
    if measure is Measure.LAST_KERNEL:
        return any(launched > since for _, launched in points)
    points = [point for point in points if point[0] > since]
    if find_highest(measure) == HIGHEST_RATIO:  # more than 150 % is not right, but it is not idleness
        return any(find_floor(measure, rule) < value < LOWEST_BLANK for _, value in points)
    return any(is_work(measure, value, rule) for _, value in points)


def _find_age_problem(chart: Chart, measure: Measure, *, at: float) -> Message | None:
    """Why the samples of a signal say nothing about this moment."""
    points, highest = chart.lines.get(measure, ()), find_highest(measure) or math.inf
    times = sorted({moment for moment, value in points if value <= highest})
    name = {**_name(chart), "signal": messages.SIGNALS[measure]}
    if not times:
        # A signal that the GPU does not have may be reported as blank. One sample of a counter says nothing.
        is_blank = points and measure is not Measure.CORE
        return None if is_blank else messages.NO_SAMPLE.fill(**name)
    age, most = at - times[-1], find_longest_age(times)
    if age < -CLOCK_SECONDS:  # how old it really is, is unknown: the clock of whoever scraped it is ahead
        return messages.SAMPLE_OF_FUTURE.fill(**name, seconds=-age)
    return messages.WAITS_FOR_SAMPLE.fill(**name, seconds=age, most=most) if age > most else None


def find_longest_age(times: Sequence[float]) -> float:
    """How old the newest sample of a GPU may be, from the times of its samples: two scrape intervals. With a single
    sample the interval is not known, and the shortest age holds."""
    gaps = sorted(after - before for before, after in itertools.pairwise(times))
    interval = gaps[len(gaps) // 2] if gaps else 0.0
    return min(max(2 * interval, SHORTEST_AGE_SECONDS), LONGEST_AGE_SECONDS)


def _name(chart: Chart) -> dict[str, str]:
    return {"gpu": chart.allocation.gpu_uuid, "pod": chart.allocation.container.pod}
