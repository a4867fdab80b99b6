"""What clients read from the source: only of the namespaces that they see. May take long: never on the event loop."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gpusteward.analyzer.sources.live_readings import PodProcesses, ReportedGpu
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage_source import Chart, UsageSource
from gpusteward.core.namespaces import VisibleNamespaces
from gpusteward.core.usages import AllocationKey


class SourceReader:
    """`visible`: whose namespaces the client sees; None: all. The `read_` methods raise SourceError."""

    def __init__(self, source: UsageSource) -> None:
        self._source = source

    @property
    def request_counts(self) -> Mapping[str, int]:
        """Queries since the start by result: ok or failed."""
        return self._source.request_counts

    @property
    def target_counts(self) -> Mapping[str, int]:
        """Targets of the embedded source by the state of their last scrape: up, down; empty for an engine."""
        return self._source.target_counts

    def describe(self) -> Mapping[str, Any]:
        """Cannot be divided by namespace: it has failed queries."""
        return self._source.describe()

    def read_series(
        self, allocation: AllocationKey, at: float, *, seconds: float, visible: VisibleNamespaces | None
    ) -> Chart:
        if visible is not None and not visible.includes(allocation.cluster, allocation.container.namespace):
            return Chart(allocation, {})
        return self._source.read_series(allocation, at, seconds=seconds)

    def read_processes(self, pods: Collection[PodKey], at: float, *, visible: VisibleNamespaces | None) -> PodProcesses:
        if visible is None:
            return self._source.read_processes(pods, at)
        found = self._source.read_processes([pod for pod in pods if visible.includes(pod.cluster, pod.namespace)], at)
        return PodProcesses(
            [each for each in found.processes if visible.includes(each.pod.cluster, each.pod.namespace)],
            frozenset(pod for pod in found.reported if visible.includes(pod.cluster, pod.namespace)),
        )

    def read_gpus(
        self, node: str, cluster: str, at: float, *, held: Collection[AllocationKey] | None
    ) -> Sequence[ReportedGpu]:
        """`held`: the allocations that the client sees, None: all. It sees the GPUs of which one of them is a part, and
        of MIG instances those that one of them is."""
        found = self._source.read_gpus(node, cluster, at)
        if held is None:
            return found
        own = [one for one in held if (one.node, one.cluster) == (node, cluster)]
        seen = {(one.gpu_index, instance) for one in own for instance in ("", one.gpu_instance)}
        return [each for each in found if (each.index, each.instance) in seen]
