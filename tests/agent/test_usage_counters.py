"""Counters accumulated between snapshots: busy seconds and energy per user of a GPU."""

from dataclasses import replace

import pytest

from gpusteward.agent.usage_counters import SnapshotView, UsageCounters
from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import Gpu, GpuAllocation, GpuProcess, GpuReading, Place, Share
from gpusteward.core.node.snapshots import Snapshot

GPU = Gpu("node-a", 0, "GPU-0", "NVIDIA A100-SXM4-80GB")
ALICE = Container("research", "alice-0", "uid-a", "main")
BOB = Container("research", "bob-0", "uid-b", "main")


def snapshot(
    at: float, *, joules: float | None = None, busy: float = 0.8, alice: float = 0.6, bob: float = 0.2
) -> Snapshot:
    signals = {"utilization_ratio": busy, "power_watts": 200.0}
    if joules is not None:
        signals["energy_joules_total"] = joules
    running = [
        GpuProcess(pid, GPU.uuid, memory_bytes=1, sm_ratio=sm, place=Place.CONTAINER, container=who)
        for pid, who, sm in ((1, ALICE, alice), (2, BOB, bob))
    ]
    held = tuple(GpuAllocation(who, GPU.uuid, Share.TIME_SLICED) for who in (ALICE, BOB))
    return Snapshot("node-a", at, (GpuReading(GPU, signals),), tuple(running), held)


def key(who: Container) -> tuple[str, Place, Container]:
    return (GPU.uuid, Place.CONTAINER, who)


def total_energy(view: SnapshotView) -> float:
    return sum(each.energy_joules or 0.0 for each in view.parts.values())


def test_busy_seconds_are_utilization_times_time():
    meters = UsageCounters(longest_gap_seconds=15)
    for at in (100.0, 105.0, 110.0):
        view = meters.advance(snapshot(at))
    assert view.gpu_busy_seconds[GPU.uuid] == pytest.approx(8.0)
    assert view.parts[key(ALICE)].busy_seconds == pytest.approx(6.0)
    assert view.parts[key(BOB)].busy_seconds == pytest.approx(2.0)


def test_the_time_in_which_others_than_the_holders_use_a_gpu_is_counted_while_the_allocations_are_known():
    meters = UsageCounters(longest_gap_seconds=15)
    alone = replace(snapshot(100.0), allocations=snapshot(100.0).allocations[:1])
    seen = [
        meters.advance(each).gpu_outside_seconds.get(GPU.uuid)
        for each in (
            snapshot(100.0),
            replace(alone, taken_at=105.0),
            replace(alone, taken_at=110.0),
            replace(snapshot(115.0), allocations=(), allocations_known=False),
            snapshot(120.0),
        )
    ]
    assert seen == [0.0, 5.0, 10.0, None, 10.0]


def test_the_use_of_video_engines_is_counted_per_container():
    def transcode(at: float) -> Snapshot:
        first, second = snapshot(at).processes
        running = (replace(first, encoder_ratio=0.5, decoder_ratio=0.1), replace(second, encoder_ratio=0.0))
        return replace(snapshot(at), processes=running)

    meters = UsageCounters(longest_gap_seconds=15)
    for at in (100.0, 105.0, 110.0):
        view = meters.advance(transcode(at))
    assert view.parts[key(ALICE)].video_seconds == pytest.approx(5.0)
    assert view.parts[key(BOB)].video_seconds == 0.0


def test_energy_is_the_devices_counter_split_by_utilization():
    meters = UsageCounters(longest_gap_seconds=15)
    meters.advance(snapshot(100.0, joules=10_000))
    view = meters.advance(snapshot(105.0, joules=11_200))
    assert view.parts[key(ALICE)].energy_joules == pytest.approx(900)
    assert total_energy(view) == pytest.approx(1200)


def test_without_an_energy_counter_power_is_integrated():
    meters = UsageCounters(longest_gap_seconds=15)
    meters.advance(snapshot(100.0))
    assert total_energy(meters.advance(snapshot(105.0))) == pytest.approx(1000)


def test_a_gap_longer_than_three_intervals_is_not_counted_as_usage():
    meters = UsageCounters(longest_gap_seconds=15)
    meters.advance(snapshot(100.0))
    assert meters.advance(snapshot(160.0)).gpu_busy_seconds[GPU.uuid] == 0


def test_a_clock_set_back_counts_nothing():
    meters = UsageCounters(longest_gap_seconds=15)
    meters.advance(snapshot(100.0))
    assert meters.advance(snapshot(40.0)).gpu_busy_seconds[GPU.uuid] == 0


def test_a_driver_reload_that_resets_energy_never_counts_backwards():
    meters = UsageCounters(longest_gap_seconds=15)
    meters.advance(snapshot(100.0, joules=10_000))
    view = meters.advance(snapshot(105.0, joules=50))
    assert total_energy(view) == pytest.approx(1000)


def test_counters_of_users_that_left_are_dropped():
    meters = UsageCounters(longest_gap_seconds=15)
    meters.advance(snapshot(100.0))
    view = meters.advance(replace(snapshot(105.0), processes=(), allocations=()))
    assert key(ALICE) not in view.parts


def test_a_gap_in_the_reading_resets_no_counter():
    meters = UsageCounters(longest_gap_seconds=15)
    for at in (100.0, 105.0):
        meters.advance(snapshot(at))
    lost = GpuReading(GPU, lost=True, processes_known=False)
    for at, readings in ((110.0, ()), (115.0, (lost,))):
        assert meters.advance(Snapshot("node-a", at, readings)).parts == {}
    view = meters.advance(snapshot(120.0))
    assert view.gpu_busy_seconds[GPU.uuid] == pytest.approx(8.0)
    assert view.parts[key(ALICE)].busy_seconds == pytest.approx(6.0)
    assert view.parts[key(ALICE)].energy_joules == pytest.approx(1500.0)


def test_a_counter_with_unknown_growth_is_hidden_and_continues_later():
    meters = UsageCounters(longest_gap_seconds=15)
    for at in (100.0, 105.0):
        meters.advance(snapshot(at))
    unknown = snapshot(110.0)
    processes = tuple(replace(process, sm_ratio=None) for process in unknown.processes)
    assert meters.advance(replace(unknown, processes=processes)).parts[key(ALICE)].busy_seconds is None
    assert meters.advance(snapshot(115.0)).parts[key(ALICE)].busy_seconds == pytest.approx(6.0)
