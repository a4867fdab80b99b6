"""Time recorded as active becomes idle once a verdict says since when: idle time and cost equal the truth."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.ledger.database.schema import usage_daily, usage_hourly
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.results import Result
from tests.analyzer.judge.test_requests import blips, served
from tests.analyzer.ledger.cycles import (
    INTERVAL,
    RESTING,
    SETTINGS,
    START,
    UNREAD,
    WORKING,
    minutes_of,
    open_ledger,
    read_table,
    sqlite_url,
)
from tests.analyzer.usage_tables import Stats, allocation, table_of

pytestmark = pytest.mark.slow

MICROS_PER_MINUTE = 2_000_000 / 60


class Restarted(NamedTuple):
    """Cycles, and the ledger of an analyzer that was restarted after each of them."""

    results: list[Result]
    ledger: Ledger


def judge_cycles(rows: Sequence[Stats], *, every: float = INTERVAL, first: float = START) -> Iterator[Result]:
    """One allocation, cycle after cycle, as the analyzer judges it."""
    history = VerdictHistory()
    for number, row in enumerate(rows):
        at = first + number * every
        table = table_of(row, allocations=[allocation(started_at=START - 7200)], at=at)
        verdicts, history = judge(table, SETTINGS.rules, history, now=at)
        yield Result(1, at, 0.1, SETTINGS, verdicts, judge_workloads(verdicts, SETTINGS.rules))


def record(url: str, results: Sequence[Result] | Iterator[Result]) -> Ledger:
    ledger = open_ledger(url)
    for result in results:
        ledger.record(result)
    assert ledger.describe()["error"] == ""
    return ledger


def sums(ledger: Ledger, name: str = usage_hourly.name) -> dict[str, int]:
    rows = read_table(ledger.engine, name)
    return {
        key: sum(row[key] for row in rows) for key in ("active_ms", "idle_ms", "unknown_ms", "idle_cost", "active_cost")
    }


def test_a_pause_that_turns_out_to_be_idleness_is_moved_to_idle(database_url):
    """Work is seen for the last time in the window that ends at minute 15: the work lies before minute 10."""
    ledger = record(database_url, judge_cycles([WORKING] * 4 + [RESTING] * 2))
    (row,) = read_table(ledger.engine, usage_hourly.name)
    assert minutes_of(row) == (25, 10, 15, 0)
    assert row["idle_cost"] == pytest.approx(15 * MICROS_PER_MINUTE, abs=1)
    assert row["active_cost"] == pytest.approx(10 * MICROS_PER_MINUTE, abs=1)
    ledger.close()


def test_a_pause_that_ends_stays_active(database_url):
    ledger = record(database_url, judge_cycles([WORKING] * 4 + [RESTING] + [WORKING] * 2))
    (row,) = read_table(ledger.engine, usage_hourly.name)
    assert minutes_of(row) == (30, 30, 0, 0)
    ledger.close()


def test_the_time_is_moved_once(database_url):
    ledger = record(database_url, judge_cycles([WORKING] * 4 + [RESTING] * 6))
    (row,) = read_table(ledger.engine, usage_hourly.name)
    assert minutes_of(row) == (45, 10, 35, 0)
    ledger.close()


@pytest.mark.parametrize("busy", [10, 11, 12, 13, 14])
def test_time_is_moved_across_the_hour_also_in_its_day(database_url, busy: int):
    ledger = record(database_url, judge_cycles([WORKING] * busy + [RESTING] * (40 - busy)))
    minutes = (busy - 2) * 5  # the last window with work ends at busy - 1
    assert sums(ledger)["active_ms"] == minutes * 60_000
    assert sums(ledger)["idle_ms"] == (39 * 5 - minutes) * 60_000
    hours = read_table(ledger.engine, usage_hourly.name)
    (day,) = read_table(ledger.engine, usage_daily.name)
    rolled = [row for row in hours if row["hour_ms"] < hours[-1]["hour_ms"]]
    for name in ("allocated_ms", "active_ms", "idle_ms", "active_cost", "idle_cost"):
        assert day[name] == sum(row[name] for row in rolled)
    for row in hours:
        assert row["allocated_ms"] == row["active_ms"] + row["idle_ms"] + row["unknown_ms"]
        assert min(row["active_ms"], row["active_cost"]) >= 0
    ledger.close()


def test_unknown_time_is_never_moved(database_url):
    ledger = record(database_url, judge_cycles([WORKING] * 4 + [RESTING, UNREAD, RESTING]))
    (row,) = read_table(ledger.engine, usage_hourly.name)
    _, active, idle, unknown = minutes_of(row)
    assert unknown == 5
    assert (active, idle) in ((10, 15), (15, 10), (20, 5))
    ledger.close()


def test_the_time_before_the_last_work_is_never_moved(database_url):
    ledger = record(database_url, judge_cycles([RESTING] * 3 + [WORKING] * 2 + [RESTING] * 4))
    (row,) = read_table(ledger.engine, usage_hourly.name)
    assert minutes_of(row) == (40, 5, 35, 0)
    ledger.close()


@pytest.fixture(scope="module", params=range(5))
def restarted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    """For a seed."""
    chance = np.random.default_rng(request.param)
    rows: list[Any] = []
    while len(rows) < 60:
        rows += [(WORKING, RESTING, UNREAD)[int(chance.choice(3, p=[0.4, 0.5, 0.1]))]] * int(chance.integers(1, 6))
    results, url = list(judge_cycles(rows)), sqlite_url(tmp_path_factory.mktemp("interrupted"))
    for result in results:
        record(url, [result]).close()
    ledger = open_ledger(url)
    yield Restarted(results, ledger)
    ledger.close()


def test_a_restart_of_the_ledger_after_every_cycle_leaves_the_same_rows(database_url: str, restarted: Restarted):
    whole = record(database_url, restarted.results)
    for name in (usage_hourly.name, usage_daily.name):
        assert read_table(restarted.ledger.engine, name) == read_table(whole.engine, name)
    for row in read_table(restarted.ledger.engine, usage_hourly.name):
        assert row["allocated_ms"] == row["active_ms"] + row["idle_ms"] + row["unknown_ms"]
        assert min(row[f"{name}_{unit}"] for name in ("active", "idle") for unit in ("ms", "cost")) >= 0
    whole.close()


def test_idle_time_with_health_checks_in_it_is_moved_once(database_url):
    """Its server has no request from minute 20 on, while the GPU goes on to work in 0.3 % of the time: the verdict of
    minute 30 is the first that is idle, and no later one moves anything."""
    checked = blips() | served()
    ledger = record(database_url, judge_cycles([WORKING | served(2)] * 6 + [checked] * 5))
    (row,) = read_table(ledger.engine, usage_hourly.name)
    assert minutes_of(row) == (50, 20, 30, 0)
    ledger.close()


def test_health_checks_that_stop_move_nothing_either(database_url):
    checked, silent = blips() | served(), RESTING | served()
    ledger = record(database_url, judge_cycles([WORKING | served(2)] * 6 + [checked] * 2 + [silent] * 3))
    (row,) = read_table(ledger.engine, usage_hourly.name)
    assert minutes_of(row) == (50, 20, 30, 0)
    ledger.close()
