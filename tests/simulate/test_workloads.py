"""The truth of every kind of workload, over many seeds."""

from statistics import mean, pstdev

import pytest

from gpusteward.simulate.ground_truth import BREAK_SECONDS
from gpusteward.simulate.load_curves import Lifetimes
from gpusteward.simulate.workloads import Kind
from tests.simulate.single_workload import (
    DAY,
    HOUR,
    NOW,
    only_reading,
    only_truth,
    single_application,
    single_workload_node,
    start_of_pod,
    utilizations,
)

MANY = range(200)
SOME = range(20)


def life(kind: Kind, seed: int) -> tuple[float, float]:
    start = start_of_pod(kind, seed)
    return start, start + single_application(kind, seed).lifetimes.duration


def spread(kind: Kind, seed: int, *, count: int) -> list[float]:
    """Moments all over a pod's life."""
    start, end = life(kind, seed)
    return [start + (end - start) * (number + 0.5) / count for number in range(count)]


@pytest.mark.parametrize("kind", Kind)
def test_the_truth_has_the_kind_during_the_whole_lifetime_of_the_pod(kind):
    for seed in SOME:
        start, end = life(kind, seed)
        assert only_truth(single_workload_node(kind, seed), start).kind is kind
        assert only_truth(single_workload_node(kind, seed), end - 1).started_at == start


def test_an_empty_workload_has_no_process_and_no_activity():
    for seed in MANY:
        node = single_workload_node(Kind.EMPTY, seed)
        for at in spread(Kind.EMPTY, seed, count=3):
            snapshot = node.snapshot(at)
            (reading,) = snapshot.readings
            assert len(snapshot.allocations) == 1
            assert snapshot.processes == ()
            assert reading.signals["utilization_ratio"] == reading.signals["utilization_mean_ratio"] == 0
            assert reading.signals["memory_used_bytes"] < 16 << 20
            assert not only_truth(node, at).is_active(at)


def test_a_parked_workload_holds_memory_without_activity():
    for seed in MANY:
        node = single_workload_node(Kind.PARKED, seed)
        for at in spread(Kind.PARKED, seed, count=3):
            (process,) = node.snapshot(at).processes
            assert process.memory_bytes > 1 << 30
            assert process.sm_ratio == 0
            assert utilizations(node, [at]) == [0]
            assert not only_truth(node, at).is_active(at)


def test_training_never_pauses_for_longer_than_a_checkpoint():
    for seed in MANY:
        start, end = life(Kind.TRAINING, seed)
        truth = only_truth(single_workload_node(Kind.TRAINING, seed), start)
        for at in spread(Kind.TRAINING, seed, count=40):
            assert truth.worked(at, min(at + 250, end))
        assert 0.8 < truth.busy_seconds(start, end) / (end - start) < 0.97


def test_a_training_pod_is_active_from_its_first_minutes_on():
    for seed in MANY:
        start = start_of_pod(Kind.TRAINING, seed)
        assert only_truth(single_workload_node(Kind.TRAINING, seed), start + 300).is_active(start + 300)


def test_inference_is_busier_by_day_than_by_night_and_never_stops():
    for seed in MANY:
        truth = only_truth(single_workload_node(Kind.INFERENCE, seed), NOW)
        hours = [truth.work(NOW + (hour + 1) * HOUR) - truth.work(NOW + hour * HOUR) for hour in range(24)]
        assert max(hours) > 3 * min(hours) > 0
        assert all(truth.worked(at, at + 240) for at in spread(Kind.INFERENCE, seed, count=30))


def test_inference_comes_in_bursts():
    for seed in SOME:
        node = single_workload_node(Kind.INFERENCE, seed)
        values = utilizations(node, [NOW + 5 * number for number in range(240)])
        assert pstdev(values) > 0.5 * mean(values)


def test_a_notebook_has_active_and_idle_periods():
    for seed in MANY:
        start, _ = life(Kind.NOTEBOOK, seed)
        truth = only_truth(single_workload_node(Kind.NOTEBOOK, seed), start)
        week = [start + number * 600 for number in range(1, 7 * 144)]
        active = [truth.is_active(at) for at in week]
        assert 0.03 < mean(active) < 0.35
        assert longest_run(active, False) * 600 > 10 * HOUR
        assert longest_run(active, True) * 600 >= 1200


def test_a_notebook_keeps_its_memory_while_idle():
    for seed in SOME:
        node = single_workload_node(Kind.NOTEBOOK, seed)
        at = start_of_pod(Kind.NOTEBOOK, seed) + 2 * DAY
        assert all(process.memory_bytes for process in node.snapshot(at).processes)


def test_starved_work_is_low_but_never_pauses_for_long():
    for seed in MANY:
        start, end = life(Kind.STARVED, seed)
        truth = only_truth(single_workload_node(Kind.STARVED, seed), start)
        assert 0.05 < truth.busy_seconds(start, end) / (end - start) < 0.25
        assert all(truth.worked(at, at + 30) for at in spread(Kind.STARVED, seed, count=30))


def test_a_hung_job_worked_and_then_is_flat_with_pinned_memory():
    for seed in MANY:
        start, end = life(Kind.HUNG, seed)
        node = single_workload_node(Kind.HUNG, seed)
        truth = only_truth(node, start)
        assert truth.busy_seconds(start, start + HOUR) > 0.7 * HOUR
        hung_at = start + 0.31 * (end - start)
        assert not truth.worked(hung_at, end)
        assert not truth.is_active(end - 1)
    held = {node.snapshot(at).processes[0].memory_bytes for at in (start + 60, hung_at, end - 60)}
    assert len(held) == 1
    assert len({signature(node, hung_at + 900 * number) for number in range(50)}) == 1


def signature(node, at: float) -> tuple[float, ...]:
    names = ("utilization_ratio", "power_watts", "temperature_celsius", "sm_clock_hertz", "gr_engine_ratio")
    return tuple(only_reading(node, at).signals[name] for name in names)


def test_a_keep_alive_script_is_low_flat_and_above_zero():
    for seed in MANY:
        node = single_workload_node(Kind.KEEP_ALIVE, seed)
        start, _ = life(Kind.KEEP_ALIVE, seed)
        values = set(utilizations(node, [start + 60 + 7_777.7 * number for number in range(12)]))
        assert len(values) == 1
        assert 0.01 <= values.pop() <= 0.30
        assert only_truth(node, start + 60).is_active(start + 60)


def test_the_truth_of_a_pod_excludes_earlier_pods():
    start = start_of_pod(Kind.TRAINING, 4)
    truth = only_truth(single_workload_node(Kind.TRAINING, 4), start + 10)
    assert truth.busy_seconds(start - 30 * DAY, start + 10) <= 10


def test_jobs_leave_the_gpu_free_between_two_pods():
    node = single_workload_node(Kind.TRAINING, 4)
    _, end = life(Kind.TRAINING, 4)
    snapshot = node.snapshot(end + BREAK_SECONDS)
    assert snapshot.allocations == snapshot.processes == ()
    assert node.truths(end + BREAK_SECONDS) == {}
    assert utilizations(node, [end + BREAK_SECONDS]) == [0]


def test_lifetimes_are_whole_seconds():
    for seed in SOME:
        lifetimes = single_application(Kind.STARVED, seed).lifetimes
        assert isinstance(lifetimes, Lifetimes)
        assert lifetimes.starts_at(lifetimes.generation(NOW)).is_integer()


def longest_run(values: list[bool], wanted: bool) -> int:
    longest = run = 0
    for value in values:
        run = run + 1 if value is wanted else 0
        longest = max(longest, run)
    return longest
