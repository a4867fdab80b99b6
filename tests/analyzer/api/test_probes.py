"""Liveness fails only when a restart helps, readiness until the first cycle has ended."""

import threading
import time
from types import SimpleNamespace

import pytest

from gpusteward.analyzer import scheduler as scheduler_module
from gpusteward.analyzer.scheduler import CycleScheduler
from gpusteward.analyzer.settings.settings import ServerSettings, Settings
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import FakeSource, running_api

FAR = {"X_Forwarded_For": "10.0.0.1"}


def test_probes_need_no_token():
    closed = Settings(server=ServerSettings(anonymous_reads="never", tokens="viewer: 0123456789abcdef"))
    with running_api(small_result(), settings=closed) as api:
        for path in ("/livez", "/healthz", "/readyz"):
            response = api.get(path, **FAR)
            assert (response.status, response.body) == (200, b"ok\n")


def test_before_the_first_cycle_the_analyzer_is_live_and_not_ready():
    with running_api(None) as api:
        assert api.get("/livez").status == 200
        response = api.get("/readyz")
        assert (response.status, response.body) == (503, b"the first cycle has not ended yet\n")


def test_a_source_that_is_down_ends_neither():
    with running_api(None, source=FakeSource(request_counts={"ok": 0, "failed": 9})) as api:
        api.cycles.stats.failed, api.cycles.stats.last_ended_at = 3, time.time()
        api.cycles.stats.last_error = "connection refused"
        assert [api.get(path).status for path in ("/livez", "/readyz")] == [200, 200]


def test_a_thread_that_hangs_or_has_ended_ends_both():
    with running_api(small_result()) as api:
        api.cycles.defect = "a cycle has been running for 1801 s"
        for path in ("/livez", "/healthz", "/readyz"):
            response = api.get(path)
            assert (response.status, response.body) == (503, b"a cycle has been running for 1801 s\n")


def test_the_scheduler_reports_a_cycle_that_hangs_and_its_own_end(monkeypatch: pytest.MonkeyPatch):
    begun, may_end = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> None:
        begun.set()
        may_end.wait(20)

    scheduler = CycleScheduler(SimpleNamespace(run=hang, stats=None), Settings)
    assert scheduler.defect == "the thread that runs cycles has ended"
    scheduler.start()
    assert begun.wait(10)
    assert scheduler.defect == ""
    monkeypatch.setattr(scheduler_module, "STUCK_SECONDS", 0.0)
    assert scheduler.defect.startswith("a cycle has been running for ")
    may_end.set()
    scheduler.stop(timeout_seconds=10)
    assert scheduler.defect == "the thread that runs cycles has ended"
