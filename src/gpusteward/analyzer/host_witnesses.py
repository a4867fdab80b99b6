"""What the pods of workloads that may be stalled, or kept busy artificially, do on their hosts, as columns of the usage
table, before it is judged.

It costs a few queries, so it is read only of workloads that the history says have been like this for long enough. Who
reads nothing and writes nothing is still; what is not measured stays unknown, and the judge is more careful then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gpusteward.analyzer.judge.allocation_columns import find_owners, read_allocation_columns
from gpusteward.analyzer.judge.history import Past, VerdictHistory
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage_source import UsageSource
from gpusteward.analyzer.tables import Column, Rows, UsageTable
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
MAX_PODS_OF_A_DAY = 50
"""The same of those that may be kept busy artificially. They are read over a day: 0.3 million samples of a counter."""
Stats = Mapping[tuple[Measure, Stat], Column]


def add_host_use(table: UsageTable, history: VerdictHistory, source: UsageSource, *, rules: Rules) -> UsageTable:
    """The table with the disk and network bytes per second of each workload that may be stalled or may hold a level.
    The mean is that of its busiest pod, unknown unless all its pods are known; the peak is that of the busiest one that
    is known. A failure costs these columns only."""
    held, frozen = rules.signatures.keep_alive, rules.signatures.stalled.witnessed_seconds
    known, past = dict(table.stats), history.past
    # A workload that stands still overwrites what was read of it for the other question.
    if np.any(table.at - past.constant_since >= held.constant_seconds):
        since = _find_past(table, history).constant_since
        workloads = _choose(table, since, least_seconds=held.constant_seconds, most_pods=MAX_PODS_OF_A_DAY)
        known |= _read(known, table, workloads, source, seconds=held.host_seconds)
    if np.any(table.at - past.frozen_since >= frozen):
        workloads = _choose(table, _find_past(table, history).frozen_since, least_seconds=frozen, most_pods=MAX_PODS)
        known |= _read(known, table, workloads, source, seconds=max(frozen, table.window_seconds))
    return replace(table, stats=known) if len(known) > len(table.stats) else table


def _read(
    known: Stats, table: UsageTable, workloads: Sequence[Rows], source: UsageSource, *, seconds: float
) -> dict[tuple[Measure, Stat], Column]:
    """The columns, with those of these workloads; none where they cannot be read."""
    pods = {pod for rows in workloads for pod in _list_pods(table, rows)}
    if not pods:
        return {}
    try:
        found = source.read_host_use(pods, table.at, seconds=seconds)
    except SourceError as error:
        log.warning("host_use_unreadable", reason=error, effect="nobody is accused without it, or later")
        return {}
    uses = [[found.get(pod, HostUse()) for pod in _list_pods(table, rows)] for rows in workloads]
    for rows, of_pods in zip(workloads, uses, strict=True):
        if any(table.allocations[row].used_by for row in rows.tolist()):
            of_pods.append(HostUse())  # the pod that works on the GPU of its pair holds none: nobody measures it
    columns = {}
    for measure, signal in SIGNALS.items():
        for stat, choose in ((Stat.MEAN, np.max), (Stat.PEAK, np.fmax.reduce)):
            column = known.get((measure, stat), np.full(len(table), np.nan)).copy()
            for rows, of_pods in zip(workloads, uses, strict=True):
                values = [np.nan if (value := getattr(use, signal)) is None else value for use in of_pods]
                column[rows] = choose(np.array(values))
            columns[measure, stat] = column
    return columns


def _find_past(table: UsageTable, history: VerdictHistory) -> Past:
    return history.find(read_allocation_columns(table.allocations).hashes, started_at=table.started_at)


def _choose(table: UsageTable, since: Column, *, least_seconds: float, most_pods: int) -> list[Rows]:
    """The rows of each workload one of whose GPUs is like this for long enough, the longest first."""
    long = np.flatnonzero(table.at - since >= least_seconds)
    _, codes = find_owners([each.container for each in table.allocations])
    chosen, pods = list[Rows](), 0
    for code in dict.fromkeys(codes[long[np.argsort(since[long], kind="stable")]].tolist()):
        rows = np.flatnonzero(codes == code)
        size = len(_list_pods(table, rows))
        if pods + size <= most_pods:  # one that is too large keeps nobody else from being read
            pods += size
            chosen.append(rows)
    return chosen


def _list_pods(table: UsageTable, rows: Rows) -> Sequence[PodKey]:
    held = (table.allocations[row].container for row in rows.tolist())
    return list(dict.fromkeys(PodKey(one.namespace, one.pod, one.cluster) for one in held))
