"""The watch on this node's pods: what it keeps of a pod, and the faults it must survive."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpusteward.agent.kubernetes.pod_watch import Backoff, PodWatch
from gpusteward.core.errors import ConfigurationError
from gpusteward.kubernetes.api import ApiServer
from tests.fakes.apiserver import FakeApiServer, pod
from tests.waiting import wait_until


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


@pytest.mark.parametrize("how", ["status", "event"])
def test_an_expired_resource_version_leads_to_a_new_list(server: FakeApiServer, how: str) -> None:
    server.add_pod(pod("old"))
    server.add_pod(pod("same"))
    with watching(server) as watch:
        wait_until(lambda: server.open_watches == 1)
        known = watch.pods["uid-of-same"]
        server.forget_pod("old")
        if how == "status":
            server.gone_next_watch = True
            server.close_watches()
        else:
            server.send_error_event(410)
        wait_for_names(watch, "same")
        assert watch.pods["uid-of-same"] is known  # thousands of pods are not in memory twice
        assert "resourceVersion" not in [each for each in server.requests if "watch" not in each][-1]
        server.add_pod(pod("new"))
        wait_for_names(watch, "same", "new")
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


def test_deleted_pods_are_dropped_after_two_thousand_changes(server: FakeApiServer) -> None:
    with watching(server) as watch:
        wait_until(lambda: server.open_watches == 1)
        for number in range(1000):
            server.add_pod(pod(f"p{number}"))
            server.delete_pod(f"p{number}")
        server.add_pod(pod("last"))
        wait_until(lambda: names(watch) == {"last"}, 20)
        assert len(watch.pods) == 1


def test_a_watch_that_never_started_can_be_stopped(server: FakeApiServer) -> None:
    PodWatch(ApiServer(server.url), "node-a").stop()


def test_backoff_grows_to_a_limit_with_jitter() -> None:
    waits = [Backoff(failures=failures).wait_seconds() for failures in (0, 3, 50)]
    assert 0.5 <= waits[0] <= 1 < 4 <= waits[1] <= 8 < 15 <= waits[2] <= 30
    assert len({Backoff(failures=50).wait_seconds() for _ in range(50)}) > 1


def test_an_invalid_label_pattern_is_a_configuration_error(server: FakeApiServer) -> None:
    with pytest.raises(ConfigurationError, match=r"pod label pattern '\(' is not a regular expression"):
        PodWatch(ApiServer(server.url), "node-a", label_patterns=["("])
