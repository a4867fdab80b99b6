"""What earlier cycles saw. A plain value: it comes in, a new one goes out, and who is gone is forgotten."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import repeat

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.keys import AllocationKey, Mask
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
    """What is known of each allocation from earlier cycles, in unix seconds; NaN where it never happened."""

    seen_at: Column = field(default_factory=_nothing)
    first_seen_at: Column = field(default_factory=_nothing)
    started_at: Column = field(default_factory=_nothing)  # of the pod
    worked_at: Column = field(default_factory=_nothing)  # end of the last window with work in it
    idle_since: Column = field(default_factory=_nothing)  # start of the unbroken row of idle windows
    idle_until: Column = field(default_factory=_nothing)  # and its end

    def take(self, positions: Positions) -> "Past":
        """Row by row what stands at that position; nothing at -1."""
        if not len(self.seen_at):
            return Past(*(np.full(len(positions), np.nan) for _ in fields(Past)))
        return Past(*(np.where(positions >= 0, column[positions], np.nan) for column in self._columns()))

    def without(self, rows: Mask) -> "Past":
        return Past(*(np.where(rows, np.nan, column) for column in self._columns()))

    def join(self, other: "Past") -> "Past":
        pairs = zip(self._columns(), other._columns(), strict=True)
        return Past(*(np.concatenate(pair) for pair in pairs))

    def _columns(self) -> list[Column]:
        return [getattr(self, each.name) for each in fields(Past)]


@dataclass(frozen=True)
class Memory:
    """`Memory()` remembers nothing: the first cycle ever."""

    rows: Mapping[AllocationKey, int] = field(default_factory=dict)
    past: Past = field(default_factory=Past)

    def __len__(self) -> int:
        return len(self.rows)


def find_positions(memory: Memory, allocations: Sequence[AllocationKey]) -> Positions:
    """Where each allocation stands in the memory; -1 for one it does not know."""
    return np.fromiter(map(memory.rows.get, allocations, repeat(-1)), np.intp, len(allocations))


def recall(memory: Memory, positions: Positions, *, started_at: Column) -> Past:
    """What is known of the allocations there. A pod of the same name that started anew has no past."""
    past = memory.past.take(positions)
    return past.without(np.abs(past.started_at - started_at) > SAME_START_SECONDS)


def remember(
    memory: Memory,
    positions: Positions,
    *,
    allocations: Sequence[AllocationKey],
    past: Past,
    now: float,
    rule: MemoryRule,
) -> Memory:
    """The past of these allocations, and of those that were seen not long ago."""
    is_left = memory.past.seen_at >= now - rule.forget_after_seconds
    is_left[positions[positions >= 0]] = False
    left = _select(memory.rows, is_left)
    rows = dict(zip(allocations, range(len(allocations)), strict=True))
    rows |= dict(zip(left, range(len(allocations), len(allocations) + len(left)), strict=True))
    return Memory(rows, past.join(memory.past.take(np.fromiter(left.values(), np.intp, len(left)))))


def _select(rows: Mapping[AllocationKey, int], wanted: Mask) -> dict[AllocationKey, int]:
    is_wanted = wanted.tolist()
    return {key: row for key, row in rows.items() if is_wanted[row]}
