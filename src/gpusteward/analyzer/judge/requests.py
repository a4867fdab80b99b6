"""What the requests of inference servers mean for verdicts: silence that is proven, requests that contradict idleness.

The columns come from `sources/usage/inference_servers.py`; all rows of a workload have the same values. They decide
only for kinds that serve: the engine inside a training job has still counters while the job trains.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.judge.activity import WORK_MEASURES, Activities
from gpusteward.analyzer.judge.allocation_columns import AllocationColumns, Mask
from gpusteward.analyzer.judge.history import Past
from gpusteward.analyzer.judge.valid_values import valid_ratio
from gpusteward.analyzer.tables import ACTIVITIES, Column, UsageTable
from gpusteward.core.kinds import SERVING_KINDS
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity

UNUSED_RATIO = 0.01
"""Share of time with work below which a GPU whose server has no requests is not used: health checks, timers of the
engine. As that of the signature health-check."""
NEVER_UNUSED = (Measure.ENCODER, Measure.DECODER, Measure.VIDEO, Measure.NVLINK)
"""Where these are reported, something is encoded, decoded or sent to another GPU: no server without requests does."""


class RequestTimes(NamedTuple):
    """What is kept from cycle to cycle, one entry per row; see `Past`."""

    requested_at: Column
    silent_since: Column
    silent_until: Column


def find_silent(table: UsageTable, columns: AllocationColumns) -> Mask:
    """Rows of workloads that serve, and whose servers are proven to have had no request in the window."""
    is_proven = np.equal(table.column(Measure.SILENT, Stat.LOWEST), 1.0)
    return is_proven & columns.owner_kinds.among(SERVING_KINDS)


def find_requested(table: UsageTable) -> Mask:
    """Rows of workloads with requests in the window, by counters; or with some that wait, which nobody serves. What a
    gauge says is running may have been cancelled long ago."""
    counted = (table.column(measure, Stat.COUNT) > 0 for measure in (Measure.REQUESTS, Measure.TOKENS))
    return next(counted) | next(counted) | (table.column(Measure.WAITING, Stat.PEAK) > 0)


def find_unused_work(table: UsageTable, activities: Activities, *, is_silent: Mask, past: Past) -> Mask:
    """Rows with so little work that nobody uses it, as their servers have no requests. A pause counts where the
    windows before it were of this kind: checks every quarter of an hour are not in all windows. Their energy shows that
    they work; every other doubt holds as for idleness."""
    is_rare = valid_ratio(table, Measure.BUSY, Stat.MEAN) < UNUSED_RATIO
    for measure in WORK_MEASURES:
        if measure not in (Measure.CORE, Measure.MEMORY_COPY):  # the rare work may be within a sample of these
            is_rare &= ~(valid_ratio(table, measure, Stat.MEAN) >= UNUSED_RATIO)
    for measure, stat in table.stats:
        if measure in NEVER_UNUSED:
            is_rare &= ~(table.column(measure, stat) > 0)
    begins = np.fmax(table.at - table.window_seconds, table.started_at)
    goes_on = activities.paused & (past.unused_work_at >= begins)
    return is_silent & is_rare & (activities.worked | goes_on) & ~activities.is_doubted


def disregard_work(activities: Activities, unused: Mask) -> Activities:
    """The same with these rows idle."""
    idle = ACTIVITIES.index(Activity.IDLE)
    return replace(activities, codes=np.where(unused, idle, activities.codes).astype(np.int8))


def follow_requests(table: UsageTable, past: Past, *, is_silent: Mask) -> RequestTimes:
    """Silence goes on if this window overlaps the last silent one; a request ends it, what is unknown does not."""
    begins = np.fmax(table.at - table.window_seconds, table.started_at)
    counted = table.column(Measure.REQUESTS, Stat.COUNT)
    requested = (counted > 0) | (table.column(Measure.TOKENS, Stat.COUNT) > 0)
    goes_on = past.silent_until >= begins
    since = np.where(goes_on, past.silent_since, begins)
    return RequestTimes(
        np.where(requested, table.at, past.requested_at),
        np.where(is_silent, since, np.where(requested, np.nan, past.silent_since)),
        np.where(is_silent, table.at, np.where(requested, np.nan, past.silent_until)),
    )
