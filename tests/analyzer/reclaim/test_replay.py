"""Replay: what would have been released, and what would have been regretted."""

from dataclasses import replace as changed

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.pools import DAY, DAYS, MONDAY, REPLICAS, bursts, crowd, office, simulate, wave
from gpusteward.analyzer.judge.resumption import HALF_HOUR, PastSpells, count_chance
from gpusteward.analyzer.pool_minutes import PoolMinutes
from gpusteward.analyzer.reclaim.policies.file import read_hours
from gpusteward.analyzer.reclaim.policies.policy import Hours, Policy, ReclaimAction
from gpusteward.analyzer.reclaim.policies.pool_rule import KEEN, KeepRule, choose_preset, decide_pool
from gpusteward.analyzer.reclaim.replay.intervals import PastChances, find_intervals
from gpusteward.analyzer.reclaim.replay.pools import follow_pool
from gpusteward.analyzer.reclaim.replay.replay import replay
from gpusteward.analyzer.spell_table import ENDS, STILL_IDLE
from gpusteward.core.idle_spells import SpellEnd
from gpusteward.core.kinds import WorkloadClass
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Proof, Signature
from tests.analyzer.reclaim.spell_tables import HOUR, NOTEBOOK, POOL, spell, table_of

SUSPEND = Policy("test", WorkloadClass.INTERACTIVE, ReclaimAction.SUSPEND, window_seconds=HOUR, grace_seconds=HALF_HOUR)


def run(table, policy=SUSPEND, **options):
    return replay(table, lambda _: policy, lambda _: policy, since=options.pop("since", 0.0), **options)


def releases(table, policy=SUSPEND, **options):
    found = run(table, policy, **options)
    return [
        (each.at / HOUR, each.until / HOUR, each.is_regretted) for each in sorted(found.releases, key=lambda x: x.at)
    ]


def test_a_workload_is_released_after_window_and_grace():
    table = table_of([spell(1, 5), spell(6, 7), spell(8, None)], at=12)
    assert releases(table) == [(2.5, 5, False), (9.5, 12, False)]
    found = run(table, price_of=lambda _key, _model: 2.0).policy
    assert (found.gpu_hours, found.cost, found.regretted) == (5.0, 10.0, 0)
    assert found.oracle_share == pytest.approx(5 / 9)


def test_work_soon_after_a_release_is_a_regret_with_its_workload():
    table = table_of([spell(1, 2.9)], at=10)
    found = run(table)
    assert [(each.workload, each.at / HOUR) for each in found.regretted] == [(NOTEBOOK, 2.5)]
    assert (found.policy.regret, found.policy.regretted) == (1.0, 1)


@pytest.mark.parametrize("by", [SpellEnd.LOST, SpellEnd.RELEASED, SpellEnd.RECLAIMED])
def test_what_did_not_end_by_work_is_no_regret(by):
    ended = {1: 2.9} if by is not SpellEnd.LOST else {}
    assert releases(table_of([spell(1, 2.9, by)], at=10, ended=ended)) == [(2.5, 2.9, False)]


def test_never_while_one_of_eight_gpus_is_active():
    idle = [spell(1, 9, allocation=number) for number in range(7)]
    assert releases(table_of(idle, at=10, held=[(NOTEBOOK, 7, "pod-7")])) == []
    assert releases(table_of([*idle, spell(3, 9, allocation=7)], at=10)) == [(4.5, 9, False)]


def test_never_on_sampled_proof_or_a_signature_that_may_not_be_reclaimed():
    assert releases(table_of([spell(1, 9, proof=Proof.SAMPLED)], at=10)) == []
    assert releases(table_of([spell(1, 9, signature=Signature.HUNG)], at=10)) == []


def test_a_policy_that_only_notifies_releases_nothing():
    for action in (ReclaimAction.NOTIFY, ReclaimAction.WEBHOOK):
        found = run(table_of([spell(1, 9)], at=10), changed(SUSPEND, action=action))
        assert found.policy.releases == 0
        assert all(each.releases == 0 for each in found.compared)


def test_only_releases_of_the_period_count():
    table = table_of([spell(1, 5), spell(6, None)], at=12)
    assert releases(table, since=6 * HOUR) == [(7.5, 12, False)]


def test_actions_wait_for_working_hours():
    day = 1_790_899_200.0 / HOUR  # Friday 2026-10-02 00:00 UTC
    table = table_of([spell(day + 1, day + 20)], at=day + 24, began=day)
    office: Hours | None = read_hours("mon-fri 09:00-18:00", "UTC")
    ((at, _, _),) = releases(table, changed(SUSPEND, working_hours=office))
    assert 9 <= at - day < 9.5
    night = read_hours("00:00-06:00", "UTC")
    ((at, _, _),) = releases(table, changed(SUSPEND, quiet_hours=night))
    assert 6 <= at - day < 6.5


def test_an_unknown_or_high_chance_of_resumption_brakes():
    careful = changed(SUSPEND, highest_chance=0.3)
    assert releases(table_of([spell(1, 9)], at=10), careful) == []  # nothing is known
    soon = [spell(10 * number, 10 * number + 1.8) for number in range(20)]
    assert releases(table_of([*soon, spell(200, None)], at=201.7), careful) == []
    late = [spell(10 * number, 10 * number + 9) for number in range(20)]
    assert len(releases(table_of([*late, spell(200, None)], at=209), careful)) > 5


times = st.integers(0, 40).map(lambda each: each / 2)


@st.composite
def tables(draw):
    """Up to three allocations of two workloads, each with spells that do not overlap."""
    spells = []
    for allocation in range(draw(st.integers(1, 4))):
        key = NOTEBOOK if allocation % 2 else NOTEBOOK._replace(name="other")
        cuts = sorted(set(draw(st.lists(times, min_size=2, max_size=8))))
        for begin, end in zip(cuts[::2], cuts[1::2], strict=False):
            by = draw(st.sampled_from([SpellEnd.WORK, SpellEnd.LOST]))
            spells.append(spell(begin, end, by, key=key, allocation=allocation))
    return table_of(spells, at=25, began=0)


@settings(max_examples=200, deadline=None)
@given(tables())
def test_an_interval_is_where_all_allocations_of_a_workload_are_idle(table):
    found = find_intervals(table)
    for workload in range(len(table.workloads)):
        own = table.held.allocation_id[table.held.workload == workload]
        for quarter in range(100):
            at = (quarter / 4 + 0.01) * HOUR
            idle = {
                int(id_)
                for id_, begin, end in zip(table.allocation_id, table.started_at, table.ended_at, strict=True)
                if begin <= at < end
            }
            expected = bool(len(own)) and set(own.tolist()) <= idle
            inside = (found.group == workload) & (found.started_at <= at) & (at < found.ended_at)
            assert bool(inside.any()) == expected


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.floats(0, 400), st.floats(0.2, 12), st.sampled_from([*SpellEnd])),
        min_size=1,
        max_size=80,
    ),
    st.floats(0.5, 6),
)
def test_the_chance_of_the_past_is_the_one_that_would_have_been_told(rows, age_hours):
    """The same as counting the spells that were known at that time."""
    spells = [
        spell(begin, begin + length, by, key=NOTEBOOK._replace(name=str(group)), allocation=number)
        for number, (group, begin, length, by) in enumerate(rows)
    ]
    age = age_hours * HOUR
    intervals = find_intervals(table_of(spells, at=1000), np.arange(len(spells)))
    groups = np.array([rows[number][0] for number in intervals.group.tolist()])
    intervals = changed(intervals, group=groups)
    chosen = intervals.seconds > age
    if not chosen.any():
        return
    found = PastChances(intervals, np.zeros(len(intervals), np.intp)).tell(age)[chosen]
    for row, chance in zip(np.flatnonzero(chosen).tolist(), found.tolist(), strict=True):
        now = float(intervals.started_at[row]) + age
        own = told(intervals, intervals.group == intervals.group[row], now=now, age=age)
        expected = own if own is not None else told(intervals, np.ones(len(intervals), bool), now=now, age=age)
        assert (None if np.isnan(chance) else chance) == (expected if expected is None else pytest.approx(expected))


def told(intervals, chosen, *, now, age):
    began, ended, by = intervals.started_at[chosen], intervals.ended_at[chosen], intervals.ended_by[chosen]
    is_past = began + age + HALF_HOUR <= now
    began, ended, by = began[is_past], ended[is_past], by[is_past]
    has_ended = ended <= now
    resumed = has_ended & (by == ENDS.index(SpellEnd.WORK))
    released = (by == ENDS.index(SpellEnd.RELEASED)) & (began + age + HALF_HOUR <= now)
    past = PastSpells(began, np.minimum(ended, now) - began, resumed, resumed | released)
    return count_chance(past, age=age, horizon=HALF_HOUR, now=now, of="workload").probability


QUICK = KeepRule(window_seconds=1800.0, patience_seconds=600.0)


def pool(counts: list[int], *, replicas: int = 10) -> PoolMinutes:
    """A number of active replicas for each ten minutes."""
    active = np.repeat(np.array(counts, np.int16), 10)
    wanted = np.full(len(active), replicas, np.int16)
    return PoolMinutes(0, active, wanted, wanted)


def test_surplus_is_given_back_after_window_and_patience_and_needed_again():
    found = follow_pool(pool([10, 2, 2, 2, 2, 2, 2, 3, 3, 3, 2, 2]), QUICK)
    first, *_ = sorted(found.releases, key=lambda each: (each.at, each.until))
    assert first.at == 50 * 60  # the ten of the first minutes have left the window, and ten minutes of patience
    assert sum(each.replicas for each in found.releases if each.at == first.at) == 7  # keep 3 of 10
    needed = [each for each in found.releases if each.was_needed]
    assert {each.until for each in needed} == {75 * 60}, "all three that are left were busy: nobody knows how much more"
    assert sum(each.replicas for each in needed) == 7
    assert found.unmet_seconds == 0
    assert follow_pool(pool([10, 2, 2, 2, 2, 2, 2, 6, 6, 2]), QUICK).unmet_seconds == 5 * 60 * 3
    assert follow_pool(pool([10, 2, 2, 2, 2, 2, 2, 6, 6, 2]), QUICK, since=4800.0).unmet_seconds == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-1, 8), min_size=1, max_size=200), st.integers(8, 12), st.sampled_from([QUICK, KEEN, None]))
def test_a_replay_is_what_the_rule_says_cycle_by_cycle_of_what_it_has_left(counts, replicas, keep):
    """The same as calling the plan's function in every cycle with what could be seen then."""
    minutes = pool(counts, replicas=replicas)
    seen, lowered, released = replace_counts(minutes), 0, []
    for minute in range(len(minutes)):
        if minute and minute % 5 == 0:
            known = seen.slice(0, minute)
            lowered = decide_pool(known, keep or choose_preset(replicas), cycle_seconds=300.0).surplus
        seen.active[minute] = min(seen.active[minute], replicas - lowered)
        seen.ready[minute] = replicas - lowered
        released.append(lowered)
    found = follow_pool(minutes, keep)
    for minute, count in enumerate(released):
        at = minute * 60.0
        assert sum(each.replicas for each in found.releases if each.at <= at < each.until) == count
    assert all(each.until > each.at for each in found.releases)


def replace_counts(minutes: PoolMinutes) -> PoolMinutes:
    return changed(minutes, active=minutes.active.copy(), ready=minutes.ready.copy())


@pytest.mark.parametrize("make", [wave, office, crowd, bursts])
def test_a_replay_saves_what_the_closed_loop_saves(make):
    demand, wanted = make(np.random.default_rng(1)), np.full(DAYS * DAY, REPLICAS)
    counts = [np.array(each, np.int16) for each in (demand, wanted, wanted)]
    found = follow_pool(PoolMinutes(int(MONDAY // 60), *counts), KEEN)
    run = simulate(demand, wanted, KEEN, step=60.0, since=MONDAY)
    saved = sum((each.until - each.at) * each.replicas for each in found.releases) / HOUR
    assert saved == pytest.approx(run.saved_hours, rel=0.01)
    assert found.unmet_seconds / 60 / demand.sum() == pytest.approx(run.unmet, abs=0.0002)


def test_a_pool_in_a_replay_releases_replicas_and_not_the_workload():
    spells = [spell(0, None, key=POOL, allocation=number) for number in range(10)]
    table = table_of(spells, at=24, held=[(POOL, 10, "busy")])
    policy = changed(SUSPEND, action=ReclaimAction.SCALE_TO_KEEP, is_pool=True, grace_seconds=600.0)
    assert run(table, policy).policy.releases == 0, "what its replicas did is not known"
    minutes = changed(pool([1] * 144, replicas=11), gpus=2.0)
    found = run(table, policy, pools={POOL: minutes})
    assert found.policy.releases == 9  # of eleven, one is active: two stay
    assert found.policy.regretted == 0
    assert found.policy.gpu_hours == pytest.approx(2 * 9 * 21, rel=0.01)
    assert [each.window_seconds / 60 for each in found.frontier][:3] == [30, 45, 60]
    assert {each.gpu_hours for each in found.frontier} == {found.policy.gpu_hours}, "its window is that of the rule"


def test_still_idle_is_no_end():
    found = find_intervals(table_of([spell(1, None)], at=10))
    assert (found.ended_by.tolist(), found.ended_at.tolist()) == ([STILL_IDLE], [10 * HOUR])


def test_a_table_without_spells_is_an_empty_replay():
    found = run(table_of([], at=10, held=[(WorkloadKey("Pod", "a", "b"), 1, "b")]))
    assert (found.policy.releases, found.policy.oracle_share, found.policy.regret) == (0, None, None)
    assert run(table_of([], at=10)).spells == 0


def test_a_replay_waits_for_all_warnings_as_the_policy_does():
    table = table_of([spell(0, None)], at=24)
    [first] = releases(table, changed(SUSPEND, warnings=1))
    [second] = releases(table, changed(SUSPEND, warnings=3, warning_interval_seconds=1800.0))
    assert second[0] - first[0] == pytest.approx(1.0)
