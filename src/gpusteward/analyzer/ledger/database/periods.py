"""Hours and days of the ledger: how far it is recorded, rolled up and pruned, and which rows make up a period."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, func, select, text

from gpusteward.analyzer.ledger.database.schema import allocations, progress, usage_hourly
from gpusteward.analyzer.ledger.database.upsert import REPLACE, upsert

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

RECORDED, ROLLED, PRUNED = "booked", "rolled", "pruned"
BEGAN, FILLED_FROM, FILLED_TO = "began", "filled_from", "filled_to"
"""Names of rows in the table `progress`. The last three: the first recorded cycle, and the time before it whose idle
spells were back-filled."""

# Statements that every cycle runs are made once: SQLAlchemy needs longer to make one than SQLite to run it.
_PROGRESS = select(progress.c.at_ms).where(progress.c.name == bindparam("wanted"))
_ALL_PROGRESS = select(progress)
_LOCK = text("LOCK TABLE progress IN SHARE ROW EXCLUSIVE MODE")


class TimeSpan(NamedTuple):
    """From `begin_ms` on, before `end_ms`."""

    begin_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Period:
    """Whole hours, or whole days where hourly rows are no longer kept, and the rows that cover them.

    All rows of `usage_daily` whose `day_ms` is in `daily`, and of `usage_hourly` whose `hour_ms` is in one of `hourly`.
    """

    since_ms: int
    until_ms: int
    daily: TimeSpan
    hourly: Sequence[TimeSpan]


def floor_hour(at_ms: int) -> int:
    return at_ms - at_ms % HOUR_MS


def floor_day(at_ms: int) -> int:
    return at_ms - at_ms % DAY_MS


def read_progress(connection: Connection, name: str) -> int | None:
    """None where there is no progress of this kind yet."""
    return connection.execute(_PROGRESS, {"wanted": name}).scalar()


def read_all_progress(connection: Connection) -> dict[str, int]:
    """By name, without kinds of which there is no progress yet."""
    return {row.name: row.at_ms for row in connection.execute(_ALL_PROGRESS)}


def set_progress(connection: Connection, name: str, at_ms: int) -> None:
    upsert(connection, progress, {"name": [name], "at_ms": [at_ms]}, {"at_ms": REPLACE})


def lock_progress(connection: Connection) -> None:
    """Allow one writer at a time: SQLite locked when the transaction began, PostgreSQL locks here. Readers continue."""
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK)


def read_began(connection: Connection) -> int | None:
    """The first recorded cycle, as far as it is known; None: nothing is recorded."""
    began_ms = read_progress(connection, BEGAN)
    if began_ms is not None:
        return began_ms
    recorded_ms = read_progress(connection, RECORDED)
    oldest_ms = connection.execute(select(func.min(allocations.c.first_ms))).scalar()
    return oldest_ms if recorded_ms is not None and oldest_ms is not None else recorded_ms


def read_oldest_hour(connection: Connection) -> int | None:
    """The first hour that may be read. Hours of a day that is being deleted may still exist; they do not count."""
    hour = usage_hourly.c.hour_ms
    kept_from = read_progress(connection, PRUNED) or 0
    return connection.execute(select(func.min(hour)).where(hour >= kept_from)).scalar()


def divide_period(since_ms: int, until_ms: int, *, rolled_ms: int, oldest_hour_ms: int | None) -> Period:
    """`rolled_ms`: the end of the hours that are in `usage_daily`. `oldest_hour_ms`: the first hour that is kept."""
    kept_from = floor_day(rolled_ms if oldest_hour_ms is None else oldest_hour_ms)  # hours are deleted by whole days
    since, until = floor_hour(since_ms), -floor_hour(-until_ms)
    since = floor_day(since) if since < kept_from else since
    until = -floor_day(-until) if until < kept_from else until
    first_day = -floor_day(-since)
    daily_end = rolled_ms if until >= rolled_ms else floor_day(until)
    if first_day >= daily_end:
        daily, hourly = TimeSpan(first_day, first_day), [TimeSpan(since, until)]
    else:
        daily, hourly = TimeSpan(first_day, daily_end), [TimeSpan(since, first_day), TimeSpan(daily_end, until)]
    return Period(since, until, daily, tuple(span for span in hourly if span.begin_ms < span.end_ms))
