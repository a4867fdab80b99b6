"""Reads usage once more right before an action: a cycle may have ended a while ago."""

from collections.abc import Sequence
from typing import Protocol

from gpusteward.analyzer.judge.activity import ActivityRule, is_work
from gpusteward.analyzer.judge.valid_ratios import HIGHEST_RATIO
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.core.usages import AllocationKey, Measure
from gpusteward.messages import reclaim as messages

OLDEST_SECONDS = 300.0
"""The last sample may be this old: scrape intervals of more than a minute are rare."""


class WorkSource(Protocol):
    """Part of `sources.usage_source.UsageSource`."""

    def read_work(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        """Everything about one allocation that can prove work; counters as what they grew by. Raises SourceError."""


def find_work(
    source: WorkSource | None, allocations: Sequence[AllocationKey], *, at: float, seconds: float, rule: ActivityRule
) -> Message | None:
    """Why these allocations may not be idle any more: work in the last seconds by any signal that the judge knows, or
    no recent sample; None: they are. Never raises."""
    if source is None:
        return None
    for allocation in allocations:
        where = {"gpu": allocation.gpu_uuid, "pod": allocation.container.pod}
        try:
            lines = source.read_work(allocation, at, seconds=seconds).lines
        except SourceError as error:
            return messages.USAGE_UNREADABLE.fill(reason=error.as_message())
        if any(is_work(measure, value, rule) for measure, points in lines.items() for _, value in points):
            return messages.WORK_SEEN.fill(**where)
        samples = [time for time, value in lines.get(Measure.CORE, ()) if value <= HIGHEST_RATIO]
        if not samples or samples[-1] < at - OLDEST_SECONDS:
            return messages.USAGE_OLD.fill(**where)
    return None
