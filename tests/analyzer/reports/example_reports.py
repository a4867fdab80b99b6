"""A report made by hand, with names nobody should trust."""

from dataclasses import replace
from typing import Any

from gpusteward.analyzer.ledger.periods import DAY_MS, HOUR_MS
from gpusteward.analyzer.reports.report import (
    Amounts,
    Finding,
    Group,
    Point,
    Range,
    Report,
    ReportQuery,
    Trend,
    Unused,
    Waster,
)
from tests.analyzer.reports.ledger_rows import A100, GIB, T4, at

HOSTILE = "<script>alert('x')</script>"
FORMULA = '=HYPERLINK("evil")'
CHINESE = "推荐系统"


def make_amounts(*, active: int = 0, idle: int = 0, unknown: int = 0, **given: Any) -> Amounts:
    """Hours of one price."""
    price = 2_000_000
    amounts = Amounts(
        allocations=1,
        allocated_gpu_ms=(active + idle + unknown) * HOUR_MS,
        active_gpu_ms=active * HOUR_MS,
        idle_gpu_ms=idle * HOUR_MS,
        unknown_gpu_ms=unknown * HOUR_MS,
        unallocated_gpu_ms=None,
        active_cost_micros=active * price,
        idle_cost_micros=idle * price,
        unknown_cost_micros=unknown * price,
        unpriced_gpu_ms=0,
        energy_mj=None,
        energy_gpu_ms=0,
        electricity_micros=None,
        mean_score=None,
    )
    return replace(amounts, **given)


def example_report(query: ReportQuery | None = None) -> Report:
    """Three namespaces, a week, everything a report can have."""
    query = query or ReportQuery(at(0), at(168))
    groups = [
        Group(HOSTILE, "", "", make_amounts(active=10, idle=90), 0.25),
        Group(CHINESE, "", "", make_amounts(active=60, idle=40, mean_score=61.4), -0.125),
        Group(FORMULA, "", "", make_amounts(active=95, unknown=5), None),
    ]
    total = make_amounts(active=165, idle=130, unknown=5, unallocated_gpu_ms=36 * HOUR_MS, mean_score=61.4)
    days = [Point(at(24 * day), 20 * HOUR_MS, 15 * HOUR_MS, HOUR_MS, 5 * HOUR_MS, 30_000_000) for day in (0, 1, 3)]
    return Report(
        made_ms=at(168),
        currency="USD",
        by=query.by,
        namespaces=query.namespaces,
        range=Range(query.since_ms, query.until_ms, at(0), at(168), at(0), at(168), is_widened=False),
        total=replace(total, electricity_micros=1_234_567, energy_mj=18 * 10**9, energy_gpu_ms=200 * HOUR_MS),
        groups=groups[: query.rows],
        others=None,
        wasters=[Waster("Job", HOSTILE, FORMULA, "zhang\x1b[31m", f"{A100} +1", 2, make_amounts(active=10, idle=90))],
        findings=[
            Finding("Deployment", CHINESE, "serve", T4, 3, 300 * HOUR_MS, "share", "1/4", 0.25, 0.12, 3 * GIB, 15 * GIB,
                    225 * HOUR_MS, 90_000_000),
            Finding("Job", HOSTILE, "embed", A100, 1, 168 * HOUR_MS, "mig", "1g.10gb", 0.1429, 0.05, 4 * GIB, 80 * GIB,
                    144 * HOUR_MS, None),
        ],
        trend=Trend(at(-168), at(0), 250 * HOUR_MS, 100 * HOUR_MS, 200_000_000, 0.2, 0.3, 0.3),
        step_ms=DAY_MS,
        points=days,
        unused=Unused(at(167), 64, 12, 14),
    )  # fmt: skip
