"""Holders that only the kubelet knows: their uid is that of the cgroups on their GPUs, unless these contradict."""

from gpusteward.agent.attribution import AttributionInput, attribute_processes
from gpusteward.agent.holders import MEMORY_SECONDS, HolderUids
from gpusteward.agent.kubernetes.pods import Pod
from gpusteward.agent.processes import CgroupIdentity, ProcessIdentity
from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import GpuAllocation, GpuProcess, Place, Share

OWN, FOREIGN = "6eab3b7b-f0a6-4bb8-bff2-d5bc9017c04b", "15aa6e53-b09a-40c7-8558-c6c31e36c88a"
TRAINER, OTHER = Container("ml", "trainer-0", "", "main"), Container("ml", "other-0", "", "main")
TRAINER_WITH_UID = Container("ml", "trainer-0", OWN, "main")


def in_pod(uid: str, *outer: str) -> ProcessIdentity:
    return ProcessIdentity(
        "python", Place.CONTAINER, uid, "c" * 64, outer=tuple(CgroupIdentity(pod_uid=each) for each in outer)
    )


def held(container: Container, gpu: str = "GPU-0", share: Share = Share.EXCLUSIVE) -> GpuAllocation:
    return GpuAllocation(container, gpu, share)


class Node:
    """Processes as `(GPU, identity)`, seen over time with the same memory."""

    def __init__(self, *allocations: GpuAllocation, pods: tuple[Pod, ...] = ()) -> None:
        self._allocations = allocations
        self._pods = {pod.uid: pod for pod in pods}
        self._uids = HolderUids()
        self.holders: list[Container] = []

    def attribute(self, *running: tuple[str, ProcessIdentity], now: float = 0.0) -> list[Container | None]:
        processes = [GpuProcess(pid, gpu) for pid, (gpu, _) in enumerate(running)]
        identities = {pid: identity for pid, (_, identity) in enumerate(running)}
        known = self._uids.identify(processes, AttributionInput(identities, self._pods, self._allocations), now=now)
        self.holders = [each.container for each in known.allocations]
        return [each.container for each in attribute_processes(processes, known)]


def test_the_holder_has_the_uid_of_its_processes():
    node = Node(held(TRAINER))
    assert node.attribute(("GPU-0", in_pod(OWN)), ("GPU-0", in_pod(OWN))) == [TRAINER_WITH_UID, TRAINER_WITH_UID]
    assert node.holders == [TRAINER_WITH_UID]


def test_two_uids_on_an_exclusive_gpu_leave_both_unnamed():
    node = Node(held(TRAINER))
    named = node.attribute(("GPU-0", in_pod(OWN)), ("GPU-0", in_pod(FOREIGN)), ("GPU-0", ProcessIdentity()))
    assert named == [Container(pod_uid=OWN), Container(pod_uid=FOREIGN), None]
    assert node.holders == [TRAINER]


def test_two_uids_on_two_gpus_of_a_pod_leave_both_unnamed():
    node = Node(held(TRAINER), held(TRAINER, "GPU-1"))
    named = node.attribute(("GPU-0", in_pod(OWN)), ("GPU-1", in_pod(FOREIGN)))
    assert named == [Container(pod_uid=OWN), Container(pod_uid=FOREIGN)]


def test_one_uid_on_the_gpus_of_two_pods_is_unnamed():
    node = Node(held(TRAINER), held(OTHER, "GPU-1"))
    named = node.attribute(("GPU-0", in_pod(OWN)), ("GPU-1", in_pod(OWN)))
    assert named == [Container(pod_uid=OWN), Container(pod_uid=OWN)]


def test_a_process_of_a_pod_known_to_the_api_server_contradicts_nothing():
    node = Node(held(TRAINER), pods=(Pod("ml", "intruder", FOREIGN, containers={"c" * 64: "main"}),))
    named = node.attribute(("GPU-0", in_pod(OWN)), ("GPU-0", in_pod(FOREIGN)))
    assert named == [TRAINER_WITH_UID, Container("ml", "intruder", FOREIGN, "main")]


def test_a_uid_that_is_proven_on_one_gpu_names_the_process_on_a_shared_one():
    node = Node(held(TRAINER), held(TRAINER, "GPU-1", Share.TIME_SLICED), held(OTHER, "GPU-1", Share.TIME_SLICED))
    assert node.attribute(("GPU-0", in_pod(OWN)), ("GPU-1", in_pod(OWN))) == [TRAINER_WITH_UID, TRAINER_WITH_UID]


def test_the_holder_keeps_its_uid_when_its_processes_end():
    node = Node(held(TRAINER))
    node.attribute(("GPU-0", in_pod(OWN)), now=0)
    node.attribute(now=10 * MEMORY_SECONDS)
    assert node.holders == [TRAINER_WITH_UID]


def test_a_foreign_process_that_remains_alone_is_not_credited_to_the_holder():
    node = Node(held(TRAINER))
    node.attribute(("GPU-0", in_pod(OWN)), now=0)
    assert node.attribute(("GPU-0", in_pod(FOREIGN)), now=5) == [Container(pod_uid=FOREIGN)]


def test_a_pod_replaced_by_one_of_the_same_name_gets_the_new_uid():
    node = Node(held(TRAINER))
    node.attribute(("GPU-0", in_pod(OWN)), now=0)
    later = MEMORY_SECONDS + 1
    assert node.attribute(("GPU-0", in_pod(FOREIGN)), now=later) == [Container("ml", "trainer-0", FOREIGN, "main")]


def test_a_nested_pod_does_not_prove_the_uid_of_the_holder():
    node = Node(held(TRAINER), held(OTHER, "GPU-1"))
    nested = in_pod(OWN, FOREIGN)
    assert node.attribute(("GPU-0", nested), ("GPU-1", nested)) == [TRAINER, OTHER]
    assert node.holders == [TRAINER, OTHER]
