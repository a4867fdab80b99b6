"""What money is counted in. Amounts of two currencies are never added: of such a time no money is told."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlalchemy import Connection, select

from gpusteward.analyzer.ledger.periods import Period
from gpusteward.analyzer.ledger.schema import currencies
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.report import CurrencyChange


@dataclass(frozen=True, slots=True)
class Currencies:
    """Moments and currencies, in order; the first one also counts for the time before it."""

    known: Sequence[tuple[int, str]]

    def find(self, period: Period) -> Sequence[tuple[int, str]]:
        """Those of a period, with the moment from which each counts."""
        begun = [each for each in self.known if each[0] <= period.since_ms] or list(self.known[:1])
        return [*begun[-1:], *(each for each in self.known if period.since_ms < each[0] < period.until_ms)]

    def name(self, period: Period) -> str | None:
        """The one of a period; None: there are several, or no money at all."""
        names = {name for _, name in self.find(period)}
        return names.pop() if len(names) == 1 else None

    def is_one(self, *periods: Period) -> bool:
        """Whether the money of all of them may be added and compared."""
        return len({name for period in periods for _, name in self.find(period)}) <= 1

    def list_changes(self, period: Period) -> list[CurrencyChange]:
        found = self.find(period)
        return [CurrencyChange(at_ms, before, after) for (_, before), (at_ms, after) in pairwise(found)]


def read_currencies(connection: Connection) -> Currencies:
    rows = connection.execute(select(currencies.c.since_ms, currencies.c.currency).order_by(currencies.c.since_ms))
    return Currencies([(int(since_ms), name) for since_ms, name in rows])


def fit_prices(prices: PriceSettings, currency: str | None) -> PriceSettings:
    """For a time whose money is in this currency. What electricity costs is only known in that of today."""
    if currency is None or currency == prices.currency:
        return prices
    return prices.model_copy(update={"currency": currency, "electricity_per_kwh": 0.0})
