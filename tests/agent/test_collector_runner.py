"""One runner for every collector: a fault costs its own part, is counted, and is said once."""

import logging

import pytest

from gpusteward.agent.collector_runner import MOST_REASONS, QUIET_CYCLES, Guard
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
        guard.start_cycle()
        guard.run("kubelet", lambda: fail(SourceError("no socket")), None)
    for _cycle in range(QUIET_CYCLES + 1):
        guard.start_cycle()
        guard.run("kubelet", lambda: None, None)
    assert [record.message for record in caplog.records] == ["collector_failed", "collector_recovered"]


def test_what_fails_beside_a_run_that_went_well_is_said_once_too(guard: Guard, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "gpusteward")
    for cycle in range(20):
        guard.start_cycle()
        guard.run("nvml", lambda: None, None)
        guard.fail(Failure("nvml", "GPU 2 is lost"))
        if cycle % 2:
            guard.fail(Failure("nvml", "GPU 3 is lost"))  # comes and goes
    assert [record.message for record in caplog.records] == ["collector_failed", "collector_failed"]
    assert guard.error_counts == {"nvml": 30}


def test_a_reason_that_reads_differently_every_time_does_not_fill_the_log(
    guard: Guard, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "gpusteward")
    for cycle in range(QUIET_CYCLES):
        guard.start_cycle()
        guard.fail(Failure("pods", f"too old resource version: {cycle}"))
    assert len(caplog.records) == MOST_REASONS
    assert guard.error_counts == {"pods": QUIET_CYCLES}


def test_a_gpus_own_failure_is_counted_with_its_collector(guard: Guard):
    guard.fail(Failure("nvml", "lost", "GPU-2"))
    assert guard.error_counts == {"nvml": 1}
