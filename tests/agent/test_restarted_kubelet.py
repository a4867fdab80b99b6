"""A restarted kubelet responds without its pods: holders stay for a while, and nobody is flagged."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusteward.agent.kubernetes.kubelet import UNLISTED_SECONDS
from gpusteward.core.node.snapshots import Snapshot
from tests.agent.test_node_source import Node, running_node
from tests.fakes import podresources_pb2 as messages
from tests.fakes.kubelet import device_claim, response
from tests.fakes.machine_examples import exclusive
from tests.fakes.machines import NODE, NodePod
from tests.fakes.nvml_library import FakeNvml
from tests.waiting import wait_until

STATIC_POD = messages.PodResources(namespace="kube-system", name=f"kube-proxy-{NODE}")
EMPTY, ONLY_STATIC = response(), response(STATIC_POD)


@pytest.fixture
def node(fake_nvml: FakeNvml, tmp_path: Path) -> Iterator[Node]:
    machine = exclusive()
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path) as one:
        yield one


@pytest.fixture
def node_without_pods(fake_nvml: FakeNvml, tmp_path: Path) -> Iterator[Node]:
    machine = exclusive()
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path, watch_pods=False) as one:
        yield one


@pytest.fixture
def node_without_api(fake_nvml: FakeNvml, tmp_path: Path) -> Iterator[Node]:
    """The pods will be known, but the API server has not been available since the start."""
    machine = exclusive()
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path, api_url="http://127.0.0.1:1") as one:
        yield one


def holders(snapshot: Snapshot) -> list[str]:
    return sorted({each.container.pod for each in snapshot.allocations})


def collectors(snapshot: Snapshot) -> list[str]:
    return [failure.collector for failure in snapshot.failures]


def flagged(snapshot: Snapshot) -> list[int]:
    return [process.pid for process in snapshot.processes if process.outside_allocation]


def change_pods(node: Node, *, finish: bool) -> None:
    """Finish or delete every pod, and wait until the watch has seen it."""
    watch = node.pods
    assert watch is not None
    for each in exclusive().pods:
        if finish:
            each.phase = "Succeeded"
            node.running.api.modify_pod(each.as_json())
        else:
            node.running.api.delete_pod(each.pod, each.namespace)
    wait_until(lambda: all(pod.is_finished for pod in watch.pods.values()))


BOTH = ["bert-worker-0", "notebook-0"]


@pytest.mark.parametrize("answer", [EMPTY, ONLY_STATIC], ids=["empty", "only-static"])
def test_holders_stay_while_the_kubelet_lists_no_running_pod(node: Node, answer: messages.ListPodResourcesResponse):
    before, node.running.kubelet.response = node.read(), answer
    during = node.read(after=35)
    assert during.allocations == before.allocations
    assert (during.allocations_known, during.allocations_kept, flagged(during)) == (True, 7, [])
    assert collectors(during) == ["kubelet"]
    assert "restart" in during.failures[0].reason


def test_the_kubelet_is_queried_in_every_cycle_until_it_lists_its_pods(node: Node):
    node.read()
    complete, node.running.kubelet.response = node.running.kubelet.response, EMPTY
    node.read(after=35)
    assert node.read(after=1).allocations_kept == 7
    node.running.kubelet.response = complete
    after = node.read(after=1)
    assert (holders(after), after.allocations_kept, collectors(after)) == (BOTH, 0, [])


def test_after_the_time_limit_allocations_are_unknown_not_empty(node: Node):
    node.read()
    node.running.kubelet.response = EMPTY
    node.read(after=35)
    late = node.read(after=UNLISTED_SECONDS + 1)
    assert (late.allocations, late.allocations_known, flagged(late)) == ((), False, [])


def test_an_empty_first_response_leaves_allocations_unknown(node: Node):
    node.running.kubelet.response = EMPTY
    first = node.read()
    assert (first.allocations, first.allocations_known, flagged(first)) == ((), False, [])
    assert collectors(first) == ["kubelet"]


def test_a_partial_response_costs_no_running_pod_its_devices(node: Node):
    before = node.read()
    node.running.kubelet.response = response(messages.PodResources(namespace="research", name="notebook-0"))
    partial = node.read(after=35)
    assert (holders(partial), flagged(partial)) == (["bert-worker-0"], [])
    assert partial.allocations_kept == 6
    assert {each.gpu_uuid for each in partial.allocations} < {each.gpu_uuid for each in before.allocations}


def test_a_device_that_is_listed_for_another_pod_is_not_kept(node: Node):
    taken = node.read().allocations[0].gpu_uuid
    node.running.kubelet.response = response(device_claim("research", "next-0", "main", taken))
    after = node.read(after=35)
    assert [each.container.pod for each in after.allocations if each.gpu_uuid == taken] == ["next-0"]


@pytest.mark.parametrize("finish", [True, False], ids=["ended", "drained"])
def test_pods_that_ended_hold_nothing(node: Node, finish: bool):
    node.read()
    change_pods(node, finish=finish)
    node.running.kubelet.response = EMPTY
    after = node.read(after=1)
    assert (after.allocations, after.allocations_known, collectors(after)) == ((), True, [])


def test_a_pod_that_is_named_like_a_static_one_counts_if_the_api_server_knows_it(fake_nvml: FakeNvml, tmp_path: Path):
    machine = exclusive()
    for each in machine.pods:
        each.pod = f"{each.pod}-{NODE}"
    fake_nvml.load(machine.scenario)
    with running_node(machine, tmp_path) as node:
        first = node.read()
        assert (len(first.allocations), collectors(first)) == (7, [])
        node.running.kubelet.response = EMPTY
        assert len(node.read(after=35).allocations) == 7


def test_a_new_pod_of_the_same_name_does_not_inherit_devices(node: Node):
    node.read()
    watch, again = node.pods, NodePod("notebook-0").as_json()
    assert watch is not None
    again["metadata"]["uid"] = "another-uid"
    node.running.api.modify_pod(again)
    wait_until(lambda: "another-uid" in watch.pods)
    node.running.kubelet.response = EMPTY
    assert holders(node.read(after=1)) == ["bert-worker-0"]


@pytest.mark.parametrize("answer", [EMPTY, ONLY_STATIC], ids=["empty", "only-static"])
def test_without_a_pod_watch_an_empty_response_is_believed_after_five_minutes(
    node_without_pods: Node, answer: messages.ListPodResourcesResponse
):
    node_without_pods.read()
    node_without_pods.running.kubelet.response = answer
    for after in (5, 67, UNLISTED_SECONDS - 72):
        during = node_without_pods.read(after=after)
        assert (holders(during), during.allocations_known, collectors(during)) == (BOTH, True, ["kubelet"])
    for _cycle in range(2):
        late = node_without_pods.read(after=6)
        assert (late.allocations, late.allocations_known, collectors(late)) == ((), True, [])


@pytest.mark.parametrize("answer", [EMPTY, ONLY_STATIC], ids=["empty", "only-static"])
def test_an_empty_response_is_never_believed_before_the_pods_are_known(
    node_without_api: Node, answer: messages.ListPodResourcesResponse
):
    node_without_api.read()
    node_without_api.running.kubelet.response = answer
    during = node_without_api.read(after=67)
    assert (holders(during), during.allocations_known, flagged(during)) == (BOTH, True, [])
    for after in (UNLISTED_SECONDS + 1, 10 * UNLISTED_SECONDS):
        late = node_without_api.read(after=after)
        assert (late.allocations, late.allocations_known, flagged(late)) == ((), False, [])
        assert "kubelet" in collectors(late)


@pytest.mark.parametrize("name", ["node_without_api", "node_without_pods"])
def test_an_empty_first_response_proves_nothing_while_the_pods_are_unknown(name: str, request: pytest.FixtureRequest):
    node = request.getfixturevalue(name)
    complete, node.running.kubelet.response = node.running.kubelet.response, EMPTY
    first = node.read()
    assert (first.allocations, first.allocations_known, flagged(first)) == ((), False, [])
    node.running.kubelet.response = complete
    assert (holders(node.read()), node.read().allocations_known) == (BOTH, True)


def test_without_the_pods_a_pod_that_is_no_longer_listed_has_ended(node_without_pods: Node):
    uuid = next(each.gpu_uuid for each in node_without_pods.read().allocations if each.container.pod == "notebook-0")
    node_without_pods.running.kubelet.response = response(device_claim("research", "notebook-0", "main", uuid))
    assert holders(node_without_pods.read()) == ["notebook-0"]
