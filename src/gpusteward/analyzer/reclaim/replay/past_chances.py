"""Chances of resumption as they would have been told at times of the past (pure, vectorised).

The same counts as `judge.resumption.count_chance`, from intervals whose outcome was known at each time.
"""

from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.judge.resumption import FEWEST_SPELLS, HALF_HOUR, RECENT_SECONDS
from gpusteward.analyzer.reclaim.replay.idle_intervals import Intervals
from gpusteward.analyzer.spell_table import ENDS, Mask, Numbers
from gpusteward.analyzer.tables import Column
from gpusteward.core.idle_spells import SpellEnd

_SPAN = 2.0**33
"""Longer than any period: times of different groups do not mix in one sorted column."""
_HORIZON = HALF_HOUR


class _Ordered(NamedTuple):
    """Intervals by group and start: their ages are reached in this order, so that most columns need no sorting."""

    rows: Numbers  # of the intervals
    base: Column  # of the group, for keys of group and time
    started_at: Column
    seconds: Column
    has_resumed: Mask
    has_left: Mask  # released

    @property
    def ended_keys(self) -> Column:
        found: Column = self.base + self.started_at + self.seconds
        return found


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
    resumed = old.has_resumed & (old.seconds <= age + _HORIZON)
    idle = ~resumed & ((old.seconds >= age + _HORIZON) | old.has_left)
    at = old.base + old.started_at + age
    horizon_keys = at + _HORIZON  # ascending, as the ages are
    idle_keys, resumed_horizon = horizon_keys[idle], horizon_keys[resumed]
    resumed_keys = np.sort(old.ended_keys[resumed], kind="stable")
    asked = np.flatnonzero(is_asked[old.rows])
    at, begin = at[asked], old.base[asked]
    since = np.maximum(at - RECENT_SECONDS, begin)
    idle_until = np.searchsorted(idle_keys, at, side="right")
    all_resumed = np.searchsorted(resumed_keys, at, side="right") - _count_before(resumed_keys, begin)
    all_idle = idle_until - _count_before(idle_keys, begin)
    earlier = np.searchsorted(resumed_horizon, since, side="right") - _count_before(resumed_horizon, begin)
    recent_resumed, recent_idle = all_resumed - earlier, idle_until - np.searchsorted(idle_keys, since, side="right")
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
