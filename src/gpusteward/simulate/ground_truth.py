"""Ground truth of simulated workloads: what they really did, to check verdicts against."""

from dataclasses import dataclass

from gpusteward.core.node.gpus import Gpu, GpuAllocation
from gpusteward.simulate.devices import Placement
from gpusteward.simulate.load_curves import LoadCurve
from gpusteward.simulate.models import GpuModel
from gpusteward.simulate.workloads import Kind

BREAK_SECONDS = 900.0
"""A shorter pause counts as activity: checkpoints, time between two cells of a notebook."""

TruthKey = tuple[str, str, str, str]  # namespace, pod, container, gpu uuid


def allocation_key(allocation: GpuAllocation) -> TruthKey:
    container = allocation.container
    return container.namespace, container.pod, container.name, allocation.gpu_uuid


@dataclass(frozen=True, slots=True)
class Truth:
    """The kind of an allocation's workload, and its activity on that GPU at any time."""

    kind: Kind
    work: LoadCurve  # busy seconds on its GPU or MIG instance, of this pod and those before it
    started_at: float  # of this pod

    def busy_seconds(self, since: float, until: float) -> float:
        """Exact busy time of the GPU for this pod between two moments."""
        return self.work(max(until, self.started_at)) - self.work(max(since, self.started_at))

    def is_active(self, at: float) -> bool:
        """Whether kernels ran within the last `BREAK_SECONDS`.

        True for keep-alive: its kernels do run; only `kind` shows that they are useless.
        """
        return self.worked(at - BREAK_SECONDS, at)

    def worked(self, since: float, until: float) -> bool:
        """Whether any kernel ran between two moments; less than a microsecond is a rounding error."""
        return self.busy_seconds(since, until) > 1e-6


@dataclass(frozen=True, slots=True)
class Ownership:
    """An allocation at one moment, with the placement behind it."""

    gpu: Gpu
    model: GpuModel
    placement: Placement
    allocation: GpuAllocation

    @property
    def kind(self) -> Kind:
        assert self.placement.request is not None
        return self.placement.request.application.kind

    @property
    def held_bytes(self) -> int:
        """Memory held while the pod runs; 0 without a process."""
        return self.placement.memory_bytes if self.placement.process_count else 0

    def truth(self, at: float) -> Truth:
        """The ground truth at that moment."""
        assert self.placement.request is not None
        application = self.placement.request.application
        return Truth(
            application.kind, self.placement.work, application.lifetimes.starts_at(application.lifetimes.generation(at))
        )

    def draw_watts(self, busy: float) -> float:
        """Power of a whole device with only this placement, busy for that share of the time."""
        return self.model.idle_watts + self.placement.context_watts + self.placement.busy_watts * busy
