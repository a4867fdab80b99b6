"""The rows of a FOCUS export: one per allocation and day, and one per node, model and day for unallocated time.

They are read day by day and never all in memory. Their sums are those of a report over the same period.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping, func, select, union_all

from gpusteward.analyzer.ledger.database.periods import DAY_MS, HOUR_MS, Period, floor_day
from gpusteward.analyzer.ledger.database.schema import allocations
from gpusteward.analyzer.prices import PriceList, PriceSettings, cost_of
from gpusteward.analyzer.reports.ledger_sums.amounts import COSTS, MONEY, UNPRICED, read_currencies, use_currency
from gpusteward.analyzer.reports.ledger_sums.grouping import find_team
from gpusteward.analyzer.reports.ledger_sums.ledger_extent import (
    describe_range,
    is_partial,
    read_extent,
    read_ledger,
    round_query,
    split_days,
)
from gpusteward.analyzer.reports.ledger_sums.period_totals import (
    only_scope,
    select_usage_rows,
    to_integer,
    unpriced_time,
)
from gpusteward.analyzer.reports.ledger_sums.unallocated import read_unallocated
from gpusteward.analyzer.reports.render import quantities
from gpusteward.analyzer.reports.report import Charge, ChargePeriod, Range, UnitPrices
from gpusteward.analyzer.reports.report_query import ReportQuery, ReportScope
from gpusteward.core.errors import ConfigurationError
from gpusteward.messages.errors import ledger_errors

_TIMES = ("allocated_ms", "active_ms", "idle_ms", "unknown_ms", "ineffective_ms")
_NAMES = (
    *("cluster", "labels", "namespace", "pod", "pod_uid", "container", "owner_kind", "owner_name", "user_name"),
    *("node", "gpu_uuid", "gpu_instance", "gpu_index", "model", "share"),
)
_BATCH_ROWS = 2000
_ROUNDING_MICROS = 5000
"""Costs are rounded once per cycle and hour: a day of cycles differs from price x time by less than this."""


@dataclass(frozen=True, slots=True)
class _Settings:
    currency: str
    prices: PriceList
    teams: Mapping[str, str]


def read_charges(
    engine: Engine,
    query: ReportQuery,
    *,
    prices: PriceSettings | None = None,
    teams: Mapping[str, str] | None = None,
    now_ms: int | None = None,
) -> Iterator[Charge]:
    """In order of time. Takes as long as the database: never on an event loop. Raises SourceError when the ledger
    cannot be read, and ConfigurationError for a period with costs in several currencies."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    with read_ledger(engine) as connection:
        extent = read_extent(connection)
        period = extent.divide(*round_query(query, now_ms=now_ms))
        currencies = read_currencies(connection)
        for change in currencies.list_changes(period):
            at = quantities.moment(change.at_ms)
            raise ConfigurationError(ledger_errors.TWO_CURRENCIES, before=change.before, after=change.after, at=at)
        used = use_currency(prices or PriceSettings(), currencies.find_single(period))
        covered = describe_range(query, period, extent=extent, is_empty=False, now_ms=now_ms)
        settings = _Settings(used.currency, PriceList(used), teams or {})
        for day in split_days(period):
            yield from _read_day(connection, day, query.scope, covered=covered, settings=settings)


def _read_day(
    connection: Connection, day: Period, scope: ReportScope, *, covered: Range, settings: _Settings
) -> Iterator[Charge]:
    day_ms = floor_day(day.since_ms)
    partial = is_partial(day_ms, day_ms + DAY_MS, first_ms=covered.first_ms, last_ms=covered.last_ms)
    period = ChargePeriod(day.since_ms, min(day.until_ms, covered.until_ms), partial)
    for row in _read_usage(connection, day, scope):
        yield _make_charge(row, period, settings)
    for key, part in read_unallocated(connection, day, scope, settings.prices).items():
        if part.gpu_ms:
            names = {"cluster": key.cluster, "node": key.node, "model": key.model}
            yield Charge(
                period, settings.currency, names, unallocated_ms=part.gpu_ms, unallocated_cost=part.cost_micros
            )


def _read_usage(connection: Connection, day: Period, scope: ReportScope) -> Iterator[RowMapping]:
    parts = [
        select(
            table.c.allocation_id,
            *(table.c[name] for name in (*_TIMES, *MONEY)),
            unpriced_time(table).label(UNPRICED),
        ).where(condition)
        for table, condition in select_usage_rows(day)
    ]
    if not parts:
        return
    rows = union_all(*parts).subquery()
    summed: list[Any] = [to_integer(func.sum(rows.c[name])).label(name) for name in (*_TIMES, *MONEY, UNPRICED)]
    sums = select(rows.c.allocation_id, *summed).group_by(rows.c.allocation_id).subquery()
    joined = sums.join(allocations, allocations.c.id == sums.c.allocation_id)
    statement = select(sums, *(allocations.c[name] for name in _NAMES)).select_from(joined)
    ordered = only_scope(statement, scope).order_by(sums.c.allocation_id)
    yield from connection.execute(ordered.execution_options(yield_per=_BATCH_ROWS)).mappings()


def _make_charge(row: RowMapping, period: ChargePeriod, settings: _Settings) -> Charge:
    times, costs = {name: int(row[name]) for name in _TIMES}, {name: int(row[name]) for name in COSTS}
    cost, gpu_ms = sum(costs.values()), times["allocated_ms"]
    unit = _find_prices(row, cost=cost, settings=settings)
    is_discounted = unit.listed is not None and unit.listed != unit.contracted
    return Charge(
        period=period,
        currency=settings.currency,
        names={name: row[name] for name in _NAMES},
        team=find_team(settings.teams, row["namespace"]),
        times=times,
        costs=costs,
        ineffective_cost=int(row["ineffective_cost"]),
        unpriced_ms=int(row[UNPRICED]),
        prices=unit,
        list_cost=cost_of(gpu_ms, unit.listed) if is_discounted and unit.listed else cost,
    )


def _find_prices(row: RowMapping, *, cost: int, settings: _Settings) -> UnitPrices:
    """The ledger stores costs, not prices. If the present prices explain the cost, they are the prices; otherwise they
    have changed since: then the mean price is known, and the list price is not."""
    gpu_ms, unpriced_ms = int(row["allocated_ms"]), int(row[UNPRICED])
    if unpriced_ms >= gpu_ms:
        return UnitPrices()
    contracted = settings.prices.micros_per_gpu_hour(row["model"], row["namespace"])
    if not unpriced_ms and abs(cost_of(gpu_ms, contracted) - cost) <= _ROUNDING_MICROS:
        return UnitPrices(contracted, settings.prices.list_micros_per_gpu_hour(row["model"]))
    return UnitPrices(cost * HOUR_MS // gpu_ms)
