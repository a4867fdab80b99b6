"""A simulated GPU: its seats, its MIG instances, its energy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpusteward.core.gpus import Gpu
from gpusteward.simulate.models import GpuModel, MigProfile
from gpusteward.simulate.placements import Sample, Seat


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """A MIG instance of a device, with the one seat it may have."""

    gpu: Gpu
    profile: MigProfile
    seats: tuple[Seat, ...] = ()


@dataclass(slots=True, eq=False)
class Device:
    """A whole GPU. Seats are on itself, or, where it is sliced, on its instances."""

    gpu: Gpu
    model: GpuModel
    offset_celsius: float  # every slot of a chassis is cooled a little differently
    seats: tuple[Seat, ...] = ()
    instances: tuple[Instance, ...] = ()
    is_mps: bool = False
    _booted_at: float | None = field(default=None, init=False, repr=False)
    _joules_at_boot: float = field(default=0.0, init=False, repr=False)

    def all_seats(self) -> Iterator[Seat]:
        yield from self.seats
        for instance in self.instances:
            yield from instance.seats

    def places(self) -> Iterator[tuple[Gpu, tuple[Seat, ...]]]:
        """What can be held, with its seats: the device itself, or its instances."""
        yield self.gpu, self.seats
        for instance in self.instances:
            yield instance.gpu, instance.seats

    def energy_joules(self, at: float, *, booted_at: float, samples: Sequence[Sample]) -> float:
        """Since the driver was loaded: idle power for all of the time, and what the seats drew above it."""
        if booted_at != self._booted_at:
            self._booted_at = booted_at
            self._joules_at_boot = sum(seat.joules(booted_at) for seat in self.all_seats())
        above = sum(sample.joules for sample in samples) - self._joules_at_boot
        return self.model.idle_watts * (at - booted_at) + above
