"""What a simulated workload truly is: the answer key for whoever judges it by its numbers."""

from dataclasses import dataclass

from gpusteward.core.allocations import Allocation
from gpusteward.core.gpus import Gpu
from gpusteward.simulate.devices import Placement
from gpusteward.simulate.load_curves import LoadCurve
from gpusteward.simulate.models import GpuModel
from gpusteward.simulate.workloads import Kind

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
    work: LoadCurve  # busy seconds on its GPU or MIG instance, of this pod and those before it
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


@dataclass(frozen=True, slots=True)
class Ownership:
    """One claim on one GPU or MIG instance."""

    gpu: Gpu
    model: GpuModel
    placement: Placement
    allocation: Allocation

    @property
    def held_bytes(self) -> int:
        """Memory while it is there; nothing without a process."""
        return self.placement.memory_bytes if self.placement.process_count else 0

    def truth(self, at: float) -> Truth:
        """What it truly is at a moment of its time."""
        assert self.placement.request is not None
        application = self.placement.request.application
        return Truth(
            application.kind, self.placement.work, application.lifetimes.starts_at(application.lifetimes.generation(at))
        )

    def draw_watts(self, busy: float) -> float:
        """What a whole device with nobody else on it draws while it is busy for that share of the time."""
        return self.model.idle_watts + self.placement.context_watts + self.placement.busy_watts * busy
