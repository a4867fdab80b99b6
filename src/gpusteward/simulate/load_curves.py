"""Work as closed functions of time.

A course maps a moment (unix seconds) to seconds counted by then; it never falls and never rises faster than
time. The count of a workload's busy seconds is a course, so its utilization between two moments is the
difference of two counts over the time between them: exact for any window, at any moment, in any order.
Courses chain: a clock that stands still now and then is a course too, and work that follows it rests with it.

Randomness keeps the integral closed because each block of time gives back what it took: a ripple is as long
above as below, a break or a burst moves within its block but always lasts as long as the block says.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from gpusteward.simulate.seeded_random import hash_to_unit

LoadCurve = Callable[[float], float]

DAY = 86_400.0
HOUR = 3_600.0
_FIRST_MONDAY = 4 * DAY  # 1970-01-05


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing, ever."""

    def __call__(self, _: float) -> float:
        return 0.0


@dataclass(frozen=True, slots=True)
class Chain:
    """Work that follows a clock."""

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
    """On for `lasting` seconds of every `period`: one life of a pod after another."""

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
    """A clock that stands still for `lasting` seconds somewhere in every `every` seconds."""

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
    """A clock that runs for two spells on each working day, somewhere in the morning and in the afternoon."""

    seed: int
    offset: float  # of local time to UTC, in seconds
    morning: float  # seconds of each spell; at most the three and the five hours they move in
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
    """The same utilization always."""

    level: float

    def __call__(self, at: float) -> float:
        return self.level * at


@dataclass(frozen=True, slots=True)
class Steady:
    """About the same utilization always, with a fast and a slow ripple of up to `swing` each."""

    seed: int
    level: float
    swing: float
    fast: float = 14.0  # seconds
    slow: float = 530.0

    def __call__(self, at: float) -> float:
        return self.level * at + self._ripple(at, self.fast) + self._ripple(at, self.slow)

    def _ripple(self, at: float, period: float) -> float:
        """The first half of a block is above the level by as much as the second is below, or the other way."""
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
    """What another course works evenly, done in one burst somewhere in every `every` seconds.

    A burst's utilization is `crest` times the block's mean, but at least `least` and at most 1.
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
    """Work that gives up `ratio` of its speed from `since` to `until`, to a load beside it."""

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
