"""Properties that hold for any numbers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusteward.analyzer.judge.activity import WORK_MEASURES
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.reasons import make_verdict
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.tables import ACTIVITIES, STATES, Column, UsageTable
from gpusteward.core.node.containers import Workload
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, State
from gpusteward.messages import unknown_reasons
from tests.analyzer.usage_tables import AT, SUMS, WINDOW, allocation, with_stats

pytestmark = pytest.mark.slow

RULES = Rules()
IDLE = ACTIVITIES.index(Activity.IDLE)
MANY = settings(max_examples=100, deadline=None)
ODD = [np.nan, -1.0, 1.4e14, np.inf]
KINDS, NAMES = ["Job", "Deployment"], list("abc")
MODELS, SHARES = ["NVIDIA H100 80GB HBM3", "unheard of", ""], ["", "exclusive", "mig", "time-sliced"]
STARTS = [None, AT - 1e6, AT - 3000, AT - 700, AT - 50, AT + 100]


def make_table(seed: int) -> UsageTable:
    """Any table, with many rows that look idle."""
    chance = np.random.default_rng(seed)
    size = int(chance.integers(1, 7))
    present = [(measure, stat) for measure in Measure for stat in SUMS if chance.random() < 0.6]
    present += [(Measure.CORE, Stat.PEAK), (Measure.CORE, Stat.MEAN)]
    stats = {
        (measure, stat): _draw(chance, size, 1.0 if measure in WORK_MEASURES else 1e11) for measure, stat in present
    }
    stats[Measure.CORE, Stat.COUNT] = chance.choice([20.0, 20.0, 5.0, 4.0, 0.0, np.nan], size)
    allocations = [
        allocation(
            number,
            owner=Workload(str(chance.choice(KINDS)), "team", str(chance.choice(NAMES))),
            model=str(chance.choice(MODELS)),
            share=str(chance.choice(SHARES)),
            started_at=STARTS[chance.integers(len(STARTS))],
        )
        for number in range(size)
    ]
    coverage = chance.choice([1.0, 1.0, 1.0, 0.9, 0.89, 0.5, 0.0, np.nan], size)
    unknown = {0: "because"} if chance.random() < 0.2 else {}
    return UsageTable(AT, WINDOW, allocations, stats, coverage, unknown)


def _draw(chance: np.random.Generator, size: int, scale: float) -> Column:
    """Mostly zero, sometimes a value, rarely an impossible one."""
    amounts = np.where(chance.random(size) < 0.9, 0.0, chance.random(size) * scale)
    return np.where(chance.random(size) < 0.05, chance.choice(ODD, size), amounts)


def tables() -> st.SearchStrategy[UsageTable]:
    return st.integers(0, 2**32 - 1).map(make_table)


def masks() -> st.SearchStrategy[Column]:
    return st.integers(0, 2**32 - 1).map(lambda seed: np.random.default_rng(seed).random(6))


def idle_rows(table: UsageTable, memory: VerdictHistory | None = None) -> Column:
    return judge(table, RULES, memory or VerdictHistory(), now=AT)[0].activity == IDLE


@given(tables())
@MANY
def test_idle_is_only_what_was_covered_and_peaked_at_zero(table):
    for row in np.flatnonzero(idle_rows(table)):
        assert table.coverage[row] >= 0.9
        assert not table.column(Measure.CORE, Stat.COUNT)[row] < 5
        assert table.column(Measure.CORE, Stat.PEAK)[row] == table.column(Measure.CORE, Stat.MEAN)[row] == 0
        assert row not in table.unknown
        others = [measure for measure in WORK_MEASURES if measure is not Measure.DRAM]
        assert not any(0 < table.column(measure, Stat.PEAK)[row] <= 1 for measure in others)


@given(tables(), masks())
@MANY
def test_lowering_coverage_never_makes_idle(table, factors):
    lower = replace(table, coverage=table.coverage * factors[: len(table)])
    assert not (idle_rows(lower) & ~idle_rows(table)).any()


@given(tables(), st.integers(0, 5))
@MANY
def test_a_gap_never_makes_idle(table, number):
    """A gap: a row loses all its samples, or the source refuses it."""
    row = number % len(table)
    before = idle_rows(table)
    refused = replace(table, unknown={**table.unknown, row: unknown_reasons.NO_CORE})
    stats = {name: np.where(np.arange(len(table)) == row, np.nan, column) for name, column in table.stats.items()}
    for gap in (refused, replace(table, stats=stats)):
        assert not idle_rows(gap)[row]
        assert not (idle_rows(gap) & ~before).any()


@given(tables(), st.sampled_from([Stat.PEAK, Stat.MEAN]), masks())
@MANY
def test_a_nan_in_core_utilization_never_becomes_idle(table, stat, chances):
    lost = chances[: len(table)] < 0.5
    column = np.where(lost, np.nan, table.stats[Measure.CORE, stat])
    after = idle_rows(with_stats(table, {(Measure.CORE, stat): column}))
    assert not (after & lost).any()
    assert not (after & ~idle_rows(table)).any()


@given(tables())
@MANY
def test_losing_the_peak_of_a_signal_that_is_there_never_makes_idle(table):
    for measure in {measure for measure, stat in table.stats if measure in WORK_MEASURES and stat is Stat.PEAK}:
        whole = with_stats(table, {(measure, Stat.MEAN): np.zeros(len(table))})
        lost = with_stats(whole, {(measure, Stat.PEAK): np.full(len(table), np.nan)})
        assert not (idle_rows(lost) & ~idle_rows(whole)).any()


@given(tables())
@MANY
def test_a_workload_is_idle_if_and_only_if_all_its_allocations_are(table):
    verdicts, _ = judge(table, RULES, VerdictHistory(), now=AT)
    workloads = judge_workloads(verdicts, RULES)
    for number in range(len(workloads)):
        rows = workloads.rows(number)
        assert (workloads.activity[number] == IDLE) == (verdicts.activity[rows] == IDLE).all()
        assert workloads.idle_gpus[number] == (verdicts.activity[rows] == IDLE).sum()
        assert workloads.gpus[number] == len(rows)
    assert int(workloads.gpus.sum()) == len(table)


@given(tables())
@MANY
def test_a_score_is_from_0_to_100_and_a_state_is_unknown_without_one(table):
    verdicts, _ = judge(table, RULES, VerdictHistory(), now=AT)
    known = ~np.isnan(verdicts.score)
    assert ((verdicts.score[known] >= 0) & (verdicts.score[known] <= 100)).all()
    is_unknown = verdicts.state == STATES.index(State.UNKNOWN)
    assert (is_unknown == ~known).all()


@given(tables(), tables())
@MANY
def test_no_history_makes_a_row_idle_that_is_not_idle_now(earlier, table):
    _, memory = judge(replace(earlier, at=AT - 300), RULES, VerdictHistory(), now=AT - 300)
    assert not (idle_rows(table, memory) & ~idle_rows(table)).any()


@given(tables())
@MANY
def test_every_verdict_can_be_explained(table):
    verdicts, _ = judge(table, RULES, VerdictHistory(), now=AT)
    for row in range(len(table)):
        assert all(make_verdict(verdicts, row, rules=RULES).reasons)
    workloads = judge_workloads(verdicts, RULES)
    assert all(workloads.verdict(number, language="zh").reasons for number in range(len(workloads)))
