"""The begin of idle time, and that a pod has worked, survive a restart of the analyzer; other history does not."""

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import select

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.schema import verdict_changes
from gpusteward.analyzer.ledger.database.schema_version import create_tables
from gpusteward.analyzer.ledger.spells.restore_state import restore_history
from gpusteward.analyzer.tables import SIGNATURES
from gpusteward.core.node.containers import Workload
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Signature
from tests.analyzer.ledger.cycles import RESTING, SETTINGS, START, WORKING, Rows, cycle, record_all, remember
from tests.analyzer.usage_tables import allocation

OLD = START - 86_400.0
GIB = float(1 << 30)


def idle_since(url: str, rows: Rows, at: float) -> list[float | None]:
    """Idle since, in the first cycle after a restart, in seconds after the ledger begins."""
    engine = open_engine(url)
    try:
        table = cycle(rows, at).verdicts.usage
        verdicts, _ = judge(table, SETTINGS.rules, restore_history(engine, table), now=at)
    finally:
        engine.dispose()
    return [None if math.isnan(since) else since - START for since in verdicts.idle_since.tolist()]


def first_window(rows: Rows, at: float) -> float:
    """Idle since without any history."""
    table = cycle(rows, at).verdicts.usage
    verdicts, _ = judge(table, SETTINGS.rules, VerdictHistory(), now=at)
    return float(verdicts.idle_since[0]) - START


def test_an_idle_workload_is_idle_since_before_the_restart(database_url: str):
    rows = [(allocation(0, started_at=OLD), RESTING)]
    record_all(database_url, remember(cycle(rows, START + 300 * number) for number in range(10)))
    before = first_window(rows, START)
    assert idle_since(database_url, rows, START + 3000) == [before] != [first_window(rows, START + 3000)]


def test_after_an_outage_longer_than_the_window_idle_time_starts_again(database_url: str):
    rows = [(allocation(0, started_at=OLD), RESTING)]
    record_all(database_url, [cycle(rows, START + 300 * number) for number in range(3)])
    assert idle_since(database_url, rows, START + 86_400) == [first_window(rows, START + 86_400)]


def test_a_workload_that_was_active_last_has_no_idle_history(database_url: str):
    held = allocation(0, started_at=OLD)
    record_all(database_url, [cycle([(held, RESTING)], START), cycle([(held, WORKING)], START + 300)])
    rows = [(held, RESTING)]
    assert idle_since(database_url, rows, START + 600) == [first_window(rows, START + 600)]


def test_a_pod_started_later_is_not_idle_since_before_its_start(database_url: str):
    record_all(database_url, [cycle([(allocation(0, started_at=OLD), RESTING)], START + 300 * n) for n in range(3)])
    rows = [(allocation(0, started_at=START + 700), RESTING)]
    (since,) = idle_since(database_url, rows, START + 1500)
    assert since is None or since >= 700


LOADED = RESTING | {(Measure.MEMORY_USED, Stat.PEAK): 40 * GIB, (Measure.MEMORY_USED, Stat.MEAN): 20 * GIB}
"""Its memory grows in this window, as that of a pod that loads."""


@pytest.mark.parametrize("working", [(3,), (0, 1, 2), ()], ids=["between two spells", "before the first one", "never"])
@pytest.mark.parametrize("started_at", [OLD, START + 4000], ids=["same", "new"])
def test_never_starting_after_a_restart_if_the_pod_has_worked_since_its_start(
    database_url: str, started_at: float, working: Collection[int]
):
    """A notebook that worked in some of its cycles; and another pod of the same name."""
    held = allocation(0, started_at=OLD, owner=Workload("Notebook", "team", "lab"))
    days = [cycle([(held, WORKING if number in working else RESTING)], START + 300 * number) for number in range(14)]
    record_all(database_url, days)
    again = allocation(0, started_at=started_at, owner=Workload("Notebook", "team", "lab"))
    engine, at = open_engine(database_url), START + 300 * 14
    try:
        table = cycle([(again, LOADED)], at).verdicts.usage
        verdicts, _ = judge(table, SETTINGS.rules, restore_history(engine, table), now=at)
    finally:
        engine.dispose()
    has_worked = bool(working) and started_at == OLD
    assert SIGNATURES[verdicts.signature[0]] is (Signature.PARKED if has_worked else Signature.STARTING)


@pytest.mark.parametrize("are_made", [True, False])
def test_an_empty_or_missing_ledger_gives_no_history(database_url: str, are_made: bool):
    engine = open_engine(database_url)
    if are_made:
        create_tables(engine)
    table = cycle([(allocation(0), RESTING)], START).verdicts.usage
    assert len(restore_history(engine, table)) == 0
    engine.dispose()


def test_idle_time_of_a_server_without_requests_may_have_work_in_it_after_a_restart(database_url: str):
    """Nobody recorded when its GPU worked last: for reclaim it may have been until the end of the ledger."""
    silent = {(Measure.REQUESTS, Stat.COUNT): 0.0, (Measure.SILENT, Stat.LOWEST): 1.0}
    held = [allocation(0, started_at=OLD), allocation(1, started_at=OLD, owner=Workload("Deployment", "team", "other"))]
    rows = [(held[0], RESTING | silent), (held[1], RESTING)]
    record_all(database_url, [cycle(rows, START + 300 * number) for number in range(4)])
    engine, at = open_engine(database_url), START + 1200
    try:
        table = cycle(rows, at).verdicts.usage
        verdicts, _ = judge(table, SETTINGS.rules, restore_history(engine, table), now=at)
    finally:
        engine.dispose()
    assert [SIGNATURES[code] for code in verdicts.signature] == [Signature.NO_REQUESTS, Signature.PARKED]
    assert verdicts.unused_work_at[0] == START + 900
    assert math.isnan(verdicts.unused_work_at[1])
    assert verdicts.idle_since[0] == verdicts.idle_since[1]


def test_idle_time_of_a_server_whose_metrics_ended_has_no_work_in_it_that_a_restart_forgets(database_url: str):
    """Rare work while it was silent, then nothing; and its metrics are gone before the restart."""
    silent = {(Measure.REQUESTS, Stat.COUNT): 0.0, (Measure.SILENT, Stat.LOWEST): 1.0}
    rare = {(Measure.BUSY, Stat.MEAN): 0.003, (Measure.CORE, Stat.PEAK): 0.3, (Measure.CORE, Stat.MEAN): 0.003}
    courses = [RESTING | silent] * 12 + [RESTING | silent | rare] * 3 + [RESTING | silent] * 8 + [RESTING] * 3
    held, history, results = allocation(0, started_at=OLD), VerdictHistory(), []
    for number, row in enumerate(courses):
        result, at = cycle([(held, row)], START + 300 * number), START + 300 * number
        verdicts, history = judge(result.verdicts.usage, SETTINGS.rules, history, now=at)
        results.append(replace(result, verdicts=verdicts, workloads=judge_workloads(verdicts, SETTINGS.rules)))
    record_all(database_url, results)
    engine, at = open_engine(database_url), START + 300 * len(courses)
    try:
        table = cycle([(held, RESTING)], at).verdicts.usage
        known, _ = judge(table, SETTINGS.rules, history, now=at)
        restored, _ = judge(table, SETTINGS.rules, restore_history(engine, table), now=at)
    finally:
        engine.dispose()
    worked_at = START + 300 * 14
    assert known.unused_work_at[0] == worked_at
    assert max(restored.idle_since[0], np.nan_to_num(restored.unused_work_at[0])) >= worked_at


def test_never_idle_over_a_gap_that_nobody_measured_after_a_restart(database_url: str):
    """The workload is idle before the gap and after it, with the same verdict: what happened between is not known."""
    rows = [(allocation(0, started_at=OLD), RESTING)]
    after = START + 39_600
    results = remember(cycle(rows, at + 300 * number) for at in (START, after) for number in range(4))
    record_all(database_url, results)
    running = float(results[-1].workloads.idle_since[0]) - START
    assert running > 39_000 - 600
    assert idle_since(database_url, rows, after + 1200) == [pytest.approx(running, abs=1)]


def test_an_unchanged_begin_of_idle_time_is_written_once(database_url: str):
    rows = [(allocation(0, started_at=OLD), RESTING)]
    record_all(database_url, remember(cycle(rows, START + 300 * number) for number in range(10)))
    engine = open_engine(database_url)
    with engine.connect() as connection:
        written = connection.execute(select(verdict_changes.c.idle_since_ms)).scalars().all()
    engine.dispose()
    assert len(written) == 1
