"""The watch on this node's pods: what it keeps of a pod, and the faults it must survive."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest

from gpusteward.agent.kubernetes.pod_watch import Backoff, PodWatch
from gpusteward.core.containers import Workload
from gpusteward.core.errors import ConfigurationError
from gpusteward.kubernetes.api import ApiServer
from tests.fakes.apiserver import FakeApiServer, pod, wait_until


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer() as fake:
        yield fake


@contextmanager
def watching(server: FakeApiServer, *patterns: str) -> Iterator[PodWatch]:
    backoff = Backoff(first_seconds=0.005, longest_seconds=0.02)
    watch = PodWatch(ApiServer(server.url), "node-a", label_patterns=patterns, backoff=backoff)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()


def names(watch: PodWatch) -> set[str]:
    return {pod.name for pod in watch.pods.values()}


def wait_for_names(watch: PodWatch, *expected: str) -> None:
    wait_until(lambda: names(watch) == set(expected))


def test_pods_of_this_node_are_listed_and_those_of_others_are_not(server: FakeApiServer) -> None:
    server.add_pod(pod("mine"))
    server.add_pod(pod("theirs", node="node-b"))
    with watching(server) as watch:
        wait_until(lambda: watch.has_listed)
        assert names(watch) == {"mine"}
        assert "fieldSelector=spec.nodeName%3Dnode-a" in server.requests[0]


def test_a_long_list_is_read_page_by_page(server: FakeApiServer) -> None:
    server.page_size = 3
    for number in range(8):
        server.add_pod(pod(f"p{number}"))
    with watching(server) as watch:
        wait_until(lambda: len(watch.pods) == 8)


def test_a_list_whose_next_page_has_expired_starts_again(server: FakeApiServer) -> None:
    server.page_size, server.gone_next_continue = 3, True
    for number in range(8):
        server.add_pod(pod(f"p{number}"))
    with watching(server) as watch:
        wait_until(lambda: len(watch.pods) == 8)
        assert watch.failure is None


def test_only_needed_fields_of_a_pod_are_kept(server: FakeApiServer) -> None:
    server.add_pod(
        pod(
            "trainer-abc",
            owner=("ReplicaSet", "trainer-5b8f"),
            labels={"pod-template-hash": "5b8f", "team": "vision", "runai-gpu-group": "g1", "noise": "x"},
            annotations={"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,1,2:;", "gpusteward.io/keep": "true"},
            containers=("main", "sidecar"),
        )
    )
    with watching(server, "^team$") as watch:
        wait_for_names(watch, "trainer-abc")
        kept = watch.pods["uid-of-trainer-abc"]
    assert kept.workload == Workload("Deployment", "ml", "trainer")
    assert kept.exported_labels == (("team", "vision"),)
    assert kept.labels == {"runai-gpu-group": "g1"}
    assert sorted(kept.annotations) == ["gpusteward.io/keep", "hami.io/vgpu-devices-allocated"]
    assert kept.containers == {"uid-of-trainer-abc-main": "main", "uid-of-trainer-abc-sidecar": "sidecar"}
    assert kept.container_names == ("main", "sidecar")
    assert kept.started_at == 1794772800.0
    assert kept.container("main").pod_labels == (("team", "vision"),)


def test_init_and_ephemeral_containers_are_known_by_their_ids(server: FakeApiServer) -> None:
    item = pod("trainer")
    finished = {"name": "fetch", "containerID": "cri-o://init-id", "state": {"terminated": {"exitCode": 0}}}
    waiting = {"name": "proxy", "containerID": "", "state": {"waiting": {}}}
    item["spec"]["initContainers"] = [{"name": "fetch"}, {"name": "proxy"}]
    item["status"]["initContainerStatuses"] = [finished, waiting]
    item["status"]["ephemeralContainerStatuses"] = [{"name": "debug", "containerID": "docker://eph-id"}]
    server.add_pod(item)
    with watching(server) as watch:
        wait_for_names(watch, "trainer")
        kept = watch.pods["uid-of-trainer"]
    assert kept.containers == {"uid-of-trainer-main": "main", "init-id": "fetch", "eph-id": "debug"}
    assert kept.init_container_names == ("fetch", "proxy")
    assert kept.finished_init_containers == {"fetch"}


def test_a_static_pod_is_also_found_by_the_uid_of_its_cgroup(server: FakeApiServer) -> None:
    server.add_pod(pod("etcd", uid="mirror", annotations={"kubernetes.io/config.hash": "static"}, owner=("Node", "n")))
    with watching(server) as watch:
        wait_until(lambda: set(watch.pods) == {"mirror", "static"})
        assert watch.pods["static"] is watch.pods["mirror"]
        server.delete_pod("etcd")
        wait_until(lambda: not watch.pods)


def test_added_changed_and_deleted_pods_are_followed(server: FakeApiServer) -> None:
    with watching(server) as watch:
        server.add_pod(pod("trainer", phase="Pending"))
        wait_for_names(watch, "trainer")
        server.modify_pod(pod("trainer", phase="Succeeded"))
        wait_until(lambda: watch.pods["uid-of-trainer"].is_finished)
        server.delete_pod("trainer")
        wait_for_names(watch)


def test_a_pod_of_the_same_name_with_another_uid_is_another_pod(server: FakeApiServer) -> None:
    with watching(server) as watch:
        server.add_pod(pod("worker-0", uid="first"))
        wait_until(lambda: set(watch.pods) == {"first"})
        server.add_pod(pod("worker-0", uid="second"))
        wait_until(lambda: set(watch.pods) == {"second"})


def test_a_published_mapping_never_changes(server: FakeApiServer) -> None:
    with watching(server) as watch:
        server.add_pod(pod("one"))
        wait_for_names(watch, "one")
        before = watch.pods
        server.add_pod(pod("two"))
        wait_for_names(watch, "one", "two")
        assert set(before) == {"uid-of-one"}


@pytest.mark.parametrize("how", ["status", "event"])
def test_an_expired_resource_version_leads_to_a_new_list(server: FakeApiServer, how: str) -> None:
    server.add_pod(pod("old"))
    with watching(server) as watch:
        wait_until(lambda: server.open_watches == 1)
        server.forget_pod("old")
        if how == "status":
            server.gone_next_watch = True
            server.close_watches()
        else:
            server.send_error_event(410)
        wait_for_names(watch)
        assert "resourceVersion" not in [each for each in server.requests if "watch" not in each][-1]
        server.add_pod(pod("new"))
        wait_for_names(watch, "new")
        assert watch.failure is None


@pytest.mark.parametrize("mid_line", [False, True])
def test_after_a_lost_connection_the_watch_continues_from_its_last_version(
    server: FakeApiServer, mid_line: bool
) -> None:
    server.add_pod(pod("one"))
    with watching(server) as watch:
        wait_until(lambda: server.open_watches == 1)
        server.close_watches(mid_line=mid_line)
        server.add_pod(pod("two"))
        wait_for_names(watch, "one", "two")
        wait_until(lambda: watch.failure is None)
        assert sum("watch" not in each for each in server.requests) == 1


def test_a_bookmark_updates_the_resource_version(server: FakeApiServer) -> None:
    with watching(server) as watch:
        wait_until(lambda: server.open_watches == 1)
        server.send_bookmark()
        wait_until(lambda: watch.resource_version == str(server.version))
        server.close_watches()
        wait_until(lambda: f"resourceVersion={server.version}" in server.requests[-1])


@pytest.mark.parametrize("line", [b"garbage\n", b"{}\n", b"\n", b'{"type":"ADDED","object":[]}\n', b"\xff\xfe\n"])
def test_an_invalid_event_leads_to_a_new_list(server: FakeApiServer, line: bytes) -> None:
    server.add_pod(pod("old"))
    with watching(server) as watch:
        wait_until(lambda: server.open_watches == 1)
        server.forget_pod("old")
        server.send_raw(line)
        wait_for_names(watch)
        wait_until(lambda: watch.failure is None)


def test_an_invalid_pod_does_not_affect_others(server: FakeApiServer) -> None:
    broken = pod("broken")
    broken["metadata"]["labels"] = "not a mapping"
    server.add_pod(broken)
    server.add_pod(pod("whole"))
    with watching(server) as watch:
        wait_for_names(watch, "whole")
        server.modify_pod(broken)
        server.add_pod(pod("later"))
        wait_for_names(watch, "whole", "later")


def test_known_pods_stay_while_the_api_server_is_down(server: FakeApiServer) -> None:
    server.add_pod(pod("one"))
    with watching(server) as watch:
        wait_until(lambda: server.open_watches == 1)
        with server.down():
            wait_until(lambda: "connection refused" in (watch.failure or ""))
            assert names(watch) == {"one"}
            server.add_pod(pod("two"))
        wait_for_names(watch, "one", "two")
        wait_until(lambda: watch.failure is None)


def test_missing_permissions_are_reported_until_they_are_granted(server: FakeApiServer) -> None:
    server.forbidden = True
    server.add_pod(pod("one"))
    with watching(server) as watch:
        wait_until(lambda: 'verbs ["get", "list", "watch"]' in (watch.failure or ""))
        assert not watch.has_listed
        server.forbidden = False
        wait_for_names(watch, "one")
        wait_until(lambda: watch.failure is None)


def test_deleted_pods_are_dropped_after_two_thousand_changes(server: FakeApiServer) -> None:
    with watching(server) as watch:
        wait_until(lambda: server.open_watches == 1)
        for number in range(1000):
            server.add_pod(pod(f"p{number}"))
            server.delete_pod(f"p{number}")
        server.add_pod(pod("last"))
        wait_until(lambda: names(watch) == {"last"}, 20)
        assert len(watch.pods) == 1


def test_stop_interrupts_a_waiting_read(server: FakeApiServer) -> None:
    with watching(server) as watch:
        wait_until(lambda: server.open_watches == 1)
        started = monotonic()
        watch.stop()
        assert monotonic() - started < 1
        assert not watch.is_running


def test_a_watch_that_never_started_can_be_stopped(server: FakeApiServer) -> None:
    PodWatch(ApiServer(server.url), "node-a").stop()


def test_backoff_grows_to_a_limit_with_jitter() -> None:
    waits = [Backoff(failures=failures).wait_seconds() for failures in (0, 3, 50)]
    assert 0.5 <= waits[0] <= 1 < 4 <= waits[1] <= 8 < 15 <= waits[2] <= 30
    assert len({Backoff(failures=50).wait_seconds() for _ in range(50)}) > 1


def test_an_invalid_label_pattern_is_a_configuration_error(server: FakeApiServer) -> None:
    with pytest.raises(ConfigurationError, match=r"pod label pattern '\(' is not a regular expression"):
        PodWatch(ApiServer(server.url), "node-a", label_patterns=["("])
