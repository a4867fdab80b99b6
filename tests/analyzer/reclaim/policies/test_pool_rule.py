"""The pool rule: what stays, and when the rest may go."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.pools import DEMANDS, MONDAY, hourly, run_demand, run_trace, two_hourly
from gpusteward.analyzer.pool_minutes import UNKNOWN, WEEK_MINUTES, PoolMinutes
from gpusteward.analyzer.reclaim.policies.pool_rule import (
    CAREFUL,
    DAY_MINUTES,
    KEEN,
    KeepRule,
    choose_preset,
    decide_pool,
)
from tests.analyzer.reclaim.pod_trace import FOLDER, read_trace

FIRST = int(MONDAY // 60)
CYCLE = 300.0
QUICK = KeepRule(window_seconds=1800.0, patience_seconds=600.0)


def minutes_of(active: list[int], *, replicas: int = 10, start_seconds: float | None = None) -> PoolMinutes:
    counts = np.array(active, np.int16)
    wanted = np.where(counts == UNKNOWN, UNKNOWN, replicas).astype(np.int16)
    return PoolMinutes(FIRST, counts, wanted, wanted, 1.0, start_seconds)


def decide(active: list[int], rule: KeepRule = QUICK, **options):
    return decide_pool(minutes_of(active, **options), rule, cycle_seconds=CYCLE)


def test_what_is_above_the_most_that_were_active_at_once_is_surplus():
    found = decide([3] * 60)
    assert (found.wanted, found.remaining, found.surplus) == (10, 4, 6)
    assert decide([3] * 60, KeepRule(1800.0, headroom=1.5, patience_seconds=600.0)).remaining == 6


def test_a_surplus_has_to_last():
    """The window needs thirty minutes, and each of the ten minutes of patience a window of its own."""
    assert decide([3] * 38).surplus == 0
    assert decide([3] * 39).surplus == 6
    assert decide([8] * 60 + [3] * 38).surplus == 1, "the eight are still in the window of ten minutes ago"
    assert decide([8] * 60 + [3] * 39).surplus == 6
    assert decide([8] * 60 + [3] * 32).surplus_minutes == 10, "of one replica"


def test_what_is_missing_comes_back_at_once():
    assert decide([3] * 60 + [6]).remaining == 7


def test_full_means_all_back_and_patience_begins_anew():
    counts = np.array([3] * 60 + [4, 4], np.int16)
    ready = np.array([10] * 50 + [4] * 12, np.int16)
    wanted = np.full(62, 10, np.int16)
    full = PoolMinutes(FIRST, counts, ready, wanted)
    assert decide_pool(full, QUICK, cycle_seconds=CYCLE).surplus == 0
    assert decide_pool(full.slice(full.first, full.end - 1), QUICK, cycle_seconds=CYCLE).surplus == 5, (
        "once is no proof"
    )
    later = PoolMinutes(full.end, np.full(9, 3, np.int16), np.full(9, 10, np.int16), np.full(9, 10, np.int16))
    assert decide_pool(full.append(later), QUICK, cycle_seconds=CYCLE).surplus == 0
    later = PoolMinutes(full.end, *(np.full(10, value, np.int16) for value in (3, 10, 10)))
    assert decide_pool(full.append(later), QUICK, cycle_seconds=CYCLE).surplus == 5


@pytest.mark.parametrize("back", [DAY_MINUTES, WEEK_MINUTES])
def test_what_was_needed_at_this_time_of_day_is_there_before_it(back):
    """From the start time, ten minutes and a cycle before the crowd of yesterday, and ten minutes after it."""
    crowd = [2] * 100 + [8] * 30 + [2] * (back - 130)
    remaining = {
        later: decide((crowd + [2] * 200)[: back + later], start_seconds=600.0).remaining for later in range(60, 200)
    }
    first = next(later for later, count in remaining.items() if count == 8)
    assert first == 100 - 10 - 10 - 5 + 1  # 10 min, the start time, a cycle; the minute itself is known afterwards
    last = max(later for later, count in remaining.items() if count == 8)
    assert last == 130 + 10 + 9, "and ten minutes after it, and patience"


def test_a_gap_is_not_known_and_keeps_all_replicas():
    assert decide([3] * 60 + [UNKNOWN] * 2 + [3] * 20).surplus == 6, "two samples may be missing"
    assert decide([3] * 60 + [UNKNOWN] * 5 + [3] * 38).surplus == 0
    assert decide([3] * 60 + [UNKNOWN] * 5 + [3] * 39).surplus == 6
    assert decide([3] * 60 + [UNKNOWN]).surplus == 0, "not even how many are wanted is known"
    assert decide([]).surplus == 0


def test_the_last_minutes_keep_a_short_batch_from_being_left_alone():
    rule = KeepRule(5400.0, 0.95, 1.0, 600.0, 0.0)
    assert decide([1] * 200 + [9] * 3 + [1] * 6, rule).remaining == 10
    assert decide([1] * 200 + [9] * 3 + [1] * 10, rule).remaining == 2


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(-1, 10), min_size=1, max_size=300),
    st.sampled_from([CAREFUL, KEEN, QUICK]),
)
def test_never_more_than_there_are_and_never_the_last_one(active, rule):
    found = decide(active, rule)
    assert 0 <= found.surplus <= max(0, found.wanted - 1)
    last = active[-1]
    assert last < 0 or found.surplus <= 10 - last, "never one that is at work now"


def test_the_careful_rule_is_the_default_of_small_pools():
    assert (choose_preset(15), choose_preset(16)) == (CAREFUL, KEEN)


@pytest.mark.parametrize("make", [hourly, two_hourly])
@pytest.mark.parametrize("rule", [CAREFUL, KEEN])
def test_never_takes_the_replicas_of_an_hourly_batch(make, rule):
    assert run_demand(make, rule, start=600.0) == (0.0, 0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("make", [each for each, limits in DEMANDS.items() if limits and limits.saved])
def test_made_up_demand_is_met_and_idle_time_is_saved(make):
    limits = DEMANDS[make]
    for start, most in zip((0.0, 600.0), limits.unmet, strict=True):
        unmet, saved, _ = run_demand(make, KEEN, start=start)
        assert unmet <= most
        assert saved >= limits.saved


@pytest.mark.skipif(not FOLDER.exists(), reason=f"the trace is not in {FOLDER}")
@pytest.mark.parametrize(("rule", "least", "most"), [(KEEN, 0.9, 0.13), (CAREFUL, 0.83, 0.1)])
def test_the_trace_is_saved_in_closed_loop_as_measured(rule, least, most):
    trace = read_trace()
    found, share = run_trace(trace, trace, rule)
    assert share >= least
    assert found.regretted <= most * found.releases
    assert found.unmet <= 0.0005
