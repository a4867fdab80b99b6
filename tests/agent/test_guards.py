"""One runner for every collector: a fault costs its own part, is counted, and is said once."""

import logging

import pytest

from gpusteward.agent.guards import Guard
from gpusteward.core.errors import SourceError
from gpusteward.core.snapshots import Failure


def fail(error: Exception) -> None:
    raise error


@pytest.fixture
def guard() -> Guard:
    return Guard()


def test_a_result_comes_through_and_is_timed(guard: Guard):
    assert guard.run("nvml", lambda: 42, 0) == 42
    assert guard.durations_seconds["nvml"] >= 0
    assert guard.error_counts == {"nvml": 0}


@pytest.mark.parametrize("error", [SourceError("no driver"), KeyError("a bug of ours")])
def test_whatever_goes_wrong_costs_only_its_own_part(guard: Guard, error: Exception):
    assert guard.run("nvml", lambda: fail(error), None) is None
    assert guard.run("proc", lambda: "fine", "") == "fine"
    assert guard.error_counts == {"nvml": 1, "proc": 0}
    assert [failure.collector for failure in guard.failures] == ["nvml"]


def test_a_new_cycle_starts_with_no_failures_but_keeps_the_account(guard: Guard):
    guard.run("nvml", lambda: fail(SourceError("no driver")), None)
    guard.start_cycle()
    assert guard.failures == []
    assert guard.error_counts == {"nvml": 1}


def test_a_failure_that_stays_is_said_once_and_its_end_is_said_too(guard: Guard, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "gpusteward")
    for _cycle in range(5):
        guard.run("kubelet", lambda: fail(SourceError("no socket")), None)
    guard.run("kubelet", lambda: None, None)
    assert [record.message for record in caplog.records] == ["collector_failed", "collector_recovered"]


def test_a_gpus_own_failure_is_counted_with_its_collector(guard: Guard):
    guard.fail(Failure("nvml", "lost", "GPU-2"))
    assert guard.error_counts == {"nvml": 1}
