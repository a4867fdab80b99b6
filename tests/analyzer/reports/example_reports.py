"""A hand-made report with hostile names."""

from dataclasses import replace
from typing import Any

from gpusteward.analyzer.ledger.database.periods import DAY_MS, HOUR_MS
from gpusteward.analyzer.reports.report import Amounts, Finding, Group, Point, Range, Report, Trend, Unused, Waster
from gpusteward.analyzer.reports.report_query import ReportQuery
from tests.analyzer.reports.ledger_rows import A100, GIB, T4, at

HOSTILE = "<script>alert('x')</script>"
FORMULA = '=HYPERLINK("evil")'
CHINESE = "推荐系统"


def make_amounts(*, active: int = 0, idle: int = 0, unknown: int = 0, ineffective: int = 0, **given: Any) -> Amounts:
    """Hours of one price. `ineffective`: of the active ones."""
    price = 2_000_000
    amounts = Amounts(
        allocations=1,
        allocated_gpu_ms=(active + idle + unknown) * HOUR_MS,
        active_gpu_ms=active * HOUR_MS,
        effective_gpu_ms=(active - ineffective) * HOUR_MS,
        ineffective_gpu_ms=ineffective * HOUR_MS,
        idle_gpu_ms=idle * HOUR_MS,
        unknown_gpu_ms=unknown * HOUR_MS,
        unallocated_gpu_ms=None,
        active_cost_micros=active * price,
        effective_cost_micros=(active - ineffective) * price,
        ineffective_cost_micros=ineffective * price,
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
    """Three namespaces, a week, and everything else a report can contain."""
    query = query or ReportQuery(at(0), at(168))
    groups = [
        Group(HOSTILE, "", "", make_amounts(active=10, idle=90), 0.25),
        Group(CHINESE, "", "", make_amounts(active=60, idle=40, ineffective=25, mean_score=61.4), -0.125),
        Group(FORMULA, "", "", make_amounts(active=95, unknown=5), None),
    ]
    total = make_amounts(
        active=165,
        idle=130,
        unknown=5,
        ineffective=25,
        unallocated_gpu_ms=36 * HOUR_MS,
        mean_score=61.4,
        unallocated_cost_micros=72_000_000,
    )
    days = [
        Point(
            at_ms=at(24 * day),
            active_gpu_ms=20 * HOUR_MS,
            idle_gpu_ms=15 * HOUR_MS,
            unknown_gpu_ms=HOUR_MS,
            unallocated_gpu_ms=5 * HOUR_MS,
            idle_cost_micros=30_000_000,
        )
        for day in (0, 1, 3)
    ]
    return Report(
        made_ms=at(168),
        currency="USD",
        by=query.by,
        namespaces=query.namespaces,
        range=Range(
            asked_since_ms=query.since_ms,
            asked_until_ms=query.until_ms,
            since_ms=at(0),
            until_ms=at(168),
            first_ms=at(0),
            last_ms=at(168),
            is_widened=False,
        ),
        total=replace(total, electricity_micros=1_234_567, energy_mj=18 * 10**9, energy_gpu_ms=200 * HOUR_MS),
        groups=groups[: query.rows],
        others=None,
        wasters=[
            Waster(
                kind="Job",
                namespace=HOSTILE,
                name=FORMULA,
                user="zhang\x1b[31m",
                models=f"{A100} +1",
                gpus=2,
                amounts=make_amounts(active=10, idle=90),
            )
        ],
        findings=[
            Finding(
                kind="Deployment",
                namespace=CHINESE,
                name="serve",
                model=T4,
                gpus=3,
                allocated_gpu_ms=300 * HOUR_MS,
                part="share",
                profile="1/4",
                board_fraction=0.25,
                core_peak_ratio=0.12,
                memory_peak_bytes=3 * GIB,
                memory_total_bytes=15 * GIB,
                saving_gpu_ms=225 * HOUR_MS,
                saving_micros=90_000_000,
            ),
            Finding(
                kind="Job",
                namespace=HOSTILE,
                name="embed",
                model=A100,
                gpus=1,
                allocated_gpu_ms=168 * HOUR_MS,
                part="mig",
                profile="1g.10gb",
                board_fraction=0.1429,
                core_peak_ratio=0.05,
                memory_peak_bytes=4 * GIB,
                memory_total_bytes=80 * GIB,
                saving_gpu_ms=144 * HOUR_MS,
                saving_micros=None,
            ),
        ],
        trend=Trend(
            since_ms=at(-168),
            until_ms=at(0),
            allocated_gpu_ms=250 * HOUR_MS,
            idle_gpu_ms=100 * HOUR_MS,
            idle_cost_micros=200_000_000,
            allocated_change_ratio=0.2,
            idle_change_ratio=0.3,
            idle_cost_change_ratio=0.3,
        ),
        step_ms=DAY_MS,
        points=days,
        unused=Unused(hour_ms=at(167), gpus=64, idle=12, unallocated=14),
    )
