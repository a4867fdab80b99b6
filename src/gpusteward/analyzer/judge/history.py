"""What is known of allocations from earlier cycles. A cycle gets the history of the last one and returns the next."""

from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.judge.allocation_columns import AllocationHashes, Mask
from gpusteward.analyzer.judge.signatures.loaded_idle import LoadedIdle
from gpusteward.analyzer.tables import Column, repeat_value

SAME_START_SECONDS = 2.0
"""Two sources round a pod's start differently; a restart takes longer than this."""


FORGET_AFTER_SECONDS = 3600.0
"""An allocation that was not read for this long is forgotten. An hour outlasts most outages of a Prometheus and bounds
the memory by the pods of one hour."""

Positions = NDArray[np.intp]


def _nothing() -> Column:
    return np.empty(0)


@dataclass(frozen=True)
class Past:
    """One entry per allocation: times in unix seconds, NaN where it never happened."""

    seen_at: Column = field(default_factory=_nothing)
    first_seen_at: Column = field(default_factory=_nothing)
    started_at: Column = field(default_factory=_nothing)  # of the pod
    worked_at: Column = field(default_factory=_nothing)  # end of the last window with work in it
    idle_since: Column = field(default_factory=_nothing)  # start of the consecutive windows without work
    idle_until: Column = field(default_factory=_nothing)  # and their end
    flat_since: Column = field(default_factory=_nothing)  # start of the consecutive windows of constant load
    flat_ratio: Column = field(default_factory=_nothing)  # share of time with work at that start
    memory_bytes: Column = field(default_factory=_nothing)  # lowest peak since memory last grew
    grew_at: Column = field(default_factory=_nothing)  # end of the last window in which memory grew
    video_at: Column = field(default_factory=_nothing)  # end of the last window with work of a sampled video engine
    frozen_since: Column = field(default_factory=_nothing)  # start of the consecutive windows of a stalled workload
    frozen_watts: Column = field(default_factory=_nothing)  # mean power in the first of them
    constant_since: Column = field(default_factory=_nothing)  # start of the consecutive windows at a held level
    constant_ratio: Column = field(default_factory=_nothing)  # share of time with work in the first of them
    constant_watts: Column = field(default_factory=_nothing)  # and mean power
    traffic_at: Column = field(default_factory=_nothing)  # end of the last window with traffic over NVLink or PCIe

    requested_at: Column = field(default_factory=_nothing)  # end of the last window with requests of its server
    silent_since: Column = field(default_factory=_nothing)  # start of the consecutive windows proven without requests
    silent_until: Column = field(default_factory=_nothing)  # and their end
    unused_work_at: Column = field(default_factory=_nothing)  # end of the last idle window with work of the GPU

    @classmethod
    def unknown(cls, size: int) -> "Past":
        return cls(*(repeat_value(np.nan, size) for _ in fields(cls)))

    def compact(self) -> "Past":
        """The same; columns without a value take no memory."""
        columns = self._columns()
        return Past(*(repeat_value(np.nan, len(each)) if np.isnan(each).all() else each for each in columns))

    def take(self, positions: Positions) -> "Past":
        """The entries at these positions; NaN at -1."""
        if not len(self.seen_at):
            return Past.unknown(len(positions))
        if np.array_equal(positions, np.arange(len(self.seen_at))):
            return self  # the same allocations as before
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
class VerdictHistory:
    """`VerdictHistory()` is empty: before the first cycle."""

    hashes: AllocationHashes = field(default_factory=lambda: np.empty(0, np.int64))  # of the rows of `past`
    past: Past = field(default_factory=Past)
    loaded_idle: LoadedIdle = field(default_factory=LoadedIdle)

    def __len__(self) -> int:
        return len(self.hashes)

    def find(self, hashes: AllocationHashes, *, started_at: Column) -> Past:
        """The past of these allocations. A pod of the same name that was started again has none."""
        past = self.past.take(_find_positions(hashes, among=self.hashes))
        return past.without(np.abs(past.started_at - started_at) > SAME_START_SECONDS)

    def update(self, hashes: AllocationHashes, *, past: Past, loaded_idle: LoadedIdle, now: float) -> "VerdictHistory":
        """A new history: the past of these allocations, and of others that were seen recently."""
        is_recent = self.past.seen_at >= now - FORGET_AFTER_SECONDS
        left = np.flatnonzero(is_recent & (_find_positions(self.hashes, among=hashes) < 0))
        joined = past.join(self.past.take(left)).compact()
        return VerdictHistory(np.concatenate((hashes, self.hashes[left])), joined, loaded_idle)


def _find_positions(hashes: AllocationHashes, *, among: AllocationHashes) -> Positions:
    """The last position of each key among the others, or -1. `np.isin` would load a module of 3 MB."""
    if np.array_equal(hashes, among):
        return np.arange(len(hashes))  # the same allocations as before: most cycles
    if not len(among):
        return np.full(len(hashes), -1)
    order = np.argsort(among, kind="stable")
    positions = order[np.searchsorted(among, hashes, side="right", sorter=order) - 1]
    return np.where(among[positions] == hashes, positions, -1)
