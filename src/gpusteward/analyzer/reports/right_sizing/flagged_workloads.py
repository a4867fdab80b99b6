"""Workloads whose last verdict in the period calls them idle or keep-alive, or sees only health checks: they need
another remedy than a smaller GPU."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, func, select, tuple_

from gpusteward.analyzer.ledger.schema import verdict_changes
from gpusteward.analyzer.reports.ledger_sums.grouping import WORKLOAD
from gpusteward.analyzer.reports.report import Finding
from gpusteward.core.verdicts import Activity, Signature

FLAGGED_SIGNATURES = (Signature.KEEP_ALIVE, Signature.HEALTH_CHECK)
BATCH_SIZE = 100
"""Findings that are looked up at once; a report shows only the first few."""

WorkloadName = tuple[str, ...]
"""The values of `WORKLOAD`."""


def select_unflagged(connection: Connection, findings: Sequence[Finding], *, until_ms: int) -> Iterator[Finding]:
    """The findings about other workloads, in their order. Raises SQLAlchemyError."""
    for first in range(0, len(findings), BATCH_SIZE):
        batch = findings[first : first + BATCH_SIZE]
        flagged = _find_flagged(connection, {_name(each) for each in batch}, until_ms)
        yield from (each for each in batch if _name(each) not in flagged)


def _name(finding: Finding) -> WorkloadName:
    return finding.kind, finding.namespace, finding.name, finding.cluster


def _find_flagged(connection: Connection, names: set[WorkloadName], until_ms: int) -> set[WorkloadName]:
    changes = verdict_changes.c
    columns = [changes[name] for name in WORKLOAD]
    last = (
        select(func.max(changes.id))
        .where(tuple_(*columns).in_(sorted(names)), changes.at_ms <= until_ms)
        .group_by(*columns)
    )
    is_flagged = (changes.activity == Activity.IDLE.value) | changes.signature.in_(FLAGGED_SIGNATURES)
    rows = connection.execute(select(*columns).where(changes.id.in_(last), is_flagged))
    return {tuple(row) for row in rows}
