"""What earlier cycles saw. A plain value: it comes in, a new one goes out, and who is gone is forgotten."""

from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.keys import AllocationKeys, Mask
from gpusteward.analyzer.tables import Column

SAME_START_SECONDS = 2.0
"""Two sources round a pod's start differently; a restart takes longer than this."""


class MemoryRule(BaseModel):
    """How long is remembered what is no longer read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    forget_after_seconds: float = Field(
        default=3600,
        ge=0,
        description="An allocation that no cycle has seen for so long is forgotten. An hour outlasts most outages "
        "of a Prometheus and bounds the memory by what an hour's pods are.",
    )


Positions = NDArray[np.intp]


def _nothing() -> Column:
    return np.empty(0)


@dataclass(frozen=True)
class Past:
    """What is known of each allocation from earlier cycles, moments in unix seconds; NaN where it never happened."""

    seen_at: Column = field(default_factory=_nothing)
    first_seen_at: Column = field(default_factory=_nothing)
    started_at: Column = field(default_factory=_nothing)  # of the pod
    worked_at: Column = field(default_factory=_nothing)  # end of the last window with work in it
    idle_since: Column = field(default_factory=_nothing)  # start of the unbroken row of idle windows
    idle_until: Column = field(default_factory=_nothing)  # and its end
    flat_since: Column = field(default_factory=_nothing)  # start of the unbroken row of windows that look made up
    flat_ratio: Column = field(default_factory=_nothing)  # core utilization at that start

    def take(self, positions: Positions) -> "Past":
        """Row by row what stands at that position; nothing at -1."""
        if not len(self.seen_at):
            return Past(*(np.full(len(positions), np.nan) for _ in fields(Past)))
        if np.array_equal(positions, np.arange(len(self.seen_at))):
            return self  # nobody came or went
        return Past(*(np.where(positions >= 0, column[positions], np.nan) for column in self._columns()))

    def without(self, rows: Mask) -> "Past":
        if not rows.any():
            return self
        return Past(*(np.where(rows, np.nan, column) for column in self._columns()))

    def join(self, other: "Past") -> "Past":
        if not len(other.seen_at):
            return self
        pairs = zip(self._columns(), other._columns(), strict=True)
        return Past(*(np.concatenate(pair) for pair in pairs))

    def _columns(self) -> list[Column]:
        return [getattr(self, each.name) for each in fields(Past)]


@dataclass(frozen=True)
class Memory:
    """`Memory()` remembers nothing: the first cycle ever."""

    keys: AllocationKeys = field(default_factory=lambda: np.empty(0, np.int64))  # whose past stands in each row of it
    past: Past = field(default_factory=Past)

    def __len__(self) -> int:
        return len(self.keys)


def find_positions(memory: Memory, allocations: AllocationKeys) -> Positions:
    """Where each allocation stands in the memory; -1 for one it does not know."""
    return _find(allocations, among=memory.keys)


def _find(keys: AllocationKeys, *, among: AllocationKeys) -> Positions:
    """Where each key stands last among the others; -1 where it does not. `np.isin` would load a module of 3 MB."""
    if np.array_equal(keys, among):
        return np.arange(len(keys))  # nobody came or went: most cycles
    if not len(among):
        return np.full(len(keys), -1)
    order = np.argsort(among, kind="stable")
    places = order[np.searchsorted(among, keys, side="right", sorter=order) - 1]
    return np.where(among[places] == keys, places, -1)


def recall(memory: Memory, positions: Positions, *, started_at: Column) -> Past:
    """What is known of the allocations there. A pod of the same name that started anew has no past."""
    past = memory.past.take(positions)
    return past.without(np.abs(past.started_at - started_at) > SAME_START_SECONDS)


def remember(memory: Memory, allocations: AllocationKeys, *, past: Past, now: float, rule: MemoryRule) -> Memory:
    """The past of these allocations, and of those that were seen not long ago."""
    is_recent = memory.past.seen_at >= now - rule.forget_after_seconds
    left = np.flatnonzero(is_recent & (_find(memory.keys, among=allocations) < 0))
    return Memory(np.concatenate((allocations, memory.keys[left])), past.join(memory.past.take(left)))
