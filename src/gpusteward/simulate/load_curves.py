"""Load curves: cumulative busy seconds as closed functions of time.

A load curve maps a moment (unix seconds) to the seconds counted until then; it never decreases and never grows faster
than time. The utilization between two moments is the difference of two values divided by the time between them: exact
for any window, at any moment, in any order. Load curves can be chained: a clock that pauses is a load curve too, and
work that uses this clock pauses with it.

Random variation keeps the integral closed because it cancels out within each block of time: a ripple is as long above
the mean as below, and a break or burst moves within its block but has a fixed length.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gpusteward.simulate.seeded_random import hash_to_unit

LoadCurve = Callable[[float], float]


class Presence(Protocol):
    """When a placement is occupied: a load curve that also has an on/off state."""

    def __call__(self, at: float, /) -> float: ...
    def is_on(self, at: float, /) -> bool: ...


DAY = 86_400.0
HOUR = 3_600.0
_FIRST_MONDAY = 4 * DAY  # 1970-01-05


@dataclass(frozen=True, slots=True)
class Chain:
    """Work that uses another curve as its clock."""

    clock: LoadCurve
    work: LoadCurve

    def __call__(self, at: float) -> float:
        return self.work(self.clock(at))


@dataclass(frozen=True, slots=True)
class Scaled:
    """The same work on a part of the device."""

    work: LoadCurve
    factor: float

    def __call__(self, at: float) -> float:
        return self.factor * self.work(at)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """On for the first `duration` seconds of every `period`: the lifetimes of consecutive pods."""

    period: float
    phase: float
    duration: float

    def __call__(self, at: float) -> float:
        generation, into = divmod(at - self.phase, self.period)
        return generation * self.duration + min(into, self.duration)

    def is_on(self, at: float) -> bool:
        return (at - self.phase) % self.period < self.duration

    def generation(self, at: float) -> int:
        return int((at - self.phase) // self.period)

    def starts_at(self, generation: int) -> float:
        return self.phase + generation * self.period


@dataclass(frozen=True, slots=True)
class Breaks:
    """A clock that pauses for `duration` seconds somewhere in every `every` seconds."""

    seed: int
    every: float
    duration: float

    def __call__(self, at: float) -> float:
        block, into = divmod(at, self.every)
        start = hash_to_unit(self.seed, int(block)) * (self.every - self.duration)
        worked = into if into < start else max(start, into - self.duration)
        return block * (self.every - self.duration) + worked


@dataclass(frozen=True, slots=True)
class OfficeHours:
    """A clock that runs for two periods on each working day, one in the morning and one in the afternoon."""

    seed: int
    offset: float  # of local time to UTC, in seconds
    morning: float  # seconds of each period; at most the three and the five hours within which they lie
    afternoon: float

    def __call__(self, at: float) -> float:
        day, into = divmod(at + self.offset - _FIRST_MONDAY, DAY)
        week, weekday = divmod(int(day), 7)
        before = (week * 5 + min(weekday, 5)) * (self.morning + self.afternoon)
        return before if weekday > 4 else before + self._today(int(day), into)

    def _today(self, day: int, into: float) -> float:
        early = 9 * HOUR + hash_to_unit(self.seed, 2 * day) * (3 * HOUR - self.morning)
        late = 13 * HOUR + hash_to_unit(self.seed, 2 * day + 1) * (5 * HOUR - self.afternoon)
        return min(max(into - early, 0.0), self.morning) + min(max(into - late, 0.0), self.afternoon)


@dataclass(frozen=True, slots=True)
class Constant:
    """Constant utilization."""

    level: float

    def __call__(self, at: float) -> float:
        return self.level * at


@dataclass(frozen=True, slots=True)
class Steady:
    """Almost constant utilization, with a fast and a slow ripple of up to `swing` each."""

    seed: int
    level: float
    swing: float
    fast: float = 14.0  # seconds
    slow: float = 530.0

    def __call__(self, at: float) -> float:
        return self.level * at + self._ripple(at, self.fast) + self._ripple(at, self.slow)

    def _ripple(self, at: float, period: float) -> float:
        """One half of a block is above the level by as much as the other half is below."""
        block, into = divmod(at, period)
        height = self.swing * (2 * hash_to_unit(self.seed, int(block)) - 1)
        return height * min(into, period - into)


@dataclass(frozen=True, slots=True)
class DayAndNight:
    """Utilization between `mean + swing` at the peak hour and `mean - swing` twelve hours later."""

    mean: float
    swing: float
    peak_at: float  # seconds of the UTC day

    def __call__(self, at: float) -> float:
        return self.mean * at + self.swing * DAY / math.tau * math.sin(math.tau * (at - self.peak_at) / DAY)


@dataclass(frozen=True, slots=True)
class Bursts:
    """The work of another curve, done in one burst somewhere in every `every` seconds.

    The utilization of a burst is `peak_factor` times the mean of its block, at least `lowest_level`, at most 1.
    """

    seed: int
    every: float
    mean_work: LoadCurve
    lowest_level: float
    peak_factor: float = 1.7

    def __call__(self, at: float) -> float:
        block, into = divmod(at, self.every)
        before = self.mean_work(block * self.every)
        due = self.mean_work((block + 1) * self.every) - before
        level = min(max(self.lowest_level, self.peak_factor * due / self.every), 1.0)
        width = due / level
        start = hash_to_unit(self.seed, int(block)) * (self.every - width)
        return before + level * min(max(into - start, 0.0), width)


@dataclass(frozen=True, slots=True)
class ReducedWork:
    """Work reduced by `ratio` from `since` to `until`, because of another load."""

    work: LoadCurve
    ratio: float
    since: float
    until: float

    def __call__(self, at: float) -> float:
        own = self.work(at)
        if at <= self.since:
            return own
        beside = (own if at <= self.until else self.work(self.until)) - self.work(self.since)
        return own - self.ratio * beside


@dataclass(frozen=True, slots=True)
class Between:
    """A clock that runs from `since` to `until` only."""

    since: float
    until: float

    def __call__(self, at: float) -> float:
        return min(max(at - self.since, 0.0), self.until - self.since)

    def is_on(self, at: float) -> bool:
        return self.since <= at < self.until


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A presence that is off from `since` to `until`."""

    presence: Presence
    since: float
    until: float = math.inf

    def __call__(self, at: float) -> float:
        return ReducedWork(self.presence, 1.0, self.since, self.until)(at)

    def is_on(self, at: float) -> bool:
        return self.presence.is_on(at) and not self.since <= at < self.until
