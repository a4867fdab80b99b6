"""When the ledger last has GPUs, and which: after a restart, a site or a node without them is told from one that never
had any."""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from gpusteward.analyzer.ledger.database.periods import DAY_MS, HOUR_MS
from gpusteward.analyzer.ledger.database.schema import allocations, fleet_daily, fleet_hourly, time_column, usage_hourly
from gpusteward.analyzer.ledger.database.schema_version import has_tables


class LastGpus(NamedTuple):
    """The GPUs of the last moment at which there were any."""

    at: float  # unix seconds
    gpus: int
    clusters: frozenset[str] = frozenset()  # names; empty: not known


class ClusterNode(NamedTuple):
    """A node name is unique within its cluster only."""

    cluster: str
    node: str


class NodeGpus(NamedTuple):
    """The most GPUs that a node has had, and when it had so many last."""

    gpus: int
    at: float  # unix seconds


def read_node_gpus(connection: Connection, since_ms: int, now_ms: int) -> Mapping[ClusterNode, NodeGpus]:
    """Of each node since then."""
    if not has_tables(connection):
        return {}  # a new file
    table = fleet_hourly.c
    gpus = func.sum(table.gpu_ms * 1.0 / table.known_ms)
    of_hours = (
        select(table.cluster, table.node, table.hour_ms, gpus.label("gpus"))
        .where(table.hour_ms >= since_ms - HOUR_MS, table.known_ms > 0)
        .group_by(table.cluster, table.node, table.hour_ms)
        .order_by(table.hour_ms)
    )
    found: dict[ClusterNode, NodeGpus] = {}
    for row in connection.execute(of_hours):
        node, count = ClusterNode(row.cluster, row.node), round(row.gpus)
        if count >= found.get(node, NodeGpus(1, 0.0)).gpus:
            found[node] = NodeGpus(count, min(row.hour_ms + HOUR_MS, now_ms) / 1000)
    return found


def read_last_gpus(connection: Connection, now_ms: int) -> LastGpus | None:
    """Of the last recorded hour or day with GPUs, counted or held; None: there never were any."""
    if not has_tables(connection):
        return None  # a new file
    for table, length in ((fleet_hourly, HOUR_MS), (fleet_daily, DAY_MS)):
        time = time_column(table)
        latest = connection.execute(select(func.max(time)).where(table.c.gpu_ms > 0)).scalar()
        if latest is not None:
            rows = connection.execute(
                select(table.c.cluster, table.c.gpu_ms, table.c.known_ms).where(time == latest, table.c.gpu_ms > 0)
            ).all()
            gpus = sum(row.gpu_ms / row.known_ms for row in rows)
            return _make(latest + length, now_ms, gpus, {row.cluster for row in rows})
    latest = connection.execute(select(func.max(usage_hourly.c.hour_ms))).scalar()
    if latest is None:
        return None
    held = connection.execute(
        select(allocations.c.cluster, allocations.c.gpu_uuid)
        .distinct()
        .join(usage_hourly, usage_hourly.c.allocation_id == allocations.c.id)
        .where(usage_hourly.c.hour_ms == latest)
    ).all()
    return _make(latest + HOUR_MS, now_ms, len(held), {row.cluster for row in held})


def _make(end_ms: int, now_ms: int, gpus: float, clusters: set[str]) -> LastGpus:
    """The hour that has begun ends now."""
    return LastGpus(min(end_ms, now_ms) / 1000, max(1, round(gpus)), frozenset(clusters - {""}))
