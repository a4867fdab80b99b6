"""Converts sums of database columns to `Amounts` of a report, and finds the currency of their costs.

Costs in different currencies are never added: a period with several currencies has no costs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from gpusteward.analyzer.ledger.database.periods import Period
from gpusteward.analyzer.ledger.database.schema import currencies
from gpusteward.analyzer.prices import PriceSettings, electricity_of
from gpusteward.analyzer.reports.report import Amounts, CurrencyChange

COSTS = ("active_cost", "idle_cost", "unknown_cost")
"""They add up to the cost of allocated time."""
INEFFECTIVE_MS, INEFFECTIVE_COST = "ineffective_ms", "ineffective_cost"
"""Parts of active time and of its cost."""
SERVED_COST = "served_cost"
MONEY = (*COSTS, INEFFECTIVE_COST, SERVED_COST)
SUMMED = (
    *("allocated_ms", "active_ms", "idle_ms", "unknown_ms"),
    INEFFECTIVE_MS,
    *MONEY,
    *("energy_mj", "energy_ms", "score_ms_sum", "scored_ms"),
    *("tokens", "served_ms"),
)
"""Columns of the usage tables that can be added."""
UNPRICED = "unpriced_ms"
SUM_NAMES = (*SUMMED, UNPRICED, "allocations")

Sums = Mapping[str, int]
NO_SUMS: Sums = dict.fromkeys(SUM_NAMES, 0)


class Unallocated(NamedTuple):
    """GPU time that was not allocated, and its cost at list prices; None is unknown."""

    gpu_ms: int | None = None
    cost_micros: int | None = None


NO_UNALLOCATED = Unallocated()


def read_sums(row: Mapping[Any, Any]) -> Sums:
    """The sum of no rows is 0."""
    return {name: int(row[name] or 0) for name in SUM_NAMES}


def add(parts: Sequence[Sums]) -> Sums:
    return {name: sum(part[name] for part in parts) for name in SUM_NAMES}


def subtract(total: Sums, parts: Sequence[Sums]) -> Sums:
    return {name: total[name] - sum(part[name] for part in parts) for name in SUM_NAMES}


def make_amounts(sums: Sums, *, prices: PriceSettings, unallocated: Unallocated = NO_UNALLOCATED) -> Amounts:
    is_priced = sums[UNPRICED] < sums["allocated_ms"]
    has_energy, is_served = sums["energy_ms"] > 0, sums["served_ms"] > 0
    # Which part of the time had no price is not known: all of it may be time without servers.
    has_served_cost = is_served and sums[UNPRICED] <= sums["allocated_ms"] - sums["served_ms"]
    return Amounts(
        allocations=sums["allocations"],
        allocated_gpu_ms=sums["allocated_ms"],
        active_gpu_ms=sums["active_ms"],
        effective_gpu_ms=sums["active_ms"] - sums[INEFFECTIVE_MS],
        ineffective_gpu_ms=sums[INEFFECTIVE_MS],
        idle_gpu_ms=sums["idle_ms"],
        unknown_gpu_ms=sums["unknown_ms"],
        unallocated_gpu_ms=unallocated.gpu_ms,
        active_cost_micros=sums["active_cost"] if is_priced else None,
        effective_cost_micros=sums["active_cost"] - sums[INEFFECTIVE_COST] if is_priced else None,
        ineffective_cost_micros=sums[INEFFECTIVE_COST] if is_priced else None,
        idle_cost_micros=sums["idle_cost"] if is_priced else None,
        unknown_cost_micros=sums["unknown_cost"] if is_priced else None,
        unpriced_gpu_ms=sums[UNPRICED],
        energy_mj=sums["energy_mj"] if has_energy else None,
        energy_gpu_ms=sums["energy_ms"],
        electricity_micros=electricity_of(sums["energy_mj"], prices) if has_energy else None,
        mean_score=sums["score_ms_sum"] / sums["scored_ms"] if sums["scored_ms"] else None,
        unallocated_cost_micros=unallocated.cost_micros,
        tokens=sums["tokens"] if is_served else None,
        served_gpu_ms=sums["served_ms"],
        served_cost_micros=sums[SERVED_COST] if has_served_cost else None,
    )


def round_electricity(rows: Sequence[Amounts], prices: PriceSettings) -> list[Amounts]:
    """Rounded so that the rows add up to the total: each gets what it adds to the rounded running total."""
    totals = [electricity_of(mj, prices) for mj in accumulate((row.energy_mj or 0 for row in rows), initial=0)]
    shares = [None if one is None or other is None else other - one for one, other in pairwise(totals)]
    return [
        row if row.electricity_micros is None else replace(row, electricity_micros=share)
        for row, share in zip(rows, shares, strict=True)
    ]


class CurrencySince(NamedTuple):
    """A currency and the time from which it is used."""

    since_ms: int
    currency: str


@dataclass(frozen=True, slots=True)
class Currencies:
    """In order of time; the first currency also covers the time before it."""

    known: Sequence[CurrencySince]

    def find_all(self, period: Period) -> Sequence[CurrencySince]:
        """The currencies of a period."""
        begun = [each for each in self.known if each.since_ms <= period.since_ms] or list(self.known[:1])
        return [*begun[-1:], *(each for each in self.known if period.since_ms < each.since_ms < period.until_ms)]

    def find_single(self, period: Period) -> str | None:
        """The currency of a period; None if there are several, or no costs at all."""
        names = {each.currency for each in self.find_all(period)}
        return names.pop() if len(names) == 1 else None

    def are_comparable(self, *periods: Period) -> bool:
        """Whether the costs of all periods may be added and compared."""
        return len({each.currency for period in periods for each in self.find_all(period)}) <= 1

    def list_changes(self, period: Period) -> list[CurrencyChange]:
        found = self.find_all(period)
        return [CurrencyChange(after.since_ms, before.currency, after.currency) for before, after in pairwise(found)]


def read_currencies(connection: Connection) -> Currencies:
    rows = connection.execute(select(currencies.c.since_ms, currencies.c.currency).order_by(currencies.c.since_ms))
    return Currencies([CurrencySince(int(row.since_ms), row.currency) for row in rows])


def use_currency(prices: PriceSettings, currency: str | None) -> PriceSettings:
    """The prices for a period in this currency. Prices that the ledger does not store, of electricity and of
    unallocated time, are only known in the current currency."""
    if currency is None or currency == prices.currency:
        return prices
    return PriceSettings(currency=currency)
