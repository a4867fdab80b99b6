"""VerdictHistory of earlier cycles: pauses, idle since, expiry."""

from dataclasses import replace

import numpy as np

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES, UsageTable, VerdictTable
from gpusteward.core.verdicts import Activity, Signature
from tests.analyzer.usage_tables import AT, DAY, WINDOW, Stats, allocation, resting, table_of, working

RULES = Rules()
CYCLE = 300.0


def run(*tables: UsageTable, history: VerdictHistory | None = None) -> tuple[list[VerdictTable], VerdictHistory]:
    history, found = history or VerdictHistory(), []
    for table in tables:
        verdicts, history = judge(table, RULES, history, now=table.at)
        found.append(verdicts)
    return found, history


def cycles(*rows: Stats, coverage: float = 1.0) -> list[UsageTable]:
    """One allocation, cycle after cycle."""
    return [table_of(row, at=AT + number * CYCLE, coverage=coverage) for number, row in enumerate(rows)]


def activities(verdicts: list[VerdictTable]) -> list[Activity]:
    return [ACTIVITIES[each.activity[0]] for each in verdicts]


def test_a_pause_shorter_than_a_window_counts_as_active():
    verdicts, _ = run(*cycles(working(), resting(), resting(), resting()))
    assert activities(verdicts) == [Activity.ACTIVE, Activity.ACTIVE, Activity.IDLE, Activity.IDLE]
    assert SIGNATURES[verdicts[1].signature[0]] is Signature.BURSTY


def test_a_pause_does_not_prolong_itself():
    verdicts, _ = run(*cycles(working(), *[resting()] * 5))
    assert activities(verdicts).count(Activity.ACTIVE) == 2


def test_idle_since_is_the_start_of_the_first_idle_window():
    verdicts, _ = run(*cycles(*[resting()] * 4))
    assert [each.idle_since[0] for each in verdicts] == [AT - WINDOW] * 4


def test_idle_since_is_never_before_the_start_of_the_pod():
    young = [allocation(started_at=AT - 100)]
    verdicts, _ = run(table_of(resting(), allocations=young))
    assert verdicts[0].idle_since[0] == AT - 100


def test_work_ends_idleness_and_a_new_idle_period_starts_later():
    verdicts, _ = run(*cycles(resting(), working(), resting(), resting()))
    assert np.isnan(verdicts[1].idle_since[0])
    assert np.isnan(verdicts[2].idle_since[0])
    assert verdicts[3].idle_since[0] == AT + 2 * CYCLE - WINDOW


def test_a_gap_shorter_than_a_window_does_not_break_idleness():
    first, gap, last = cycles(resting(), resting(), resting())
    verdicts, _ = run(first, replace(gap, coverage=np.array([0.2])), last)
    assert activities(verdicts) == [Activity.IDLE, Activity.UNKNOWN, Activity.IDLE]
    assert np.isnan(verdicts[1].idle_since[0])
    assert verdicts[2].idle_since[0] == AT - WINDOW


def test_idleness_never_spans_unobserved_time():
    first, *_, last = cycles(*[resting()] * 4)
    verdicts, _ = run(first, last)
    assert verdicts[1].idle_since[0] == last.at - WINDOW


def test_an_allocation_missing_from_one_cycle_is_still_remembered():
    first, gap, last = cycles(resting(), resting(), resting())
    verdicts, history = run(first, replace(gap, allocations=[allocation(7)]), last)
    assert verdicts[2].idle_since[0] == AT - WINDOW
    assert len(history) == 2


def test_an_allocation_missing_for_an_hour_is_forgotten():
    _, history = run(*cycles(resting()))
    _, history = run(table_of(resting(), allocations=[allocation(7)], at=AT + 3600), history=history)
    assert len(history) == 2
    _, history = run(table_of(resting(), allocations=[allocation(7)], at=AT + 3601), history=history)
    assert len(history) == 1
    assert len(history.past.seen_at) == 1


def test_the_history_is_bounded_while_pods_come_and_go():
    history = VerdictHistory()
    for number in range(100):
        at = AT + number * CYCLE
        table = table_of(resting(), resting(), allocations=[allocation(2 * number), allocation(2 * number + 1)], at=at)
        _, history = judge(table, RULES, history, now=at)
    assert len(history) == len(history.past.seen_at) == 2 * (3600 // CYCLE + 1)


def test_duplicate_rows_do_not_grow_the_history():
    twice = [allocation(), allocation()]
    tables = [table_of(resting(), resting(), allocations=twice, at=AT + number * CYCLE) for number in range(20)]
    _, history = run(*tables)
    assert len(history.past.seen_at) <= 2 + 1


def test_a_restarted_pod_of_the_same_name_has_no_history():
    before = table_of(working(), at=AT)
    after = table_of(resting(), at=AT + CYCLE, allocations=[allocation(started_at=AT - DAY + 60)])
    verdicts, _ = run(before, after)
    assert activities(verdicts) == [Activity.ACTIVE, Activity.IDLE]


def test_judging_changes_neither_the_history_nor_the_table_it_was_given():
    _, history = run(*cycles(working()))
    past, keys = history.past.worked_at.copy(), history.hashes.copy()
    table = table_of(resting(), at=AT + CYCLE)
    stats = {name: column.copy() for name, column in table.stats.items()}
    first, _ = judge(table, RULES, history, now=table.at)
    second, _ = judge(table, RULES, history, now=table.at)
    np.testing.assert_array_equal(history.past.worked_at, past)
    np.testing.assert_array_equal(history.hashes, keys)
    assert all(np.array_equal(table.stats[name], column) for name, column in stats.items())
    np.testing.assert_array_equal(first.activity, second.activity)
