"""Attribution of processes: the most trusted source wins, and no process is flagged without proof."""

from dataclasses import replace

import pytest

from gpusteward.agent.attribution import AttributionInput, attribute_processes, join_pairs
from gpusteward.agent.kubernetes.pods import PAIR_GPUS_ANNOTATION, Pod
from gpusteward.agent.processes import ProcessIdentity, parse_cgroup
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.node.gpus import GpuAllocation, GpuProcess, Place, Share
from gpusteward.kubernetes.owners import PAIR_LABEL

GPU = "GPU-0"
UID = "6eab3b7b-f0a6-4bb8-bff2-d5bc9017c04b"
CID = "5ebf11e02dbde102cda4b76bc0e3849a65f9edac7a12bdabfd34db01b9556101"
TRAINER = Container("ml", "trainer-0", UID, "main")
POD = Pod("ml", "trainer-0", UID, containers={CID: "main"}, workload=Workload("Job", "ml", "trainer"))
IN_POD = ProcessIdentity("python", Place.CONTAINER, UID, CID)
GONE = ProcessIdentity()


VICTIM_UID = "15aa6e53-b09a-40c7-8558-c6c31e36c88a"
VICTIM_CID = "e58cfbc8b67f6e1af458efdd31cb2a8abdbf9f95db64f4c852b701285a09d40e"
VICTIM = Pod("ml", "victim-0", VICTIM_UID, containers={VICTIM_CID: "main"})


def in_cgroup(path: str) -> ProcessIdentity:
    cgroup = parse_cgroup(f"0::{path}\n")
    return ProcessIdentity("python", Place.CONTAINER, cgroup.pod_uid, cgroup.container_id, outer=cgroup.outer)


def attributed(identity: ProcessIdentity, *, pods=(), allocations=(), known: bool = True) -> GpuProcess:
    by_uid = {pod.uid: pod for pod in pods}
    joined = join_pairs(allocations, by_uid)
    known_data = AttributionInput({7: identity}, by_uid, joined, allocations_known=known)
    (process,) = attribute_processes([GpuProcess(7, GPU, memory_bytes=5, sm_ratio=0.5)], known_data)
    assert (process.pid, process.memory_bytes, process.sm_ratio) == (7, 5, 0.5)
    return process


def held(container: Container, share: Share = Share.EXCLUSIVE) -> GpuAllocation:
    return GpuAllocation(container, GPU, share)


def test_a_process_is_attributed_by_its_cgroup_and_the_pods_of_the_node():
    process = attributed(IN_POD, pods=[POD], allocations=[held(TRAINER)])
    assert (process.place, process.container, process.name) == (Place.CONTAINER, TRAINER, "python")
    assert not process.outside_allocation


def test_a_process_on_a_gpu_its_pod_does_not_hold_is_flagged():
    other = Container("ml", "other-0", "uid-o", "main")
    process = attributed(IN_POD, pods=[POD], allocations=[held(other)])
    assert process.container == TRAINER
    assert process.outside_allocation


def paired(pod: Pod, other: str, gpus: str = f"GPU-9, {GPU}") -> Pod:
    return replace(pod, labels={PAIR_LABEL: other}, annotations={PAIR_GPUS_ANNOTATION: gpus} if gpus else {})


def assert_never_joined(*pods: Pod, holder: Pod = VICTIM):
    """Nobody uses the GPU in place of its holder, and the process of the trainer is that of a pod without the GPU."""
    held_by = held(Container(holder.namespace, holder.name, holder.uid, "main"))
    assert join_pairs([held_by], {pod.uid: pod for pod in pods}) == (held_by,)
    process = attributed(IN_POD, pods=pods, allocations=[held_by])
    assert (process.works_for, process.outside_allocation) == (None, True)


def test_a_process_works_for_the_holder_that_its_pod_is_a_pair_with():
    holder = Container("ml", "victim-0", VICTIM_UID, "main")
    pair = [paired(POD, "victim-0"), paired(VICTIM, "trainer-0", GPU)]
    process = attributed(IN_POD, pods=pair, allocations=[held(holder)])
    assert (process.container, process.works_for, process.outside_allocation) == (TRAINER, holder, False)


def test_the_holder_of_a_pair_is_used_by_the_other_pod_also_without_a_process():
    holder, other = held(Container("ml", "victim-0", VICTIM_UID, "main")), replace(held(TRAINER), gpu_uuid="GPU-7")
    pair = [paired(POD, "victim-0"), paired(VICTIM, "trainer-0", GPU)]
    joined = join_pairs([holder, other], {pod.uid: pod for pod in pair})
    assert joined == (replace(holder, used_by="trainer-0"), other)


def test_never_joins_pods_that_both_hold_the_gpu():
    both = [held(Container("ml", "victim-0", VICTIM_UID, "main"), Share.MPS), held(TRAINER, Share.MPS)]
    pair = [paired(POD, "victim-0"), paired(VICTIM, "trainer-0")]
    assert join_pairs(both, {pod.uid: pod for pod in pair}) == tuple(both)


def test_never_joins_a_holder_with_a_pod_that_has_ended():
    assert_never_joined(replace(paired(POD, "victim-0"), phase="Succeeded"), paired(VICTIM, "trainer-0"))


def test_never_joins_pods_of_which_one_names_nobody():
    assert_never_joined(paired(POD, "victim-0"), replace(paired(VICTIM, "x"), labels={}))
    assert_never_joined(replace(paired(POD, "x"), labels={}), paired(VICTIM, "trainer-0"))


def test_never_joins_a_pod_with_a_holder_that_names_a_third_pod():
    assert_never_joined(paired(POD, "victim-0"), paired(VICTIM, "server-0"))
    pods = [paired(POD, "victim-0"), paired(VICTIM, "server-0"), paired(Pod("ml", "server-0", "uid-s"), "victim-0")]
    holder = held(Container("ml", "victim-0", VICTIM_UID, "main"))
    assert [each.used_by for each in join_pairs([holder], {pod.uid: pod for pod in pods})] == ["server-0"]
    process = attributed(IN_POD, pods=pods, allocations=[holder])
    assert (process.works_for, process.outside_allocation) == (None, True)


@pytest.mark.parametrize("gpus", ["", "GPU-9", GPU + "0", GPU.lower(), f"{GPU} GPU-9", ", ,", "GPU-9," * 128 + GPU])
def test_never_joins_pods_of_which_only_one_names_the_gpu(gpus: str):
    assert_never_joined(paired(POD, "victim-0", gpus), paired(VICTIM, "trainer-0"))
    assert_never_joined(paired(POD, "victim-0"), paired(VICTIM, "trainer-0", gpus))


def test_never_joins_pods_on_a_gpu_that_neither_names():
    assert_never_joined(paired(POD, "victim-0", "GPU-9"), paired(VICTIM, "trainer-0", "GPU-9"))
    assert_never_joined(paired(POD, "victim-0", ""), paired(VICTIM, "trainer-0", ""))


def test_never_joins_pods_of_two_namespaces():
    holder = replace(paired(VICTIM, "trainer-0"), namespace="web")
    assert_never_joined(paired(POD, "victim-0"), holder, holder=holder)


def test_never_joins_a_pair_on_a_gpu_that_a_third_pod_holds():
    pair = [paired(POD, "victim-0"), paired(VICTIM, "trainer-0")]
    assert_never_joined(*pair, holder=Pod("web", "stranger-0", "uid-s"))
    assert_never_joined(*pair, holder=Pod("ml", "stranger-0", "uid-s"))


def test_never_joins_a_pod_with_itself():
    assert join_pairs([held(TRAINER)], {UID: paired(POD, "trainer-0")}) == (held(TRAINER),)


def test_no_process_is_flagged_while_allocations_are_unknown():
    assert not attributed(IN_POD, pods=[POD], known=False).outside_allocation


def test_a_sidecar_of_a_pod_that_holds_the_gpu_is_not_flagged():
    pod = Pod("ml", "trainer-0", UID, containers={CID: "sidecar"})
    process = attributed(IN_POD, pods=[pod], allocations=[held(TRAINER)])
    assert process.container == Container("ml", "trainer-0", UID, "sidecar")
    assert not process.outside_allocation


def test_without_the_api_server_a_process_is_attributed_to_the_only_holder():
    holder = Container("ml", "trainer-0", "", "main")
    assert attributed(IN_POD, allocations=[held(holder)]).container == holder


def test_a_process_is_not_attributed_to_a_holder_with_another_uid():
    holder = Container("ml", "other-0", "another-uid", "main")
    assert attributed(IN_POD, allocations=[held(holder)]).container == Container(pod_uid=UID)


def test_without_hostpid_a_process_is_attributed_to_the_only_holder():
    assert attributed(GONE, allocations=[held(TRAINER)]).container == TRAINER


def test_without_hostpid_processes_on_a_shared_gpu_are_unattributed():
    process = attributed(GONE, allocations=[held(TRAINER, Share.TIME_SLICED)])
    assert (process.place, process.container) == (Place.UNKNOWN, None)


def test_a_pod_known_by_its_cgroup_alone_keeps_its_uid():
    process = attributed(IN_POD)
    assert process.container == Container(pod_uid=UID)
    assert not process.outside_allocation


def test_a_host_process_is_not_attributed_to_the_holder():
    process = attributed(ProcessIdentity("Xorg", Place.HOST), allocations=[held(TRAINER)])
    assert (process.place, process.container) == (Place.HOST, None)


def test_a_container_outside_kubernetes_is_known_by_its_short_id():
    process = attributed(ProcessIdentity("python", Place.CONTAINER, "", CID))
    assert process.container == Container(name=CID[:12])


def test_a_container_the_api_server_does_not_list_yet_is_the_pods_only_claim():
    pod = Pod("ml", "trainer-0", UID, containers={})
    assert attributed(IN_POD, pods=[pod], allocations=[held(TRAINER)]).container == TRAINER


def test_a_process_of_a_pod_with_an_unresolved_device_is_not_flagged():
    known_data = AttributionInput({7: IN_POD}, {UID: POD}, (), unplaced=frozenset({("ml", "trainer-0")}))
    (process,) = attribute_processes([GpuProcess(7, GPU)], known_data)
    assert not process.outside_allocation


def test_without_a_pod_uid_in_the_cgroup_the_container_id_identifies_the_pod():
    process = attributed(ProcessIdentity("python", Place.CONTAINER, "", CID), pods=[POD], allocations=[held(TRAINER)])
    assert (process.container, process.outside_allocation) == (TRAINER, False)


def test_the_mps_server_of_the_device_plugin_is_not_flagged():
    pod = Pod("kube-system", "mps-daemon", UID, containers={CID: "main"})
    server = ProcessIdentity("/usr/bin/nvidia-cuda-mps-server", Place.CONTAINER, UID, CID)
    assert not attributed(server, pods=[pod], allocations=[held(TRAINER, Share.MPS)]).outside_allocation


NESTED = (
    f"/kubepods/burstable/pod{UID}/{CID}/kubepods/burstable/pod{VICTIM_UID}/{VICTIM_CID}",
    f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{CID}.scope/kubelet.slice"
    f"/kubelet-kubepods-pod{VICTIM_UID.replace('-', '_')}.slice/cri-containerd-{VICTIM_CID}.scope",
    f"/../../pod{UID}/{CID}/pod{VICTIM_UID}/{VICTIM_CID}",
    f"/kubepods/burstable/pod{UID}/{CID}/kubepods-pod{VICTIM_UID}.slice:cri-containerd:{VICTIM_CID}",
    f"/kubepods/burstable/pod{UID}/{CID}/{VICTIM_CID}",
    f"/kubepods/burstable/pod{UID}/{CID}/pod{'9' * 32}/{VICTIM_CID}/pod{VICTIM_UID}",
)


@pytest.mark.parametrize("path", NESTED)
def test_a_cgroup_named_after_another_pod_does_not_bill_that_pod(path: str):
    process = attributed(in_cgroup(path), pods=[VICTIM, POD], allocations=[held(TRAINER)])
    assert (process.container, process.pod_uid, process.container_id) == (TRAINER, UID, CID)


@pytest.mark.parametrize("path", NESTED)
def test_a_nested_cgroup_on_the_gpu_of_the_pod_it_names_is_flagged_as_its_own_pod(path: str):
    process = attributed(in_cgroup(path), pods=[VICTIM, POD], allocations=[held(VICTIM.container("main"))])
    assert (process.container, process.outside_allocation) == (TRAINER, True)


@pytest.mark.parametrize("path", NESTED)
def test_while_the_pods_are_unknown_the_outermost_pod_counts(path: str):
    assert attributed(in_cgroup(path)).container == Container(pod_uid=UID)


@pytest.mark.parametrize(
    "around",
    [f"/docker/{'a' * 64}/kubelet", f"/kubepods/pod{VICTIM_UID}/{VICTIM_CID}/docker/{'a' * 64}/kubelet",
     f"/kubepods/pod{'8' * 32}/{'b' * 64}"],
)  # fmt: skip
def test_a_node_inside_a_container_knows_its_own_pods(around: str):
    identity = in_cgroup(f"{around}/kubepods/burstable/pod{UID}/{CID}")
    assert attributed(identity, pods=[POD], allocations=[held(TRAINER)]).container == TRAINER


def test_without_cgroups_per_pod_the_outermost_container_of_a_pod_counts():
    identity = in_cgroup(f"/system.slice/cri-containerd-{CID}.scope/{VICTIM_CID}")
    assert attributed(identity, pods=[VICTIM, POD], allocations=[held(TRAINER)]).container == TRAINER
