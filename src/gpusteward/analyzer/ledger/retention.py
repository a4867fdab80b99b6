"""Hours become parts of their days, and what is too old goes. A little at a time: a cycle never waits for long."""

from sqlalchemy import Connection, Engine, Table, delete, func, select

from gpusteward.analyzer.ledger.db_engine import with_write_lock
from gpusteward.analyzer.ledger.ledger_writer import lock_progress, set_progress
from gpusteward.analyzer.ledger.periods import (
    BOOKED,
    DAY_MS,
    HOUR_MS,
    PRUNED,
    ROLLED,
    floor_day,
    floor_hour,
    read_progress,
)
from gpusteward.analyzer.ledger.schema import (
    allocations,
    fleet_daily,
    fleet_hourly,
    notices,
    outbox,
    usage_daily,
    usage_hourly,
    verdict_changes,
)
from gpusteward.analyzer.ledger.upsert import add_hour_to_day
from gpusteward.analyzer.settings.ledger import LedgerSettings

MOMENTS_AT_ONCE = 4
"""Hours that are rolled up, and hours and days that are deleted, in one round. A cycle with a longer interval than so
many hours goes several rounds (`Ledger.book`): more than it adds, so that it catches up."""


def roll_up(engine: Engine) -> int:
    """Add the hours that are over to their days, each once; how many. Raises SQLAlchemyError."""
    done = 0
    while done < MOMENTS_AT_ONCE and _roll_next(engine):
        done += 1
    return done


def prune(engine: Engine, settings: LedgerSettings, *, now_ms: int) -> int:
    """Delete what is older than the settings say; how many hours and days of it. Raises SQLAlchemyError.

    An hour is deleted only if it is in its day. A day's hours go in portions, and from the first one on none of them
    counts any more ("pruned").
    """
    daily_ms = floor_day(now_ms - settings.daily_days * DAY_MS)
    with with_write_lock(engine).begin() as connection:
        rolled_ms = read_progress(connection, ROLLED) or 0
        hourly_ms = min(floor_day(now_ms - settings.hourly_days * DAY_MS), floor_day(rolled_ms))
        done = _delete_oldest(connection, usage_hourly, hourly_ms) + _delete_oldest(connection, usage_daily, daily_ms)
        _delete_oldest(connection, fleet_hourly, hourly_ms)
        if done:
            set_progress(connection, PRUNED, hourly_ms)
        _delete_oldest(connection, fleet_daily, daily_ms)
        if done == 0:
            _forget(connection, daily_ms)
    return done


def _roll_next(engine: Engine) -> bool:
    with with_write_lock(engine).begin() as connection:
        lock_progress(connection)
        rolled_ms, booked_ms = read_progress(connection, ROLLED), read_progress(connection, BOOKED) or 0
        hour_ms = _find_hour(connection, rolled_ms or 0, before_ms=floor_hour(booked_ms))
        if hour_ms is None:
            return False
        add_hour_to_day(connection, usage_hourly, usage_daily, hour_ms)
        add_hour_to_day(connection, fleet_hourly, fleet_daily, hour_ms)
        set_progress(connection, ROLLED, hour_ms + HOUR_MS)
        return True


def _find_hour(connection: Connection, since_ms: int, *, before_ms: int) -> int | None:
    found = [
        connection.execute(select(func.min(moment)).where(moment >= since_ms, moment < before_ms)).scalar()
        for moment in (usage_hourly.c.hour_ms, fleet_hourly.c.hour_ms)
    ]
    return min((each for each in found if each is not None), default=None)


def _delete_oldest(connection: Connection, table: Table, before_ms: int) -> int:
    moment = next(iter(table.columns))
    for done in range(MOMENTS_AT_ONCE):
        oldest = connection.execute(select(func.min(moment))).scalar()
        if oldest is None or oldest >= before_ms:
            return done
        connection.execute(delete(table).where(moment == oldest))
    return MOMENTS_AT_ONCE


def _forget(connection: Connection, before_ms: int) -> None:
    """What nothing in the books speaks of any more. What still has to be sent stays."""
    connection.execute(delete(allocations).where(allocations.c.ended_ms < before_ms))
    connection.execute(delete(verdict_changes).where(verdict_changes.c.at_ms < before_ms))
    connection.execute(delete(notices).where(notices.c.created_ms < before_ms))
    connection.execute(delete(outbox).where(outbox.c.created_ms < before_ms, outbox.c.state != "pending"))
