"""The pool rule: how many replicas an owner with interchangeable replicas needs (pure).

`keep = ceil(headroom x the most replicas active at once over the window) + 1`. What is above is surplus, and can be
given back by lowering the replicas, longest idle pods first. It gains with size: few replicas have no surplus. It
assumes that traffic can go to any replica, which only a person can know.
"""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.reclaim.idle_intervals import Intervals, find_intervals
from gpusteward.analyzer.reclaim.policies.effective import KeepRule
from gpusteward.analyzer.spell_table import STILL_IDLE, Numbers, SpellTable
from gpusteward.analyzer.tables import Column

_ROUNDING = 1e-9
Counts = NDArray[np.int64]


def compute_keep(most_active: int, rule: KeepRule) -> int:
    """How many replicas stay. At least one."""
    return ceil(rule.headroom * most_active - _ROUNDING) + 1


class PoolActivity(NamedTuple):
    """How many pods of one pool are active and running from each time on."""

    at: Column
    active: Counts
    pods: Counts
    gpus_per_pod: float

    def most_active(self, since: float, until: float) -> int:
        """The most that were active at once."""
        first = max(0, int(np.searchsorted(self.at, since, side="right")) - 1)
        last = int(np.searchsorted(self.at, until, side="right"))
        return int(self.active[first:last].max(initial=0))


def find_pool_activity(table: SpellTable, workload: int) -> PoolActivity:
    """A pod is active unless all of its allocations are idle."""
    mine = table.held.workload == workload
    if not mine.any():
        return PoolActivity(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64), 0.0)
    return next(iter_pool_activity(table, find_intervals(table, table.held.pod), np.array([workload])))[1]


def iter_pool_activity(
    table: SpellTable, intervals: Intervals, workloads: Numbers
) -> Iterator[tuple[int, PoolActivity]]:
    """The activity of each of these workloads that holds something. `intervals`: of pods."""
    held = table.held
    pod_count = len(table.pods)
    pod_workload = np.full(pod_count, -1, np.intp)
    pod_workload[held.pod] = held.workload
    began, left = np.full(pod_count, np.inf), np.full(pod_count, -np.inf)
    np.minimum.at(began, held.pod, held.began_at)
    np.maximum.at(left, held.pod, held.ended_at)
    np.minimum.at(began, intervals.group, intervals.started_at)
    gpus = np.bincount(held.pod, weights=held.gpus, minlength=pod_count)
    by_workload = np.argsort(pod_workload, kind="stable")
    first_pods = np.searchsorted(pod_workload[by_workload], np.arange(len(table.workloads) + 1))
    interval_workload = pod_workload[intervals.group]
    order = np.argsort(interval_workload, kind="stable")
    first_intervals = np.searchsorted(interval_workload[order], np.arange(len(table.workloads) + 1))
    for workload in workloads.tolist():
        pods = by_workload[first_pods[workload] : first_pods[workload + 1]]
        if len(pods):
            mine = order[first_intervals[workload] : first_intervals[workload + 1]]
            over = mine[intervals.ended_by[mine] != STILL_IDLE]
            gone = pods[np.isfinite(left[pods])]
            times = (began[pods], left[gone], intervals.started_at[mine], intervals.ended_at[over])
            yield workload, _add_up(times, gpus_per_pod=float(gpus[pods].mean()))


def _add_up(times: Sequence[Column], *, gpus_per_pod: float) -> PoolActivity:
    """`times`: pods began, pods left, idle intervals began, idle intervals ended."""
    counts = [len(each) for each in times]
    at, active, running = np.concatenate(times), np.repeat([1, -1, -1, 1], counts), np.repeat([1, -1, 0, 0], counts)
    order = np.argsort(at, kind="stable")
    begins = np.flatnonzero(np.concatenate(([True], np.diff(at[order]) != 0)))
    return PoolActivity(
        at[order][begins],
        np.cumsum(np.add.reduceat(active[order], begins)),
        np.cumsum(np.add.reduceat(running[order], begins)),
        gpus_per_pod,
    )
