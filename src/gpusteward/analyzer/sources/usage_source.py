"""`UsageSource`: where a cycle reads usage from, whether an engine or scraped exporters."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpusteward.analyzer.sources.live_readings import HostUse, PodProcesses, ReportedGpu
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.tables import ServerPod, UsageTable
from gpusteward.core.usages import AllocationKey, Measure

Points = Sequence[tuple[float, float]]  # unix seconds, value in base units


@dataclass(frozen=True, slots=True)
class Chart:
    """The measures of one allocation over time."""

    allocation: AllocationKey
    lines: Mapping[Measure, Points] = field(default_factory=dict)


class UsageSource(Protocol):
    """Provides the usage of the cluster over a window."""

    def read(self, at: float) -> UsageTable:
        """Every allocation over the window before `at`. Raises SourceError only when nothing at all could be read."""

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        """The chart of one allocation before `at`, with a bounded number of points. Raises SourceError."""

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> Sequence[Chart]:
        """Everything about each of these allocations that can prove work in the last seconds before `at`: the samples
        with their own times, as they were scraped; counters as what they grew by. Read together, in a number of
        queries that does not depend on the metrics. Raises SourceError."""

    def read_processes(self, pods: Collection[PodKey], at: float) -> PodProcesses:
        """The processes of these pods around `at`, as far as they are reported. Raises SourceError."""

    def read_host_use(self, pods: Collection[PodKey], at: float, *, seconds: float) -> Mapping[PodKey, HostUse]:
        """What these pods, with GPUs or without, used of their hosts on average in the last seconds before `at`. A pod
        of which nothing is known may be absent. In a fixed number of queries for each batch of pods. Raises
        SourceError."""

    def read_gpus(self, node: str, cluster: str, at: float) -> Sequence[ReportedGpu]:
        """The GPUs of a node around `at`, held or not, as far as they are reported. Raises SourceError."""

    def read_servers(self, at: float, *, seconds: float) -> Sequence[ServerPod]:
        """What inference servers say of their requests in the last seconds before `at`; what cannot be read proves
        nothing. Raises SourceError."""

    def describe(self) -> Mapping[str, Any]:
        """What was found there, as plain data."""

    def close(self) -> None:
        """Close connections; a read in progress ends with SourceError."""

    @property
    def request_counts(self) -> Mapping[str, int]:
        """Requests since the start by result: ok or failed."""

    @property
    def target_counts(self) -> Mapping[str, int]:
        """Targets by the state of their last scrape: up, down; empty for an engine, which scrapes by itself."""
