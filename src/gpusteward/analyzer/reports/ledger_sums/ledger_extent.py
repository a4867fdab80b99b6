"""Read access to the ledger: one consistent state of it, the time for which it has hourly and daily rows, and the time
that a report covers: whole hours up to the present, or whole days where hourly rows are deleted."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.database.db_engine import describe_error
from gpusteward.analyzer.ledger.database.periods import (
    DAY_MS,
    HOUR_MS,
    RECORDED,
    ROLLED,
    Period,
    TimeSpan,
    divide_period,
    floor_day,
    floor_hour,
    read_began,
    read_oldest_hour,
    read_progress,
)
from gpusteward.analyzer.ledger.database.schema import allocations, usage_daily
from gpusteward.analyzer.ledger.database.schema_version import has_tables
from gpusteward.analyzer.reports.report import Range
from gpusteward.analyzer.reports.report_query import ReportQuery
from gpusteward.core.errors import SourceError
from gpusteward.messages.errors import ledger_errors

MAX_HOURLY_BARS = 48


@dataclass(frozen=True, slots=True)
class LedgerExtent:
    """Where the rows of the ledger begin and end; None where it is empty."""

    recorded_ms: int | None
    rolled_ms: int
    oldest_hour_ms: int | None
    oldest_day_ms: int | None
    began_ms: int | None

    @property
    def first_ms(self) -> int | None:
        """When recording began, as far as rows are kept: within the first hour, or the first day."""
        return None if self.begin_ms is None else max(self.begin_ms, self.began_ms or 0)

    @property
    def begin_ms(self) -> int | None:
        """The first hour with rows; the first day where its hours are deleted."""
        if self.oldest_hour_ms is None or self.oldest_day_ms is None:
            return self.oldest_day_ms if self.oldest_hour_ms is None else self.oldest_hour_ms
        return self.oldest_day_ms if self.oldest_day_ms < floor_day(self.oldest_hour_ms) else self.oldest_hour_ms

    def divide(self, since_ms: int, until_ms: int) -> Period:
        """The hourly and daily rows that cover a time range."""
        return divide_period(since_ms, until_ms, rolled_ms=self.rolled_ms, oldest_hour_ms=self.oldest_hour_ms)

    def count_hours(self, period: Period) -> float:
        """The hours of a period up to the last recorded cycle."""
        return (min(period.until_ms, self.recorded_ms or 0) - period.since_ms) / HOUR_MS

    def choose_step(self, period: Period) -> tuple[int, Period]:
        """The length of a bar, and the rows for it: hours, also of whole days, for a short period whose hours are kept;
        days otherwise."""
        if period.until_ms - period.since_ms > MAX_HOURLY_BARS * HOUR_MS or not self._has_hours(period):
            return DAY_MS, period
        hours = [TimeSpan(period.since_ms, period.until_ms)]
        return HOUR_MS, Period(period.since_ms, period.until_ms, TimeSpan(0, 0), hours)

    def _has_hours(self, period: Period) -> bool:
        """Whether all its hours are kept; also for a period that began before the first recorded hour."""
        if self.oldest_hour_ms is None:
            return False
        are_deleted = self.oldest_day_ms is not None and self.oldest_day_ms < floor_day(self.oldest_hour_ms)
        return period.since_ms >= self.oldest_hour_ms or not are_deleted


def read_extent(connection: Connection) -> LedgerExtent:
    return LedgerExtent(
        recorded_ms=read_progress(connection, RECORDED),
        rolled_ms=read_progress(connection, ROLLED) or 0,
        oldest_hour_ms=read_oldest_hour(connection),
        oldest_day_ms=connection.execute(select(func.min(usage_daily.c.day_ms))).scalar(),
        began_ms=read_began(connection),
    )


def round_query(query: ReportQuery, *, now_ms: int) -> tuple[int, int]:
    """Widened to whole hours, since the ledger has no shorter rows; the current hour is the last one."""
    until_ms = min(_ceil_hour(query.until_ms), _ceil_hour(now_ms))
    return min(floor_hour(query.since_ms), until_ms - HOUR_MS), until_ms


def describe_range(query: ReportQuery, period: Period, *, extent: LedgerExtent, is_empty: bool, now_ms: int) -> Range:
    """`is_empty`: the report has no rows."""
    since_ms, until_ms = round_query(query, now_ms=now_ms)
    begin_ms, recorded_ms = extent.begin_ms, extent.recorded_ms
    is_empty = is_empty or begin_ms is None or recorded_ms is None
    first_ms = None if is_empty else max(period.since_ms, extent.first_ms or 0)
    last_ms = None if is_empty else min(period.until_ms, recorded_ms or 0)
    return Range(
        asked_since_ms=query.since_ms,
        asked_until_ms=query.until_ms,
        since_ms=period.since_ms,
        until_ms=min(period.until_ms, now_ms),
        first_ms=first_ms,
        last_ms=last_ms,
        is_widened=(period.since_ms < since_ms or period.until_ms > until_ms) and (begin_ms or 0) < since_ms,
        is_partial=is_partial(period.since_ms, period.until_ms, first_ms=first_ms, last_ms=last_ms),
    )


def is_partial(begin_ms: int, end_ms: int, *, first_ms: int | None, last_ms: int | None) -> bool:
    """Whether a part of this time is outside of the recorded time."""
    return first_ms is None or last_ms is None or begin_ms < first_ms or end_ms > last_ms


def split_days(period: Period) -> list[Period]:
    """The same rows, day by day (UTC)."""
    days = range(floor_day(period.since_ms), period.until_ms, DAY_MS)
    return [_cut(period, max(day, period.since_ms), min(day + DAY_MS, period.until_ms)) for day in days]


def _cut(period: Period, since_ms: int, until_ms: int) -> Period:
    daily, *hourly = (
        TimeSpan(max(span.begin_ms, since_ms), min(span.end_ms, until_ms)) for span in (period.daily, *period.hourly)
    )
    return Period(since_ms, until_ms, daily, [span for span in hourly if span.begin_ms < span.end_ms])


def _ceil_hour(at_ms: int) -> int:
    return -floor_hour(-at_ms)


@contextmanager
def read_ledger(engine: Engine) -> Iterator[Connection]:
    """One consistent state of it; temporary tables are rolled back at the end. Raises SourceError, also for errors
    inside the block."""
    isolated = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
    try:
        with engine.connect().execution_options(**isolated) as connection:
            has_tables(connection)  # refuses another version
            yield connection
            connection.rollback()
    except SQLAlchemyError as error:
        raise SourceError(ledger_errors.NOT_READABLE, reason=describe_error(error)) from error


def read_namespaces(engine: Engine) -> list[tuple[str, str]]:
    """Every cluster and namespace in the ledger. Raises SourceError."""
    with read_ledger(engine) as connection:
        found = connection.execute(select(allocations.c.cluster, allocations.c.namespace).distinct())
        return [(row.cluster, row.namespace) for row in found]
