"""What each workload cost while it was idle in the last days, from the ledger; read once for all requests."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from gpusteward.analyzer.api.dependencies import ApiDependencies
from gpusteward.analyzer.api.http.cached_reads import CachedRead
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.reports.report import Report, ReportQuery
from gpusteward.core.containers import WorkloadKey

DAY_MS = 86_400_000
ALL_ROWS = 1_000_000
PATIENCE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class IdleAmount:
    """GPU-milliseconds, and millionths of the currency; None without a price."""

    idle_gpu_ms: int
    cost_micros: int | None


@dataclass(frozen=True, slots=True)
class PeriodCosts:
    """A report by workload, and its idle amounts by workload."""

    report: Report
    by_workload: Mapping[WorkloadKey, IdleAmount]


async def read_period_costs(
    dependencies: ApiDependencies, *, days: int, cluster: str | None = None
) -> CachedRead[PeriodCosts]:
    """Of what the client may see. Raises a 503 or 504 problem."""
    clusters = () if cluster is None else (cluster,)
    return await dependencies.reads.get(
        ("period costs", days, clusters, dependencies.visible), lambda: _read(dependencies, days, clusters)
    )


async def find_period_costs(dependencies: ApiDependencies, *, days: int) -> CachedRead[PeriodCosts] | None:
    """None while the ledger cannot be read, or is slow: then the next request may find it."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await read_period_costs(dependencies, days=days)
    except (ProblemError, TimeoutError):
        return None


def _read(dependencies: ApiDependencies, days: int, clusters: tuple[str, ...]) -> PeriodCosts:
    now_ms = time.time_ns() // 1_000_000
    query = ReportQuery(now_ms - days * DAY_MS, now_ms, by="workload", rows=ALL_ROWS, top=0, clusters=clusters)
    report = dependencies.ledger.read_report(query)
    amounts = {
        WorkloadKey(one.kind, one.namespace, one.name, one.cluster): IdleAmount(
            one.amounts.idle_gpu_ms, one.amounts.idle_cost_micros
        )
        for one in report.groups
    }
    return PeriodCosts(report, amounts)
