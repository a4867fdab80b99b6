"""Pools in the past: what the pool rule would have released, from the recorded minutes of their replicas (pure).

The same function as the plan's, on the same kind of input, and in closed loop: the rule sees no more replicas at work
than its own releases have left, and what does not fit on them is unmet. So minutes are computed in blocks, each again
until what the rule sees of it no longer changes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from gpusteward.analyzer.pool_minutes import MINUTE, Counts, PoolMinutes
from gpusteward.analyzer.reclaim.policies.pool_rule import KeepRule, choose_rule, compute_keep

CYCLE_SECONDS = 300.0
BLOCK_MINUTES = 1440
Numbers = NDArray[np.int64]


class PoolRelease(NamedTuple):
    """Replicas that were given back at one time and needed again, or not, at another."""

    at: float
    until: float
    replicas: int
    was_needed: bool


class PoolReplay(NamedTuple):
    releases: Sequence[PoolRelease]
    unmet_seconds: float  # of replicas


@dataclass
class _Seen:
    """What the rule sees of a pool whose replicas it has lowered."""

    minutes: PoolMinutes
    keep: KeepRule | None
    cycle_minutes: int
    active: Counts
    ready: Counts
    lowered: Numbers  # replicas in each minute
    kept: dict[KeepRule, Numbers]

    def compute_block(self, first: int, end: int) -> None:
        """Until it sees what its own releases leave."""
        wanted = np.maximum(self.minutes.wanted[first:end], 0)
        for _ in range(end - first):
            lowered = self._lower(first, end)
            left = wanted - lowered
            # Who is not known stays so: -1 is below what is left.
            active = np.minimum(self.minutes.active[first:end], left).astype(np.int16)
            ready = np.where(
                self.minutes.ready[first:end] < 0, -1, np.maximum(0, self.minutes.ready[first:end] - lowered)
            ).astype(np.int16)
            has_settled = np.array_equal(active, self.active[first:end]) and np.array_equal(
                ready, self.ready[first:end]
            )
            self.active[first:end], self.ready[first:end], self.lowered[first:end] = active, ready, lowered
            if has_settled:
                return

    def _lower(self, first: int, end: int) -> Numbers:
        """In each minute, by the last cycle before it."""
        seen = replace(self.minutes.slice(self.minutes.first, self.minutes.first + end))
        seen = replace(seen, active=self.active[:end], ready=self.ready[:end])
        cycles = np.array(self._list_cycles(first, end), np.int64)
        before = int(self.lowered[first - 1]) if first else 0
        if not len(cycles):
            return np.full(end - first, before, np.int64)
        surplus = np.zeros(len(cycles), np.int64)
        sizes = seen.wanted[cycles - 1].astype(np.int64)
        for rule in {choose_rule(self.keep, size) for size in np.unique(sizes).tolist()}:
            kept = self.kept.setdefault(rule, np.zeros(len(self.minutes), np.int64))
            kept[first:end] = compute_keep(seen, rule, first=first, cycle_seconds=self.cycle_minutes * MINUTE)
            patience = max(1, round(rule.patience_seconds / MINUTE))
            padded = np.concatenate((np.full(patience, 1 << 30), kept[:end]))
            most = sliding_window_view(padded, patience).max(axis=1)[cycles]
            mine = np.array([choose_rule(self.keep, size) == rule for size in sizes.tolist()])
            surplus[mine] = np.maximum(0, sizes - most)[mine]
        surplus[sizes <= 0] = 0
        found = np.full(end - first, before, np.int64)
        for cycle, count in zip(cycles.tolist(), surplus.tolist(), strict=True):
            found[cycle - first :] = count
        return found

    def _list_cycles(self, first: int, end: int) -> range:
        """The entries before which a cycle acts: it has seen all that are earlier."""
        begin = max(first, 1)
        return range(begin + (-(self.minutes.first + begin)) % self.cycle_minutes, end, self.cycle_minutes)


def follow_pool(
    minutes: PoolMinutes, keep: KeepRule | None, *, cycle_seconds: float = CYCLE_SECONDS, since: float = 0.0
) -> PoolReplay:
    """`keep`: None: the default of its size. Releases and what was unmet are counted from `since` on."""
    count, cycle = len(minutes), max(1, round(cycle_seconds / MINUTE))
    seen = _Seen(minutes, keep, cycle, minutes.active.copy(), minutes.ready.copy(), np.zeros(count, np.int64), {})
    for first in range(0, count, BLOCK_MINUTES):
        seen.compute_block(first, min(count, first + BLOCK_MINUTES))
    begin = max(0, int(since // MINUTE) - minutes.first)
    left = minutes.wanted.astype(np.int64) - seen.lowered
    unmet = np.where(minutes.active > left, minutes.active - left, 0)[begin:].sum() * MINUTE
    return PoolReplay([each for each in _pair_releases(minutes, seen.lowered) if each.at >= since], float(unmet))


def _pair_releases(minutes: PoolMinutes, lowered: Numbers) -> Iterator[PoolRelease]:
    """The replicas given back last are needed again first. Replicas that nobody wants any more were not needed."""
    stack: list[tuple[float, int]] = []
    changes = np.diff(lowered, prepend=0)
    lost = np.diff(minutes.wanted, prepend=minutes.wanted[:1]) < 0
    for row in np.flatnonzero(changes).tolist():
        at, change = (minutes.first + row) * MINUTE, int(changes[row])
        if change > 0:
            stack.append((at, change))
        while change < 0:
            begun, count = stack.pop()
            taken = min(count, -change)
            yield PoolRelease(begun, at, taken, not bool(lost[max(0, row - 1) : row + 1].any()))
            change += taken
            if count > taken:
                stack.append((begun, count - taken))
    for begun, count in stack:
        yield PoolRelease(begun, minutes.end * MINUTE, count, False)
