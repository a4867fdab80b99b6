"""Fake nodes with different GPU sharing and different faults."""

from collections.abc import Callable

from gpusteward.agent.kubernetes.pods import PAIR_GPUS_ANNOTATION
from gpusteward.kubernetes.owners import PAIR_LABEL
from tests.fakes import nvml_scenarios as nvml
from tests.fakes.machines import Machine, NodePod


def exclusive() -> Machine:
    """Eight A100: six used by a training job, one allocated and unused, one unallocated with a process of the host."""
    scenario = nvml.a100x8()
    uuids = [gpu.uuid for gpu in scenario.gpus]
    scenario.gpus[6].rest()
    return Machine(
        scenario,
        [
            NodePod("bert-worker-0", uuids[:6], list(range(1000, 1006)), owner=("PyTorchJob", "bert")),
            NodePod("notebook-0", uuids[6:7], owner=("StatefulSet", "notebook"), labels={"notebook-name": "notebook"}),
        ],
        host_pids=[1007],
    )


def time_sliced() -> Machine:
    """One A100 in four slices: two busy pods, one without processes, and a process without a claim."""
    scenario = nvml.time_sliced()
    uuid = scenario.gpus[0].uuid
    shared = "nvidia.com/gpu.shared"
    return Machine(
        scenario,
        [
            NodePod("api-7d9f8b6c5d-x2x4k", [f"{uuid}::0"], [2000, 2001], resource=shared,
                   owner=("ReplicaSet", "api-7d9f8b6c5d"), labels={"pod-template-hash": "7d9f8b6c5d"}),
            NodePod("batch-x", [f"{uuid}::1", f"{uuid}::2"], [2002, 2003], resource=shared, owner=("Job", "batch")),
            NodePod("silent-0", [f"{uuid}::3"], resource=shared),
            NodePod("intruder", [], [2004]),
        ],
        host_pids=[2005],
    )  # fmt: skip


def mps() -> Machine:
    """Two A100 under MPS; three clients on the first."""
    scenario = nvml.mps()
    uuid = scenario.gpus[0].uuid
    clients = [NodePod(f"client-{i}", [f"{uuid}::{i}"], [3001 + i]) for i in range(3)]
    return Machine(scenario, clients, host_pids=[3000, 3100])


def mig() -> Machine:
    """An H100 in three instances, two of them held, beside a whole H100."""
    scenario = nvml.mig()
    instances = [instance.uuid for instance in scenario.gpus[0].instances]
    return Machine(
        scenario,
        [
            NodePod("infer-0", [instances[0]], [5000], resource="nvidia.com/mig-3g.40gb"),
            NodePod("infer-1", [instances[1]], [5001], resource="nvidia.com/mig-1g.10gb"),
        ],
    )


def h100() -> Machine:
    """Two H100 with profiling."""
    scenario = nvml.h100_gpm()
    return Machine(scenario, [NodePod(f"llm-{i}", [gpu.uuid], [6000 + i]) for i, gpu in enumerate(scenario.gpus)])


def dual_pods() -> Machine:
    """Two H100, each held by one pod of llm-d for another one: a server that works, and one that is asleep."""
    scenario = nvml.h100_gpm()
    servers = {"launcher-0": [6000], "launcher-1": []}
    pods = []
    for number, (gpu, (server, pids)) in enumerate(zip(scenario.gpus, servers.items(), strict=True)):
        holder, both = f"requester-{number}", {PAIR_GPUS_ANNOTATION: gpu.uuid}
        pods.append(NodePod(holder, [gpu.uuid], labels={PAIR_LABEL: server}, annotations=both))
        pods.append(NodePod(server, pids=pids, labels={PAIR_LABEL: holder}, annotations=both))
    scenario.gpus[1].rest()
    return Machine(scenario, pods)


def blackwell() -> Machine:
    """A B200 whose older per-process call is empty, shared by three pods."""
    scenario = nvml.blackwell_legacy_empty()
    return Machine(scenario, [NodePod(f"b-{i}", [f"{scenario.gpus[0].uuid}::{i}"], [7000 + i]) for i in range(3)])


def unified_memory() -> Machine:
    """A DGX Spark in two slices: one pod works, one holds a loaded model; the host draws the desktop."""
    scenario = nvml.unified_memory()
    uuid = scenario.gpus[0].uuid
    pods = [NodePod("llm-0", [f"{uuid}::0"], [8000]), NodePod("notebook-0", [f"{uuid}::1"], [8001])]
    return Machine(scenario, pods, host_pids=[8002])


def lost_gpu() -> Machine:
    """Eight A100, the third has fallen off the bus."""
    machine = exclusive()
    machine.scenario.gpus[2].lose()
    return machine


def not_supported() -> Machine:
    """GPUs that report only their identity."""
    return Machine(nvml.not_supported())


def no_driver() -> Machine:
    """The library is installed, the driver is not loaded."""
    return Machine(nvml.no_driver())


def hami() -> Machine:
    """One A100 shared by HAMi: the annotation has the grants, independent of the kubelet's device ids."""
    scenario = nvml.time_sliced()
    uuid = scenario.gpus[0].uuid
    return Machine(
        scenario,
        [
            NodePod(f"vgpu-{i}", [f"{uuid}-{i}"], [2000 + i],
                   annotations={"hami.io/vgpu-devices-allocated": f"{uuid},NVIDIA,{memory},{cores}:;"})
            for i, (memory, cores) in enumerate(((10240, 30), (20480, 50)))
        ],
        host_pids=[2002, 2003, 2004, 2005],
    )  # fmt: skip


def fractions() -> Machine:
    """One A100 shared in fractions by KAI: the kubelet lists the reservation, the group label shows the real pods."""
    scenario = nvml.time_sliced()
    group = {"runai-gpu-group": "group-1"}
    return Machine(
        scenario,
        [
            NodePod(
                "gpu-reservation-node-a-x", [scenario.gpus[0].uuid], namespace="kai-resource-reservation", labels=group
            ),
            NodePod("half-0", [], [2000, 2001], labels=group, annotations={"gpu-fraction": "0.5"}),
            NodePod("quarter-0", [], [2002, 2003], labels=group, annotations={"gpu-fraction": "0.25"}),
        ],
        host_pids=[2004, 2005],
    )


MACHINES: dict[str, Callable[[], Machine]] = {
    each.__name__: each
    for each in (
        *(
            exclusive,
            time_sliced,
            mps,
            mig,
            h100,
            dual_pods,
            blackwell,
            unified_memory,
            lost_gpu,
            not_supported,
            no_driver,
        ),
        *(hami, fractions),
    )
}
