"""Builds devices from plans: which application gets which GPU, with what part of memory and power."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import Gpu, GpuAllocation, MigIdentity, Share
from gpusteward.simulate.applications import Application, ServerState
from gpusteward.simulate.devices import PIDS_PER_PLACEMENT, Instance, Placement, PlacementRequest, SimulatedGpu
from gpusteward.simulate.load_curves import DAY, Between, Chain, Constant, Lifetimes, ReducedWork
from gpusteward.simulate.loads import Load
from gpusteward.simulate.models import COMPUTE_SLICES, MIB, GpuModel
from gpusteward.simulate.seeded_random import SeededRandom
from gpusteward.simulate.workloads import MEMORY, MIXES, SLEEPING_MEMORY, ActivityMix, Draws, draw_work

DRIVER_VERSION = "570.172.08"
USABLE_MEMORY = 0.94
"""The rest stays free for contexts, fragmentation and loads started by hand."""
LOAD_MEMORY = 0.01
LOAD_MIX = ActivityMix(0.95, 0.45, 0.98, 0.45, 0.75, 0.40, 0.10, 0.0)
MPS_SERVER_BYTES = 30 * MIB
ALWAYS = Lifetimes(DAY, 0.0, DAY)


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """The placements requested on one GPU. With any MIG profile the GPU is in MIG mode."""

    requests: tuple[PlacementRequest, ...] = ()
    free_profiles: tuple[str, ...] = ()  # MIG instances that are not allocated


def assemble_devices(
    node: str, plans: Sequence[GpuPlan], *, model: GpuModel, random: SeededRandom, first_pid: int
) -> tuple[SimulatedGpu, ...]:
    """One device per plan, in order."""
    pids = iter(range(first_pid, first_pid + 4_194_304, PIDS_PER_PLACEMENT))
    return tuple(
        _assemble_device(
            _whole_gpu(node, index, model=model, random=random), plan, model=model, random=random, pids=pids
        )
        for index, plan in enumerate(plans)
    )


def with_load(device: SimulatedGpu, load: Load, *, pid: int, holder: Placement | None = None) -> SimulatedGpu:
    """The device with a load: a process of the host, or one in the container of a placement on the device.

    On a device with MIG instances it is on that of the holder, or on the first. Other work is reduced by the load.
    """
    instances = list(device.instances)
    if not instances:
        beside = _beside(device.placements, load, device=device, gpu=device.gpu, pid=pid, holder=holder)
        return replace(device, placements=beside)
    number = next((number for number, each in enumerate(instances) if holder in each.placements), 0)
    one = instances[number]
    beside = _beside(one.placements, load, device=device, gpu=one.gpu, pid=pid, holder=holder)
    instances[number] = replace(one, placements=beside)
    return replace(device, instances=tuple(instances))


def with_pod(device: SimulatedGpu, application: Application, *, pid: int) -> SimulatedGpu:
    """The device with one more pod, to which all of it is allocated."""
    placement = _place(device.gpu, PlacementRequest(application), model=device.model, pid=pid)
    return replace(device, placements=(*device.placements, placement))


def _beside(
    placements: Sequence[Placement], load: Load, *, device: SimulatedGpu, gpu: Gpu, pid: int, holder: Placement | None
) -> tuple[Placement, ...]:
    share = device.model.mig_profile(gpu.mig.profile).compute_slices / COMPUTE_SLICES if gpu.mig else 1.0
    presence = Between(load.since, load.until)
    own = Placement(
        gpu.uuid,
        presence,
        Chain(presence, Constant(load.ratio)),
        LOAD_MIX,
        memory_bytes=int((gpu.memory_total_bytes or 0) * LOAD_MEMORY),
        busy_watts=_busy_watts(device.model, LOAD_MIX) * share,
        context_watts=0.0,  # other placements may already have all of the context power
        first_pid=pid,
        process_name="gpusteward-load",
        process_count=1,
        device_share=share,
        request=holder.request if holder else None,
    )
    reduced = (replace(each, work=ReducedWork(each.work, load.ratio, load.since, load.until)) for each in placements)
    return (*reduced, own)


def _busy_watts(model: GpuModel, activity: ActivityMix) -> float:
    return activity.power * (model.power_limit_watts - model.idle_watts - model.context_watts)


def _whole_gpu(node: str, index: int, *, model: GpuModel, random: SeededRandom) -> Gpu:
    return Gpu(
        node,
        index,
        f"GPU-{random.uuid('gpu', index)}",
        model.name,
        f"00000000:{0x0B + 0x0C * index:02X}:00.0",
        index,
        model.memory_mib * MIB,
        model.power_limit_watts,
        facts={
            "driver_version": DRIVER_VERSION,
            "nvml_version": f"12.{DRIVER_VERSION}",
            "brand": model.name.removeprefix("NVIDIA ").split()[0],
            "serial": f"165{random.number('serial', index) % 10**10:010d}",
            "vbios_version": random.pick(("96.00.74.00.1A", "92.00.9E.00.10"), "vbios"),
        },
    )


def _assemble_device(
    gpu: Gpu, plan: GpuPlan, *, model: GpuModel, random: SeededRandom, pids: Iterator[int]
) -> SimulatedGpu:
    offset = random.between(0, 4, "cooling", gpu.index)
    profiles = [request.profile for request in plan.requests if request.profile] + list(plan.free_profiles)
    if profiles:
        return SimulatedGpu(gpu, model, offset, instances=_slice(gpu, plan, model=model, pids=pids))
    placements = [
        _place(gpu, request, model=model, pid=next(pids), replica=replica)
        for replica, request in enumerate(plan.requests)
    ]
    is_mps = any(request.share is Share.MPS for request in plan.requests)
    if is_mps:
        placements.append(_mps_server(gpu, next(pids)))
    return SimulatedGpu(gpu, model, offset, tuple(placements), is_mps=is_mps)


def _slice(gpu: Gpu, plan: GpuPlan, *, model: GpuModel, pids: Iterator[int]) -> tuple[Instance, ...]:
    """One instance per request, then the free ones; ids count up from the first id of each size."""
    wanted: list[tuple[str, PlacementRequest | None]] = [(request.profile, request) for request in plan.requests]
    wanted += [(name, None) for name in plan.free_profiles]
    taken: dict[int, int] = {}
    instances = []
    for name, request in wanted:
        profile = model.mig_profile(name)
        number = taken.get(profile.first_instance_id, 0)
        taken[profile.first_instance_id] = number + 1
        part = _mig_gpu(gpu, name, instance_id=profile.first_instance_id + number, memory_mib=profile.memory_mib)
        share = profile.compute_slices / COMPUTE_SLICES
        placements = (_place(part, request, model=model, pid=next(pids), device_share=share),) if request else ()
        instances.append(Instance(part, profile, placements))
    return tuple(instances)


def _mig_gpu(parent: Gpu, profile: str, *, instance_id: int, memory_mib: int) -> Gpu:
    uuid = f"MIG-{SeededRandom(instance_id).uuid(parent.uuid)}"
    return Gpu(
        parent.node,
        parent.index,
        uuid,
        parent.model,
        parent.pci_bus_id,
        parent.minor,
        memory_mib * MIB,
        mig=MigIdentity(parent.uuid, profile, instance_id, 0),
        facts=parent.facts,
    )


def _place(
    gpu: Gpu, request: PlacementRequest, *, model: GpuModel, pid: int, replica: int = 0, device_share: float = 1.0
) -> Placement:
    application = request.application
    kind, activity = application.kind, MIXES[application.kind]
    rank = application.random.child("rank", gpu.uuid, replica)
    budget = (gpu.memory_total_bytes or 0) * request.capacity
    draws = Draws(application.random, rank, application.lifetimes)
    memory = SLEEPING_MEMORY if application.server is ServerState.ASLEEP else MEMORY[kind]
    return Placement(
        gpu.uuid,
        application.lifetimes,
        application.work or draw_work(kind, draws, capacity=request.capacity),
        activity,
        memory_bytes=int(budget * USABLE_MEMORY * application.random.between(*memory, "memory")),
        busy_watts=_busy_watts(model, activity) * device_share,
        context_watts=model.context_watts * request.capacity * device_share if application.process_count else 0.0,
        first_pid=pid,
        process_name=application.program.process,
        process_count=application.process_count,
        device_share=device_share,
        seed=rank.seed,
        request=request,
        terms=_terms(gpu, request, replica=str(replica), budget_bytes=int(budget)),
    )


def _terms(gpu: Gpu, request: PlacementRequest, *, replica: str, budget_bytes: int) -> GpuAllocation:
    """Resource, replica and limits as the sharing system would report them; the container depends on the moment."""
    share = request.share
    is_replica = share in (Share.TIME_SLICED, Share.MPS)
    resource = f"nvidia.com/mig-{request.profile}" if share is Share.MIG else "nvidia.com/gpu"
    return GpuAllocation(
        Container(),
        gpu.uuid,
        share,
        "nvidia.com/gpu.shared" if is_replica else resource,
        replica if is_replica else "",
        budget_bytes if share in (Share.MPS, Share.HAMI, Share.RATIO, Share.FRACTION) else None,
        request.capacity if share in (Share.MPS, Share.HAMI) else None,
    )


def _mps_server(gpu: Gpu, pid: int) -> Placement:
    return Placement(
        gpu.uuid,
        ALWAYS,
        Constant(0.0),
        ActivityMix(),
        memory_bytes=MPS_SERVER_BYTES,
        busy_watts=0.0,
        context_watts=0.0,
        first_pid=pid,
        process_name="nvidia-cuda-mps-server",
        process_count=1,
    )
