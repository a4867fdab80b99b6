"""Who holds what at a moment, and what came of it over any time: history without measuring it."""

from dataclasses import dataclass

from gpusteward.core.allocations import Allocation
from gpusteward.core.gpus import Gpu
from gpusteward.simulate.ground_truth import Truth
from gpusteward.simulate.models import GpuModel
from gpusteward.simulate.placements import Seat


@dataclass(frozen=True, slots=True)
class Tenancy:
    """One claim on one GPU or MIG instance."""

    gpu: Gpu
    model: GpuModel
    seat: Seat
    allocation: Allocation

    @property
    def held_bytes(self) -> int:
        """Memory while it is there; nothing without a process."""
        return self.seat.memory_bytes if self.seat.process_count else 0

    def truth(self, at: float) -> Truth:
        """What it truly is at a moment of its time."""
        assert self.seat.booking is not None
        application = self.seat.booking.application
        return Truth(application.kind, self.seat.work, application.turns.starts_at(application.turns.turn(at)))

    def draw_watts(self, busy: float) -> float:
        """What a whole device with nobody else on it draws while it is busy for that share of the time."""
        return self.model.idle_watts + self.seat.context_watts + self.seat.busy_watts * busy
