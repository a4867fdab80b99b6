"""Makes a report from the ledger, in one transaction: all queries see the same state."""

import time
from collections.abc import Mapping
from itertools import islice

from sqlalchemy import Connection, Engine, RowMapping

from gpusteward.analyzer.prices import PriceList, PriceSettings
from gpusteward.analyzer.reports.chart_series import read_chart
from gpusteward.analyzer.reports.groups import read_days, read_groups
from gpusteward.analyzer.reports.ledger_sums.amounts import (
    make_amounts,
    read_currencies,
    read_sums,
    use_currency,
)
from gpusteward.analyzer.reports.ledger_sums.grouping import make_grouping
from gpusteward.analyzer.reports.ledger_sums.ledger_extent import describe_range, read_extent, read_ledger, round_query
from gpusteward.analyzer.reports.ledger_sums.period_totals import TOTALS, UNMEASURED, PeriodTotals
from gpusteward.analyzer.reports.ledger_sums.unallocated import (
    read_coverage,
    read_unallocated,
    read_unused,
    sum_unallocated,
)
from gpusteward.analyzer.reports.previous_period import read_previous
from gpusteward.analyzer.reports.report import Finding, Report, Waster
from gpusteward.analyzer.reports.report_query import ReportQuery
from gpusteward.analyzer.reports.right_sizing import MAX_PART_RATIO, WholeGpuWorkload, find_smaller, select_unflagged


def make_report(
    engine: Engine,
    query: ReportQuery,
    *,
    prices: PriceSettings | None = None,
    teams: Mapping[str, str] | None = None,
    now_ms: int | None = None,
) -> Report:
    """`teams`: names of namespaces, or patterns, and their teams. Takes as long as the database: never on an event
    loop. Raises SourceError when the ledger cannot be read."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    with read_ledger(engine) as connection:
        return _read_report(connection, query, prices=prices or PriceSettings(), teams=teams or {}, now_ms=now_ms)


def _read_report(
    connection: Connection, query: ReportQuery, *, prices: PriceSettings, teams: Mapping[str, str], now_ms: int
) -> Report:
    extent = read_extent(connection)
    period = extent.divide(*round_query(query, now_ms=now_ms))
    currencies = read_currencies(connection)
    prices, has_costs = use_currency(prices, currencies.find_single(period)), currencies.are_comparable(period)
    totals = PeriodTotals(connection, TOTALS, period=period, scope=query.scope, has_costs=has_costs)
    listed = PriceList(prices if has_costs else PriceSettings())  # costs that cannot be added are unknown
    unallocated = read_unallocated(connection, period, query.scope, listed)
    sums = read_sums(totals.read_total())
    total = make_amounts(sums, prices=prices, unallocated=sum_unallocated(unallocated.values()))
    covered = describe_range(query, period, extent=extent, is_empty=not sums["allocations"], now_ms=now_ms)
    grouping = make_grouping(query.by, teams, dialect=connection.dialect.name)
    previous = read_previous(connection, query, grouping, extent=extent, period=period, currencies=currencies)
    if grouping.name == "day":
        groups, others = read_days(connection, query, period, covered=covered, prices=prices, has_costs=has_costs)
    else:
        groups, others = read_groups(
            totals, query, grouping, total=sums, unallocated=unallocated, prices=prices, previous=previous
        )
    chart = read_chart(connection, period, extent=extent, covered=covered, scope=query.scope, has_costs=has_costs)
    return Report(
        made_ms=now_ms,
        currency=prices.currency,
        by=query.by,
        namespaces=query.named_namespaces,
        clusters=query.clusters,
        range=covered,
        total=total,
        groups=groups,
        others=others,
        wasters=[_make_waster(row, prices) for row in totals.read_wasters(limit=query.top)],
        findings=_find_smaller(connection, totals, query, until_ms=covered.until_ms),
        trend=previous.make_trend(total) if previous else None,
        step_ms=chart.step_ms,
        points=chart.points,
        unused=read_unused(connection, query.scope, extent=extent, until_ms=covered.until_ms),
        fleet_coverage_ratio=read_coverage(connection, period, query.scope, covered),
        currency_changes=currencies.list_changes(period),
    )


def _find_smaller(connection: Connection, totals: PeriodTotals, query: ReportQuery, *, until_ms: int) -> list[Finding]:
    workloads = totals.read_whole_gpu_workloads(max_core_ratio=MAX_PART_RATIO)
    findings = find_smaller(map(_make_workload, workloads))
    return list(islice(select_unflagged(connection, findings, until_ms=until_ms), query.top))


def _make_waster(row: RowMapping, prices: PriceSettings) -> Waster:
    more = int(row["models"]) - 1
    return Waster(
        kind=row["owner_kind"],
        namespace=row["namespace"],
        name=row["owner_name"],
        user=row["user_name"] if int(row["users"]) == 1 else "",
        models=f"{row['model']} +{more}" if more else row["model"],
        gpus=int(row["gpus"]),
        cluster=row["cluster"],
        amounts=make_amounts(read_sums(row), prices=prices),
    )


def _make_workload(row: RowMapping) -> WholeGpuWorkload:
    return WholeGpuWorkload(
        kind=row["owner_kind"],
        namespace=row["namespace"],
        name=row["owner_name"],
        cluster=row["cluster"],
        model=row["model"],
        gpus=int(row["gpus"]),
        allocated_gpu_ms=int(row["allocated_ms"]),
        active_gpu_ms=int(row["active_ms"]),
        unmeasured_gpu_ms=int(row[UNMEASURED]),
        cost_micros=int(row["active_cost"]) + int(row["idle_cost"]) + int(row["unknown_cost"]),
        core_peak_ratio=row["core_peak"],
        memory_peak_bytes=row["memory_peak_bytes"],
        memory_total_bytes=row["memory_total_bytes"],
    )
