"""Which time a report is about: whole hours, and whole days where the hours are no longer kept."""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from gpusteward.analyzer.ledger.periods import (
    BOOKED,
    HOUR_MS,
    ROLLED,
    Period,
    divide_period,
    floor_day,
    floor_hour,
    read_oldest_hour,
    read_progress,
)
from gpusteward.analyzer.ledger.schema import usage_daily
from gpusteward.analyzer.reports.report import Range, ReportQuery


@dataclass(frozen=True, slots=True)
class Books:
    """How far the books reach. None: they are empty."""

    booked_ms: int | None
    rolled_ms: int
    oldest_hour_ms: int | None
    oldest_day_ms: int | None

    @property
    def begin_ms(self) -> int | None:
        """The first hour with anything in it; the first day, where its hours are gone."""
        if self.oldest_hour_ms is None or self.oldest_day_ms is None:
            return self.oldest_day_ms if self.oldest_hour_ms is None else self.oldest_hour_ms
        return self.oldest_day_ms if self.oldest_day_ms < floor_day(self.oldest_hour_ms) else self.oldest_hour_ms

    def divide(self, since_ms: int, until_ms: int) -> Period:
        """The rows for a time."""
        return divide_period(since_ms, until_ms, rolled_ms=self.rolled_ms, oldest_hour_ms=self.oldest_hour_ms)

    def count_hours(self, period: Period) -> float:
        """Of a period, as far as it is in the books."""
        return (min(period.until_ms, self.booked_ms or 0) - period.since_ms) / HOUR_MS

    def keeps_hours(self, period: Period) -> bool:
        """Whether every single hour of it is known; also if it began before the first of them all."""
        if self.oldest_hour_ms is None:
            return False
        gave_up = self.oldest_day_ms is not None and self.oldest_day_ms < floor_day(self.oldest_hour_ms)
        return period.since_ms >= self.oldest_hour_ms or not gave_up


def read_books(connection: Connection) -> Books:
    return Books(
        read_progress(connection, BOOKED),
        read_progress(connection, ROLLED) or 0,
        read_oldest_hour(connection),
        connection.execute(select(func.min(usage_daily.c.day_ms))).scalar(),
    )


def round_query(query: ReportQuery, *, now_ms: int) -> tuple[int, int]:
    """Both ends at the full hour behind them, so that the length stays as asked; never beyond the hour under way."""
    until_ms = min(_ceil_hour(query.until_ms), _ceil_hour(now_ms))
    since_ms = _ceil_hour(query.since_ms)
    return (since_ms if since_ms < until_ms else floor_hour(query.since_ms)), until_ms


def describe_range(query: ReportQuery, period: Period, *, books: Books, first_ms: int | None, now_ms: int) -> Range:
    """`first_ms`: the first sighting of anything in the period."""
    since_ms, until_ms = round_query(query, now_ms=now_ms)
    begin_ms, booked_ms = books.begin_ms, books.booked_ms
    is_empty = None in (first_ms, begin_ms, booked_ms)
    return Range(
        query.since_ms,
        query.until_ms,
        period.since_ms,
        period.until_ms,
        None if is_empty else max(period.since_ms, begin_ms or 0, first_ms or 0),
        None if is_empty else min(period.until_ms, booked_ms or 0),
        is_widened=(period.since_ms < since_ms or period.until_ms > until_ms) and (begin_ms or 0) < since_ms,
    )


def _ceil_hour(at_ms: int) -> int:
    return -floor_hour(-at_ms)
