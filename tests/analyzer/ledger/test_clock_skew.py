"""Whatever the clock does, no hour is counted twice; after a forward jump the ledger is rolled back."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.ledger.periods import DAY_MS, HOUR_MS, RECORDED, ROLLED, floor_day
from gpusteward.analyzer.settings.settings import SchedulerSettings
from tests.analyzer.ledger.cycles import (
    SETTINGS,
    START,
    WORKING,
    cycle,
    cycles,
    hour,
    hourly,
    minutes_of,
    open_ledger,
    read_table,
)
from tests.analyzer.usage_tables import allocation

pytestmark = pytest.mark.slow

DAY_MINUTES = 24 * 60
ONE = [(allocation(0), WORKING)]
FLEET = {("node-0", "H100"): 8}


def record_at(ledger: Ledger, minutes: Iterable[int], **options: Any) -> None:
    for result in cycles(ONE, minutes, fleet=FLEET, **options):
        ledger.record(result)


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


def test_a_ledger_far_ahead_of_the_clock_is_rolled_back_after_an_hour(database_url, caplog):
    ledger = open_ledger(database_url)
    record_at(ledger, [0, 5, 10, 3 * DAY_MINUTES, 3 * DAY_MINUTES + 5])
    record_at(ledger, range(15, 75, 5))
    assert ledger.describe()["booked_at"] == START + 3 * 86_400 + 300
    assert "ahead of the clock" in ledger.describe()["error"]
    record_at(ledger, [75])
    assert ledger.describe()["booked_at"] == hour(2) / 1000  # the end of the current hour
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
    assert events(caplog) == ["ledger_ahead_of_clock", "ledger_rolled_back"]
    ledger.close()


def test_a_restart_in_between_only_delays_the_rollback(database_url):
    ledger = open_ledger(database_url)
    record_at(ledger, [0, 5, 2 * DAY_MINUTES])
    record_at(ledger, [10, 15])
    ledger.close()
    ledger = open_ledger(database_url)
    record_at(ledger, range(20, 245, 5))
    assert sum(minutes_of(row)[0] for row in hourly(ledger.engine)) == 240
    check_sums(ledger)
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


def test_a_machine_that_has_lost_its_date_deletes_nothing(database_url, caplog):
    ledger = open_ledger(database_url)
    hourly_cycles = SETTINGS.model_copy(update={"scheduler": SchedulerSettings(interval=3600)})
    record_at(ledger, range(0, 3 * DAY_MINUTES, 60), settings=hourly_cycles)
    before = read_table(ledger.engine, "usage_hourly")
    record_at(ledger, range(0, 180, 5))
    assert read_table(ledger.engine, "usage_hourly") == before
    assert events(caplog) == ["ledger_ahead_of_clock", "ledger_not_rolled_back"]
    record_at(ledger, [3 * DAY_MINUTES])
    assert sum(minutes_of(row)[0] for row in hourly(ledger.engine)) == 3 * DAY_MINUTES
    check_sums(ledger)
    ledger.close()


def test_where_the_hours_of_today_are_pruned_recording_continues_with_the_next_day(database_url):
    ledger = open_ledger(database_url, hourly_days=1)
    record_at(ledger, [0, 5, 10, *range(5 * DAY_MINUTES, 5 * DAY_MINUTES + 60, 5)])
    assert progress(ledger, "pruned") > floor_day(hour())
    record_at(ledger, range(15, 80, 5))
    tomorrow = floor_day(hour()) + DAY_MS
    assert ledger.describe()["booked_at"] == tomorrow / 1000
    (day,) = read_table(ledger.engine, "usage_daily")
    assert day["allocated_ms"] == tomorrow - hour()
    minutes = (tomorrow - hour()) // 60_000
    record_at(ledger, range(minutes + 5, minutes + 125, 5))
    assert [minutes_of(row) for row in hourly(ledger.engine) if row["hour_ms"] >= tomorrow] == [(60, 60, 0, 0)] * 2
    ledger.close()


def test_a_large_rollback_continues_in_the_next_cycles(tmp_path, monkeypatch):
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    record_at(ledger, [0, 5, 9 * DAY_MINUTES])
    record_at(ledger, range(10, 70, 5))
    with monkeypatch.context() as patch:
        patch.setattr("gpusteward.analyzer.ledger.ledger.CATCH_UP_SECONDS", 0.002)  # a day or so at a time
        for minute in range(70, 120, 2):
            record_at(ledger, [minute])
            check_sums(ledger)
    record_at(ledger, range(120, 245, 5))
    assert sum(minutes_of(row)[0] for row in hourly(ledger.engine)) == 240
    check_sums(ledger)
    ledger.close()


@pytest.mark.parametrize("seed", range(4))
def test_no_hour_is_counted_twice_whatever_the_clock_does(tmp_path, seed):
    chance = np.random.default_rng(seed)
    ledger, minute = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}"), 0.0
    for _ in range(200):
        step = chance.choice([5, 60, 3 * DAY_MINUTES, -45, -3 * DAY_MINUTES], p=[0.9, 0.04, 0.02, 0.02, 0.02])
        minute = max(0.0, minute + float(step))
        ledger.record(cycle(ONE, START + 60 * minute, fleet=FLEET))
    check_sums(ledger)
    ledger.close()
