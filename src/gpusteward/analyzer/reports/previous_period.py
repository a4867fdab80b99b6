"""The period before, as long as this one, and what has changed since."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from gpusteward.analyzer.ledger.periods import DAY_MS, HOUR_MS, Period, floor_day
from gpusteward.analyzer.reports.amounts import UNPRICED
from gpusteward.analyzer.reports.currencies import Currencies
from gpusteward.analyzer.reports.ledger_extent import Books
from gpusteward.analyzer.reports.period_totals import KEYS, SHEET_BEFORE, Sheet
from gpusteward.analyzer.reports.report import Amounts, ReportQuery, Trend

WHOLE_DAYS_FROM_MS = 14 * DAY_MS
"""Against so long a period whole days are compared: they are read from far fewer rows than the hours at their edges."""


@dataclass(frozen=True, slots=True)
class Before:
    """What is compared with, per hour: the newer period may still be under way."""

    period: Period
    allocated_ms: int
    idle_ms: int
    idle_cost: int | None
    idle_by_key: Mapping[tuple[str, ...], int]
    hours: float
    hours_now: float

    def compare_group(self, key: tuple[str, ...], idle_ms: int) -> float | None:
        return self.compare(idle_ms, self.idle_by_key.get(key))

    def compare(self, now: int | None, before: int | None) -> float | None:
        """By how much the rate has changed; None where there is nothing to compare with."""
        if now is None or not before or self.hours_now <= 0:
            return None
        return (now / self.hours_now) / (before / self.hours) - 1


def read_before(
    connection: Connection, query: ReportQuery, *, books: Books, period: Period, money: Currencies
) -> Before | None:
    """None when the books do not reach back that far."""
    earlier = books.divide(*_step_back(period))
    if books.begin_ms is None or books.begin_ms > earlier.since_ms:
        return None
    has_money = money.is_one(earlier, period)
    sheet = Sheet(connection, SHEET_BEFORE, period=earlier, namespaces=query.namespaces, has_money=has_money)
    keys = KEYS[query.by]
    idle = {tuple(row[name] for name in keys): int(row["idle_ms"] or 0) for row in sheet.read(sheet.sum_up(*keys))}
    total = {name: int(amount or 0) for name, amount in sheet.read_total().items()}
    is_priced = total[UNPRICED] < total["allocated_ms"]
    hours = (earlier.until_ms - earlier.since_ms) / HOUR_MS
    return Before(
        earlier,
        total["allocated_ms"],
        total["idle_ms"],
        total["idle_cost"] if is_priced else None,
        idle,
        hours,
        books.count_hours(period),
    )


def _step_back(period: Period) -> tuple[int, int]:
    """As long a time right before it."""
    length_ms = period.until_ms - period.since_ms
    if length_ms < WHOLE_DAYS_FROM_MS:
        return period.since_ms - length_ms, period.since_ms
    until_ms = floor_day(period.since_ms)
    return until_ms - floor_day(length_ms), until_ms


def make_trend(before: Before, now: Amounts) -> Trend:
    return Trend(
        before.period.since_ms,
        before.period.until_ms,
        before.allocated_ms,
        before.idle_ms,
        before.idle_cost,
        before.compare(now.allocated_gpu_ms, before.allocated_ms),
        before.compare(now.idle_gpu_ms, before.idle_ms),
        before.compare(now.idle_cost_micros, before.idle_cost),
    )
