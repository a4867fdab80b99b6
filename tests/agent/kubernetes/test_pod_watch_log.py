"""The reason of a failing watch is logged once, although every request has other parameters."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpusteward.agent.kubernetes.pod_watch import Backoff, PodWatch
from gpusteward.kubernetes.api import ApiServer
from tests.fakes.apiserver import FakeApiServer
from tests.waiting import wait_until


@contextmanager
def failing(server: FakeApiServer, fault: str) -> Iterator[None]:
    if fault == "down":
        with server.down():
            yield
    else:
        server.forbidden = True
        server.close_watches()
        yield


@pytest.mark.parametrize("fault", ["down", "forbidden"])
def test_a_failing_watch_is_logged_once(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gpusteward")
    backoff = Backoff(first_seconds=0.005, longest_seconds=0.02)
    with FakeApiServer() as server:
        watch = PodWatch(ApiServer(server.url), "node-a", backoff=backoff)
        watch.start()
        wait_until(lambda: server.open_watches == 1)
        with failing(server, fault):
            wait_until(lambda: backoff.failures >= 12)
            failure = watch.failure or ""
            watch.stop()
    logged = [str(vars(record)["facts"]["reason"]) for record in caplog.records if record.message == "pods_unreadable"]
    assert "/api/v1/pods" in failure
    assert [reason for reason in logged if "/api/v1/pods" in reason].count(failure) == 1
    assert len(logged) == len(set(logged)) <= 3  # the open watch ends, then requests fail
    assert not any("?" in reason for reason in logged)
