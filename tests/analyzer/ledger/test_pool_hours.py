"""The minutes of pools in the ledger."""

import numpy as np
import pytest

from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.retention import prune
from gpusteward.analyzer.ledger.database.schema_version import create_tables
from gpusteward.analyzer.ledger.pool_hours import read_minutes, write_minutes
from gpusteward.analyzer.pool_minutes import UNKNOWN, PoolMinutes
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.core.node.containers import WorkloadKey

KEY = WorkloadKey("Deployment", "team", "server", "a")
HOUR = 29_842_560  # a full hour, in minutes
pytestmark = pytest.mark.slow


@pytest.fixture
def engine(empty_database_url):
    engine = open_engine(LedgerSettings(url=empty_database_url).locate())
    create_tables(engine)
    yield engine
    engine.dispose()


def minutes_of(first: int, active: list[int]) -> PoolMinutes:
    counts = np.array(active, np.int16)
    return PoolMinutes(first, counts, counts, counts, 2.0, 90.0)


def write(engine, *parts: PoolMinutes, is_backfill: bool = False) -> None:
    for part in parts:
        with engine.begin() as connection:
            write_minutes(connection, {KEY: part}, since=part.first, is_backfill=is_backfill)


def read(engine, first: int = HOUR) -> PoolMinutes | None:
    return read_minutes(engine, since=first * 60.0).get(KEY)


def test_minutes_are_read_as_they_were_written(engine):
    write(engine, minutes_of(HOUR + 50, [1, 2, UNKNOWN, 4]), minutes_of(HOUR + 54, [5] * 90))
    found = read(engine)
    assert (found.first, found.active.tolist()) == (HOUR + 50, [1, 2, UNKNOWN, 4] + [5] * 90)
    assert (found.gpus, found.start_seconds) == (2.0, 90.0)
    assert read(engine, HOUR + 120).first == HOUR + 120


def test_what_was_known_is_never_replaced_by_what_is_not(engine):
    write(engine, minutes_of(HOUR, [1, 2, 3]), minutes_of(HOUR, [UNKNOWN, 7]))
    assert read(engine).active.tolist() == [1, 7, 3]


def test_a_back_fill_never_changes_what_was_recorded(engine):
    write(engine, minutes_of(HOUR + 2, [5, 5]))
    write(engine, minutes_of(HOUR, [1, 1, 1, 1]), is_backfill=True)
    assert read(engine).active.tolist() == [1, 1, 5, 5]


def test_expired_hours_are_deleted(engine):
    write(engine, minutes_of(HOUR, [1]))
    settings = LedgerSettings()
    prune(engine, settings, now_ms=(HOUR + 60) * 60_000)
    assert read(engine) is not None
    prune(engine, settings, now_ms=(HOUR * 60 + (settings.hourly_days + 2) * 86_400) * 1000)
    assert read(engine) is None
