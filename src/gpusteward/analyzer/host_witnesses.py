"""What the pods of workloads that may be stalled do on their hosts, as columns of the usage table, before it is judged.

It costs a few queries, so it is read only of workloads that the history says have stood still for nearly long enough.
Who reads nothing and writes nothing is still; what is not measured stays unknown, and the judge then waits longer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gpusteward.analyzer.judge.allocation_columns import find_owners, read_allocation_columns
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage_source import UsageSource
from gpusteward.analyzer.tables import Rows, UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import Measure, Stat
from gpusteward.logs import Log

log = Log(__name__)

SIGNALS: Mapping[Measure, str] = {
    Measure.DISK: "disk_bytes_per_second",
    Measure.NETWORK: "network_bytes_per_second",
}
MAX_PODS = 400
"""Of one cycle: two batches of queries. Pods of further workloads are unknown in this cycle; those that have stood
still for longest come first."""


def add_host_use(table: UsageTable, history: VerdictHistory, source: UsageSource, *, rules: Rules) -> UsageTable:
    """The table with the disk and network bytes per second of each workload that may be stalled. The mean is that of
    its busiest pod, unknown unless all its pods are known; the peak is that of the busiest one that is known. A failure
    costs these columns only."""
    seconds = rules.signatures.stalled.witnessed_seconds
    workloads = _find_suspects(table, history, least_seconds=seconds)
    pods = {pod for rows in workloads for pod in _list_pods(table, rows)}
    if not pods:
        return table
    try:
        found = source.read_host_use(pods, table.at, seconds=max(seconds, table.window_seconds))
    except SourceError as error:
        log.warning("host_use_unreadable", reason=error, effect="stalled workloads are named later")
        return table
    uses = [[found.get(pod, HostUse()) for pod in _list_pods(table, rows)] for rows in workloads]
    columns = dict(table.stats)
    for measure, signal in SIGNALS.items():
        largest, known = (np.full(len(table), np.nan) for _ in range(2))
        for rows, of_pods in zip(workloads, uses, strict=True):
            values = [np.nan if (value := getattr(use, signal)) is None else value for use in of_pods]
            largest[rows], known[rows] = np.max(values), np.fmax.reduce(values)
        columns |= {(measure, Stat.MEAN): largest, (measure, Stat.PEAK): known}
    return replace(table, stats=columns)


def _find_suspects(table: UsageTable, history: VerdictHistory, *, least_seconds: float) -> list[Rows]:
    """The rows of each workload one of whose GPUs has stood still for long enough, the longest first."""
    if not np.any(table.at - history.past.frozen_since >= least_seconds):
        return []  # nearly always
    columns = read_allocation_columns(table.allocations)
    since = history.find(columns.hashes, started_at=table.started_at).frozen_since
    long = np.flatnonzero(table.at - since >= least_seconds)
    _, codes = find_owners([each.container for each in table.allocations])
    chosen, pods = list[Rows](), 0
    for code in dict.fromkeys(codes[long[np.argsort(since[long], kind="stable")]].tolist()):
        rows = np.flatnonzero(codes == code)
        pods += len(_list_pods(table, rows))
        if pods > MAX_PODS:
            break
        chosen.append(rows)
    return chosen


def _list_pods(table: UsageTable, rows: Rows) -> Sequence[PodKey]:
    held = (table.allocations[row].container for row in rows.tolist())
    return list(dict.fromkeys(PodKey(one.namespace, one.pod, one.cluster) for one in held))
