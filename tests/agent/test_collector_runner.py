"""The collector runner: a failure affects only its collector, is counted, and is logged once."""

import logging

import pytest

from gpusteward.agent.collector_runner import MAX_REASONS, RECOVERY_CYCLES, CollectorRunner
from gpusteward.core.errors import SourceError
from gpusteward.core.node.snapshots import Failure


def fail(error: Exception) -> None:
    raise error


@pytest.fixture
def runner() -> CollectorRunner:
    return CollectorRunner()


def test_a_result_is_returned_and_its_duration_recorded(runner: CollectorRunner):
    assert runner.run("nvml", lambda: 42, 0) == 42
    assert runner.durations_seconds["nvml"] >= 0
    assert runner.error_counts == {"nvml": 0}


@pytest.mark.parametrize("error", [SourceError("no driver"), KeyError("a bug of ours")])
def test_a_failure_affects_only_its_own_collector(runner: CollectorRunner, error: Exception):
    assert runner.run("nvml", lambda: fail(error), None) is None
    assert runner.run("proc", lambda: "fine", "") == "fine"
    assert runner.error_counts == {"nvml": 1, "proc": 0}
    assert [failure.collector for failure in runner.failures] == ["nvml"]


def test_a_new_cycle_resets_failures_and_keeps_the_counts(runner: CollectorRunner):
    runner.run("nvml", lambda: fail(SourceError("no driver")), None)
    runner.start_cycle()
    assert runner.failures == []
    assert runner.error_counts == {"nvml": 1}


def test_a_lasting_failure_is_logged_once_and_its_recovery_too(
    runner: CollectorRunner, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "gpusteward")
    for _cycle in range(5):
        runner.start_cycle()
        runner.run("kubelet", lambda: fail(SourceError("no socket")), None)
    for _cycle in range(RECOVERY_CYCLES + 1):
        runner.start_cycle()
        runner.run("kubelet", lambda: None, None)
    assert [record.message for record in caplog.records] == ["collector_failed", "collector_recovered"]


def test_a_failure_beside_a_successful_run_is_logged_once(runner: CollectorRunner, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "gpusteward")
    for cycle in range(20):
        runner.start_cycle()
        runner.run("nvml", lambda: None, None)
        runner.fail(Failure("nvml", "GPU 2 is lost"))
        if cycle % 2:
            runner.fail(Failure("nvml", "GPU 3 is lost"))  # comes and goes
    assert [record.message for record in caplog.records] == ["collector_failed", "collector_failed"]
    assert runner.error_counts == {"nvml": 30}


def test_a_reason_with_changing_text_does_not_fill_the_log(runner: CollectorRunner, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "gpusteward")
    for cycle in range(RECOVERY_CYCLES):
        runner.start_cycle()
        runner.fail(Failure("pods", f"too old resource version: {cycle}"))
    assert len(caplog.records) == MAX_REASONS
    assert runner.error_counts == {"pods": RECOVERY_CYCLES}


def test_a_gpus_own_failure_is_counted_with_its_collector(runner: CollectorRunner):
    runner.fail(Failure("nvml", "lost", "GPU-2"))
    assert runner.error_counts == {"nvml": 1}
