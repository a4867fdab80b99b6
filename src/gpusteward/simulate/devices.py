"""Simulated GPUs and MIG instances, and the placements of applications and host processes on them."""

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.node.gpus import Gpu, GpuAllocation, GpuProcess, Place, Share
from gpusteward.simulate.applications import Application, ApplicationPod
from gpusteward.simulate.load_curves import Between, Interrupted, Lifetimes, LoadCurve, Presence, ReducedWork
from gpusteward.simulate.models import GpuModel, InstanceProfile
from gpusteward.simulate.seeded_random import hash_to_unit
from gpusteward.simulate.workloads import VARYING_MEMORY, ActivityMix

SAMPLE_SECONDS = 1.0
"""Window of the driver's last utilization and power sample."""
WINDOW_SECONDS = 5.0
"""Window of means and process utilizations: the agent's default interval, as the time of the last read is unknown."""
HEAT_SECONDS = 90.0
"""Temperature follows the mean power of this window."""
MEMORY_STEP_SECONDS = 600.0
MEMORY_VARIATION_RATIO = 0.015

GENERATIONS_WITH_OWN_PIDS = 16
PIDS_PER_GENERATION = 8
PIDS_PER_PLACEMENT = GENERATIONS_WITH_OWN_PIDS * PIDS_PER_GENERATION


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A requested placement of an application on a GPU."""

    application: Application
    ordinal: int = 0  # which pod of the application
    share: Share = Share.EXCLUSIVE
    capacity: float = 1.0  # of the GPU's compute and memory; they add up to at most 1
    profile: str = ""  # MIG


@dataclass(frozen=True, slots=True)
class Occupant:
    """The pod in one generation; without a container, a process of the host."""

    first_pid: int
    allocation: GpuAllocation | None = None
    container: Container | None = None
    container_id: str = ""
    pod_uid: str = ""
    place: Place = Place.HOST
    work_before: float = 0.0  # of the load curve, when the pod started
    server: ApplicationPod | None = None  # the other pod of its pair, in which the processes are


@dataclass(slots=True)
class Sample:
    """Activity of a placement at a moment. Ratios are of the device or MIG instance, unrounded."""

    placement: "Placement"
    is_present: bool
    last: float  # busy ratio of the driver's sample
    mean: float  # busy ratio of the window
    watts: float  # above idle, of the driver's sample
    heat_watts: float  # above idle, mean over `HEAT_SECONDS`
    joules: float  # above idle, since the epoch
    memory_bytes: int


@dataclass(slots=True, eq=False)
class Placement:
    """The placement of an application on one GPU, over all generations of its pod."""

    gpu_uuid: str
    presence: Presence
    work: LoadCurve
    activity: ActivityMix
    memory_bytes: int
    busy_watts: float  # above idle, per unit of work
    context_watts: float  # above idle, while occupied
    first_pid: int
    process_name: str
    process_count: int
    device_share: float = 1.0  # share of the device's compute; less on a MIG instance
    seed: int = 0
    request: PlacementRequest | None = None
    terms: GpuAllocation | None = None  # without its container; None: another placement has the allocation of this one
    interrupted: "Placement | None" = None  # itself before it was interrupted; None: it is not
    _generation: int | None = field(default=None, init=False, repr=False)
    _occupant: Occupant | None = field(default=None, init=False, repr=False)

    def sample(self, at: float) -> Sample:
        """Exact differences of the load curves, so rates agree with the counters between any two moments."""
        work, presence = self.work, self.presence
        busy, here = work(at), presence(at)
        last = busy - work(at - SAMPLE_SECONDS)
        heated = self.context_watts * (here - presence(at - HEAT_SECONDS)) + self.busy_watts * (
            busy - work(at - HEAT_SECONDS)
        )
        is_present = presence.is_on(at)
        return Sample(
            self,
            is_present,
            last,
            (busy - work(at - WINDOW_SECONDS)) / WINDOW_SECONDS,
            self.context_watts * (here - presence(at - SAMPLE_SECONDS)) + self.busy_watts * last,
            heated / HEAT_SECONDS,
            self.context_watts * here + self.busy_watts * busy,
            self._held_bytes(at) if is_present and self.process_count else 0,
        )

    def interrupt(self, since: float) -> "Placement":
        """The same placement, free from that moment on."""
        work = ReducedWork(self.work, 1.0, since, math.inf)
        return replace(self, presence=Interrupted(self.presence, since), work=work, interrupted=self)

    def resume(self, at: float) -> "Placement":
        """The same placement, occupied again from that moment on by a new pod of its application."""
        before, presence = self.interrupted, self.presence
        assert before is not None
        assert before.request is not None
        assert isinstance(presence, Interrupted)
        return replace(
            before,
            presence=replace(presence, until=at),
            work=ReducedWork(before.work, 1.0, presence.since, at),
            request=replace(before.request, application=before.request.application.restart(at)),
        )

    def joules(self, at: float) -> float:
        """Energy above idle since the epoch."""
        return self.context_watts * self.presence(at) + self.busy_watts * self.work(at)

    def occupant(self, at: float) -> Occupant:
        """The pod at that moment; only the last generation is cached."""
        generation = self.request.application.lifetimes.generation(at) if self.request else 0
        if self._occupant is None or generation != self._generation:
            self._generation, self._occupant = generation, self._find_occupant(generation)
        return self._occupant

    def processes(self, sample: Sample, occupant: Occupant, *, has_utilization: bool) -> Sequence[GpuProcess]:
        """The processes, with work and memory split evenly."""
        count = self.process_count
        busy = to_percent(sample.mean / count) if count and has_utilization else None
        copy = to_percent(sample.mean * self.activity.memory_copy / count) if count and has_utilization else None
        still = 0.0 if has_utilization else None
        server, container = occupant.server, occupant.container
        return [
            GpuProcess(
                occupant.first_pid + number,
                self.gpu_uuid,
                self.process_name,
                sample.memory_bytes // count,
                busy,
                copy,
                still,
                still,
                server.container_id if server else occupant.container_id,
                server.container.pod_uid if server else occupant.pod_uid,
                occupant.place,
                server.container if server else container,
                works_for=container if server else None,
            )
            for number in range(count)
        ]

    def _held_bytes(self, at: float) -> int:
        if self.request is None or self.request.application.kind not in VARYING_MEMORY:
            return self.memory_bytes
        variation = MEMORY_VARIATION_RATIO * hash_to_unit(self.seed, int(at // MEMORY_STEP_SECONDS))
        return int(self.memory_bytes * (1 - variation))

    def _find_occupant(self, generation: int) -> Occupant:
        if self.request is None:
            return Occupant(self.first_pid)
        application, ordinal = self.request.application, self.request.ordinal
        pod, server = application.pod(generation, ordinal), application.server_pod(generation, ordinal)
        container, used_by = pod.container, server.container.pod if server else ""
        allocation = replace(self.terms, container=container, used_by=used_by) if self.terms else None
        pid = self.first_pid + generation % GENERATIONS_WITH_OWN_PIDS * PIDS_PER_GENERATION
        before = self.work(container.started_at) if container.started_at else 0.0
        uid = container.pod_uid
        return Occupant(pid, allocation, container, pod.container_id, uid, Place.CONTAINER, before, server)


def to_percent(ratio: float) -> float:
    """Rounded like NVML's utilizations: whole percent, 0 to 100."""
    return max(0.0, min(round(ratio, 2), 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """A MIG instance of a device, with at most one placement."""

    gpu: Gpu
    profile: InstanceProfile
    placements: tuple[Placement, ...] = ()


def _end_of(presence: Presence, at: float) -> float:
    """When a presence that is on ends."""
    if isinstance(presence, Lifetimes):
        return presence.starts_at(presence.generation(at)) + presence.duration
    return presence.until if isinstance(presence, Between) else at


@dataclass(slots=True, eq=False)
class SimulatedGpu:
    """A whole GPU. Placements are on the GPU itself or on its MIG instances."""

    gpu: Gpu
    model: GpuModel
    offset_celsius: float  # every slot of a chassis is cooled a little differently
    placements: tuple[Placement, ...] = ()
    instances: tuple[Instance, ...] = ()
    is_mps: bool = False
    _booted_at: float | None = field(default=None, init=False, repr=False)
    _joules_at_boot: float = field(default=0.0, init=False, repr=False)

    def is_free(self, since: float, until: float) -> bool:
        """Whether the whole GPU is without a pod and a process all that time."""
        return not self.instances and not any(
            each.presence.is_on(since) or each.presence(until) > each.presence(since) for each in self.placements
        )

    def with_pods_of(self, workload: Workload, *, is_running: Callable[[int], bool], at: float) -> "SimulatedGpu":
        """The device with exactly those pods of the workload that `is_running` says by ordinal; itself if it has no
        other ones now."""

        def change(placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
            return tuple(self._start_or_stop(each, workload, is_running, at) for each in placements)

        instances = tuple(replace(each, placements=change(each.placements)) for each in self.instances)
        changed = replace(self, placements=change(self.placements), instances=instances)
        is_same = all(map(operator.is_, self.all_placements(), changed.all_placements()))
        return self if is_same else changed

    def _start_or_stop(
        self, placement: Placement, workload: Workload, is_running: Callable[[int], bool], at: float
    ) -> Placement:
        request = placement.request
        if request is None or request.application.workload(request.application.lifetimes.generation(at)) != workload:
            return placement
        is_stopped = placement.interrupted is not None
        if is_running(request.ordinal) is not is_stopped:
            return placement
        return placement.resume(self._free_from(placement, at)) if is_stopped else placement.interrupt(at)

    def _free_from(self, placement: Placement, at: float) -> float:
        """When no other pod has the whole GPU."""
        if placement.request is None or placement.request.share is not Share.EXCLUSIVE:
            return at
        others = [each for each in self.placements if each is not placement and each.terms and each.presence.is_on(at)]
        return max((_end_of(each.presence, at) for each in others), default=at)

    def all_placements(self) -> Iterator[Placement]:
        yield from self.placements
        for instance in self.instances:
            yield from instance.placements

    def hardware(self) -> Iterator[tuple[Gpu, tuple[Placement, ...]]]:
        """The device and its instances with their placements."""
        yield self.gpu, self.placements
        for instance in self.instances:
            yield instance.gpu, instance.placements

    def energy_joules(self, at: float, *, booted_at: float, samples: Sequence[Sample]) -> float:
        """Energy since the driver was loaded: idle power plus the power of the placements."""
        if booted_at != self._booted_at:
            self._booted_at = booted_at
            self._joules_at_boot = sum(placement.joules(booted_at) for placement in self.all_placements())
        above = sum(sample.joules for sample in samples) - self._joules_at_boot
        return self.model.idle_watts * (at - booted_at) + above
