"""The chance of resumption: a share of what was seen, careful where little was."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusteward.analyzer.judge.resumption import (
    FEWEST_SPELLS,
    RECENT_SECONDS,
    Chance,
    seconds_until_morning,
)
from gpusteward.core.idle_spells import SpellEnd
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Proof, Signature
from tests.analyzer.spells import IdleSpell, estimate_chance, make_history, make_spell_table

NOW = 1_790_000_000.0
KEY = WorkloadKey("Notebook", "team", "nb")
HALF_HOUR = 1800.0


def spell(started: float, seconds: float, by: SpellEnd | None = SpellEnd.WORK, key=KEY) -> IdleSpell:
    ended = None if by is None else started + seconds
    return IdleSpell(key, 1, started, ended, Proof.INTEGRATED, Signature.PARKED, by, 1.0, "H100")


lengths = st.floats(600, 50_000)
spells = st.lists(
    st.builds(
        lambda length, end, gap: spell(NOW - length - gap, length, end),
        lengths,
        st.sampled_from([*SpellEnd]),
        st.floats(0, 300_000),
    ),
    max_size=60,
)


@settings(max_examples=200)
@given(spells, st.floats(0, 40_000), st.floats(60, 40_000))
def test_it_is_the_share_of_the_spells_of_at_least_this_age(past, age, horizon):
    found = estimate_chance(past, age=age, horizon=horizon, now=NOW)

    def count(chosen):
        known = [
            one
            for one in chosen
            if one.lasted(NOW) >= age
            and one.started_at + age + horizon <= NOW
            and (one.lasted(NOW) >= age + horizon or one.ended_by in (SpellEnd.WORK, SpellEnd.RELEASED))
        ]
        return known, [one for one in known if one.ended_by is SpellEnd.WORK and one.lasted(NOW) <= age + horizon]

    known, resumed = count([one for one in past if one.started_at + age > NOW - horizon - RECENT_SECONDS])
    if len(known) < FEWEST_SPELLS:
        known, resumed = count(past)
    assert found.spells == len(known)
    assert found.probability == (len(resumed) / len(known) if len(known) >= FEWEST_SPELLS else None)


@given(spells, st.floats(0, 40_000), st.floats(60, 20_000))
def test_it_is_a_probability_or_unknown(past, age, horizon):
    found = estimate_chance(past, age=age, horizon=horizon, now=NOW)
    assert found.probability is None or 0 <= found.probability <= 1
    assert (found.probability is None) == (found.spells < FEWEST_SPELLS)


@given(spells, st.floats(0, 40_000))
def test_time_that_was_lost_or_cut_short_by_us_changes_no_chance(past, age):
    """Whether work would have come back within the horizon is not known of them."""
    cut = [replace(one, ended_by=SpellEnd.LOST) for one in past if one.lasted(NOW) < age + HALF_HOUR]
    kept = [one for one in past if one.ended_by is not SpellEnd.LOST or one.lasted(NOW) >= age + HALF_HOUR]
    with_lost = estimate_chance([*kept, *cut], age=age, horizon=HALF_HOUR, now=NOW)
    assert with_lost == estimate_chance(kept, age=age, horizon=HALF_HOUR, now=NOW)


def test_few_spells_are_unknown_not_zero():
    few = [spell(NOW - 90_000, 4000)] * (FEWEST_SPELLS - 1)
    assert estimate_chance(few, age=3600, horizon=HALF_HOUR, now=NOW) == Chance(None, FEWEST_SPELLS - 1, "workload")
    assert estimate_chance([], age=3600, horizon=HALF_HOUR, now=NOW) == Chance(None, 0, "")


def test_a_spell_whose_horizon_is_not_over_counts_neither_as_resumed_nor_as_idle():
    """Of those that became as old less than one horizon ago only the ones that resumed are over: counted, they would
    make every chance too high."""
    old = [spell(NOW - 90_000 - number, 80_000) for number in range(10)]
    resumed_at_once = [spell(NOW - 3600 - 600, 3600 + 60) for _ in range(10)]  # became an hour old ten minutes ago
    found = estimate_chance([*old, *resumed_at_once], age=3600, horizon=HALF_HOUR, now=NOW)
    assert found == Chance(0.0, 10, "workload")


def test_an_allocation_that_was_released_did_not_resume():
    past = [spell(NOW - 90_000, 4000, SpellEnd.RELEASED)] * 5 + [spell(NOW - 90_000, 4000)] * 5
    assert estimate_chance(past, age=3600, horizon=HALF_HOUR, now=NOW).probability == 0.5


def test_spells_of_the_workload_count_before_those_of_its_kind():
    other = KEY._replace(name="other")
    own = [spell(NOW - 100_000 - number, 4000) for number in range(10)]
    fellow = [spell(NOW - 100_000 - number, 80_000, key=other) for number in range(30)]
    history = make_history(make_spell_table([*own, *fellow], at=NOW), at=NOW)
    found = history.estimate(KEY, age=3600, horizon=HALF_HOUR)
    assert found == Chance(1.0, 10, "workload")
    stranger = KEY._replace(name="stranger")
    assert history.estimate(stranger, age=3600, horizon=HALF_HOUR) == Chance(0.25, 40, "kind")
    job = WorkloadKey("Job", "team", "train")
    assert history.estimate(job, age=3600, horizon=HALF_HOUR) == Chance(None, 0, "")


@pytest.mark.parametrize(
    ("at", "zone", "hours"),
    [(1_790_035_200.0, "UTC", 8), (1_790_035_200.0, "Asia/Shanghai", 24), (1_790_035_200.0 - 3600, "UTC", 9)],
)
def test_the_morning_is_eight_o_clock_of_the_site(at, zone, hours):
    assert seconds_until_morning(at, zone) == hours * 3600
