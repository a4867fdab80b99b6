"""Which rows answer a question about a time: daily ones where whole days are meant, hourly ones at the edges."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from gpusteward.analyzer.ledger.schema import progress, usage_hourly

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

BOOKED, ROLLED, PRUNED = "booked", "rolled", "pruned"

Range = tuple[int, int]  # from, and before


def floor_hour(at_ms: int) -> int:
    return at_ms - at_ms % HOUR_MS


def floor_day(at_ms: int) -> int:
    return at_ms - at_ms % DAY_MS


@dataclass(frozen=True, slots=True)
class Period:
    """What is really answered: a period in whole hours, in whole days where the hours are no longer kept.

    All rows of `usage_daily` with `daily[0] <= day_ms < daily[1]`, and of `usage_hourly` in each of `hourly`.
    """

    since_ms: int
    until_ms: int
    daily: Range
    hourly: Sequence[Range]


def read_progress(connection: Connection, name: str) -> int | None:
    """How far the books are; None: not yet anywhere."""
    return connection.execute(select(progress.c.at_ms).where(progress.c.name == name)).scalar()


def read_period(connection: Connection, since_ms: int, until_ms: int) -> Period:
    """The rows for everything between two moments. Raises SQLAlchemyError when the database is out of reach."""
    rolled_ms = read_progress(connection, ROLLED) or 0
    return divide_period(since_ms, until_ms, rolled_ms=rolled_ms, oldest_hour_ms=read_oldest_hour(connection))


def read_oldest_hour(connection: Connection) -> int | None:
    """The first single hour that counts. Of a day that is being deleted some hours may be there still: they do not."""
    hour = usage_hourly.c.hour_ms
    kept_from = read_progress(connection, PRUNED) or 0
    return connection.execute(select(func.min(hour)).where(hour >= kept_from)).scalar()


def divide_period(since_ms: int, until_ms: int, *, rolled_ms: int, oldest_hour_ms: int | None) -> Period:
    """`rolled_ms`: up to where hours are in their days. `oldest_hour_ms`: from where on single hours are kept."""
    kept_from = floor_day(rolled_ms if oldest_hour_ms is None else oldest_hour_ms)  # hours go by whole days
    since, until = floor_hour(since_ms), -floor_hour(-until_ms)
    since = floor_day(since) if since < kept_from else since
    until = -floor_day(-until) if until < kept_from else until
    first_day = -floor_day(-since)
    covered = rolled_ms if until >= rolled_ms else floor_day(until)  # what days tell ends here
    if first_day >= covered:
        return Period(since, until, (first_day, first_day), _ranges((since, until)))
    return Period(since, until, (first_day, covered), _ranges((since, first_day), (covered, until)))


def _ranges(*ranges: Range) -> tuple[Range, ...]:
    return tuple(each for each in ranges if each[0] < each[1])
