"""`UsageSource`: what the cycle asks, whoever answers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpusteward.analyzer.sources.pod_processes import Pod, Running
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.usages import AllocationKey, Measure

Points = Sequence[tuple[float, float]]  # unix seconds, value in base units


@dataclass(frozen=True, slots=True)
class Chart:
    """The course of one allocation, for a person to look at."""

    allocation: AllocationKey
    lines: Mapping[Measure, Points] = field(default_factory=dict)


class UsageSource(Protocol):
    """Gives the usage of the cluster over a window that ends at a moment."""

    def read(self, at: float) -> UsageTable:
        """Every allocation over the window before `at`. Raises SourceError only when nothing at all could be read."""

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        """The course of one allocation before `at`, in a bounded number of points. Raises SourceError."""

    def read_processes(self, pods: Collection[Pod], at: float) -> Running:
        """What these pods run around `at`, as far as anybody tells. Raises SourceError."""

    def describe(self) -> Mapping[str, Any]:
        """What was found there, as plain data."""

    def close(self) -> None:
        """Let go of connections; a read under way ends with SourceError."""
