"""GPUs of init containers, which the kubelet does not list: held while they run and as long as the pod exists."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpusteward.agent.kubernetes.pods import ContainerSpec, find_init_devices
from gpusteward.core.node.gpus import Share
from gpusteward.core.node.snapshots import Snapshot
from tests.agent.test_node_source import Node, running_node
from tests.fakes.apiserver import Json
from tests.fakes.machine_examples import exclusive, time_sliced
from tests.fakes.machines import Machine, NodePod, write_process
from tests.fakes.nvml_library import FakeNvml
from tests.waiting import wait_until

INIT_ID = "1" * 64
GPU = "nvidia.com/gpu"


def requests(name: str, devices: int, *, resource: str = GPU, **more: Any) -> Json:
    resources = {"limits": {resource: str(devices), "cpu": "500m", "memory": "1Gi"}} if devices else {}
    return {"name": name, "resources": resources, **more}


def pod_json(pod: NodePod, *, init: Json, main: int, is_initializing: bool) -> Json:
    item = pod.as_json()
    item["spec"] |= {"initContainers": [init], "containers": [requests("main", main)]}
    state = {"running": {}} if is_initializing else {"terminated": {"exitCode": 0}}
    item["status"]["initContainerStatuses"] = [
        {"name": init["name"], "containerID": f"containerd://{INIT_ID}", "state": state}
    ]
    if is_initializing:
        item["status"] |= {"phase": "Pending", "containerStatuses": [{"name": "main", "state": {"waiting": {}}}]}
    return item


@contextmanager
def initializing(machine: Machine, folder: Path, *pids: int, init: Json, main: int = 1) -> Iterator[Node]:
    """A node whose last pod is running its init container, which has these processes."""
    pod = machine.pods[-1]
    with running_node(machine, folder) as node:
        node.running.api.modify_pod(pod_json(pod, init=init, main=main, is_initializing=True))
        for pid in pids:
            cgroup = f"/kubepods/burstable/pod{pod.uid}/{INIT_ID}"
            write_process(node.running.proc, pid, cgroup=cgroup, argv0="/bin/prepare")
        watch = node.pods
        assert watch is not None
        wait_until(lambda: pod.uid in watch.pods and INIT_ID in watch.pods[pod.uid].containers)
        yield node


def finish_init(node: Node, pod: NodePod, *, init: Json, main: int = 1) -> None:
    watch = node.pods
    assert watch is not None
    node.running.api.modify_pod(pod_json(pod, init=init, main=main, is_initializing=False))
    wait_until(lambda: bool(watch.pods[pod.uid].finished_init_containers))


def held_by(snapshot: Snapshot, pod: str) -> list[tuple[str, str, Share]]:
    return [
        (each.gpu_uuid, each.container.name, each.share) for each in snapshot.allocations if each.container.pod == pod
    ]


def unlisted(snapshot: Snapshot) -> list[tuple[str, str, int]]:
    return [(each.container.pod, each.resource, each.count) for each in snapshot.unlisted_devices]


def flagged(snapshot: Snapshot) -> list[int]:
    return [process.pid for process in snapshot.processes if process.outside_allocation]


@pytest.fixture
def machine(fake_nvml: FakeNvml) -> Machine:
    one = exclusive()
    one.host_pids = []
    fake_nvml.load(one.scenario)
    return one


def test_an_init_container_holds_the_gpu_of_its_process_and_is_not_flagged(machine: Machine, tmp_path: Path):
    uuids = [gpu.uuid for gpu in machine.scenario.gpus]
    with initializing(machine, tmp_path, 1007, init=requests("prepare", 2)) as node:
        snapshot = node.read()
    assert held_by(snapshot, "notebook-0") == [
        (uuids[6], "main", Share.EXCLUSIVE),
        (uuids[7], "prepare", Share.EXCLUSIVE),
    ]
    (process,) = [each for each in snapshot.processes if each.pid == 1007]
    assert process.container is not None
    assert (process.container.name, flagged(snapshot), unlisted(snapshot)) == ("prepare", [], [])


def test_the_pod_keeps_that_gpu_after_its_init_container_has_ended(machine: Machine, tmp_path: Path):
    init, pod = requests("prepare", 2), machine.pods[-1]
    with initializing(machine, tmp_path, 1007, init=init) as node:
        before = held_by(node.read(), pod.pod)
        assert len(before) == 2
        finish_init(node, pod, init=init)
        assert held_by(node.read(), pod.pod) == before
        node.running.api.delete_pod(pod.pod, pod.namespace)
        watch = node.pods
        assert watch is not None
        wait_until(lambda: pod.uid not in watch.pods)
        node.running.kubelet.response = machine.claims(without=pod)
        assert held_by(node.read(), pod.pod) == []


def test_without_a_process_the_number_of_unlisted_devices_is_known(machine: Machine, tmp_path: Path):
    init = requests("prepare", 3)
    with initializing(machine, tmp_path, init=init) as node:
        assert unlisted(node.read()) == [("notebook-0", GPU, 2)]
        finish_init(node, machine.pods[-1], init=init)
        assert unlisted(node.read()) == [("notebook-0", GPU, 2)]


def test_an_init_container_on_the_gpu_of_another_pod_is_flagged(machine: Machine, tmp_path: Path):
    with initializing(machine, tmp_path, 1000, init=requests("prepare", 2)) as node:
        snapshot = node.read()
    assert flagged(snapshot) == [1000]
    assert unlisted(snapshot) == [("notebook-0", GPU, 1)]


def test_an_init_container_without_a_request_is_flagged(machine: Machine, tmp_path: Path):
    with initializing(machine, tmp_path, 1007, init=requests("prepare", 0)) as node:
        snapshot = node.read()
    assert (flagged(snapshot), unlisted(snapshot)) == ([1007], [])


def test_an_init_container_on_more_gpus_than_requested_is_not_confined_to_its_devices(machine: Machine, tmp_path: Path):
    machine.pods[0].gpus = machine.pods[0].gpus[:5]
    machine.pods[0].pids = machine.pods[0].pids[:5]
    with initializing(machine, tmp_path, 1005, 1007, init=requests("prepare", 2)) as node:
        snapshot = node.read()
    assert [gpu for gpu, name, _ in held_by(snapshot, "notebook-0") if name == "prepare"] == []
    assert unlisted(snapshot) == [("notebook-0", GPU, 1)]


def test_an_init_container_shares_a_time_sliced_gpu(fake_nvml: FakeNvml, tmp_path: Path):
    machine = time_sliced()
    machine.pods[-1] = NodePod("warm-up")
    fake_nvml.load(machine.scenario)
    init = requests("prepare", 1, resource="nvidia.com/gpu.shared")
    with initializing(machine, tmp_path, 2004, init=init, main=0) as node:
        snapshot = node.read()
    assert [(name, share) for _, name, share in held_by(snapshot, "warm-up")] == [("prepare", Share.TIME_SLICED)]
    assert flagged(snapshot) == []


def test_a_dynamic_claim_of_an_init_container_is_found_by_its_process(machine: Machine, tmp_path: Path):
    init = {"name": "prepare", "resources": {"claims": [{"name": "gpu"}]}}
    with initializing(machine, tmp_path, 1007, init=init) as node:
        snapshot = node.read()
    assert [name for _, name, _ in held_by(snapshot, "notebook-0")] == ["main", "prepare"]
    assert (flagged(snapshot), unlisted(snapshot)) == ([], [])


def test_an_init_container_on_more_gpus_than_it_has_claims_takes_none_of_them(machine: Machine, tmp_path: Path):
    """It may be privileged, or its claim may have several devices: it holds none of them and is not flagged."""
    machine.pods[0].gpus = machine.pods[0].gpus[:5]
    machine.pods[0].pids = machine.pods[0].pids[:5]
    init = {"name": "prepare", "resources": {"claims": [{"name": "gpu"}]}}
    with initializing(machine, tmp_path, 1005, 1007, init=init) as node:
        snapshot = node.read()
    assert [name for _, name, _ in held_by(snapshot, "notebook-0")] == ["main"]
    assert (flagged(snapshot), unlisted(snapshot)) == ([], [])


def spec(devices: int, *, sidecar: bool = False) -> ContainerSpec:
    return msgspec.convert(requests("c", devices, restartPolicy="Always" if sidecar else None), ContainerSpec)


@pytest.mark.parametrize(
    ("init", "main", "expected"),
    [
        ([spec(1)], [spec(1)], 0),
        ([spec(2)], [spec(1)], 1),
        ([spec(2)], [spec(1), spec(1)], 0),
        ([spec(1), spec(4), spec(2)], [spec(1)], 3),
        ([spec(1, sidecar=True), spec(1)], [spec(1)], 0),  # the main container gets the device of the init container
        ([spec(1, sidecar=True), spec(2)], [spec(1)], 1),
        ([spec(2), spec(1, sidecar=True)], [spec(0)], 1),
        ([spec(2, sidecar=True)], [spec(1)], 0),
        ([], [spec(1)], 0),
    ],
)
def test_devices_are_passed_on_to_the_containers_that_follow(init, main, expected):
    found = find_init_devices(init, main)
    assert (found.counts.get(GPU, 0) if found else 0) == expected
