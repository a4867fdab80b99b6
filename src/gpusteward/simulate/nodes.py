"""A simulated node: its state at any moment as a `Snapshot`, and the ground truth of its workloads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy

from gpusteward.core.errors import ConfigurationError
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.node.gpus import GpuAllocation, GpuProcess, GpuReading
from gpusteward.core.node.snapshots import PodHostUse, Snapshot
from gpusteward.simulate.applications import Application
from gpusteward.simulate.assembly import GpuPlan, assemble_devices, with_load, with_pod
from gpusteward.simulate.devices import PIDS_PER_PLACEMENT, Occupant, Placement, SimulatedGpu
from gpusteward.simulate.ground_truth import Ownership, Truth, TruthKey, allocation_key
from gpusteward.simulate.load_curves import DAY, Lifetimes
from gpusteward.simulate.loads import Load
from gpusteward.simulate.models import GpuModel
from gpusteward.simulate.readings import read_device
from gpusteward.simulate.seeded_random import SeededRandom
from gpusteward.simulate.workloads import HOST_MIXES, IDLE_HOST_MIX, START_DISK_BYTES, HostMix

MOST_GPUS = 16
FIRST_PID = 2_048
LOAD_PIDS = 112 * PIDS_PER_PLACEMENT
"""Pid offset of loads: after the placements of 16 GPUs with 7 instances each."""
PIDS_PER_NODE = 16_384
HOST_USE_SECONDS = 30.0
"""How often the agent reads CPU, disk and network of pods."""
BOOT_PERIOD = 97 * DAY
"""How often the driver is loaded again, which resets the energy counter."""


class SimulatedNode:
    """A node with 1 to 16 GPUs of one model. Its state depends only on the constructor arguments and the moment."""

    def __init__(
        self, name: str, plans: Sequence[GpuPlan], *, model: GpuModel, seed: int, first_pid: int = FIRST_PID
    ) -> None:
        if not 1 <= len(plans) <= MOST_GPUS:
            raise ConfigurationError(f"simulated node {name!r} has {len(plans)} GPUs; plan 1 to {MOST_GPUS}")
        random = SeededRandom(seed).child("node", name)
        self.name = name
        self.model = model
        self._boots = Lifetimes(BOOT_PERIOD, float(round(random.between(0, BOOT_PERIOD, "boot"))), BOOT_PERIOD)
        self._next_load_pid = first_pid + LOAD_PIDS
        self.devices = assemble_devices(name, plans, model=model, random=random, first_pid=first_pid)

    def snapshot(self, at: float) -> Snapshot:
        """The state of the node at any moment, in any order."""
        readings: list[GpuReading] = []
        processes: list[GpuProcess] = []
        allocations: list[GpuAllocation] = []
        in_pods: list[tuple[Placement, Occupant]] = []
        booted_at = self.booted_at(at)
        for device in self.devices:
            samples = [placement.sample(at) for placement in device.all_placements()]
            energy = device.energy_joules(at, booted_at=booted_at, samples=samples)
            readings += read_device(device, samples, energy_joules=energy)
            for sample in samples:
                if sample.is_present:
                    occupant = sample.placement.occupant(at)
                    processes += sample.placement.processes(sample, occupant, has_utilization=not device.instances)
                    if occupant.allocation is not None:
                        allocations.append(occupant.allocation)
                    if occupant.container is not None:
                        in_pods.append((sample.placement, occupant))
        host_use = _sum_host_use(in_pods, at - at % HOST_USE_SECONDS)
        return Snapshot(
            self.name, at, tuple(readings), tuple(processes), tuple(allocations), pod_host_use=tuple(host_use)
        )

    def truths(self, at: float) -> Mapping[TruthKey, Truth]:
        """The ground truth of every allocation in the snapshot of that moment."""
        return {allocation_key(each.allocation): each.truth(at) for each in self.ownerships(at)}

    def ownerships(self, at: float) -> list[Ownership]:
        """All allocations at a moment. Cheaper than a snapshot: no signals are computed."""
        return [
            Ownership(gpu, self.model, placement, allocation)
            for device in self.devices
            for gpu, placements in device.hardware()
            for placement in placements
            if placement.request and placement.presence.is_on(at) and (allocation := placement.occupant(at).allocation)
        ]

    @property
    def gpu_count(self) -> int:
        return len(self.devices)

    def booted_at(self, at: float) -> float:
        """When the driver was last loaded; the energy counter starts there."""
        return self._boots.starts_at(self._boots.generation(at))

    def with_load(self, load: Load) -> "SimulatedNode":
        """The same node with a load on one GPU.

        Raises ConfigurationError if it has no such GPU.
        """
        if not 0 <= load.gpu_index < len(self.devices):
            raise ConfigurationError(
                f"simulated load on GPU {load.gpu_index}: node {self.name!r} has GPUs 0 to {len(self.devices) - 1}"
            )
        return self._replace_device(
            load.gpu_index, with_load(self.devices[load.gpu_index], load, pid=self._next_load_pid)
        )

    def with_load_in(self, workload: Workload, *, ratio: float, since: float, until: float) -> "SimulatedNode":
        """The same node with a load in every container of the workload, on each of its GPUs."""
        node = self
        for index, device in enumerate(self.devices):
            for holder in device.all_placements():
                held = holder.occupant(since).allocation if holder.presence.is_on(since) else None
                if held and held.container.workload == workload:
                    load = Load(index, ratio, since, until)
                    loaded = with_load(node.devices[index], load, pid=node._next_load_pid, holder=holder)
                    node = node._replace_device(index, loaded)
        return node

    def with_pods_of(self, workload: Workload, *, is_running: Callable[[int], bool], at: float) -> "SimulatedNode":
        """The same node where exactly those pods of the workload run from then on that `is_running` says by ordinal.

        A pod that starts waits until a whole GPU that another pod got meanwhile is free again.
        """
        node = self
        for index, device in enumerate(self.devices):
            changed = device.with_pods_of(workload, is_running=is_running, at=at)
            if changed is not device:
                node = node._replace_device(index, changed)
        return node

    def with_pod(self, gpu_index: int, application: Application) -> "SimulatedNode":
        """The same node with one more pod on a GPU."""
        return self._replace_device(gpu_index, with_pod(self.devices[gpu_index], application, pid=self._next_load_pid))

    def _replace_device(self, index: int, device: SimulatedGpu) -> "SimulatedNode":
        node = copy(self)
        node.devices = (*self.devices[:index], device, *self.devices[index + 1 :])
        node._next_load_pid = self._next_load_pid + 1
        return node


def _sum_host_use(in_pods: Iterable[tuple[Placement, Occupant]], at: float) -> Iterator[PodHostUse]:
    """What each pod has used of the node until then: little by itself, and more for the work on each of its GPUs."""
    mixes: dict[Container, list[tuple[float, HostMix]]] = {}
    for placement, occupant in in_pods:
        container, request = occupant.container, placement.request
        if container and request and container.started_at is not None and container.started_at <= at:
            parts = mixes.setdefault(container, [(at - container.started_at, IDLE_HOST_MIX)])
            work = placement.work(at) - occupant.work_before
            mix = HOST_MIXES.get(request.application.kind, IDLE_HOST_MIX)
            # What the server of a pair takes is not that of the pod that holds the GPU.
            parts.append((0.0 if occupant.server else work, mix))
    for container, parts in mixes.items():
        yield PodHostUse(
            Container(container.namespace, container.pod, container.pod_uid),
            cpu_seconds=round(sum(seconds * mix.cpu_seconds for seconds, mix in parts), 2),
            disk_bytes=int(START_DISK_BYTES + sum(seconds * mix.disk_bytes for seconds, mix in parts)),
            network_bytes=int(sum(seconds * mix.network_bytes for seconds, mix in parts)),
        )
