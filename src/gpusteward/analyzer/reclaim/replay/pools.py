"""Pools in the past: how many of their replicas were active, and what the pool rule would have released (pure)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.reclaim.policies.policy import KeepRule
from gpusteward.analyzer.reclaim.replay.intervals import Intervals
from gpusteward.analyzer.spell_table import STILL_IDLE, Numbers, SpellTable
from gpusteward.analyzer.tables import Column

CYCLE_SECONDS = 300.0
Counts = NDArray[np.int64]


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


class PoolRelease(NamedTuple):
    """Replicas that were given back at one time and needed again, or not, at another."""

    at: float
    until: float
    replicas: int
    was_needed: bool


class PoolReplay(NamedTuple):
    releases: Sequence[PoolRelease]
    unmet_seconds: float  # of pods


def follow_pool(
    activity: PoolActivity, rule: KeepRule, *, grace: float, until: float, since: float = 0.0
) -> PoolReplay:
    """The pool rule, cycle by cycle. The first window only looks; a surplus must last for the grace period. What was
    unmet is counted from `since` on."""
    if not len(activity.at):
        return PoolReplay([], 0.0)
    times = np.arange(activity.at[0], until, CYCLE_SECONDS)
    if not len(times):
        return PoolReplay([], 0.0)
    active, pods = _most_per_cycle(activity, times)
    keep = np.array([rule.compute_keep(int(each)) for each in range(int(active.max(initial=0)) + 1)])
    most = _trailing(active, int(rule.window_seconds // CYCLE_SECONDS) + 1, np.maximum)
    surplus = np.maximum(0, pods - keep[most])
    surplus[: int(rule.window_seconds // CYCLE_SECONDS)] = 0
    released = _trailing(surplus, int(grace // CYCLE_SECONDS) + 1, np.minimum)
    # A cycle acts on what it has seen: the replicas of the next cycle are those that it leaves.
    unmet = np.maximum(0, active[1:] - (pods[1:] - released[:-1]))[times[1:] >= since].sum() * CYCLE_SECONDS
    return PoolReplay(list(_pair_releases(times, released, pods, until)), float(unmet))


def _most_per_cycle(activity: PoolActivity, times: Column) -> tuple[Counts, Counts]:
    """The most active pods in the cycle that ends at each time, and the pods at that time."""
    ends = np.searchsorted(activity.at, times, side="right") - 1
    begins = np.concatenate(([0], ends[:-1]))
    inside = np.concatenate((activity.active, [0]))  # `reduceat` needs an end
    pairs = np.stack((begins, ends + 1), axis=1).ravel()
    most = np.maximum.reduceat(inside, np.minimum(pairs, len(inside) - 1))[::2]
    return most.astype(np.int64), activity.pods[ends].astype(np.int64)


def _trailing(column: Counts, size: int, combine: np.ufunc) -> Counts:
    """The largest or smallest of the last `size` values, by doubling: no window is walked twice."""
    result, covered = column.copy(), 1
    while covered < size:
        shift = min(covered, size - covered)
        shifted = result.copy()
        shifted[shift:] = combine(result[shift:], result[:-shift])
        if combine is np.minimum:
            shifted[:shift] = 0  # not looked at for that long yet
        result, covered = shifted, covered + shift
    return result


def _pair_releases(times: Column, released: Counts, pods: Counts, until: float) -> Iterator[PoolRelease]:
    """The replicas given back last are needed again first. Pods that disappear were not needed."""
    stack: list[tuple[float, int]] = []
    changes = np.diff(released, prepend=0)
    lost = np.diff(pods, prepend=pods[0]) < 0
    for row in np.flatnonzero(changes).tolist():
        at, change = float(times[row]), int(changes[row])
        if change > 0:
            stack.append((at, change))
        while change < 0:
            begun, count = stack.pop()
            taken = min(count, -change)
            yield PoolRelease(begun, at, taken, not bool(lost[row]))
            change += taken
            if count > taken:
                stack.append((begun, count - taken))
    for begun, count in stack:
        yield PoolRelease(begun, until, count, False)
