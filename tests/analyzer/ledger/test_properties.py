"""Sums are exact for all inputs: allocated = active + idle + unknown, and no device has more than its time."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, func, select

from gpusteward.analyzer.judge.gpu_fraction import compute_gpu_fractions
from gpusteward.analyzer.ledger.database.db_engine import open_engine, with_write_lock
from gpusteward.analyzer.ledger.database.schema import METADATA, time_column, usage_daily, usage_hourly
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.reports.ledger_sums.ledger_extent import read_extent
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.tables import EndedHolder
from gpusteward.core.usages import AllocationKey, Measure, Stat
from tests.analyzer.ledger.cycles import PARTS, RESTING, START, UNREAD, WORKING, cycle, open_ledger, read_table
from tests.analyzer.usage_tables import GIB, allocation, signal, table_of

pytestmark = pytest.mark.slow

DEVICES = 3
SLOTS = st.tuples(st.integers(0, 7), st.integers(0, DEVICES - 1), st.sampled_from(["", "1", "2"]))
HOLDERS = st.dictionaries(SLOTS, st.sampled_from(["working", "serving", "resting", "unread"]), max_size=8)
STEPS = st.lists(st.tuples(st.integers(1, 9_000_000), HOLDERS), min_size=1, max_size=7)
ENDED = st.lists(
    st.tuples(
        SLOTS,
        st.floats(0, 1200),
        st.floats(0, 1200),
        st.sampled_from([5.0, 30.0, 60.0]),
        st.booleans(),
        st.sampled_from([math.nan, 0.0, 100.0, 500.0]),
    ),
    max_size=8,
)
"""How long ago they ended, how long they were there, their interval, whether they worked, and after how long another
one of the same name came. Several may have the same name."""
STEPS_WITH_ENDED = st.lists(st.tuples(st.integers(1, 3_000_000), HOLDERS, ENDED), min_size=1, max_size=7)
SERVING = WORKING | {(Measure.SERVED_TOKENS, Stat.COUNT): 123_457.0}
STATS = {"working": WORKING, "serving": SERVING, "resting": RESTING, "unread": UNREAD}
MANY = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def held(pod: int, device: int, instance: str):
    return replace(allocation(pod, instance=instance, started_at=START), gpu_uuid=f"GPU-{device}")


def results_of(steps):
    at_ms = int(START * 1000)
    for gap_ms, holders in steps:
        at_ms += gap_ms
        yield cycle([(held(*slot), STATS[stats]) for slot, stats in holders.items()], at_ms / 1000)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """To delete what the last example has recorded."""
    opened = open_engine(LedgerSettings(url=database_url).locate())
    yield opened
    opened.dispose()


def open_empty(url: str, engine: Engine) -> Ledger:
    with with_write_lock(engine).begin() as connection:
        for table in reversed(METADATA.sorted_tables):
            connection.execute(delete(table))
    return open_ledger(url)


@MANY
@given(steps=STEPS)
def test_every_row_adds_up_and_no_device_has_more_than_its_time(database_url: str, engine: Engine, steps):
    ledger = open_empty(database_url, engine)
    results = list(results_of(steps))
    for result in results:
        ledger.record(result)
    assert ledger.describe()["error"] == ""
    rows = read_table(ledger.engine, "usage_hourly")
    for row in rows:
        assert row["allocated_ms"] == row["active_ms"] + row["idle_ms"] + row["unknown_ms"] > 0
        assert max(row["energy_ms"], row["scored_ms"]) <= row["allocated_ms"]
        assert (row["energy_mj"] is None) == (row["energy_ms"] == 0)
        assert (row["tokens"] is None) == (row["served_ms"] == 0)
        assert row["served_ms"] <= row["allocated_ms"]
    devices = {row["id"]: row["gpu_uuid"] for row in read_table(ledger.engine, "allocations")}
    times = defaultdict(int)
    for row in rows:
        times[devices[row["allocation_id"]]] += row["allocated_ms"]
    elapsed_ms = int(results[-1].at * 1000) - int(results[0].at * 1000)
    assert all(time <= elapsed_ms for time in times.values())
    _check_days(ledger)
    ledger.close()


@MANY
@given(steps=STEPS_WITH_ENDED, is_known=st.booleans())
def test_never_more_than_the_time_of_a_gpu_whatever_has_ended_on_it(database_url: str, engine: Engine, steps, is_known):
    """Also where pods that ended are said to have overlapped. `is_known`: the start of pods."""
    ledger = open_empty(database_url, engine)
    at_ms, times = int(START * 1000), []
    for gap_ms, holders, ended in steps:
        at_ms += gap_ms
        times.append(at_ms)
        rows = [(_forget_start(held(*slot), is_known), STATS[stats]) for slot, stats in holders.items()]
        gone = [
            EndedHolder(
                _forget_start(held(*slot), is_known),
                at_ms / 1000 - ago,
                interval,
                seconds,
                works,
                at_ms / 1000 - ago + gap,
            )
            for slot, ago, seconds, interval, works, gap in ended
            if slot not in holders or not math.isnan(gap)
        ]
        result = cycle(rows, at_ms / 1000, ended=gone, coverage=0.5)
        ledger.record(result)
        ledger.record(result)  # twice: nothing is added
    assert ledger.describe()["error"] == ""
    devices = {row["id"]: row["gpu_uuid"] for row in read_table(ledger.engine, "allocations")}
    sums = defaultdict(int)
    for row in read_table(ledger.engine, "usage_hourly"):
        assert row["allocated_ms"] == row["active_ms"] + row["idle_ms"] + row["unknown_ms"] > 0
        sums[devices[row["allocation_id"]]] += row["allocated_ms"]
    assert all(time <= times[-1] - times[0] for time in sums.values())
    ledger.close()


def _forget_start(one: AllocationKey, is_known: bool) -> AllocationKey:
    return one if is_known else replace(one, container=replace(one.container, started_at=None))


def _check_days(ledger) -> None:
    """Days plus the hours that are not yet in them equal the sum of all hours, in every column."""
    names = [f"{name}_ms" for name in PARTS] + ["active_cost", "idle_cost", "unknown_cost", "energy_mj", "scored_ms"]
    names += ["tokens", "served_ms", "served_cost"]
    with ledger.engine.connect() as connection:

        def total(table, ranges):
            sums = np.zeros(len(names), dtype=object)
            time = time_column(table)
            for begin, end in ranges:
                columns = [func.coalesce(func.sum(table.c[name]), 0) for name in names]
                sums += [
                    int(one) for one in connection.execute(select(*columns).where(time >= begin, time < end)).one()
                ]
            return sums

        period = read_extent(connection).divide(0, 4_000_000_000_000)
        everything = total(usage_hourly, [(0, period.until_ms)])
        assert (total(usage_daily, [period.daily]) + total(usage_hourly, period.hourly) == everything).all()


INSTANCES = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["", "1", "2", "9"]), st.sampled_from([0.0, 4.9, 9.75, 80.0])),
    min_size=1,
    max_size=20,
)


@given(instances=INSTANCES)
def test_the_fractions_of_a_device_never_sum_to_more_than_one(instances):
    allocations = [
        replace(allocation(number, instance=instance), gpu_uuid=f"GPU-{device}")
        for number, (device, instance, _) in enumerate(instances)
    ]
    table = table_of(*(signal(Measure.MEMORY_TOTAL, memory * GIB) for *_, memory in instances), allocations=allocations)
    fractions = compute_gpu_fractions(table)
    assert (fractions >= 0).all()
    for device in range(3):
        assert fractions[[one.gpu_uuid == f"GPU-{device}" for one in allocations]].sum() <= 1 + 1e-9
