"""The pool rule: how many replicas of a pool stay, from what its replicas did in each minute (pure).

Replay, the plan and lending call `decide_pool` with the same kind of input: one `PoolMinutes` per pool, as the ledger
keeps it. A rule knows its past, and nothing else: what it says does not depend on when it was asked before.

    keep      = max(ceil(headroom x quantile of the active replicas over the window), most in the last minutes) + 1
    keep     >= most at this time of day, yesterday and a week ago
    keep      = all, where every ready replica worked in two samples in a row, and where the window is not known
    remaining = the largest `keep` of the time of patience

What is above `remaining` is given back. So a release waits until the surplus has lasted, and what is missing comes back
in the cycle that sees it. The maximum of the last minutes keeps a short batch on all replicas from being left without
them; the floor of the same time of day has them back before the morning, not after it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from gpusteward.analyzer.pool_minutes import MINUTE, UNKNOWN, WEEK_MINUTES, Counts, PoolMinutes

Kept = NDArray[np.int64]

DAY_MINUTES = 1440
AROUND_MINUTES = 10
"""Before this time of day and after it: people do not come at the same minute every day."""
LONGEST_GAP_MINUTES = 2
"""So many minutes without a sample count as what is before them; a longer gap is not known, and keeps all replicas."""
LARGE_POOL = 16
"""Replicas from which on the keen rule is the default. On the trace it is regretted too often in smaller pools."""
START_SECONDS, LONGEST_START_SECONDS = 300.0, 1800.0
"""From creation to Ready, while it is not known, and at most."""
_ALL = 1 << 30
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class KeepRule:
    """Five settings. Only a person can know that any replica can serve any request; the rule assumes it."""

    window_seconds: float = 7200.0
    quantile: float = 1.0  # of the active replicas over the window; 1: the most
    headroom: float = 1.0  # factor on it
    recent_seconds: float = 0.0  # over which at least the most that were active stay
    patience_seconds: float = 3600.0  # a surplus lasts this long before it is given back


CAREFUL = KeepRule()
KEEN = KeepRule(window_seconds=5400.0, quantile=0.95, headroom=1.25, recent_seconds=600.0, patience_seconds=1800.0)
PRESETS: Mapping[str, KeepRule] = {"careful": CAREFUL, "keen": KEEN}
"""Measured on a trace of 143 inference pods, and on made-up demand: `bench/pools.py`."""


def choose_rule(keep: KeepRule | None, replicas: int) -> KeepRule:
    """What a policy says, or the default of this size."""
    return choose_preset(replicas) if keep is None else keep


def choose_preset(replicas: int) -> KeepRule:
    """`replicas`: counted before anything was lowered."""
    return KEEN if replicas >= LARGE_POOL else CAREFUL


@dataclass(frozen=True, slots=True)
class PoolDecision:
    """What a pool needs now."""

    wanted: int
    remaining: int  # replicas that stay
    keep: int  # that the last minute alone would keep
    coming: int = 0  # replicas that will be surplus when it has lasted long enough
    surplus_minutes: int = 0  # for how long there has been any

    @property
    def surplus(self) -> int:
        return self.wanted - self.remaining


def decide_pool(minutes: PoolMinutes, rule: KeepRule, *, cycle_seconds: float) -> PoolDecision:
    """At the end of these minutes."""
    count, patience = len(minutes), max(1, _minutes(rule.patience_seconds))
    wanted = max(0, int(minutes.wanted[-1])) if count else 0
    if count < patience or not wanted:  # not looked at for that long yet
        return PoolDecision(wanted, wanted, wanted)
    kept = compute_keep(minutes, rule, first=count - patience, cycle_seconds=cycle_seconds)
    lacking = np.flatnonzero(kept >= wanted)
    lasted = patience if not len(lacking) else patience - 1 - int(lacking[-1])
    coming = wanted - int(kept[-lasted:].max()) if lasted else 0
    return PoolDecision(wanted, min(wanted, int(kept.max())), min(wanted, int(kept[-1])), coming, lasted)


def compute_keep(minutes: PoolMinutes, rule: KeepRule, *, first: int, cycle_seconds: float) -> Kept:
    """How many replicas stay by each minute alone, from the entry `first` on."""
    start = START_SECONDS if minutes.start_seconds is None else min(minutes.start_seconds, LONGEST_START_SECONDS)
    window, recent = _minutes(rule.window_seconds), _minutes(rule.recent_seconds)
    begin = max(0, first - max(window, recent) + 1 - LONGEST_GAP_MINUTES)
    active = _bridge(minutes.active[begin:])
    keep = np.ceil(rule.headroom * _trail_quantile(active, window, rule.quantile) - _ROUNDING)
    if recent:
        keep = np.maximum(keep, _trail_quantile(active, recent, 1.0))
    keep = keep[first - begin :] + 1
    around = AROUND_MINUTES + _minutes(cycle_seconds) + _minutes(start)
    for back in (DAY_MINUTES, WEEK_MINUTES):
        keep = np.fmax(keep, _find_most_around(minutes.active, first, back=back, after=around))
    is_full = _find_full(minutes, first)
    return np.where(np.isnan(keep) | is_full, _ALL, keep).astype(np.int64)


def _trail_quantile(values: NDArray[np.float64], size: int, quantile: float) -> NDArray[np.float64]:
    """Over the `size` values that end at each one; NaN where one of them is not known."""
    padded = np.concatenate((np.full(size - 1, np.nan), values))
    windows = sliding_window_view(padded, size)
    if quantile == 1:
        found: NDArray[np.float64] = windows.max(axis=1)
        return found
    rank = ceil(quantile * size - _ROUNDING) - 1
    sorted_: NDArray[np.float64] = np.partition(windows, rank, axis=1)[:, rank]
    return np.where(np.isnan(windows).any(axis=1), np.nan, sorted_)


def _bridge(active: Counts) -> NDArray[np.float64]:
    """A short gap counts as what is before it: what follows is not known at that time."""
    filled = np.where(active < 0, np.nan, active.astype(np.float64))
    for _ in range(LONGEST_GAP_MINUTES):
        filled = np.where(np.isnan(filled), np.append(np.nan, filled[:-1]), filled)
    return filled


def _find_most_around(active: Counts, first: int, *, back: int, after: int) -> NDArray[np.float64]:
    """The most from 10 minutes before the same time `back` minutes ago to `after` minutes after it; NaN: not known."""
    count = len(active)
    if count <= back - after:
        return np.full(count - first, np.nan)
    size = AROUND_MINUTES + after + 1
    lead = np.full(max(0, back + AROUND_MINUTES - first), UNKNOWN, np.int16)
    begin = max(0, first - back - AROUND_MINUTES)
    values = np.concatenate((lead, active[begin : count - back + after]))
    most = sliding_window_view(values, size).max(axis=1)[: count - first].astype(np.float64)
    return np.where(most < 0, np.nan, most)


def _find_full(minutes: PoolMinutes, first: int) -> NDArray[np.bool_]:
    """Every ready replica worked in this minute and in the one before."""
    begin = max(0, first - 1)
    active, ready = minutes.active[begin:], minutes.ready[begin:]
    is_busy = (ready > 0) & (active >= ready)
    before = np.append(False, is_busy[:-1])
    found: NDArray[np.bool_] = (is_busy & before)[first - begin :]
    return found


def _minutes(seconds: float) -> int:
    return ceil(seconds / MINUTE - _ROUNDING)
