"""What each workload cost while it was idle in the last days, from the ledger; read once for all requests."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from gpusteward.analyzer.api.dependencies import ApiDependencies
from gpusteward.analyzer.api.http.cached_reads import CachedRead
from gpusteward.analyzer.reports.report import Amounts, Report
from gpusteward.analyzer.reports.report_query import ReportQuery
from gpusteward.core.node.containers import WorkloadKey

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ALL_ROWS = 1_000_000
MOST_FINDINGS = 1000
NAME = "period costs"


@dataclass(frozen=True, slots=True)
class PeriodCosts:
    """A report with a group for every workload, and the amounts of each."""

    report: Report
    by_workload: Mapping[WorkloadKey, Amounts]


async def read_period_costs(
    dependencies: ApiDependencies, *, days: int, cluster: str | None = None
) -> CachedRead[PeriodCosts]:
    """Of what the client may see. Raises a 503 or 504 problem."""
    clusters = () if cluster is None else (cluster,)
    return await dependencies.reads.get(
        (NAME, days, clusters, dependencies.visible), lambda: _read(dependencies, days, clusters)
    )


async def find_period_costs(dependencies: ApiDependencies, *, days: int) -> CachedRead[PeriodCosts] | None:
    """None while the ledger cannot be read, or is slow: then a later request may find it."""
    return await dependencies.reads.find((NAME, days, (), dependencies.visible), lambda: _read(dependencies, days, ()))


def _read(dependencies: ApiDependencies, days: int, clusters: tuple[str, ...]) -> PeriodCosts:
    now_ms = time.time_ns() // 1_000_000
    query = ReportQuery(
        now_ms - days * DAY_MS, now_ms, by="workload", rows=ALL_ROWS, top=MOST_FINDINGS, clusters=clusters
    )
    report = dependencies.ledger.read_report(query, visible=dependencies.visible)
    amounts = {WorkloadKey(one.kind, one.namespace, one.name, one.cluster): one.amounts for one in report.groups}
    return PeriodCosts(report, amounts)


def count_gpu_hours(gpu_ms: int) -> float:
    return round(gpu_ms / HOUR_MS, 3)
