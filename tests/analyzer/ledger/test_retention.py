"""Hours are rolled up into days, expired rows are deleted, and no millisecond is lost."""

from collections.abc import Iterator

import pytest
from sqlalchemy import func, select

from gpusteward.analyzer.ledger.database.periods import DAY_MS, HOUR_MS, Period, divide_period, floor_day
from gpusteward.analyzer.ledger.database.retention import BATCH_SIZE, prune
from gpusteward.analyzer.ledger.database.schema import (
    fleet_daily,
    notices,
    outbox,
    time_column,
    usage_daily,
    usage_hourly,
)
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.reports.ledger_sums.ledger_extent import read_extent
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.settings import SchedulerSettings
from tests.analyzer.ledger.cycles import (
    RESTING,
    SETTINGS,
    START,
    WORKING,
    cycles,
    hour,
    open_ledger,
    random_cycles,
    read_table,
    sqlite_url,
)
from tests.analyzer.usage_tables import allocation

pytestmark = pytest.mark.slow

AMOUNTS = (
    *("allocated_ms", "active_ms", "idle_ms", "unknown_ms", "active_cost", "idle_cost", "unknown_cost"),
    *("energy_mj", "energy_ms", "score_ms_sum", "scored_ms", "tokens", "served_ms", "served_cost"),
)


def total(engine, table, begin=0, end=1 << 60):
    time = time_column(table)
    columns = [func.coalesce(func.sum(table.c[name]), 0) for name in AMOUNTS]
    with engine.connect() as connection:
        return [int(one) for one in connection.execute(select(*columns).where(time >= begin, time < end)).one()]


def test_a_finished_hour_is_in_its_day_and_the_current_one_is_not(database_url):
    ledger = open_ledger(database_url)
    for result in cycles([(allocation(0), WORKING)], range(0, 130, 10), fleet={("n", "H100"): 8}):
        ledger.record(result)
    (day,) = read_table(ledger.engine, "usage_daily")
    assert day["allocated_ms"] == 2 * HOUR_MS
    assert day["day_ms"] == hour() - hour() % DAY_MS
    assert read_table(ledger.engine, fleet_daily.name)[0]["gpu_ms"] == 16 * HOUR_MS
    assert {row["name"]: row["at_ms"] for row in read_table(ledger.engine, "progress")} == {
        "began": hour(),
        "booked": hour(2),
        "rolled": hour(2),
    }
    ledger.close()


def test_days_equal_the_sum_of_their_hours(database_url):
    ledger = open_ledger(database_url)
    results = random_cycles(60, seed=3)
    for result in results:
        ledger.record(result)
    rolled = next(row["at_ms"] for row in read_table(ledger.engine, "progress") if row["name"] == "rolled")
    assert rolled > hour(20)
    assert total(ledger.engine, usage_daily) == total(ledger.engine, usage_hourly, end=rolled)
    peaks = {}
    for row in read_table(ledger.engine, "usage_hourly"):
        key = (row["hour_ms"] // DAY_MS * DAY_MS, row["allocation_id"])
        if row["hour_ms"] < rolled and row["core_peak"] is not None:
            peaks[key] = max(peaks.get(key, 0), row["core_peak"])
    days = read_table(ledger.engine, "usage_daily")
    assert {
        (row["day_ms"], row["allocation_id"]): row["core_peak"] for row in days if row["core_peak"] is not None
    } == peaks
    ledger.close()


@pytest.mark.parametrize("hours", [5, 24])
def test_rollup_keeps_up_with_intervals_of_many_hours(database_url, hours):
    ledger = open_ledger(database_url, hourly_days=1, daily_days=3)
    settings = SETTINGS.model_copy(update={"scheduler": SchedulerSettings(interval=hours * 3600)})
    for result in cycles([(allocation(0), WORKING)], range(0, 8 * 24 * 60, hours * 60), settings=settings):
        ledger.record(result)
    progress = {row["name"]: row["at_ms"] for row in read_table(ledger.engine, "progress")}
    assert progress["rolled"] == progress["booked"]
    kept = [row["hour_ms"] for row in read_table(ledger.engine, "usage_hourly")]
    assert min(kept) >= floor_day(progress["booked"]) - 2 * DAY_MS
    ledger.close()


def test_old_hours_are_deleted_and_their_days_kept(database_url):
    ledger = open_ledger(database_url, hourly_days=1, daily_days=400)
    for result in cycles([(allocation(0), WORKING), (allocation(1), RESTING)], range(0, 4 * 24 * 60, 60)):
        ledger.record(result)
    kept = [row["hour_ms"] for row in read_table(ledger.engine, "usage_hourly")]
    recorded = START * 1000 + 4 * DAY_MS
    assert min(kept) % DAY_MS == 0
    assert recorded - 3 * DAY_MS < min(kept) <= recorded - DAY_MS
    assert total(ledger.engine, usage_daily)[0] == pytest.approx(2 * 4 * DAY_MS, abs=4 * HOUR_MS)
    ledger.close()


def test_old_days_are_deleted_with_everything_that_belongs_to_them(database_url):
    ledger = open_ledger(database_url, hourly_days=1, daily_days=2)
    ledger.record(cycles([(allocation(7), WORKING)], [0])[0])
    with ledger.engine.begin() as connection:
        for name, state in (("sent", "done"), ("waiting", "pending")):
            connection.execute(outbox.insert(), _message(name, state))
        connection.execute(notices.insert(), _notice())
    for result in cycles([(allocation(0), WORKING)], range(60, 5 * 24 * 60, 60)):
        ledger.record(result)
    while ledger.prune(START + 5 * 86_400):
        pass
    ledger.prune(START + 5 * 86_400)
    assert [row["pod"] for row in read_table(ledger.engine, "allocations")] == ["pod-0"]
    assert [row["key"] for row in read_table(ledger.engine, "outbox")] == ["waiting"]
    assert read_table(ledger.engine, "notices") == []
    assert len({row["day_ms"] for row in read_table(ledger.engine, "usage_daily")}) <= 3
    ledger.close()


def _message(key: str, state: str):
    texts = {"stream": "s", "key": key, "kind": "notice", "target": "t", "headers_json": "{}", "body": "", "error": ""}
    return texts | {"created_ms": hour(), "attempts": 1, "next_ms": 0, "state": state}


def _notice():
    texts = dict.fromkeys(("key", "kind", "namespace", "owner_kind", "owner_name", "channel", "body"), "x")
    return texts | {"created_ms": hour()}


def test_a_period_is_read_from_days_and_from_hours_at_its_edges():
    day = 20_000 * DAY_MS
    period = divide_period(
        day - 5 * HOUR_MS - 1,
        day + 3 * DAY_MS + 9 * HOUR_MS + 1,
        rolled_ms=day + 3 * DAY_MS + 8 * HOUR_MS,
        oldest_hour_ms=0,
    )
    assert period == Period(
        day - 6 * HOUR_MS,
        day + 3 * DAY_MS + 10 * HOUR_MS,
        (day, day + 3 * DAY_MS + 8 * HOUR_MS),
        ((day - 6 * HOUR_MS, day), (day + 3 * DAY_MS + 8 * HOUR_MS, day + 3 * DAY_MS + 10 * HOUR_MS)),
    )


def test_a_period_within_a_day_is_read_from_hours_only():
    day = 20_000 * DAY_MS
    period = divide_period(day + HOUR_MS, day + 5 * HOUR_MS, rolled_ms=day + 8 * HOUR_MS, oldest_hour_ms=0)
    assert period.hourly == ((day + HOUR_MS, day + 5 * HOUR_MS),)
    assert period.daily[0] >= period.daily[1]


def test_a_period_whose_hours_are_deleted_is_widened_to_whole_days():
    day = 20_000 * DAY_MS
    period = divide_period(
        day + HOUR_MS, day + DAY_MS + HOUR_MS, rolled_ms=day + 90 * DAY_MS, oldest_hour_ms=day + 60 * DAY_MS
    )
    assert (period.since_ms, period.until_ms, period.hourly) == (day, day + 2 * DAY_MS, ())
    assert period.daily == (day, day + 2 * DAY_MS)


@pytest.fixture(scope="module")
def random_ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """For tests that only read."""
    ledger = open_ledger(sqlite_url(tmp_path_factory.mktemp("random")))
    for result in random_cycles(50, seed=8):
        ledger.record(result)
    yield ledger
    ledger.close()


@pytest.mark.parametrize("since", [0, 1, 23, 24, 30])
@pytest.mark.parametrize("until", [24, 47, 48, 55, 60])
def test_days_and_edges_give_the_same_sums_as_all_hours(random_ledger: Ledger, since: int, until: int):
    begin, end, engine = hour() + since * HOUR_MS, hour() + until * HOUR_MS, random_ledger.engine
    with engine.connect() as connection:
        period = read_extent(connection).divide(begin, end)
    parts = [total(engine, usage_daily, *period.daily)]
    parts += [total(engine, usage_hourly, *each) for each in period.hourly]
    assert [sum(amounts) for amounts in zip(*parts, strict=True)] == total(engine, usage_hourly, begin, end)


def test_a_day_whose_hours_are_partly_deleted_is_read_as_a_whole(database_url):
    ledger = open_ledger(database_url)
    for result in cycles([(allocation(0), WORKING)], range(0, 6 * 24 * 60, 60)):
        ledger.record(result)
    now_ms, day_ms = hour(6 * 24), floor_day(hour())
    assert prune(ledger.engine, LedgerSettings(hourly_days=2), now_ms=now_ms) == BATCH_SIZE
    assert floor_day(read_table(ledger.engine, "usage_hourly")[0]["hour_ms"]) == day_ms  # some of its hours are left
    with ledger.engine.connect() as connection:
        period = read_extent(connection).divide(hour(2), now_ms)
    assert (period.since_ms, period.daily[0]) == (day_ms, day_ms)
    ledger.close()
