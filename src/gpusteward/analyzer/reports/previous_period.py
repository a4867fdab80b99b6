"""Compares the period of a report with the period of the same length before it."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from gpusteward.analyzer.ledger.database.periods import DAY_MS, HOUR_MS, Period, floor_day
from gpusteward.analyzer.reports.ledger_sums.amounts import UNPRICED, Currencies
from gpusteward.analyzer.reports.ledger_sums.grouping import Grouping, GroupKey
from gpusteward.analyzer.reports.ledger_sums.ledger_extent import LedgerExtent
from gpusteward.analyzer.reports.ledger_sums.period_totals import PREVIOUS_TOTALS, PeriodTotals
from gpusteward.analyzer.reports.report import Amounts, Trend
from gpusteward.analyzer.reports.report_query import ReportQuery

WHOLE_DAYS_FROM_MS = 14 * DAY_MS
"""From this length on, whole days are compared: they need far fewer rows than the hours at the edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousPeriod:
    """Compared per hour, because the newer period may not be over yet."""

    period: Period
    allocated_ms: int
    idle_ms: int
    idle_cost: int | None
    idle_by_group: Mapping[GroupKey, int]
    hours: float
    hours_now: float

    def compare_group(self, key: GroupKey, idle_ms: int) -> float | None:
        return self.compare(idle_ms, self.idle_by_group.get(key))

    def compare(self, now: int | None, before: int | None) -> float | None:
        """The relative change of the amount per hour; None if there is nothing to compare with."""
        if now is None or not before or self.hours_now <= 0:
            return None
        return (now / self.hours_now) / (before / self.hours) - 1

    def make_trend(self, now: Amounts) -> Trend:
        return Trend(
            since_ms=self.period.since_ms,
            until_ms=self.period.until_ms,
            allocated_gpu_ms=self.allocated_ms,
            idle_gpu_ms=self.idle_ms,
            idle_cost_micros=self.idle_cost,
            allocated_change_ratio=self.compare(now.allocated_gpu_ms, self.allocated_ms),
            idle_change_ratio=self.compare(now.idle_gpu_ms, self.idle_ms),
            idle_cost_change_ratio=self.compare(now.idle_cost_micros, self.idle_cost),
        )


def read_previous(
    connection: Connection,
    query: ReportQuery,
    grouping: Grouping,
    *,
    extent: LedgerExtent,
    period: Period,
    currencies: Currencies,
) -> PreviousPeriod | None:
    """None if the ledger does not reach back that far."""
    earlier = extent.divide(*_step_back(period))
    if extent.begin_ms is None or extent.begin_ms > earlier.since_ms:
        return None
    has_costs = currencies.are_comparable(earlier, period)
    totals = PeriodTotals(connection, PREVIOUS_TOTALS, period=earlier, scope=query.scope, has_costs=has_costs)
    keys = grouping.columns
    rows = totals.read(totals.sum_by(*keys)) if keys else ()
    idle = [(tuple(row[key.name] for key in keys), int(row["idle_ms"] or 0)) for row in rows]
    total = {name: int(amount or 0) for name, amount in totals.read_total().items()}
    is_priced = total[UNPRICED] < total["allocated_ms"]
    return PreviousPeriod(
        period=earlier,
        allocated_ms=total["allocated_ms"],
        idle_ms=total["idle_ms"],
        idle_cost=total["idle_cost"] if is_priced else None,
        idle_by_group=grouping.sum_idle(idle),
        hours=(earlier.until_ms - earlier.since_ms) / HOUR_MS,
        hours_now=extent.count_hours(period),
    )


def _step_back(period: Period) -> tuple[int, int]:
    """The same length of time right before the period."""
    length_ms = period.until_ms - period.since_ms
    if length_ms < WHOLE_DAYS_FROM_MS:
        return period.since_ms - length_ms, period.since_ms
    until_ms = floor_day(period.since_ms)
    return until_ms - floor_day(length_ms), until_ms
