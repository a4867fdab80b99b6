"""The chance that work comes back to an idle workload, from the idle spells of the past (pure).

The estimator is the look-back hazard: of the spells that became as old as this one, the share in which work came back
within the horizon. Recent spells count if there are enough of them, because people and traffic behave differently at
different times of the day; else all that are known. The spells of the workload itself count if there are enough, else
those of all workloads of its kind. More elaborate estimators (quantiles of own gaps, hidden Markov models, boosted
trees) did not carry over from one part of a day to another on the trace they were tried on; this one did, and it can be
checked by counting.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.setting_values import read_zone
from gpusteward.analyzer.tables import Column
from gpusteward.core.node.containers import WorkloadKey

FEWEST_SPELLS = 10
"""With fewer spells the share is not told: one spell more or less would change it by more than a tenth."""
RECENT_SECONDS = 5400.0
"""A spell is recent if its horizon ended less than this ago: two hours of spells for the horizon of 30 minutes."""
MORNING_HOUR = 8
HALF_HOUR, TWO_HOURS = 1800.0, 7200.0
_AGE_STEP_SECONDS = 300.0
"""Ages are rounded down to this for the spells of a kind, so that workloads of similar age share one count."""
SpellsOf = Literal["workload", "kind", ""]
_Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Chance:
    """That work comes back within a horizon."""

    probability: float | None = None  # None: too few spells
    spells: int = 0  # that became as old, and whose following time is known
    of: SpellsOf = ""  # whose spells these are


@dataclass(frozen=True, slots=True)
class Resumption:
    """The chance that work comes back, for each horizon that is shown."""

    within_30_minutes: Chance
    within_2_hours: Chance
    until_morning: Chance


class PastSpells(NamedTuple):
    """What is counted of idle spells: one entry each, ended or not."""

    started_at: Column
    seconds: Column
    has_resumed: _Mask  # work ended it
    is_over: _Mask  # what would have followed is known: work came, or the allocation was released

    def take(self, chosen: "_Mask | NDArray[np.intp] | slice") -> "PastSpells":
        return PastSpells(self.started_at[chosen], self.seconds[chosen], self.has_resumed[chosen], self.is_over[chosen])


NO_PAST = PastSpells(np.empty(0), np.empty(0), np.empty(0, np.bool_), np.empty(0, np.bool_))


def count_chance(past: PastSpells, *, age: float, horizon: float, now: float, of: SpellsOf) -> Chance:
    """From recent spells if they are enough, else from all. Spells whose following time is unknown do not count, nor do
    those that became as old less than one horizon ago: of these only the ones that resumed could count by now, and the
    chance would be told too high."""
    old = past.take((past.seconds >= age) & (past.started_at + age + horizon <= now))
    is_late = old.seconds > age + horizon
    is_known = is_late | (old.seconds >= age + horizon) | old.is_over
    old, is_late = old.take(is_known), is_late[is_known]
    resumed = old.has_resumed & ~is_late
    is_recent = old.started_at + age > now - horizon - RECENT_SECONDS
    if int(is_recent.sum()) >= FEWEST_SPELLS:
        resumed = resumed[is_recent]
    count = len(resumed)
    return Chance(float(resumed.sum()) / count if count >= FEWEST_SPELLS else None, count, of if count else "")


def seconds_until_morning(at: float, zone: str) -> float:
    """Until the next 08:00 in this zone; a whole day at 08:00 itself."""
    now = datetime.fromtimestamp(at, read_zone(zone))
    morning = now.replace(hour=MORNING_HOUR, minute=0, second=0, microsecond=0)
    if morning <= now:
        morning += timedelta(days=1)
    return morning.timestamp() - at


@dataclass(frozen=True)
class SpellHistory:
    """The idle spells of the past, by workload. Immutable: any thread may ask."""

    at: float = 0.0  # up to when the spells are known
    workloads: Sequence[WorkloadKey] = ()
    codes: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))  # of each spell, ascending
    past: PastSpells = NO_PAST  # in the same order
    zone: str = "UTC"

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def _numbers(self) -> Mapping[WorkloadKey, int]:
        return {key: number for number, key in enumerate(self.workloads)}

    @cached_property
    def _kinds(self) -> Mapping[str, PastSpells]:
        """Those of each kind."""
        names = list(dict.fromkeys(key.kind for key in self.workloads))
        numbers = {name: number for number, name in enumerate(names)}
        kind_of = np.array([numbers[key.kind] for key in self.workloads], np.intp)[self.codes]
        return {name: self.past.take(kind_of == number) for name, number in numbers.items()}

    @cached_property
    def _count_kind(self) -> Callable[[str, float, float], Chance]:
        def count(kind: str, age: float, horizon: float) -> Chance:
            past = self._kinds.get(kind, NO_PAST)
            return count_chance(past, age=age, horizon=horizon, now=self.at, of="kind")

        return lru_cache(maxsize=4096)(count)

    def find_past(self, key: WorkloadKey) -> PastSpells:
        """The spells of one workload."""
        number = self._numbers.get(key)
        if number is None:
            return NO_PAST
        begin, end = np.searchsorted(self.codes, [number, number + 1])
        return self.past.take(slice(int(begin), int(end)))

    def estimate(self, key: WorkloadKey, *, age: float, horizon: float) -> Chance:
        """The chance that work comes back within a horizon to a workload that is idle for `age` (seconds)."""
        past = self.find_past(key)
        if len(past.seconds) >= FEWEST_SPELLS:
            own = count_chance(past, age=age, horizon=horizon, now=self.at, of="workload")
            if own.probability is not None:
                return own
        return self._count_kind(key.kind, age // _AGE_STEP_SECONDS * _AGE_STEP_SECONDS, horizon)

    def estimate_all(self, key: WorkloadKey, *, age: float) -> Resumption:
        """For all horizons that are shown."""
        morning = seconds_until_morning(self.at, self.zone)
        return Resumption(*(self.estimate(key, age=age, horizon=each) for each in (HALF_HOUR, TWO_HOURS, morning)))


NO_HISTORY = SpellHistory()
