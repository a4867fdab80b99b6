"""What the replicas of pools do in each minute, read once a cycle at the resolution of the samples.

A verdict knows whether a replica worked at any time in its window. Where a load balancer spreads rare requests, all of
them did, and still one at a time is enough. So the samples since the last cycle are read, with the judge's own rule for
work, and counted: how many replicas were at work at once.

Only workloads whose replicas can be interchangeable are read, a limited number of them, in batches. What cannot be
read is not known, and of a pool that is not known nothing is given back.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.judge.activity import ActivityRule, find_floor, find_highest
from gpusteward.analyzer.judge.requests import UNUSED_RATIO
from gpusteward.analyzer.judge.valid_values import HIGHEST_RATIO
from gpusteward.analyzer.pool_minutes import (
    LONGEST_MINUTES,
    MINUTE,
    RAISED_SECONDS,
    UNKNOWN,
    Counts,
    ManagedPool,
    PoolMinutes,
    find_renamed,
)
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.sources.usage_source import Chart, UsageSource
from gpusteward.analyzer.tables import PROOFS, SIGNATURES
from gpusteward.core.kinds import POOL_KINDS
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.usages import AllocationKey, Measure
from gpusteward.core.verdicts import Proof, Signature

MOST_POOLS = 200
MOST_ALLOCATIONS = 5000
"""Of all pools of a cycle. What is lowered comes first, then the largest pools; the others are not known."""
BATCH = 500
"""Allocations that are read together: their samples are counted, and forgotten, before the next ones."""
LONGEST_READ_SECONDS = 1800.0
"""Back from the end of a cycle, or two intervals of it; what is before that and was not read is not known."""
LONGEST_STEP_SECONDS = 63.0
"""Between two samples: a minute, and the jitter of a scrape. With fewer samples, replicas that worked one after another
would look as if they had worked at once, or not at all."""
LEAST_GAP_SECONDS = 120.0
"""Between two samples of a pod: two may be missing."""
_HIGHEST_BLANK = 1e6
"""As in the last look at usage: a ratio above it is a value that DCGM does not have."""


Times = NDArray[np.float64]
Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]
ReadManaged = Callable[[], Mapping[WorkloadKey, ManagedPool]]
ReadMinutes = Callable[[float], Mapping[WorkloadKey, PoolMinutes]]
"""Of the ledger, since a time. Raises SourceError."""


class PoolWatch:
    """Belongs to the thread that runs cycles."""

    def __init__(
        self,
        source: UsageSource,
        *,
        read_managed: ReadManaged = dict,
        read_minutes: ReadMinutes = lambda _since: {},
    ) -> None:
        self._source, self._read_managed, self._read_minutes = source, read_managed, read_minutes
        self._known: dict[WorkloadKey, PoolMinutes] | None = None  # None: the ledger has not been read yet
        self._held: dict[WorkloadKey, tuple[AllocationKey, ...]] = {}  # in the last cycle

    def update(self, result: Result) -> Mapping[WorkloadKey, PoolMinutes]:
        """All known minutes of each pool. Raises SourceError."""
        if self._known is None:
            self._known = dict(self._read_minutes(result.at - LONGEST_MINUTES * MINUTE))
        table = result.workloads
        managed = {
            key if table.find(key) is not None else find_renamed(table.keys, key): pool
            for key, pool in self._read_managed().items()
        }
        pools = list(_choose_pools(result, managed))
        counted: dict[WorkloadKey, PoolMinutes] = {}
        for batch in _make_batches(pools):
            counted |= self._count(batch, result, managed)
        least = int(result.at // MINUTE) - LONGEST_MINUTES
        for key, minutes in counted.items():
            before = self._known.get(key)
            joined = minutes if before is None else before.append(minutes)
            worked = {} if before is None else {each: before.worked_at.get(each, 0.0) for each in minutes.worked_at}
            latest = {each: max(at, worked.get(each, 0.0)) for each, at in minutes.worked_at.items()}
            self._known[key] = replace(joined.slice(max(least, joined.first), joined.end), worked_at=latest)
        self._known = {key: each for key, each in self._known.items() if each.end > least}
        self._held = {pool.key: pool.allocations for pool in pools}
        return {pool.key: self._known[pool.key] for pool in pools if pool.key in self._known}

    def _count(
        self, pools: Sequence["_Pool"], result: Result, managed: Mapping[WorkloadKey, ManagedPool]
    ) -> dict[WorkloadKey, PoolMinutes]:
        """Of pods that are gone since the last cycle too: they may have worked until then."""
        assert self._known is not None
        rule, at = result.settings.judge.activity, result.at
        longest = max(LONGEST_READ_SECONDS, 2.0 * result.settings.scheduler.interval)
        begins = [_find_begin(self._known.get(pool.key), at - longest) for pool in pools]
        read = [tuple(dict.fromkeys((*pool.allocations, *self._held.get(pool.key, ())))) for pool in pools]
        seconds = at - min(begins) * MINUTE + 2 * LEAST_GAP_SECONDS
        charts = iter(self._source.read_work([one for each in read for one in each], at, seconds=seconds))
        found: dict[WorkloadKey, PoolMinutes] = {}
        for pool, begin, allocations in zip(pools, begins, read, strict=True):
            own = [next(charts) for _ in allocations]
            about = managed.get(pool.key, ManagedPool())
            counts = count_replicas(own, pool, rule=rule, begin=begin, at=at, managed=about)
            if counts is not None:
                found[pool.key] = counts
        return found


@dataclass(frozen=True)
class _Pool:
    """One pool of a result."""

    key: WorkloadKey
    allocations: tuple[AllocationKey, ...]
    starting: frozenset[str]  # replicas
    sampled: frozenset[str]  # replicas that no signal measures without gaps
    silent: frozenset[str]  # pods whose servers prove that there was no request
    gpus: float  # of one replica

    def name_replica(self, one: AllocationKey) -> str:
        return name_replica(self.key, one.container.pod)


def name_replica(key: WorkloadKey, pod: str) -> str:
    """A group of a LeaderWorkerSet is one replica: `name-3` leads it, `name-3-1` works for it."""
    if key.kind != "LeaderWorkerSet":
        return pod
    return f"{key.name}-{pod.removeprefix(key.name + '-').partition('-')[0]}"


def _choose_pools(result: Result, managed: Mapping[WorkloadKey, ManagedPool]) -> Iterator[_Pool]:
    table, verdicts = result.workloads, result.verdicts
    numbers = [number for number, key in enumerate(table.keys) if key.kind in POOL_KINDS]
    numbers.sort(key=lambda number: (table.keys[number] not in managed, -float(table.gpus[number])))
    silent = {
        (one.container.namespace, one.container.pod, one.container.cluster)
        for one in verdicts.usage.servers
        if one.is_silent and not one.has_demand
    }
    starting, integrated = SIGNATURES.index(Signature.STARTING), PROOFS.index(Proof.INTEGRATED)
    left, count = MOST_ALLOCATIONS, 0
    for number in numbers:
        key, rows = table.keys[number], table.rows(number)
        allocations = tuple(verdicts.usage.allocations[row] for row in rows.tolist())
        replicas = {name_replica(key, one.container.pod) for one in allocations}
        if (len(replicas) < 2 and key not in managed) or len(allocations) > left or count == MOST_POOLS:
            continue
        left, count = left - len(allocations), count + 1
        pairs, containers = list(zip(rows.tolist(), allocations, strict=True)), [one.container for one in allocations]
        yield _Pool(
            key,
            allocations,
            frozenset(
                name_replica(key, one.container.pod) for row, one in pairs if verdicts.signature[row] == starting
            ),
            frozenset(name_replica(key, one.container.pod) for row, one in pairs if verdicts.proof[row] != integrated),
            frozenset(one.pod for one in containers if (one.namespace, one.pod, one.cluster) in silent),
            float(table.gpus[number]) / len(replicas),
        )


def _make_batches(pools: Sequence[_Pool]) -> Iterator[list[_Pool]]:
    batch: list[_Pool] = []
    for pool in pools:
        if batch and sum(len(each.allocations) for each in batch) + len(pool.allocations) > BATCH:
            yield batch
            batch = []
        batch.append(pool)
    if batch:
        yield batch


def _find_begin(known: PoolMinutes | None, since: float) -> int:
    """The first minute to read."""
    earliest = int(since // MINUTE) + 1
    return earliest if known is None else max(known.end, earliest)


def count_replicas(
    charts: Sequence[Chart], pool: _Pool, *, rule: ActivityRule, begin: int, at: float, managed: ManagedPool
) -> PoolMinutes | None:
    """From the minute `begin` on (pure). Each replica is at work, or not, in each interval between two of its samples,
    and a minute has the most of its intervals. None: no minute is complete."""
    work, seen = defaultdict(list), defaultdict(list)
    held = {pool.name_replica(one) for one in pool.allocations}
    born: dict[str, float] = {}
    for chart in charts:
        replica = pool.name_replica(chart.allocation)
        times = np.array(sorted({moment for moment, _ in chart.lines.get(Measure.CORE, ())}))
        seen[replica].append(times)
        work[replica].append(_find_work(chart, rule, is_silent=chart.allocation.container.pod in pool.silent))
        if (started := chart.allocation.container.started_at) is not None:
            born[replica] = min(started, born.get(replica, started))
    gaps = [float(np.median(np.diff(each))) for own in seen.values() for each in own if len(each) > 1]
    step = max(1.0, float(np.median(gaps))) if gaps else 0.0
    raised = frozenset(replica for replica, since in born.items() if _is_raised(since, managed, at))
    end = int(at // MINUTE)
    if not gaps or step > LONGEST_STEP_SECONDS:  # nothing is known of these minutes
        return _unknown(begin, end, pool, managed) if end > begin else None
    most_gap = max(2.5 * step, LEAST_GAP_SECONDS)
    latest = [min(float(each[-1]) if len(each) else 0.0 for each in seen[replica]) for replica in held]
    fresh = [last for last in latest if at - last <= most_gap]
    end = int(min(at, min(fresh, default=at) + step) // MINUTE)
    if end <= begin:
        return None
    count = max(1, round((end - begin) * MINUTE / step))
    step = (end - begin) * MINUTE / count
    grid = _Grid(begin * MINUTE, step, count)
    active, ready, present = (np.zeros(count, np.int64) for _ in range(3))
    is_known = np.ones(count, np.bool_)
    for replica, parts in seen.items():
        if not all(map(len, parts)):
            # It holds GPUs, and what it does is not measured, unless it has just begun.
            is_known &= replica not in held or at - born.get(replica, 0.0) <= most_gap
            continue
        if replica in pool.sampled and replica not in pool.starting:
            is_known[:] = False  # between two samples it may have worked
        is_there, is_measured = grid.find_presence(parts, most_gap=most_gap, at=at, is_held=replica in held)
        is_known &= is_measured
        is_starting = replica in pool.starting
        works: Mask = grid.mark(np.concatenate(work[replica])) & is_there
        if is_starting and replica not in raised:
            works = is_there
        present += is_there
        ready += np.zeros(count, np.bool_) if is_starting else is_there
        active += works
    found = _sum_up(
        grid, begin, end, active=active, ready=ready, present=present, is_known=is_known, about=(pool, managed)
    )
    worked_at = {
        replica: max((float(each.max()) for each in work[replica] if len(each)), default=0.0) for replica in held
    }
    return replace(found, worked_at=worked_at)


def _is_raised(started_at: float, managed: ManagedPool, at: float) -> bool:
    since = managed.raised_at
    return since is not None and at - since <= RAISED_SECONDS and started_at >= since - MINUTE


def _unknown(begin: int, end: int, pool: _Pool, managed: ManagedPool) -> PoolMinutes:
    nothing = np.full(end - begin, UNKNOWN, np.int16)
    return PoolMinutes(begin, nothing, nothing, nothing, pool.gpus, managed.start_seconds)


def _sum_up(
    grid: "_Grid",
    begin: int,
    end: int,
    *,
    active: Numbers,
    ready: Numbers,
    present: Numbers,
    is_known: Mask,
    about: tuple[_Pool, ManagedPool],
) -> PoolMinutes:
    pool, managed = about
    minute = np.minimum(((grid.ends - begin * MINUTE - 1e-6) // MINUTE).astype(np.int64), end - begin - 1)
    first = np.searchsorted(minute, np.arange(end - begin))
    last = np.searchsorted(minute, np.arange(end - begin), side="right") - 1
    most = np.maximum.reduceat(active, first)
    is_all_known = np.minimum.reduceat(is_known, first).astype(np.bool_)
    wanted = present[last] if managed.wanted is None else np.maximum(present[last], managed.wanted)

    def column(values: Numbers) -> Counts:
        return np.where(is_all_known, np.minimum(values, np.iinfo(np.int16).max), UNKNOWN).astype(np.int16)

    return PoolMinutes(begin, column(most), column(ready[last]), column(wanted), pool.gpus, managed.start_seconds)


class _Grid(NamedTuple):
    """Intervals of equal length, about as long as those between two samples: at most a minute."""

    begin: float
    step: float
    size: int

    @property
    def ends(self) -> Times:
        found: Times = self.begin + self.step * np.arange(1.0, self.size + 1.0)
        return found

    def mark(self, times: Times) -> Mask:
        """Which intervals contain one of these times: a sample stands for the interval that it ends."""
        numbers = np.ceil((times - self.begin) / self.step - 1e-6).astype(np.int64) - 1
        marked = np.zeros(self.size, np.bool_)
        marked[numbers[(numbers >= 0) & (numbers < self.size)]] = True
        return marked

    def find_presence(self, parts: Sequence[Times], *, most_gap: float, at: float, is_held: bool) -> tuple[Mask, Mask]:
        """In which intervals a replica is there, and of which something is known. One that is held is there until now,
        and is not known after a gap; the others have left after their last sample."""
        begun, ended = min(float(each[0]) for each in parts), max(float(each[-1]) for each in parts)
        is_there: Mask = self.ends > begun - self.step
        if not is_held:
            is_there &= self.ends <= ended + self.step
        is_measured = np.ones(self.size, np.bool_)
        for times in parts:
            edges = np.append(times, at) if is_held else times
            for number in np.flatnonzero(np.diff(edges) > most_gap).tolist():
                is_measured &= ~((self.ends > edges[number] + self.step) & (self.ends <= edges[number + 1]))
        return is_there, is_measured


def _find_work(chart: Chart, rule: ActivityRule, *, is_silent: bool) -> Times:
    """The times of samples that show work. `is_silent`: its servers prove that there was no request; then what its
    GPU does less than one per cent of the time is not work either."""
    busy = chart.lines.get(Measure.BUSY, ())
    if is_silent and busy and sum(value for _, value in busy) / len(busy) < UNUSED_RATIO:
        return np.empty(0)
    found: list[float] = []
    for measure, points in chart.lines.items():
        if measure is Measure.LAST_KERNEL:
            found += [launched for _, launched in points]
            continue
        floor, highest = find_floor(measure, rule), find_highest(measure)
        highest = _HIGHEST_BLANK if highest == HIGHEST_RATIO else highest
        found += [moment for moment, value in points if floor < value < highest]
    return np.array(found)
