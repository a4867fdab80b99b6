"""What pods use of their hosts, read on demand: CPU time, bytes of disks and of the network; means over some minutes.

From the counters of gpusteward's agent, which has those of pods with GPUs, and from cAdvisor (the kubelet) for what is
missing then. Traps of these counters, from the facts of their projects:

- cAdvisor has a row per container and one of the whole pod, whose container is empty: adding both would count twice.
- A target that is scraped by two jobs, or by two replicas of Prometheus, has each row twice: of rows that name the same
  thing, the largest counts.
- NFS, Lustre and RDMA are in no counter. A counter of bytes that is 0 says nothing: it may be that of a pod whose bytes
  go elsewhere. It is left out, and so its pod is unknown unless another counter of the signal has grown once.
- Pods with the network of the host have no counter of the network.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import isfinite
from typing import NamedTuple

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.analyzer.sources.promql.expressions import write_range
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers, join_labels, match_any, write_selector
from gpusteward.core import metrics
from gpusteward.core.errors import SourceError

PODS_PER_QUERY = 200
"""About 12 KB of text."""
_CPU, _DISK, _NETWORK = HostUse._fields


class _Counter(NamedTuple):
    """A metric that grows with one of the signals."""

    signal: str  # field of `HostUse`
    metric: str
    parts: tuple[str, ...] = ()  # labels: rows of one pod that differ in them are added
    matchers: Matchers = ()
    has_row_of_pod: bool = False  # beside those of its containers

    def write_sum(self, selecting: Matchers, by: str, *, seconds: float) -> str:
        """The growth by pod; `by`: the labels that name it."""
        matchers = (*selecting, *self.matchers)
        if not self.has_row_of_pod:
            return self._write_sum(matchers, by, self.parts, seconds=seconds)
        own = tuple(Matcher("container", "!=", name) for name in ("", "POD"))  # POD: its empty first container
        containers = self._write_sum((*matchers, *own), by, self.parts, seconds=seconds)
        # The empty first container may have the empty name too: it has less than its pod, so the largest is the pod's.
        parts = tuple(part for part in self.parts if part not in ("container", "id"))
        pod = self._write_sum((*matchers, Matcher("container", "=", "")), by, parts, seconds=seconds)
        return f"{containers} or {pod}"

    def _write_sum(self, matchers: Matchers, by: str, parts: Sequence[str], *, seconds: float) -> str:
        window = write_selector(self.metric, matchers) + write_range(seconds)
        growth = f"increase({window})"
        if self.signal != _CPU:
            growth += f" and max_over_time({window}) > 0"
        return f"sum by ({by}) (max by ({join_labels(by, *parts)}) ({growth}))"


OF_AGENT = (
    _Counter(_CPU, metrics.POD_CPU_SECONDS.name),
    _Counter(_DISK, metrics.POD_DISK_BYTES.name),
    _Counter(_NETWORK, metrics.POD_NETWORK_BYTES.name),
)
_OF_CONTAINER = ("container", "id")  # one that was started again has another id
_OF_DISK, _OF_INTERFACE = (*_OF_CONTAINER, "device"), ("interface",)
_NOT_LOOPBACK = (Matcher("interface", "!=", "lo"),)
OF_CADVISOR = (
    # Older versions have a row for each `cpu`.
    _Counter(_CPU, "container_cpu_usage_seconds_total", (*_OF_CONTAINER, "cpu"), has_row_of_pod=True),
    _Counter(_DISK, "container_fs_reads_bytes_total", _OF_DISK, has_row_of_pod=True),
    _Counter(_DISK, "container_fs_writes_bytes_total", _OF_DISK, has_row_of_pod=True),
    _Counter(_NETWORK, "container_network_receive_bytes_total", _OF_INTERFACE, _NOT_LOOPBACK),
    _Counter(_NETWORK, "container_network_transmit_bytes_total", _OF_INTERFACE, _NOT_LOOPBACK),
)


class _PodLabels(NamedTuple):
    """The labels that name the pod of a series; those of the cluster may be several."""

    namespace: str
    pod: str
    clusters: tuple[str, ...] = ()

    def select(self, pods: Collection[PodKey]) -> Matchers:
        return (
            match_any(self.namespace, sorted({pod.namespace for pod in pods})),
            match_any(self.pod, sorted({pod.name for pod in pods})),
        )


def read_host_use(
    engine: Engine, schemes: Iterable[DetectedScheme], pods: Collection[PodKey], *, at: float, seconds: float
) -> dict[PodKey, HostUse]:
    """What is known of these pods; pods of which nothing is known are left out. Raises SourceError."""
    mappings = list(dict.fromkeys((one.scheme, group.mapping) for one in schemes for group in one.groups))
    clusters = tuple(dict.fromkeys(each.cluster for _, each in mappings if each.cluster))
    found: dict[PodKey, HostUse] = {}
    of_agent = dict.fromkeys(
        _PodLabels(each.namespace, each.pod, clusters)
        for scheme, each in mappings
        if scheme.lists_allocations and each.namespace and each.pod
    )
    for labels in of_agent:
        _add(found, _read(engine, OF_AGENT, labels, pods, at=at, seconds=seconds))
    # Where Prometheus renames labels that the target has too, the pod of a row is `exported_pod`.
    for prefix in ("", "exported_"):
        labels = _PodLabels(f"{prefix}namespace", f"{prefix}pod", clusters)
        missing = [pod for pod in pods if None in found.get(pod, HostUse())]
        _add(found, _read(engine, OF_CADVISOR, labels, missing, at=at, seconds=seconds))
    return found


def _add(found: dict[PodKey, HostUse], further: Mapping[PodKey, HostUse]) -> None:
    """What is known already stays."""
    for pod, use in further.items():
        known = found.get(pod, HostUse())
        found[pod] = HostUse(*(other if own is None else own for own, other in zip(known, use, strict=True)))


def _read(
    engine: Engine,
    counters: Sequence[_Counter],
    labels: _PodLabels,
    pods: Collection[PodKey],
    *,
    at: float,
    seconds: float,
) -> dict[PodKey, HostUse]:
    """A few queries at once. Raises SourceError."""
    ordered = sorted(pods)
    batches = [ordered[start : start + PODS_PER_QUERY] for start in range(0, len(ordered), PODS_PER_QUERY)]
    wanted = [(counter, batch) for batch in batches for counter in counters]
    if not wanted:
        return {}

    def read(one: tuple[_Counter, list[PodKey]]) -> tuple[str, dict[PodKey, float]]:
        counter, batch = one
        expression = counter.write_sum(
            labels.select(batch), join_labels(*labels[:2], *labels.clusters), seconds=seconds
        )
        return counter.signal, _sum_by_pod(engine.query_vector(expression, at).rows(), labels, batch)

    sums: defaultdict[PodKey, dict[str, float]] = defaultdict(dict)
    with ThreadPoolExecutor(engine.max_concurrent_queries, thread_name_prefix="host") as threads:
        try:
            for signal, growth in threads.map(read, wanted):
                for pod, value in growth.items():
                    sums[pod][signal] = sums[pod].get(signal, 0.0) + value / seconds
        except SourceError:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return {pod: HostUse(**known) for pod, known in sums.items()}


def _sum_by_pod(
    rows: Iterable[tuple[Mapping[str, str], float]], labels: _PodLabels, pods: Collection[PodKey]
) -> dict[PodKey, float]:
    """A row that names no cluster counts for the pods of this name in every cluster: too much is the careful side."""
    growth: dict[tuple[str, str, str], float] = {}
    for row, value in rows:
        if isfinite(value):
            cluster = next((row[label] for label in labels.clusters if row.get(label)), "")
            key = (row.get(labels.namespace, ""), row.get(labels.pod, ""), cluster)
            growth[key] = max(value, growth.get(key, 0.0))
    found: dict[PodKey, float] = {}
    for pod in pods:
        keys = [(pod.namespace, pod.name, cluster) for cluster in dict.fromkeys((pod.cluster, ""))]
        if known := [growth[key] for key in keys if key in growth]:
            found[pod] = max(known)
    return found
