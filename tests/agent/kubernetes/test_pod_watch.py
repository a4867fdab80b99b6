"""The watch on this node's pods, on a real API server with the rights of the shipped manifest."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpusteward.agent.kubernetes.pod_watch import Backoff, PodWatch
from gpusteward.core.node.containers import Workload
from tests.kubernetes.agent_node import AgentNode, read_rules
from tests.kubernetes.cluster import ApiServerProcess, Cluster, pod, wait_for
from tests.kubernetes.relay import Relay
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def node(kubernetes: Cluster) -> AgentNode:
    return AgentNode.create(kubernetes)


@pytest.fixture
def idle_node(kubernetes: Cluster) -> AgentNode:
    """A node on which only the test sets the status of pods."""
    return AgentNode.create(kubernetes, is_managed=False)


@pytest.fixture(scope="module")
def own_server(kubernetes: Cluster) -> Iterator[ApiServerProcess]:
    """An API server that a test may end and start again."""
    with kubernetes.another_api_server() as server:
        yield server


def names(watch: PodWatch) -> set[str]:
    return {each.name for each in watch.pods.values()}


def wait_for_names(watch: PodWatch, *expected: str) -> None:
    wait_until(lambda: names(watch) == set(expected))


def test_pods_of_this_node_are_listed_and_those_of_others_are_not(node: AgentNode) -> None:
    other = replace(node, name=node.cluster.add_node())
    node.add("mine")
    other.add("theirs")
    with node.watch() as watch:
        wait_until(lambda: watch.has_listed)
        assert names(watch) == {"mine"}
        node.add("later")
        wait_for_names(watch, "mine", "later")


def test_only_needed_fields_of_a_pod_are_kept(node: AgentNode) -> None:
    before = time.time()
    labels = {"team": "vision", "runai-gpu-group": "g1", "noise": "x"}
    annotations = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,1,2:;", "gpusteward.io/keep": "true", "x": "y"}
    item = pod("trainer", node.namespace, labels=labels, annotations=annotations)
    item["spec"]["containers"].append({"name": "sidecar", "image": "cuda"})
    item["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node.name}
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": item["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    about = {"name": "trainer", "namespace": node.namespace}
    node.cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about, "spec": spec})
    uid = node.cluster.wait_for_pods(node.namespace, 1)[0]["metadata"]["uid"]
    with node.watch("^team$") as watch:
        wait_until(lambda: uid in watch.pods)
        kept = watch.pods[uid]
    assert kept.workload == Workload("Deployment", node.namespace, "trainer")
    assert kept.exported_labels == (("team", "vision"),)
    assert kept.labels == {"runai-gpu-group": "g1"}
    assert sorted(kept.annotations) == ["gpusteward.io/keep", "hami.io/vgpu-devices-allocated"]
    assert kept.containers == {f"{uid}-main": "main", f"{uid}-sidecar": "sidecar"}
    assert kept.container_names == ("main", "sidecar")
    assert kept.phase == "Running"
    assert before - 2 < (kept.started_at or 0) < time.time() + 2
    assert kept.container("main").pod_labels == (("team", "vision"),)


def test_init_and_ephemeral_containers_are_known_by_their_ids(idle_node: AgentNode) -> None:
    item = idle_node.add("trainer")
    finished = {"name": "fetch", "containerID": "cri-o://init-id", "state": {"terminated": {"exitCode": 0}}}
    waiting = {"name": "proxy", "state": {"waiting": {}}}
    debug = {"name": "debug", "containerID": "docker://eph-id"}
    common = {"image": "cuda", "imageID": "", "ready": False, "restartCount": 0}
    idle_node.cluster.set_status(
        item,
        {
            "initContainerStatuses": [common | finished, common | waiting],
            "ephemeralContainerStatuses": [common | debug],
        },
    )
    with idle_node.watch() as watch:
        wait_for_names(watch, "trainer")
        kept = watch.pods[item["metadata"]["uid"]]
    assert kept.containers == {"init-id": "fetch", "eph-id": "debug"}
    assert kept.finished_init_containers == {"fetch"}


def test_a_static_pod_is_also_found_by_the_uid_of_its_cgroup(node: AgentNode) -> None:
    marks = {"kubernetes.io/config.mirror": "static", "kubernetes.io/config.hash": "static"}
    item = node.add("etcd", annotations=marks)
    with node.watch() as watch:
        wait_until(lambda: set(watch.pods) == {item["metadata"]["uid"], "static"})
        assert watch.pods["static"] is watch.pods[item["metadata"]["uid"]]
        node.cluster.delete(item)
        wait_until(lambda: not watch.pods)


def test_changed_deleted_and_recreated_pods_are_followed(idle_node: AgentNode) -> None:
    with idle_node.watch() as watch:
        item = idle_node.add("worker-0")
        first = item["metadata"]["uid"]
        wait_until(lambda: set(watch.pods) == {first})
        before = watch.pods
        idle_node.cluster.set_status(item, {"phase": "Succeeded"})
        wait_until(lambda: watch.pods[first].is_finished)
        assert not before[first].is_finished  # a published mapping never changes
        idle_node.cluster.delete(item)
        wait_for_names(watch)
        second = idle_node.add("worker-0")["metadata"]["uid"]
        wait_until(lambda: set(watch.pods) == {second})


def test_after_a_lost_connection_the_watch_continues_from_its_last_version(node: AgentNode) -> None:
    node.add("one")
    with Relay(node.cluster.address, node.cluster.port) as relay:
        api = replace(node.cluster, port=relay.port).connect(node.account)
        with node.watch(api=api) as watch:
            wait_for(lambda: node.watches == 1)
            with relay.down():
                wait_until(lambda: "connection refused" in (watch.failure or ""))
                assert names(watch) == {"one"}
                node.add("two")
            wait_for_names(watch, "one", "two")
            wait_until(lambda: watch.failure is None)
            assert node.lists == 1


def test_a_watch_without_events_counts_as_recovered(idle_node: AgentNode) -> None:
    with Relay(idle_node.cluster.address, idle_node.cluster.port) as relay:
        api = replace(idle_node.cluster, port=relay.port).connect(idle_node.account)
        with idle_node.watch(api=api) as watch:
            wait_for(lambda: idle_node.watches == 1)
            relay.cut()
            wait_until(lambda: watch.failure is not None)
            wait_until(lambda: watch.failure is None)
            assert idle_node.lists == 1


def test_after_a_410_the_pods_are_listed_at_once(node: AgentNode, own_server: ApiServerProcess) -> None:
    node.add("one")
    api = own_server.cluster.connect(node.account)  # its memory of changes begins with its start
    with node.watch(api=api, resource_version="1", backoff=Backoff(first_seconds=600, longest_seconds=600)) as watch:
        wait_for_names(watch, "one")
        node.add("two")
        wait_for_names(watch, "one", "two")


def test_after_an_outage_success_means_that_the_new_list_is_in(node: AgentNode, own_server: ApiServerProcess) -> None:
    old = node.add("old")
    backoff = Backoff(first_seconds=0.5, longest_seconds=1)
    with node.watch(api=own_server.cluster.connect(node.account), backoff=backoff) as watch:
        wait_for_names(watch, "old")
        own_server.stop()
        wait_until(lambda: "connection refused" in (watch.failure or ""))
        assert names(watch) == {"old"}
        node.cluster.delete(old)
        node.add("new")
        own_server.start()
        wait_until(lambda: watch.failure is None)
        assert names(watch) == {"new"}


def test_missing_permissions_are_reported_until_they_are_granted(node: AgentNode) -> None:
    node.add("one")
    poor = node.cluster.add_account(node.namespace, [])
    with replace(node, account=poor).watch() as watch:
        wait_until(lambda: 'verbs ["list", "watch"]' in (watch.failure or ""))
        assert not watch.has_listed
        node.cluster.grant(poor, read_rules())
        wait_for_names(watch, "one")
        wait_until(lambda: watch.failure is None)


def test_stop_interrupts_a_waiting_read(node: AgentNode) -> None:
    with node.watch() as watch:
        wait_for(lambda: node.watches == 1)
        started = time.monotonic()
        watch.stop()
        assert time.monotonic() - started < 1
        assert not watch.is_running


def test_the_agent_asks_for_nothing_that_it_may_not_and_writes_nothing(node: AgentNode) -> None:
    node.add("one")
    with node.watch() as watch:
        wait_for_names(watch, "one")
        wait_for(lambda: node.watches == 1)
    events = node.cluster.read_audit(node.account.user)
    assert {event["verb"] for event in events} == {"list", "watch"}
    assert {event["responseStatus"]["code"] for event in events} == {200}
