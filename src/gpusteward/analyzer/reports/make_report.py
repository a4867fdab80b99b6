"""The books, asked: one transaction, one state of them, one report."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, RowMapping
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.db_engine import describe_error
from gpusteward.analyzer.ledger.migrations.upgrade import HEAD, read_version
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.amounts import make_amounts, read_sums
from gpusteward.analyzer.reports.chart_series import read_points
from gpusteward.analyzer.reports.currencies import fit_prices, read_currencies
from gpusteward.analyzer.reports.groups import read_groups
from gpusteward.analyzer.reports.ledger_extent import describe_range, read_books, round_query
from gpusteward.analyzer.reports.period_totals import SHEET, UNSEEN, Sheet
from gpusteward.analyzer.reports.previous_period import make_trend, read_before
from gpusteward.analyzer.reports.report import Report, ReportQuery, Waster
from gpusteward.analyzer.reports.right_sizing import LARGEST_PART_RATIO, Holder, find_smaller
from gpusteward.analyzer.reports.unallocated import read_coverage, read_unallocated, read_unused
from gpusteward.core.errors import SourceError


def make_report(
    engine: Engine, query: ReportQuery, *, prices: PriceSettings | None = None, now_ms: int | None = None
) -> Report:
    """Raises SourceError when the books are out of reach. Takes as long as the database: never on an event loop."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    try:
        with _one_state(engine) as connection:
            _check_version(connection)
            return _ask(connection, query, prices=prices or PriceSettings(), now_ms=now_ms)
    except SQLAlchemyError as error:
        raise SourceError(f"the ledger cannot be read: {describe_error(error)}") from error


def _check_version(connection: Connection) -> None:
    """Raises SourceError for books of another version: only an analyzer upgrades them."""
    version = read_version(connection)
    if version not in (None, HEAD):
        raise SourceError(
            f"the ledger cannot be read: it is of version {version}, this gpusteward reads {HEAD}; "
            "`gpusteward serve` of the newer one upgrades it"
        )


@contextmanager
def _one_state(engine: Engine) -> Iterator[Connection]:
    """Everything that is read belongs together; the sheets are thrown away with the transaction."""
    isolated = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
    with engine.connect().execution_options(**isolated) as connection:
        yield connection
        connection.rollback()


def _ask(connection: Connection, query: ReportQuery, *, prices: PriceSettings, now_ms: int) -> Report:
    books = read_books(connection)
    period = books.divide(*round_query(query, now_ms=now_ms))
    money = read_currencies(connection)
    prices, has_money = fit_prices(prices, money.name(period)), money.is_one(period)
    sheet = Sheet(connection, SHEET, period=period, namespaces=query.namespaces, has_money=has_money)
    places = {} if query.namespaces else read_unallocated(connection, period)
    sums = read_sums(sheet.read_total())
    total = make_amounts(sums, prices=prices, unallocated_ms=sum(places.values()) if places else None)
    before = read_before(connection, query, books=books, period=period, money=money)
    groups, others = read_groups(sheet, query, total=sums, places=places, prices=prices, before=before)
    chart = read_points(connection, period, books=books, namespaces=query.namespaces, has_money=has_money)
    covered = describe_range(query, period, books=books, first_ms=sheet.read_first(), now_ms=now_ms)
    return Report(
        made_ms=now_ms,
        currency=prices.currency,
        by=query.by,
        namespaces=query.namespaces,
        range=covered,
        total=total,
        groups=groups,
        others=others,
        wasters=[_waster(row, prices) for row in sheet.read_wasters(limit=query.top)],
        findings=find_smaller(map(_holder, sheet.read_holders(most_core_ratio=LARGEST_PART_RATIO)))[: query.top],
        trend=make_trend(before, total) if before else None,
        step_ms=chart[0],
        points=chart[1],
        unused=read_unused(connection, query.namespaces, books=books, until_ms=covered.until_ms),
        fleet_coverage_ratio=None if query.namespaces else read_coverage(connection, period, covered),
        currency_changes=money.list_changes(period),
    )


def _waster(row: RowMapping, prices: PriceSettings) -> Waster:
    more = int(row["models"]) - 1
    return Waster(
        kind=row["owner_kind"],
        namespace=row["namespace"],
        name=row["owner_name"],
        user=row["user_name"] if int(row["users"]) == 1 else "",
        models=f"{row['model']} +{more}" if more else row["model"],
        gpus=int(row["gpus"]),
        amounts=make_amounts(read_sums(row), prices=prices),
    )


def _holder(row: RowMapping) -> Holder:
    return Holder(
        kind=row["owner_kind"],
        namespace=row["namespace"],
        name=row["owner_name"],
        model=row["model"],
        gpus=int(row["gpus"]),
        allocated_gpu_ms=int(row["allocated_ms"]),
        active_gpu_ms=int(row["active_ms"]),
        unseen_gpu_ms=int(row[UNSEEN]),
        cost_micros=int(row["active_cost"]) + int(row["idle_cost"]) + int(row["unknown_cost"]),
        core_peak_ratio=row["core_peak"],
        memory_peak_bytes=row["memory_peak_bytes"],
        memory_total_bytes=row["memory_total_bytes"],
    )
