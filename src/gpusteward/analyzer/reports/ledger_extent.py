"""The time for which the ledger has hourly and daily rows, and the time that a report covers: whole hours, or whole
days where hourly rows are deleted."""

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from gpusteward.analyzer.ledger.periods import (
    HOUR_MS,
    RECORDED,
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
class LedgerExtent:
    """Where the rows of the ledger begin and end; None where it is empty."""

    recorded_ms: int | None
    rolled_ms: int
    oldest_hour_ms: int | None
    oldest_day_ms: int | None

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

    def has_hours(self, period: Period) -> bool:
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
    )


def round_query(query: ReportQuery, *, now_ms: int) -> tuple[int, int]:
    """Both ends rounded up to the hour, so that the length stays as requested; not beyond the current hour."""
    until_ms = min(_ceil_hour(query.until_ms), _ceil_hour(now_ms))
    since_ms = _ceil_hour(query.since_ms)
    return (since_ms if since_ms < until_ms else floor_hour(query.since_ms)), until_ms


def describe_range(
    query: ReportQuery, period: Period, *, extent: LedgerExtent, first_ms: int | None, now_ms: int
) -> Range:
    """`first_ms`: the first observation of an allocation in the period."""
    since_ms, until_ms = round_query(query, now_ms=now_ms)
    begin_ms, recorded_ms = extent.begin_ms, extent.recorded_ms
    is_empty = None in (first_ms, begin_ms, recorded_ms)
    return Range(
        asked_since_ms=query.since_ms,
        asked_until_ms=query.until_ms,
        since_ms=period.since_ms,
        until_ms=period.until_ms,
        first_ms=None if is_empty else max(period.since_ms, begin_ms or 0, first_ms or 0),
        last_ms=None if is_empty else min(period.until_ms, recorded_ms or 0),
        is_widened=(period.since_ms < since_ms or period.until_ms > until_ms) and (begin_ms or 0) < since_ms,
    )


def _ceil_hour(at_ms: int) -> int:
    return -floor_hour(-at_ms)
