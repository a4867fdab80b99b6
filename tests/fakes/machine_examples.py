"""Nodes that differ in how their GPUs are lent out and in what is wrong with them."""

from collections.abc import Callable

from tests.fakes import nvml_scenarios as nvml
from tests.fakes.machines import Machine, Tenant


def exclusive() -> Machine:
    """Eight A100: six trained on by one job, one held and never touched, one nobody's with a process of the host."""
    world = nvml.a100x8()
    uuids = [gpu.uuid for gpu in world.gpus]
    world.gpus[6].rest()
    return Machine(
        world,
        [
            Tenant("bert-worker-0", uuids[:6], list(range(1000, 1006)), owner=("PyTorchJob", "bert")),
            Tenant("notebook-0", uuids[6:7], owner=("StatefulSet", "notebook"), labels={"notebook-name": "notebook"}),
        ],
        host_pids=[1007],
    )


def time_sliced() -> Machine:
    """One A100 in four slices: two busy pods, one silent, and a process outside any claim."""
    world = nvml.time_sliced()
    uuid = world.gpus[0].uuid
    shared = "nvidia.com/gpu.shared"
    return Machine(
        world,
        [
            Tenant("api-7d9f8b6c5d-x2x4k", [f"{uuid}::0"], [2000, 2001], resource=shared,
                   owner=("ReplicaSet", "api-7d9f8b6c5d"), labels={"pod-template-hash": "7d9f8b6c5d"}),
            Tenant("batch-x", [f"{uuid}::1", f"{uuid}::2"], [2002, 2003], resource=shared, owner=("Job", "batch")),
            Tenant("silent-0", [f"{uuid}::3"], resource=shared),
            Tenant("intruder", [], [2004]),
        ],
        host_pids=[2005],
    )  # fmt: skip


def mps() -> Machine:
    """Two A100 under MPS; three clients on the first."""
    world = nvml.mps()
    uuid = world.gpus[0].uuid
    clients = [Tenant(f"client-{i}", [f"{uuid}::{i}"], [3001 + i]) for i in range(3)]
    return Machine(world, clients, host_pids=[3000, 3100])


def mig() -> Machine:
    """An H100 in three instances, two of them held, beside a whole H100."""
    world = nvml.mig()
    instances = [instance.uuid for instance in world.gpus[0].instances]
    return Machine(
        world,
        [
            Tenant("infer-0", [instances[0]], [5000], resource="nvidia.com/mig-3g.40gb"),
            Tenant("infer-1", [instances[1]], [5001], resource="nvidia.com/mig-1g.10gb"),
        ],
    )


def h100() -> Machine:
    """Two H100 with profiling."""
    world = nvml.h100_gpm()
    return Machine(world, [Tenant(f"llm-{i}", [gpu.uuid], [6000 + i]) for i, gpu in enumerate(world.gpus)])


def blackwell() -> Machine:
    """A B200 whose older per-process call is empty, shared by three pods."""
    world = nvml.blackwell_legacy_empty()
    return Machine(world, [Tenant(f"b-{i}", [f"{world.gpus[0].uuid}::{i}"], [7000 + i]) for i in range(3)])


def lost_gpu() -> Machine:
    """Eight A100, the third has fallen off the bus."""
    machine = exclusive()
    machine.world.gpus[2].lose()
    return machine


def not_supported() -> Machine:
    """GPUs that tell who they are and nothing else."""
    return Machine(nvml.not_supported())


def no_driver() -> Machine:
    """The library is there, the driver is not."""
    return Machine(nvml.no_driver())


def hami() -> Machine:
    """One A100 lent out by HAMi: the annotation says to whom and how much, whatever the kubelet's ids are."""
    world = nvml.time_sliced()
    uuid = world.gpus[0].uuid
    return Machine(
        world,
        [
            Tenant(f"vgpu-{i}", [f"{uuid}-{i}"], [2000 + i],
                   annotations={"hami.io/vgpu-devices-allocated": f"{uuid},NVIDIA,{memory},{cores}:;"})
            for i, (memory, cores) in enumerate(((10240, 30), (20480, 50)))
        ],
        host_pids=[2002, 2003, 2004, 2005],
    )  # fmt: skip


def fractions() -> Machine:
    """One A100 lent out in fractions by KAI: the kubelet names the reservation, the group label the real pods."""
    world = nvml.time_sliced()
    group = {"runai-gpu-group": "group-1"}
    return Machine(
        world,
        [
            Tenant(
                "gpu-reservation-node-a-x", [world.gpus[0].uuid], namespace="kai-resource-reservation", labels=group
            ),
            Tenant("half-0", [], [2000, 2001], labels=group, annotations={"gpu-fraction": "0.5"}),
            Tenant("quarter-0", [], [2002, 2003], labels=group, annotations={"gpu-fraction": "0.25"}),
        ],
        host_pids=[2004, 2005],
    )


PARK: dict[str, Callable[[], Machine]] = {
    each.__name__: each
    for each in (exclusive, time_sliced, mps, mig, h100, blackwell, lost_gpu, not_supported, no_driver, hami, fractions)
}
