"""The chance that work comes back to an idle workload, from the idle spells of the past (pure).

The estimator is the look-back hazard: of the spells that became as old as this one, the share in which work came back
within the horizon. More elaborate ones (quantiles of own gaps, hidden Markov models, boosted trees) did not carry over
from one part of a day to another on the trace they were tried on; this one did, and it can be checked by counting.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gpusteward.core.idle_spells import IdleSpell, SpellEnd

FEWEST_SPELLS = 10
"""With fewer spells the share is not told: one spell more or less would change it by more than a tenth."""
SpellsOf = Literal["workload", "kind", ""]


@dataclass(frozen=True, slots=True)
class Chance:
    """That work comes back within a horizon."""

    probability: float | None = None  # None: too few spells
    spells: int = 0  # that became as old, and whose following time is known
    of: SpellsOf = ""  # whose spells these are


@dataclass(frozen=True, slots=True)
class Resumption:
    """The chance that work comes back, for each horizon that is shown."""

    within_30_minutes: Chance = Chance()
    within_2_hours: Chance = Chance()
    until_morning: Chance = Chance()


def estimate_chance(
    spells: Iterable[IdleSpell], *, age: float, horizon: float, now: float, of: SpellsOf = "workload"
) -> Chance:
    """The share of spells of at least this age (seconds) in which work came back within the horizon (seconds)."""
    resumed = total = 0
    for spell in spells:
        lasted = spell.lasted(now)
        is_known = lasted >= age + horizon or spell.ended_by in (SpellEnd.WORK, SpellEnd.RELEASED)
        if lasted >= age and is_known:
            total += 1
            resumed += spell.ended_by is SpellEnd.WORK and lasted <= age + horizon
    return make_chance(resumed, total, of=of)


def make_chance(resumed: int, total: int, *, of: SpellsOf) -> Chance:
    """Unknown if there are too few spells."""
    return Chance(resumed / total if total >= FEWEST_SPELLS else None, total, of if total else "")
