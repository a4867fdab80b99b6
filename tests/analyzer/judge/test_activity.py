"""Active, idle, unknown: what idle requires."""

import numpy as np
import pytest

from gpusteward.analyzer.judge.activity import WORK_MEASURES, WORK_PROOFS
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.tables import ACTIVITIES, DOUBTS, UsageTable
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, Doubt
from gpusteward.messages import unknown_reasons
from tests.analyzer.usage_tables import AT, WINDOW, allocation, resting, signal, table_of, working

RULES = Rules()


def look(table: UsageTable, *, now: float | None = None) -> list[tuple[Activity, Doubt]]:
    verdicts, _ = judge(table, RULES, VerdictHistory(), now=table.at if now is None else now)
    return [(ACTIVITIES[a], DOUBTS[d]) for a, d in zip(verdicts.activity, verdicts.doubt, strict=True)]


def test_no_signal_above_zero_in_a_covered_window_is_idle():
    rows = [resting(), resting() | signal(Measure.ENGINE, 0) | signal(Measure.TENSOR, 0) | signal(Measure.DRAM, 0)]
    assert look(table_of(*rows)) == [(Activity.IDLE, Doubt.NONE)] * 2


@pytest.mark.parametrize("measure", WORK_MEASURES)
@pytest.mark.parametrize("stat", [Stat.PEAK, Stat.MEAN, Stat.LAST])
def test_any_signal_above_zero_in_any_stat_is_activity(measure, stat):
    row = resting() | signal(measure, 0.0) | {(measure, stat): 0.01}
    assert look(table_of(row)) == [(Activity.ACTIVE, Doubt.NONE)]


@pytest.mark.parametrize(("measure", "highest"), WORK_PROOFS.items())
def test_a_signal_that_only_proves_work_makes_active_and_its_absence_makes_nothing(measure, highest):
    work, blank, none = ({(measure, Stat.PEAK): value} for value in (min(highest, 1e9), 9e18, np.nan))
    rows = [resting() | each for each in (work, blank, none)]
    assert [each[0] for each in look(table_of(*rows))] == [Activity.ACTIVE, Activity.IDLE, Activity.IDLE]


def test_traffic_up_to_its_floor_is_no_activity():
    rows = [resting() | {(Measure.PCIE, Stat.PEAK): 10e6}, resting() | {(Measure.PCIE, Stat.PEAK): 11e6}]
    assert [each[0] for each in look(table_of(*rows))] == [Activity.IDLE, Activity.ACTIVE]


def test_the_smallest_increase_of_a_busy_seconds_counter_is_activity():
    assert look(table_of(resting() | {(Measure.CORE, Stat.MEAN): 0.05 / WINDOW}))[0][0] is Activity.ACTIVE


def test_a_mean_of_nearly_zero_with_one_peak_is_activity():
    assert look(table_of(resting() | signal(Measure.CORE, 0.001, 0.02)))[0][0] is Activity.ACTIVE


def test_the_background_noise_of_an_unused_memory_interface_is_no_activity():
    assert look(table_of(resting() | signal(Measure.DRAM, 0.004)))[0][0] is Activity.IDLE


def test_observed_work_is_activity_at_any_coverage():
    assert look(table_of(working(), coverage=0.05)) == [(Activity.ACTIVE, Doubt.NONE)]


def test_a_gap_is_not_idleness():
    assert look(table_of(resting(), coverage=0.89)) == [(Activity.UNKNOWN, Doubt.COVERAGE)]
    assert look(table_of(resting(), coverage=0.9)) == [(Activity.IDLE, Doubt.NONE)]
    assert look(table_of(resting(), coverage=np.nan)) == [(Activity.UNKNOWN, Doubt.COVERAGE)]


def test_a_few_samples_prove_no_idleness_but_one_can_prove_activity():
    few, enough = {(Measure.CORE, Stat.COUNT): 4.0}, {(Measure.CORE, Stat.COUNT): 5.0}
    assert look(table_of(resting() | few, resting() | enough, working() | few)) == [
        (Activity.UNKNOWN, Doubt.SPARSE),
        (Activity.IDLE, Doubt.NONE),
        (Activity.ACTIVE, Doubt.NONE),
    ]


def test_without_core_utilization_nothing_is_idle():
    row = {name: value for name, value in resting().items() if name[0] is not Measure.CORE}
    assert look(table_of(row, {})) == [(Activity.UNKNOWN, Doubt.NO_DATA)] * 2


@pytest.mark.parametrize("stat", [Stat.PEAK, Stat.MEAN])
def test_core_utilization_needs_its_peak_and_its_mean(stat):
    assert look(table_of(resting() | {(Measure.CORE, stat): np.nan})) == [(Activity.UNKNOWN, Doubt.NO_DATA)]


def test_work_in_another_signal_is_activity_without_core_utilization():
    assert look(table_of(signal(Measure.TENSOR, 0.2)))[0][0] is Activity.ACTIVE


def test_a_signal_with_a_mean_but_no_peak_proves_nothing():
    row = resting() | {(Measure.DRAM, Stat.MEAN): 0.0}
    assert look(table_of(row)) == [(Activity.UNKNOWN, Doubt.PARTIAL)]


def test_a_reason_of_the_source_overrides_the_numbers():
    table = table_of(
        resting(),
        working(),
        resting(),
        unknown={0: unknown_reasons.CONTRADICTED_ZERO, 1: unknown_reasons.REPORTED_BY_TWO_NODES},
    )
    assert look(table) == [(Activity.UNKNOWN, Doubt.SOURCE)] * 2 + [(Activity.IDLE, Doubt.NONE)]


def test_a_whole_gpu_that_draws_power_without_work_is_a_contradiction():
    assert look(table_of(resting(watts=400))) == [(Activity.UNKNOWN, Doubt.POWER)]
    assert look(table_of(resting(watts=134))) == [(Activity.IDLE, Doubt.NONE)]


@pytest.mark.parametrize(
    "where", [{"share": "time-sliced"}, {"share": "mig", "instance": "7"}, {"model": "NVIDIA Z900"}]
)
def test_power_contradicts_nothing_where_others_may_cause_it(where):
    assert look(table_of(resting(watts=400), allocations=[allocation(**where)]))[0][0] is Activity.IDLE


def test_a_table_older_than_its_window_is_not_judged():
    assert look(table_of(resting(), working()), now=AT + WINDOW + 1) == [(Activity.UNKNOWN, Doubt.STALE)] * 2
    assert look(table_of(resting()), now=AT + WINDOW) == [(Activity.IDLE, Doubt.NONE)]


@pytest.mark.parametrize("value", [-1.0, 1.4e14, np.inf])
def test_an_allocation_without_any_signal_is_unknown(value):
    assert look(table_of(resting() | signal(Measure.CORE, value)))[0] == (Activity.UNKNOWN, Doubt.NO_DATA)


def test_an_empty_table_has_no_verdicts():
    assert look(table_of()) == []
