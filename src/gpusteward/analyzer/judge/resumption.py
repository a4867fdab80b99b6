"""The chance that work comes back to an idle workload, from the idle spells of the past (pure).

The estimator is the look-back hazard: of the spells that became as old as this one, the share in which work came back
within the horizon. Recent spells count if there are enough of them, because people and traffic behave differently at
different times of the day; else all that are known. The spells of the workload itself count if there are enough, else
those of all workloads of its kind. More elaborate estimators (quantiles of own gaps, hidden Markov models, boosted
trees) did not carry over from one part of a day to another on the trace they were tried on; this one did, and it can be
checked by counting.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.setting_values import read_zone
from gpusteward.analyzer.spell_table import ENDS, SpellTable
from gpusteward.analyzer.tables import Column
from gpusteward.core.containers import WorkloadKey
from gpusteward.core.idle_spells import IdleSpell, SpellEnd

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


UNKNOWN_CHANCE = Chance()


@dataclass(frozen=True, slots=True)
class Resumption:
    """The chance that work comes back, for each horizon that is shown."""

    within_30_minutes: Chance = UNKNOWN_CHANCE
    within_2_hours: Chance = UNKNOWN_CHANCE
    until_morning: Chance = UNKNOWN_CHANCE


UNKNOWN_RESUMPTION = Resumption()


class PastSpells(NamedTuple):
    """What is counted of idle spells: one entry each, ended or not."""

    started_at: Column
    seconds: Column
    has_resumed: _Mask  # work ended it
    is_over: _Mask  # what would have followed is known: work came, or the allocation was released

    def take(self, chosen: "_Mask | NDArray[np.intp] | slice") -> "PastSpells":
        return PastSpells(self.started_at[chosen], self.seconds[chosen], self.has_resumed[chosen], self.is_over[chosen])


NO_PAST = PastSpells(np.empty(0), np.empty(0), np.empty(0, np.bool_), np.empty(0, np.bool_))


def make_past(table: SpellTable) -> PastSpells:
    return PastSpells(
        table.started_at,
        table.seconds,
        table.ended_by == ENDS.index(SpellEnd.WORK),
        table.has_ended_by(SpellEnd.WORK, SpellEnd.RELEASED),
    )


def estimate_chance(
    spells: Iterable[IdleSpell], *, age: float, horizon: float, now: float, of: SpellsOf = "workload"
) -> Chance:
    """The share of spells of at least this age (seconds) in which work came back within the horizon (seconds)."""
    rows = list(spells)
    past = PastSpells(
        np.array([each.started_at for each in rows], np.float64),
        np.array([each.lasted(now) for each in rows], np.float64),
        np.array([each.ended_by is SpellEnd.WORK for each in rows], np.bool_),
        np.array([each.ended_by in (SpellEnd.WORK, SpellEnd.RELEASED) for each in rows], np.bool_),
    )
    return count_chance(past, age=age, horizon=horizon, now=now, of=of)


def count_chance(past: PastSpells, *, age: float, horizon: float, now: float, of: SpellsOf) -> Chance:
    """From recent spells if they are enough, else from all. Spells whose following time is unknown do not count."""
    old = past.take(past.seconds >= age)
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
    """The idle spells of the past, by workload and by kind. Immutable: any thread may ask."""

    at: float = 0.0  # up to when the spells are known
    by_workload: Mapping[WorkloadKey, PastSpells] = field(default_factory=dict)
    by_kind: Mapping[str, PastSpells] = field(default_factory=dict)
    zone: str = "UTC"
    _count_kind: Callable[[str, float, float], Chance] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        def count(kind: str, age: float, horizon: float) -> Chance:
            past = self.by_kind.get(kind, NO_PAST)
            return count_chance(past, age=age, horizon=horizon, now=self.at, of="kind")

        object.__setattr__(self, "_count_kind", lru_cache(maxsize=4096)(count))

    def estimate(self, key: WorkloadKey, *, idle_since: float, horizon: float) -> Chance:
        """The chance that work comes back to this workload within a horizon (seconds)."""
        age = max(0.0, self.at - idle_since)
        past = self.by_workload.get(key)
        if past is not None:
            own = count_chance(past, age=age, horizon=horizon, now=self.at, of="workload")
            if own.probability is not None:
                return own
        rounded = age // _AGE_STEP_SECONDS * _AGE_STEP_SECONDS
        return self._count_kind(key.kind, rounded, horizon)

    def estimate_all(self, key: WorkloadKey, *, idle_since: float) -> Resumption:
        """For all horizons that are shown."""
        horizons = (HALF_HOUR, TWO_HOURS, seconds_until_morning(self.at, self.zone))
        return Resumption(*(self.estimate(key, idle_since=idle_since, horizon=each) for each in horizons))


def make_history(table: SpellTable, *, at: float, zone: str = "UTC") -> SpellHistory:
    """Spells that all GPUs of a workload have in common count once."""
    order = np.lexsort((table.ended_at, table.started_at, table.workload))
    table = table.take(order)
    is_first = np.ones(len(table), np.bool_)
    is_first[1:] = (np.diff(table.workload) != 0) | (np.diff(table.started_at) != 0) | (np.diff(table.ended_at) != 0)
    table = table.take(is_first)
    past = make_past(table)
    kinds = [key.kind for key in table.workloads]
    names = list(dict.fromkeys(kinds))
    kind_of = np.array([names.index(kind) for kind in kinds], np.intp)
    return SpellHistory(
        at=at,
        by_workload=_split(past, table.workload, table.workloads),
        by_kind=_split_unsorted(past, kind_of[table.workload] if len(table) else table.workload, names),
        zone=zone,
    )


def _split(past: PastSpells, codes: NDArray[np.intp], keys: Sequence[WorkloadKey]) -> dict[WorkloadKey, PastSpells]:
    """By ascending codes; workloads with too few spells are left out: those of their kind count for them."""
    found, begins, counts = np.unique(codes, return_index=True, return_counts=True)
    return {
        keys[code]: past.take(slice(begin, begin + count))
        for code, begin, count in zip(found.tolist(), begins.tolist(), counts.tolist(), strict=True)
        if count >= FEWEST_SPELLS
    }


def _split_unsorted(past: PastSpells, codes: NDArray[np.intp], names: Sequence[str]) -> dict[str, PastSpells]:
    return {name: past.take(codes == code) for code, name in enumerate(names)}
