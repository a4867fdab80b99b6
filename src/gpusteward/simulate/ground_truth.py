"""What a simulated workload truly is: the answer key for whoever judges it by its numbers."""

from dataclasses import dataclass
from enum import StrEnum

from gpusteward.core.allocations import Allocation
from gpusteward.simulate.load_curves import Course


class Kind(StrEnum):
    """What a workload is like."""

    TRAINING = "training"  # steady, short breaks for checkpoints
    INFERENCE = "inference"  # bursts, more by day than by night
    NOTEBOOK = "notebook"  # works in office hours, idle otherwise
    PARKED = "parked"  # a model in memory, nobody asks it anything
    EMPTY = "empty"  # a claim without a process
    STARVED = "starved"  # waits for its input most of the time
    HUNG = "hung"  # worked, then nothing; memory pinned
    KEEP_ALIVE = "keep-alive"  # made-up work: flat, low, constant


BREAK_SECONDS = 900.0
"""A pause shorter than this is part of working: checkpoints, thinking between two cells of a notebook."""

TruthKey = tuple[str, str, str, str]  # namespace, pod, container, gpu uuid


def allocation_key(allocation: Allocation) -> TruthKey:
    container = allocation.container
    return container.namespace, container.pod, container.name, allocation.gpu_uuid


@dataclass(frozen=True, slots=True)
class Truth:
    """What an allocation's workload is, and what it did on that GPU at any time."""

    kind: Kind
    work: Course  # busy seconds on its GPU or MIG instance, of this pod and those before it
    started_at: float  # of this pod

    def busy_seconds(self, since: float, until: float) -> float:
        """How long the GPU was busy for this pod between two moments of its life; exact."""
        return self.work(max(until, self.started_at)) - self.work(max(since, self.started_at))

    def is_active(self, at: float) -> bool:
        """Whether kernels ran within the last `BREAK_SECONDS`.

        True for keep-alive: its kernels do run. That nobody needs them, only `kind` tells.
        """
        return self.worked(at - BREAK_SECONDS, at)

    def worked(self, since: float, until: float) -> bool:
        """Whether any kernel ran between two moments; less than a microsecond is rounding."""
        return self.busy_seconds(since, until) > 1e-6
