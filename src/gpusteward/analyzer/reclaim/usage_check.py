"""Reads usage once more right before an action: a cycle may have ended a while ago."""

from collections.abc import Sequence
from typing import Protocol

from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.core.usages import AllocationKey, Measure
from gpusteward.messages import reclaim as messages

OLDEST_SECONDS = 300.0
"""The last sample may be this old: scrape intervals of more than a minute are rare."""


class SeriesSource(Protocol):
    """Part of `sources.usage_source.UsageSource`."""

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        """Raises SourceError."""


def find_work(
    source: SeriesSource | None, allocations: Sequence[AllocationKey], *, at: float, seconds: float
) -> Message | None:
    """Why these allocations may not be idle any more: work in the last seconds, or no recent sample; None: they are.
    Never raises."""
    if source is None:
        return None
    for allocation in allocations:
        where = {"gpu": allocation.gpu_uuid, "pod": allocation.container.pod}
        try:
            points = source.read_series(allocation, at, seconds=seconds).lines.get(Measure.CORE, ())
        except SourceError as error:
            return messages.USAGE_UNREADABLE.fill(reason=error.as_message())
        if any(value > 0 for _, value in points):
            return messages.WORK_SEEN.fill(**where)
        if not points or points[-1][0] < at - OLDEST_SECONDS:
            return messages.USAGE_OLD.fill(**where)
    return None
