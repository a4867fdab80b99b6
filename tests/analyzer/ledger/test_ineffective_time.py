"""Ineffective time is counted from the moment it began, once, and never more than the active time."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, event
from sqlalchemy.exc import IntegrityError, OperationalError

from gpusteward.analyzer.ledger.database.clock import delete_after
from gpusteward.analyzer.ledger.database.db_engine import open_engine, with_write_lock
from gpusteward.analyzer.ledger.database.periods import HOUR_MS
from gpusteward.analyzer.ledger.database.retention import prune
from gpusteward.analyzer.ledger.database.schema import METADATA, ineffective_spells, usage_daily, usage_hourly
from gpusteward.analyzer.ledger.database.upsert import add_to_rows
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.ledger import LedgerSettings
from tests.analyzer.ledger.cycles import (
    INTERVAL,
    MINUTE_MS,
    RESTING,
    START,
    UNREAD,
    WORKING,
    cycle,
    hour,
    open_ledger,
    read_table,
    sqlite_url,
)
from tests.analyzer.usage_tables import allocation

pytestmark = pytest.mark.slow

MICROS_PER_MINUTE = 2_000_000 / 60
MANY = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
AMOUNTS = ("allocated", "active", "idle", "unknown", "ineffective")


def at(minute: float) -> float:
    return START + 60 * minute


def one(minute: float, since: float = math.nan, stats: Mapping[Any, float] = WORKING) -> Result:
    """A cycle with one pod, which is ineffective since this minute."""
    return cycle([(allocation(0, started_at=START - 7200), stats)], at(minute), ineffective_since=[at(since)])


def record(url: str, results: Sequence[Result]) -> Ledger:
    ledger = open_ledger(url)
    for result in results:
        ledger.record(result)
    assert ledger.describe()["error"] == ""
    return ledger


def minutes_by_hour(ledger: Ledger) -> list[tuple[float, float]]:
    """Active and ineffective."""
    rows = read_table(ledger.engine, usage_hourly.name)
    return [(row["active_ms"] / MINUTE_MS, row["ineffective_ms"] / MINUTE_MS) for row in rows]


def check_rows(ledger: Ledger) -> None:
    """Every row adds up, and days are the sums of their hours."""
    hours, days = (read_table(ledger.engine, table.name) for table in (usage_hourly, usage_daily))
    for row in (*hours, *days):
        assert row["allocated_ms"] == row["active_ms"] + row["idle_ms"] + row["unknown_ms"]
        assert 0 <= row["ineffective_ms"] <= row["active_ms"]
        assert 0 <= row["ineffective_cost"] <= row["active_cost"]
        assert row["ineffective_ms"] or not row["ineffective_cost"]
    rolled_ms = {row["name"]: row["at_ms"] for row in read_table(ledger.engine, "progress")}.get("rolled", 0)
    names = [f"{name}_ms" for name in AMOUNTS] + ["ineffective_cost", "active_cost"]
    over = [row for row in hours if row["hour_ms"] < rolled_ms]
    assert [sum(row[name] for row in days) for name in names] == [sum(row[name] for row in over) for name in names]


def test_time_is_ineffective_from_the_moment_it_began(database_url):
    """Shown at minute 20, since minute 12."""
    ledger = record(database_url, [one(0), one(5), one(10), one(15), one(20, 12), one(25, 12)])
    (row,) = read_table(ledger.engine, usage_hourly.name)
    assert minutes_by_hour(ledger) == [(25, 13)]
    assert row["active_cost"] == pytest.approx(25 * MICROS_PER_MINUTE, abs=2)
    assert row["ineffective_cost"] == pytest.approx(13 * MICROS_PER_MINUTE, abs=2)
    ledger.close()


def test_work_that_is_never_shown_to_be_ineffective_is_effective(database_url):
    ledger = record(database_url, [one(minute) for minute in range(0, 30, 5)])
    assert minutes_by_hour(ledger) == [(25, 0)]
    assert read_table(ledger.engine, ineffective_spells.name) == []
    ledger.close()


def test_whole_hours_are_corrected_and_so_is_their_day(database_url):
    results = [one(minute) for minute in range(0, 200, 5)] + [one(200, 50), one(205, 50)]
    ledger = record(database_url, results)
    assert minutes_by_hour(ledger) == [(60, 10), (60, 60), (60, 60), (25, 25)]
    (day,) = read_table(ledger.engine, usage_daily.name)
    assert (day["active_ms"], day["ineffective_ms"]) == (180 * MINUTE_MS, 130 * MINUTE_MS)
    hours = read_table(ledger.engine, usage_hourly.name)
    assert [row["ineffective_cost"] for row in hours[1:]] == [row["active_cost"] for row in hours[1:]]
    check_rows(ledger)
    ledger.close()


def test_it_begins_within_the_time_that_a_cycle_adds(database_url):
    ledger = record(database_url, [one(0), one(5), one(10, 8.5)])
    assert minutes_by_hour(ledger) == [(10, 1.5)]
    ledger.close()


def test_work_that_is_effective_again_changes_nothing_of_the_past(database_url):
    results = [one(0), one(5), one(10, 2), one(15, 2), one(20), one(25)]
    ledger = record(database_url, results)
    assert minutes_by_hour(ledger) == [(25, 13)]
    (spell,) = read_table(ledger.engine, ineffective_spells.name)
    assert (spell["started_ms"], spell["ended_ms"]) == (hour() + 2 * MINUTE_MS, hour() + 15 * MINUTE_MS)
    ledger.close()


def test_two_stretches_of_one_hour_are_both_counted(database_url):
    results = [one(0), one(5), one(10, 2), one(15), one(20), one(25), one(30, 18), one(35, 18)]
    ledger = record(database_url, results)
    assert minutes_by_hour(ledger) == [(35, 8 + 17)]
    assert len(read_table(ledger.engine, ineffective_spells.name)) == 2
    ledger.close()


def test_a_verdict_that_comes_again_with_the_same_begin_counts_what_was_missing(database_url):
    """For ten minutes nothing showed it, then the same begin is known again."""
    results = [one(0), one(5), one(10, 2), one(15), one(20), one(25, 2)]
    ledger = record(database_url, results)
    assert minutes_by_hour(ledger) == [(25, 23)]
    (spell,) = read_table(ledger.engine, ineffective_spells.name)
    assert (spell["started_ms"], spell["ended_ms"]) == (hour() + 2 * MINUTE_MS, None)
    ledger.close()


def test_an_earlier_begin_counts_what_lies_between(database_url):
    results = [one(minute) for minute in range(0, 70, 5)] + [one(70, 66), one(75, 64), one(80, 58), one(85, 63)]
    ledger = record(database_url, results)
    assert minutes_by_hour(ledger) == [(60, 2), (25, 25)]
    check_rows(ledger)
    ledger.close()


def test_a_new_stretch_after_the_last_cycle_does_not_count_the_work_between(database_url):
    ledger = record(database_url, [one(0), one(5), one(10, 2), one(15, 13), one(20, 11)])
    assert minutes_by_hour(ledger) == [(20, 8 + 2 + 5 + 2)]
    ledger.close()


@pytest.mark.parametrize("stats", [RESTING, UNREAD])
def test_only_active_time_is_ineffective(database_url, stats):
    ledger = record(database_url, [one(0), one(5, 2, stats), one(10, 2, stats)])
    assert minutes_by_hour(ledger) == [(0, 0)]
    ledger.close()


def test_unknown_time_of_the_first_hour_counts_as_time_after_the_begin(database_url):
    """On which side it lies is not known: ineffective is rather too small."""
    ledger = record(database_url, [one(0), one(5, stats=UNREAD), one(10), one(15), one(20, 8)])
    assert minutes_by_hour(ledger) == [(15, 12 - 5)]
    ledger.close()


def test_a_part_of_a_gpu_is_ineffective_for_its_part(database_url):
    pods = [(replace(allocation(each, share="shared"), gpu_uuid="GPU-0"), WORKING) for each in range(3)]
    results = [
        cycle(pods, at(minute), ineffective_since=[at(3) if minute > 5 else math.nan, math.nan, math.nan])
        for minute in (0, 5, 10)
    ]
    ledger = record(database_url, results)
    rows = read_table(ledger.engine, usage_hourly.name)
    assert sorted(row["ineffective_ms"] for row in rows) == [0, 0, pytest.approx(7 * MINUTE_MS / 3, abs=2)]
    check_rows(ledger)
    ledger.close()


@pytest.mark.parametrize(
    ("idle_since", "active", "ineffective"),
    [(30, 30, 10), (22, 22, 2), (12, 12, 0), (38, 38, 15)],
)
def test_time_that_turns_out_to_be_idle_is_not_ineffective(database_url, idle_since, active, ineffective):
    """Ineffective from minute 20 to 35, effective until 40, and then idle, as is shown at minute 45."""
    before = [one(minute, 20 if 25 <= minute <= 35 else math.nan) for minute in range(0, 45, 5)]
    ledger = record(database_url, [*before, turn_idle(45, idle_since)])
    assert minutes_by_hour(ledger) == [(active, ineffective)]
    check_rows(ledger)
    ledger.close()


def turn_idle(minute: float, since: float) -> Result:
    result = one(minute, stats=RESTING)
    result.verdicts.idle_since[:] = at(since)
    result.verdicts.worked_at[:] = at(minute) - INTERVAL  # until then a window had work
    return result


def test_whole_hours_that_turn_out_to_be_idle_are_not_ineffective(database_url):
    before = [one(minute, 20) for minute in range(0, 150, 5)]
    ledger = record(database_url, [*before, turn_idle(150, 50)])
    assert minutes_by_hour(ledger) == [(50, 30), (0, 0), (0, 0)]
    check_rows(ledger)
    ledger.close()


def test_hours_that_are_not_kept_are_not_corrected(database_url):
    """Their day has no hours to tell which part of it lies after the begin."""
    results = [one(minute) for minute in range(0, 60 * 60, 15)]
    ledger = record(database_url, results)
    while prune(ledger.engine, LedgerSettings(hourly_days=1), now_ms=int(at(60 * 60) * 1000)):
        pass
    kept = len(read_table(ledger.engine, usage_hourly.name))
    assert 0 < kept < 60
    ledger.record(one(60 * 60, 0))
    hours = read_table(ledger.engine, usage_hourly.name)
    assert all(row["ineffective_ms"] == row["active_ms"] for row in hours)
    days = read_table(ledger.engine, usage_daily.name)
    assert [row["ineffective_ms"] == 0 for row in days[:2]] == [True, True]
    assert sum(row["ineffective_ms"] for row in days) > 0
    ledger.close()


def test_a_begin_before_all_records_costs_no_more_than_the_hours_that_are_there(database_url):
    ledger = record(database_url, [one(0), one(5), one(65, -START / 60 + 1)])
    assert all(active == ineffective for active, ineffective in minutes_by_hour(ledger))
    ledger.close()


def test_hours_after_a_deletion_are_counted_anew(database_url):
    results = [one(minute, 30 if minute > 40 else math.nan) for minute in range(0, 150, 5)]
    ledger = record(database_url, results)
    whole = minutes_by_hour(ledger)
    ledger.close()
    engine = open_engine(LedgerSettings(url=database_url).locate())
    delete_after(engine, hour(1))
    engine.dispose()
    again = record(database_url, [result for result in results if result.at > START + 3600])
    assert minutes_by_hour(again) == whole
    check_rows(again)
    again.close()


def test_spells_are_deleted_with_what_they_belong_to(tmp_path):
    results = [one(0), one(5, 2), one(10)]
    ledger = record(sqlite_url(tmp_path), results)
    days = int(at(10 + 60 * 24 * 500) * 1000)
    while prune(ledger.engine, LedgerSettings(), now_ms=days):
        pass
    assert read_table(ledger.engine, ineffective_spells.name) == []
    ledger.close()


@pytest.mark.parametrize("amounts", [{"ineffective_ms": 61_000}, {"ineffective_cost": 10**9}, {"ineffective_ms": -1}])
def test_the_database_refuses_more_ineffective_time_than_active_time(database_url, amounts):
    ledger = record(database_url, [one(0), one(1)])
    (row,) = read_table(ledger.engine, usage_hourly.name)
    columns = {name: [amount] for name, amount in amounts.items()}
    keys = {name: [row[name]] for name in ("hour_ms", "allocation_id")}
    with pytest.raises(IntegrityError), with_write_lock(ledger.engine).begin() as connection:
        add_to_rows(connection, usage_hourly, {**columns, **keys})
    ledger.close()


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """To delete what the last example has recorded."""
    opened = open_engine(LedgerSettings(url=database_url).locate())
    yield opened
    opened.dispose()


def empty(engine: Engine) -> None:
    with with_write_lock(engine).begin() as connection:
        for table in reversed(METADATA.sorted_tables):
            connection.execute(delete(table))


EIGHTHS = st.integers(1, 40_000).map(lambda count: count * 125)  # milliseconds that a float of seconds has exactly
STRETCHES = st.lists(st.tuples(EIGHTHS, EIGHTHS, EIGHTHS), min_size=1, max_size=5)
"""Effective for so long, ineffective for so long, and shown to be so after so long."""


@MANY
@given(stretches=STRETCHES, steps=st.lists(EIGHTHS.map(lambda each: each % 900_000 + 1000), min_size=1, max_size=40))
def test_ineffective_time_is_the_truth_to_the_millisecond(database_url: str, engine: Engine, stretches, steps):
    """Each stretch counts from its begin to the last cycle that knew of it."""
    empty(engine)
    start_ms = int(START * 1000)
    times = [start_ms, *(start_ms + int(each) for each in np.cumsum(steps))]
    since: dict[int, int] = {}
    expected: dict[int, int] = defaultdict(int)
    end_ms = start_ms
    for effective_ms, ineffective_ms, delay_ms in stretches:
        begin_ms, end_ms = end_ms + effective_ms, end_ms + effective_ms + ineffective_ms
        shown = [each for each in times if max(begin_ms + 1, begin_ms + delay_ms) <= each <= end_ms]
        since |= dict.fromkeys(shown, begin_ms)
        for hour_ms in range(start_ms, shown[-1] if shown else 0, HOUR_MS):
            expected[hour_ms] += max(0, min(shown[-1], hour_ms + HOUR_MS) - max(begin_ms, hour_ms))
    pod = [(allocation(0, started_at=START - 7200), WORKING)]
    begins = [since.get(each, math.nan) / 1000 for each in times]
    results = [cycle(pod, each / 1000, ineffective_since=[x]) for each, x in zip(times, begins, strict=True)]
    ledger = record(database_url, results)
    for row in read_table(ledger.engine, usage_hourly.name):
        assert row["ineffective_ms"] == expected[row["hour_ms"]]
    check_rows(ledger)
    ledger.close()


HOLDERS = st.dictionaries(
    st.integers(0, 4),
    st.tuples(st.sampled_from([WORKING, WORKING, WORKING, RESTING, UNREAD]), st.none() | st.integers(1, 9_000)),
    max_size=5,
)
"""By pod: what it does, and for how many seconds it has been ineffective."""
STEPS = st.lists(
    st.tuples(st.integers(1, 3_000), HOLDERS, st.sampled_from(["", "", "restart", "retry", "outage", "outage"])),
    min_size=2,
    max_size=12,
)


class Outage:
    """While it lasts, no transaction is committed."""

    def __init__(self) -> None:
        self.lasts = False

    def open_ledger(self, url: str) -> Ledger:
        ledger = open_ledger(url)
        event.listen(ledger.engine, "commit", self._refuse)
        return ledger

    def _refuse(self, _: object) -> None:
        if self.lasts:
            raise OperationalError("COMMIT", {}, ConnectionError("no database"))


@MANY
@given(steps=STEPS)
def test_effective_and_ineffective_are_exactly_active_after_restarts_outages_and_retries(
    database_url: str, engine: Engine, steps
):
    """And the rows are those of an analyzer to which nothing has happened."""
    now, results = START, []
    for seconds, holders, _ in steps:
        now += seconds
        rows = [(allocation(number, started_at=START - 7200), stats) for number, (stats, _) in holders.items()]
        since = [math.nan if ago is None else now - ago for _, ago in holders.values()]
        results.append(cycle(rows, now, ineffective_since=since))
    empty(engine)
    undisturbed = record(database_url, results)
    expected = {name: read_table(undisturbed.engine, name) for name in (usage_hourly.name, ineffective_spells.name)}
    check_rows(undisturbed)
    undisturbed.close()
    empty(engine)
    outage = Outage()
    ledger = outage.open_ledger(database_url)
    for number, (result, (*_, what)) in enumerate(zip(results, steps, strict=True)):
        if what == "restart" and not outage.lasts:
            ledger.close()
            ledger = outage.open_ledger(database_url)
        outage.lasts = what == "outage"
        ledger.record(result)
        for earlier in results[: number + 1] if what == "retry" else ():
            ledger.record(earlier)
    outage.lasts = False
    ledger.record(results[-1])
    assert ledger.describe()["error"] == ""
    assert {name: read_table(ledger.engine, name) for name in expected} == expected
    check_rows(ledger)
    ledger.close()
