"""Whatever the clock does, no hour is counted twice, no wrong time is recorded, and nothing is deleted by itself."""

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusteward.analyzer.ledger.database import clock
from gpusteward.analyzer.ledger.database.clock import delete_after
from gpusteward.analyzer.ledger.database.periods import DAY_MS, HOUR_MS, RECORDED, ROLLED, floor_day
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.results import Result
from gpusteward.cli.main import main
from tests.analyzer.ledger.cycles import (
    START,
    WORKING,
    cycle,
    cycles,
    hour,
    hourly,
    minutes_of,
    open_ledger,
    read_ledger,
    read_table,
    sqlite_url,
)
from tests.analyzer.ledger.postgres_server import RunningPostgres
from tests.analyzer.usage_tables import allocation

pytestmark = pytest.mark.slow

DAY_MINUTES = 24 * 60
ONE = [(allocation(0), WORKING)]
FLEET = {("node-0", "H100"): 8}


def record_at(ledger: Ledger, minutes: Iterable[float], **options: Any) -> None:
    for result in cycles(ONE, minutes, fleet=FLEET, **options):
        ledger.record(result)


def with_skew(result: Result, seconds: float | None) -> Result:
    """The same, read from a source whose clock is ahead of ours by so much."""
    usage = replace(result.verdicts.usage, clock_skew=seconds)
    return replace(result, verdicts=replace(result.verdicts, usage=usage))


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith("ledger_")]


def progress(ledger: Ledger, name: str) -> int:
    return next(row["at_ms"] for row in read_table(ledger.engine, "progress") if row["name"] == name)


def check_sums(ledger: Ledger) -> None:
    """No hour has more than an hour, days equal the sum of their hours, and nothing is recorded of the future."""
    rows, days = read_table(ledger.engine, "usage_hourly"), defaultdict(int)
    rolled_ms, recorded_ms = progress(ledger, ROLLED), progress(ledger, RECORDED)
    for row in rows:
        assert row["allocated_ms"] <= HOUR_MS
        if row["hour_ms"] < rolled_ms:
            days[floor_day(row["hour_ms"])] += row["allocated_ms"]
    assert {row["day_ms"]: row["allocated_ms"] for row in read_table(ledger.engine, "usage_daily")} == days
    for name in ("usage_hourly", "fleet_hourly"):
        assert all(row["hour_ms"] < recorded_ms for row in read_table(ledger.engine, name))
    for row in read_table(ledger.engine, "fleet_hourly"):
        assert (row["known_ms"], row["gpu_ms"]) <= (HOUR_MS, 8 * HOUR_MS)
        assert row["held_ms"] <= row["known_ms"]


def test_never_records_a_cycle_with_a_wrong_time(tmp_path, caplog):
    ledger = open_ledger(sqlite_url(tmp_path))
    record_at(ledger, [0, 5])
    before = read_ledger(ledger.engine)
    for result in cycles(ONE, [365 * DAY_MINUTES, 365 * DAY_MINUTES + 5], fleet=FLEET):
        ledger.record(with_skew(result, -365 * 86_400.0))
    assert read_ledger(ledger.engine) == before
    described = ledger.describe()
    assert described["buffered_cycles"] == 0  # a buffer would write the wrong time later
    assert "differs from that of the source by -31536000 s" in described["error"]
    assert events(caplog) == ["ledger_clock_wrong"]
    for result in cycles(ONE, [60, 65, 120], fleet=FLEET):
        ledger.record(with_skew(result, 0.4))
    assert ledger.describe()["error"] == ""
    assert [minutes_of(row) for row in hourly(ledger.engine)] == [
        (60, 20, 0, 40),
        (60, 20, 0, 40),
    ]  # missing is unknown
    check_sums(ledger)
    ledger.close()


@pytest.mark.parametrize("skew", [None, 299.0, -299.0])
def test_a_clock_that_agrees_within_five_minutes_or_with_none_is_trusted(tmp_path, skew):
    ledger = open_ledger(sqlite_url(tmp_path))
    for result in cycles(ONE, [0, 5]):
        ledger.record(with_skew(result, skew))
    assert ledger.describe()["booked_at"] == START + 300
    ledger.close()


def test_the_clock_of_postgresql_decides_where_that_of_the_engine_differs(postgres: RunningPostgres, monkeypatch):
    ledger = open_ledger(postgres.url)
    ledger.record(with_skew(cycle(ONE, START), 3600.0))
    assert (ledger.describe()["booked_at"], ledger.describe()["error"]) == (START, "")  # the engine's clock is wrong
    now = time.time
    monkeypatch.setattr(clock.time, "time", lambda: now() + 3600.0)
    ledger.record(with_skew(cycle(ONE, START + 3900), None))
    assert ledger.describe()["booked_at"] == START
    assert "that of the PostgreSQL by -3600 s" in ledger.describe()["error"]
    ledger.close()


def test_never_deletes_rows_by_itself(database_url, caplog):
    ledger = open_ledger(database_url)
    record_at(ledger, [0, 5, 10, 3 * DAY_MINUTES, 3 * DAY_MINUTES + 5])
    names = ("usage_hourly", "fleet_hourly", "allocations", "idle_spells", "verdict_changes", "currencies")
    before = {name: read_table(ledger.engine, name) for name in names}
    record_at(ledger, range(15, 305, 5))
    assert {name: read_table(ledger.engine, name) for name in names} == before
    assert "ahead of the clock" in ledger.describe()["error"]
    assert events(caplog) == ["ledger_ahead_of_clock"]
    record_at(ledger, [3 * DAY_MINUTES + 10])
    assert ledger.describe()["error"] == ""
    check_sums(ledger)
    ledger.close()


def test_a_person_deletes_what_is_ahead_and_recording_continues(database_url):
    ledger = open_ledger(database_url)
    record_at(ledger, [0, 5, 10, 3 * DAY_MINUTES, 3 * DAY_MINUTES + 5])
    begin_ms, rows = delete_after(ledger.engine, hour() + 75 * 60_000)
    assert (begin_ms, rows > 140) == (hour(2), True)  # the hour that contains the time stays
    assert delete_after(ledger.engine, hour(2)) == (hour(2), 0)
    ledger.close()
    ledger = open_ledger(database_url)
    assert ledger.describe()["booked_at"] == hour(2) / 1000
    record_at(ledger, range(80, 305, 5))
    assert [minutes_of(row) for row in hourly(ledger.engine)] == [
        (60, 10, 0, 50),  # the gap that was filled stays unknown
        (60, 0, 0, 60),
        *[(60, 60, 0, 0)] * 3,
    ]
    check_sums(ledger)
    assert (progress(ledger, ROLLED), ledger.describe()["error"]) == (hour(5), "")
    (allocation,) = read_table(ledger.engine, "allocations")
    assert (allocation["first_ms"], allocation["ended_ms"]) == (hour(), None)
    assert max(row["at_ms"] for row in read_table(ledger.engine, "verdict_changes")) <= hour(5)
    ledger.close()


def test_where_the_hours_of_a_day_are_pruned_the_whole_day_stays(database_url):
    ledger = open_ledger(database_url, hourly_days=1)
    record_at(ledger, [0, 5, 10, *range(5 * DAY_MINUTES, 5 * DAY_MINUTES + 60, 5)])
    assert progress(ledger, "pruned") > floor_day(hour())
    tomorrow = floor_day(hour()) + DAY_MS
    assert delete_after(ledger.engine, hour(1))[0] == tomorrow
    ledger.close()
    ledger = open_ledger(database_url, hourly_days=1)
    (day,) = read_table(ledger.engine, "usage_daily")
    assert day["allocated_ms"] == tomorrow - hour()
    minutes = (tomorrow - hour()) // 60_000
    record_at(ledger, range(minutes + 5, minutes + 125, 5))
    assert [minutes_of(row) for row in hourly(ledger.engine) if row["hour_ms"] >= tomorrow] == [(60, 60, 0, 0)] * 2
    ledger.close()


def test_the_command_deletes_after_a_time(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPUSTEWARD_LEDGER__URL", sqlite_url(tmp_path))
    ledger = open_ledger(sqlite_url(tmp_path))
    record_at(ledger, [0, 5, 10, 120, 125])
    ledger.close()
    assert main(["ledger", "delete-after"]) == 2
    assert "needs a TIME" in capsys.readouterr().err
    assert main(["ledger", "delete-after", "2026-09-21T15:30Z"]) == 0
    assert (
        capsys.readouterr().out == "deleted 6 hours and days of allocations and nodes, from 2026-09-21 16:00 UTC on\n"
    )
    assert progress(ledger, RECORDED) == hour(1)
    ledger.close()


def test_the_command_refuses_a_ledger_in_use(postgres: RunningPostgres, monkeypatch, capsys):
    monkeypatch.setenv("GPUSTEWARD_LEDGER__URL", postgres.url.replace("+psycopg", ""))
    ledger = open_ledger(postgres.url)
    record_at(ledger, [0, 120])
    with ledger.engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO leases VALUES ('writer', 'one', 99999999999999)")
    before = read_ledger(ledger.engine)
    assert main(["ledger", "delete-after", "2026-09-21"]) == 1
    assert "an analyzer uses this ledger" in capsys.readouterr().err
    assert read_ledger(ledger.engine) == before
    ledger.close()


def test_a_small_step_back_waits_until_the_clock_has_caught_up(database_url, caplog):
    ledger = open_ledger(database_url)
    record_at(ledger, [0, 5, 300, *range(10, 300, 5)])
    assert ledger.describe()["booked_at"] == START + 300 * 60
    record_at(ledger, range(300, 365, 5))
    assert [minutes_of(row)[0] for row in hourly(ledger.engine)] == [60] * 6
    check_sums(ledger)
    assert events(caplog) == ["ledger_ahead_of_clock"]
    ledger.close()


@pytest.mark.parametrize("seed", range(4))
def test_no_hour_is_counted_twice_whatever_the_clock_does(tmp_path, seed):
    chance = np.random.default_rng(seed)
    ledger, minute = open_ledger(sqlite_url(tmp_path)), 0.0
    for _ in range(200):
        step = chance.choice([5, 60, 3 * DAY_MINUTES, -45, -3 * DAY_MINUTES], p=[0.9, 0.04, 0.02, 0.02, 0.02])
        minute = max(0.0, minute + float(step))
        ledger.record(cycle(ONE, START + 60 * minute, fleet=FLEET))
        if chance.random() < 0.05:  # by a person, who stops the analyzer for that
            delete_after(ledger.engine, int(START + 60 * minute) * 1000)
            ledger.close()
            ledger = open_ledger(sqlite_url(tmp_path))
    check_sums(ledger)
    ledger.close()
