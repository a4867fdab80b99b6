"""Idle intervals of workloads and of pods, and the chances of resumption that would have been told in them (pure,
vectorised).

A workload or a pod is idle while all of its allocations are. An allocation that is held and has no spell at a time
counts as active: also time of which nothing is known.

Chances are the same counts as those of `judge.resumption.count_chance`, from intervals whose outcome was known at each
time.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.judge.resumption import FEWEST_SPELLS, HALF_HOUR, RECENT_SECONDS
from gpusteward.analyzer.spell_table import ENDS, STILL_IDLE, Mask, Numbers, SpellTable
from gpusteward.analyzer.tables import Codes, Column
from gpusteward.core.idle_spells import SpellEnd

_WORK, _RELEASED, _LOST = (ENDS.index(each) for each in (SpellEnd.WORK, SpellEnd.RELEASED, SpellEnd.LOST))
_NO_REASON = -2
_SPAN = 2.0**33
"""Longer than any period: one key sorts by group and time, and times of different groups do not mix."""


@dataclass(frozen=True)
class Intervals:
    """Times at which everything in a group was idle."""

    group: Numbers
    started_at: Column
    ended_at: Column  # the end of the data where it is still idle
    ended_by: Codes  # indexes `ENDS`, or STILL_IDLE
    gpus: Column  # held at its start

    def __len__(self) -> int:
        return len(self.started_at)

    @property
    def seconds(self) -> Column:
        return self.ended_at - self.started_at


class _Steps(NamedTuple):
    """How many allocations of each group are held and active from each time on; sorted by group and time."""

    group: Numbers
    at: Column
    active: NDArray[np.int64]
    held: NDArray[np.int64]
    gpus: Column
    reason: Codes  # why something became active at this time


def find_intervals(table: SpellTable, groups: Numbers | None = None) -> Intervals:
    """`groups`: the group of each row of `table.held`; without it, the workloads."""
    steps = find_steps(table, table.held.workload if groups is None else groups)
    count = len(steps.at)
    if not count:
        return Intervals(steps.group, steps.at, steps.at, np.empty(0, np.int8), steps.gpus)
    is_idle = (steps.active == 0) & (steps.held > 0)
    same_group = np.concatenate((steps.group[1:] == steps.group[:-1], [False]))
    before = np.concatenate(([False], is_idle[:-1] & same_group[:-1]))
    begins = np.flatnonzero(is_idle & ~before)
    after = np.concatenate((is_idle[1:] & same_group[:-1], [False]))
    last = np.flatnonzero(is_idle & ~after)
    ends = np.minimum(last + 1, count - 1)
    has_ended = same_group[last]
    reason = np.where(steps.held[ends] == 0, _RELEASED, steps.reason[ends])
    reason = np.where(reason == _NO_REASON, _WORK, reason)
    return Intervals(
        group=steps.group[begins],
        started_at=steps.at[begins],
        ended_at=np.where(has_ended, steps.at[ends], table.at),
        ended_by=np.where(has_ended, reason, STILL_IDLE).astype(np.int8),
        gpus=steps.gpus[begins],
    )


def find_steps(table: SpellTable, groups: Numbers) -> _Steps:
    """Held and active allocations of each group over time."""
    held = table.held
    order = np.argsort(held.allocation_id)
    rows = order[np.searchsorted(held.allocation_id[order], table.allocation_id)] if len(held) else np.empty(0, np.intp)
    began_at = held.began_at.copy()
    np.minimum.at(began_at, rows, table.started_at)  # a spell may begin before its first record
    has_left, is_over = np.isfinite(held.ended_at), table.ended_by != STILL_IDLE
    left, over = held.ended_at[has_left], table.ended_at[is_over]
    ones = np.ones
    group = np.concatenate((groups, groups[has_left], groups[rows], groups[rows][is_over]))
    at = np.concatenate((began_at, left, table.started_at, over))
    active = np.concatenate((ones(len(held)), -ones(len(left)), -ones(len(rows)), ones(len(over))))
    count = np.concatenate((ones(len(held)), -ones(len(left)), np.zeros(len(rows) + len(over))))
    gpus = np.concatenate((held.gpus, -held.gpus[has_left], np.zeros(len(rows) + len(over))))
    none = np.full(len(held) + len(left) + len(rows), _NO_REASON, np.int8)
    reason = np.concatenate((none, table.ended_by[is_over]))
    return _add_up(group, at, active=active, held=count, gpus=gpus, reason=reason)


def _add_up(group: Numbers, at: Column, *, active: Column, held: Column, gpus: Column, reason: Codes) -> _Steps:
    """One step for each time of a group, with the sums from the beginning of the group on."""
    order = np.argsort(group * _SPAN + at, kind="stable")
    group, at = group[order], at[order]
    if not len(at):
        empty = np.empty(0, np.int64)
        return _Steps(group, at, empty, empty, at, np.empty(0, np.int8))
    begins = np.flatnonzero(np.concatenate(([True], (np.diff(group) != 0) | (np.diff(at) != 0))))
    # Work is the strongest reason, then lost data: what ended by work was needed.
    rank = np.select([reason == _WORK, reason == _LOST, reason != _NO_REASON], [3, 2, 1], 0)[order]
    ranks = np.maximum.reduceat(rank, begins)
    reasons = np.array([_NO_REASON, _RELEASED, _LOST, _WORK], np.int8)[ranks]
    first_of_group = np.concatenate(([True], np.diff(group[begins]) != 0))

    def sum_up(column: Column) -> Column:
        sums = np.cumsum(np.add.reduceat(column[order], begins))
        starts = np.flatnonzero(first_of_group)
        base = np.concatenate(([0.0], sums[starts[1:] - 1]))
        found: Column = sums - np.repeat(base, np.diff(np.concatenate((starts, [len(sums)]))))
        return found

    return _Steps(
        group[begins],
        at[begins],
        np.rint(sum_up(active)).astype(np.int64),
        np.rint(sum_up(held)).astype(np.int64),
        sum_up(gpus),
        reasons,
    )


class _Ordered(NamedTuple):
    """Intervals by group and start: their ages are reached in this order, so that most columns need no sorting."""

    rows: Numbers  # of the intervals
    base: Column  # of the group, for keys of group and time
    started_at: Column
    seconds: Column
    has_resumed: Mask
    has_left: Mask  # released


def _order(intervals: Intervals, groups: Numbers) -> _Ordered:
    rows = np.lexsort((intervals.started_at, groups))
    ended_by = intervals.ended_by[rows]
    return _Ordered(
        rows=rows,
        base=groups[rows].astype(np.float64) * _SPAN,
        started_at=intervals.started_at[rows],
        seconds=intervals.seconds[rows],
        has_resumed=ended_by == ENDS.index(SpellEnd.WORK),
        has_left=ended_by == ENDS.index(SpellEnd.RELEASED),
    )


class PastChances:
    """The chance that work comes back within 30 minutes, of every interval at any age."""

    def __init__(self, intervals: Intervals, kinds: Numbers) -> None:
        """`kinds`: the kind of the group of each interval."""
        self._count = len(intervals)
        self._own = _order(intervals, intervals.group)
        self._of_kind = _order(intervals, kinds)
        self._found: dict[float, Column] = {}

    def tell(self, age: float) -> Column:
        """Of every interval that is longer than this; NaN: unknown. Policies with other windows ask for the same ages
        again, so it is kept."""
        found = self._found.get(age)
        if found is None:
            found = self._found[age] = self._tell(age)
        return found

    def _tell(self, age: float) -> Column:
        """Its own spells count before those of its kind."""
        found, is_asked = np.full(self._count, np.nan), np.ones(self._count, np.bool_)
        for ordered in (self._own, self._of_kind):
            rows, chances = _count(ordered, age, is_asked)
            found[rows] = chances
            is_asked = np.zeros(self._count, np.bool_)
            is_asked[rows[np.isnan(chances)]] = True
            if not is_asked.any():
                break
        return found


def _count(ordered: _Ordered, age: float, is_asked: Mask) -> tuple[Numbers, Column]:
    """Rows that become as old, and the chance at that time; from recent spells if these are enough, else from all."""
    old = _take(ordered, np.flatnonzero(ordered.seconds >= age))
    resumed = old.has_resumed & (old.seconds <= age + HALF_HOUR)
    idle = ~resumed & ((old.seconds >= age + HALF_HOUR) | old.has_left)
    at = old.base + old.started_at + age
    horizon_keys = at + HALF_HOUR  # ascending, as the ages are
    resumed_keys, idle_keys = horizon_keys[resumed], horizon_keys[idle]
    asked = np.flatnonzero(is_asked[old.rows])
    at, begin = at[asked], old.base[asked]
    since = np.maximum(at - RECENT_SECONDS, begin)
    idle_until = np.searchsorted(idle_keys, at, side="right")
    resumed_until = np.searchsorted(resumed_keys, at, side="right")
    all_resumed = resumed_until - _count_before(resumed_keys, begin)
    all_idle = idle_until - _count_before(idle_keys, begin)
    recent_resumed = resumed_until - np.searchsorted(resumed_keys, since, side="right")
    recent_idle = idle_until - np.searchsorted(idle_keys, since, side="right")
    has_recent = recent_resumed + recent_idle >= FEWEST_SPELLS
    came = np.where(has_recent, recent_resumed, all_resumed)
    total = came + np.where(has_recent, recent_idle, all_idle)
    return old.rows[asked], np.where(total >= FEWEST_SPELLS, came / np.maximum(total, 1), np.nan)


def _take(ordered: _Ordered, chosen: Numbers) -> _Ordered:
    return _Ordered(
        ordered.rows[chosen],
        ordered.base[chosen],
        ordered.started_at[chosen],
        ordered.seconds[chosen],
        ordered.has_resumed[chosen],
        ordered.has_left[chosen],
    )


def _count_before(keys: Column, begins: Column) -> Numbers:
    """How many keys lie before each of these ascending ones, of which there are few different ones."""
    first = np.flatnonzero(np.concatenate(([True], np.diff(begins) != 0))) if len(begins) else np.empty(0, np.intp)
    counts = np.searchsorted(keys, begins[first], side="right")
    return np.repeat(counts, np.diff(np.concatenate((first, [len(begins)]))))
