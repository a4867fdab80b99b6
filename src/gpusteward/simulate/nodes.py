"""A node that does not exist: its GPUs at any moment as a `Snapshot`, and the truth about them."""

from collections.abc import Mapping, Sequence
from copy import copy

from gpusteward.core.allocations import Allocation
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.gpus import GpuProcess, GpuReading
from gpusteward.core.snapshots import Snapshot
from gpusteward.simulate.assembly import GpuPlan, assemble_devices, with_load
from gpusteward.simulate.devices import PIDS_PER_SEAT
from gpusteward.simulate.ground_truth import Tenancy, Truth, TruthKey, allocation_key
from gpusteward.simulate.load_curves import DAY, Turns
from gpusteward.simulate.loads import Load
from gpusteward.simulate.models import GpuModel
from gpusteward.simulate.noise import Chance
from gpusteward.simulate.readings import read_device

MOST_GPUS = 16
FIRST_PID = 2_048
LOAD_PIDS = 112 * PIDS_PER_SEAT
"""Loads count from here: past the seats of 16 GPUs with 7 instances each."""
PIDS_PER_NODE = 16_384
BOOT_PERIOD = 97 * DAY
"""How often the driver is loaded anew, whereupon energy counts from 0 again."""


class SimulatedNode:
    """A node with 1 to 16 GPUs of one model. Everything it says is a function of its making and the moment."""

    def __init__(
        self, name: str, plans: Sequence[GpuPlan], *, model: GpuModel, seed: int, first_pid: int = FIRST_PID
    ) -> None:
        if not 1 <= len(plans) <= MOST_GPUS:
            raise ConfigurationError(f"simulated node {name!r} has {len(plans)} GPUs; plan 1 to {MOST_GPUS}")
        chance = Chance(seed).child("node", name)
        self.name = name
        self.model = model
        self._boots = Turns(BOOT_PERIOD, float(round(chance.between(0, BOOT_PERIOD, "boot"))), BOOT_PERIOD)
        self._next_load_pid = first_pid + LOAD_PIDS
        self._devices = assemble_devices(name, plans, model=model, chance=chance, first_pid=first_pid)

    def snapshot(self, at: float) -> Snapshot:
        """The node at a moment, any moment, in any order."""
        readings: list[GpuReading] = []
        processes: list[GpuProcess] = []
        allocations: list[Allocation] = []
        booted_at = self.booted_at(at)
        for device in self._devices:
            samples = [seat.sample(at) for seat in device.all_seats()]
            energy = device.energy_joules(at, booted_at=booted_at, samples=samples)
            readings += read_device(device, samples, energy_joules=energy)
            for sample in samples:
                if sample.is_present:
                    guest = sample.seat.guest(at)
                    processes += sample.seat.processes(sample, guest, has_utilization=not device.instances)
                    if guest.allocation is not None:
                        allocations.append(guest.allocation)
        return Snapshot(self.name, at, tuple(readings), tuple(processes), tuple(allocations))

    def truths(self, at: float) -> Mapping[TruthKey, Truth]:
        """What every allocation of the snapshot at that moment truly is."""
        return {allocation_key(each.allocation): each.truth(at) for each in self.tenancies(at)}

    def tenancies(self, at: float) -> list[Tenancy]:
        """Everybody who holds something at a moment. Cheaper than a snapshot: nothing is measured."""
        return [
            Tenancy(gpu, self.model, seat, allocation)
            for device in self._devices
            for gpu, seats in device.places()
            for seat in seats
            if seat.booking and seat.presence.is_on(at) and (allocation := seat.guest(at).allocation)
        ]

    @property
    def gpu_count(self) -> int:
        return len(self._devices)

    def booted_at(self, at: float) -> float:
        """When the driver was last loaded: energy counts from there."""
        return self._boots.starts_at(self._boots.turn(at))

    def with_load(self, load: Load) -> "SimulatedNode":
        """The same node with a load on one GPU.

        Raises ConfigurationError if it has no such GPU.
        """
        if not 0 <= load.gpu_index < len(self._devices):
            raise ConfigurationError(
                f"simulated load on GPU {load.gpu_index}: node {self.name!r} has GPUs 0 to {len(self._devices) - 1}"
            )
        node = copy(self)
        devices = list(self._devices)
        devices[load.gpu_index] = with_load(devices[load.gpu_index], load, pid=self._next_load_pid)
        node._devices = tuple(devices)
        node._next_load_pid = self._next_load_pid + 1
        return node
