"""Processes on a GPU and what each of them uses, through the real binding."""

import time

import pytest

from gpusteward.agent.nvml import NvmlReading
from gpusteward.core.node.gpus import GpuProcess, Place
from tests.fakes.nvml_library import FakeNvml, Opener
from tests.fakes.nvml_scenarios import (
    GIB,
    LEGACY_UTILIZATION,
    MIB,
    MODERN_UTILIZATION,
    NOT_FOUND,
    NOT_SUPPORTED,
    UNKNOWN,
    Scenario,
    a100,
    a100x8,
    blackwell_legacy_empty,
    crowd,
    modern_empty,
    mps,
    time_sliced,
)

NOTHING: frozenset[str] = frozenset()


def by_pid(reading: NvmlReading) -> dict[int, GpuProcess]:
    assert len({(process.pid, process.gpu_uuid) for process in reading.processes}) == len(reading.processes)
    return {process.pid: process for process in reading.processes}


def test_each_exclusive_gpu_has_its_process(open_nvml: Opener) -> None:
    reading = open_nvml(a100x8()).read(NOTHING)
    process = by_pid(reading)[1003]
    assert process.gpu_uuid == reading.readings[3].gpu.uuid
    assert (process.memory_bytes, process.sm_ratio, process.memory_ratio) == (20 * GIB, 0.53, 0.23)
    assert (process.place, process.name, process.container) == (Place.UNKNOWN, "", None)
    assert not any(gpu.is_mps for gpu in reading.readings)


def test_processes_on_a_shared_gpu_have_their_own_utilization(open_nvml: Opener) -> None:
    found = by_pid(open_nvml(time_sliced()).read(NOTHING))
    assert [found[2000 + number].sm_ratio for number in range(6)] == [0.1, 0.2, 0.3, 0.4, 0.0, 0.0]
    assert found[2005].memory_bytes == 6 * GIB


def test_a_process_on_two_lists_is_one_process_with_the_larger_memory(open_nvml: Opener) -> None:
    found = by_pid(open_nvml(time_sliced()).read(NOTHING))
    assert found[2000].memory_bytes == 2 * GIB  # 1 GiB on the compute list, 2 GiB on the graphics list


def test_mps_clients_are_listed_and_their_gpu_is_marked(open_nvml: Opener) -> None:
    reading = open_nvml(mps()).read(NOTHING)
    found = by_pid(reading)
    assert {3000, 3001, 3002, 3003} <= found.keys()
    assert (found[3002].memory_bytes, found[3002].sm_ratio) == (4 * GIB, 0.2)
    assert reading.readings[0].is_mps


def test_an_mps_server_without_clients_marks_its_gpu_too(open_nvml: Opener) -> None:
    assert open_nvml(mps()).read(NOTHING).readings[1].is_mps


@pytest.mark.parametrize("is_listed_as_mps", [False, True])
def test_the_processes_behind_an_mps_server_that_hides_its_clients_are_unknown(
    open_nvml: Opener, *, is_listed_as_mps: bool
) -> None:
    scenario = mps()
    scenario.gpus[1].graphics(3200, GIB)  # a display server is no client
    if is_listed_as_mps:
        scenario.gpus[1].mps(3100, GIB)
    found = open_nvml(scenario).read(NOTHING)
    assert [each.processes_known for each in found.readings] == [True, False]
    assert found.failures == []


@pytest.mark.parametrize("scenario", [blackwell_legacy_empty, modern_empty])
def test_the_other_call_is_made_if_one_returns_nothing_on_a_busy_gpu(open_nvml: Opener, scenario) -> None:
    nvml = open_nvml(scenario())
    for _cycle in range(2):
        found = by_pid(nvml.read(NOTHING))
        assert [found[pid].sm_ratio for pid in (7000, 7001, 7002)] == [0.2, 0.21, 0.22]


@pytest.mark.parametrize("symbol", [MODERN_UTILIZATION, LEGACY_UTILIZATION])
def test_the_other_call_is_made_if_one_is_not_supported(open_nvml: Opener, symbol: str) -> None:
    scenario = time_sliced()
    scenario.fail(symbol, NOT_SUPPORTED)
    assert by_pid(open_nvml(scenario).read(NOTHING))[2003].sm_ratio == 0.4


def test_utilization_without_a_working_call_is_unknown_not_zero(open_nvml: Opener) -> None:
    scenario = time_sliced()
    scenario.fail(MODERN_UTILIZATION, NOT_SUPPORTED)
    scenario.fail(LEGACY_UTILIZATION, NOT_SUPPORTED)
    process = by_pid(open_nvml(scenario).read(NOTHING))[2003]
    assert (process.sm_ratio, process.encoder_ratio, process.memory_bytes) == (None, None, 4 * GIB)


def idle_gpu(percent: int) -> Scenario:
    gpu = a100(0)
    gpu.numbers["gpu_percent"] = percent
    gpu.compute(8000, GIB)
    return Scenario([gpu])


def test_a_process_without_a_sample_on_an_idle_gpu_was_idle(open_nvml: Opener) -> None:
    assert by_pid(open_nvml(idle_gpu(0)).read(NOTHING))[8000].sm_ratio == 0.0


def test_processes_are_not_idle_on_a_busy_gpu_without_samples(open_nvml: Opener) -> None:
    assert by_pid(open_nvml(idle_gpu(90)).read(NOTHING))[8000].sm_ratio is None


def test_processes_are_not_idle_while_a_video_engine_works_without_samples(open_nvml: Opener) -> None:
    scenario = idle_gpu(0)
    scenario.gpus[0].numbers["encoder_percent"] = 80
    process = by_pid(open_nvml(scenario).read(frozenset({"encoder_ratio"})))[8000]
    assert (process.sm_ratio, process.encoder_ratio) == (None, None)


def test_only_samples_since_the_last_read_are_averaged(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    now, scenario = time.time(), idle_gpu(0)
    gpu = scenario.gpus[0]
    gpu.used(8000, now - 3600, sm=100)  # left over from before the agent
    gpu.used(8000, now - 2, sm=10, memory=4)
    gpu.used(8000, now - 1, sm=30, memory=0)
    nvml = open_nvml(scenario)
    process = by_pid(nvml.read(NOTHING))[8000]
    assert (process.sm_ratio, process.memory_ratio) == (0.2, 0.02)
    gpu.used(8000, now, sm=70)
    fake_nvml.change(scenario)
    assert by_pid(nvml.read(NOTHING))[8000].sm_ratio == 0.7
    assert by_pid(nvml.read(NOTHING))[8000].sm_ratio == 0.0


def test_the_mean_of_a_gpu_is_over_its_samples_since_the_last_read(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    now, scenario, wanted = time.time(), Scenario([a100(0)]), frozenset({"utilization_mean_ratio"})
    scenario.gpus[0].was_busy(now - 3600, 100)
    scenario.gpus[0].was_busy(now - 2, 20)
    scenario.gpus[0].was_busy(now - 1, 60)
    scenario.gpus[0].was_busy(now - 1, 4000)
    nvml = open_nvml(scenario)
    assert nvml.read(wanted).readings[0].signals == {"utilization_mean_ratio": 0.4}
    assert nvml.read(wanted).readings[0].signals == {}


def test_samples_over_a_hundred_percent_are_discarded(open_nvml: Opener) -> None:
    scenario = idle_gpu(0)
    scenario.gpus[0].uses(8000, 4_000_000_000)
    scenario.gpus[0].uses(8000, 40)
    assert by_pid(open_nvml(scenario).read(NOTHING))[8000].sm_ratio == 0.4


def test_a_sample_of_an_ended_process_creates_no_process(open_nvml: Opener) -> None:
    scenario = idle_gpu(0)
    scenario.gpus[0].uses(9999, 50)
    assert by_pid(open_nvml(scenario).read(NOTHING)).keys() == {8000}


def test_unavailable_memory_is_unknown_not_huge(open_nvml: Opener) -> None:
    scenario = idle_gpu(0)
    scenario.gpus[0].compute(8001, None)
    scenario.gpus[0].graphics(8001, 30 * MIB)
    scenario.gpus[0].graphics(8002, None)
    found = by_pid(open_nvml(scenario).read(NOTHING))
    assert (found[8001].memory_bytes, found[8002].memory_bytes) == (30 * MIB, None)


def test_more_processes_than_the_buffers_hold_are_all_read(open_nvml: Opener) -> None:
    found = by_pid(open_nvml(crowd(2, 700)).read(NOTHING))
    assert len(found) == 700
    assert found[10_000].sm_ratio == 0.05
    assert found[10_002].sm_ratio == 0.0


def test_a_process_list_that_outgrows_its_buffer_is_read_again(open_nvml: Opener) -> None:
    scenario = time_sliced()
    scenario.gpus[0].lines.append("growing 3")
    reading = open_nvml(scenario).read(NOTHING)
    assert len(reading.processes) == 6
    assert reading.failures == []


def test_a_process_list_that_keeps_growing_is_a_failure(open_nvml: Opener) -> None:
    scenario = time_sliced()
    scenario.gpus[0].lines.append("growing 1000000")
    reading = open_nvml(scenario).read(NOTHING)
    assert not reading.readings[0].processes_known
    assert [failure.collector for failure in reading.failures] == ["processes"]


def test_a_failing_process_list_affects_only_its_gpu(open_nvml: Opener) -> None:
    scenario = a100x8()
    scenario.gpus[2].fail("nvmlDeviceGetComputeRunningProcesses_v3", UNKNOWN)
    reading = open_nvml(scenario).read(frozenset({"power_watts"}))
    assert [gpu.processes_known for gpu in reading.readings] == [index != 2 for index in range(8)]
    assert reading.readings[2].signals == {"power_watts": 220.0}
    (failure,) = reading.failures
    assert (failure.collector, failure.gpu_uuid) == ("processes", reading.readings[2].gpu.uuid)
    assert "Unknown Error" in failure.reason
    assert len(reading.processes) == 7


def test_a_gpu_without_processes_needs_no_utilization_calls(open_nvml: Opener) -> None:
    scenario = Scenario([a100(0)])
    scenario.gpus[0].fail(MODERN_UTILIZATION, NOT_FOUND)
    reading = open_nvml(scenario).read(NOTHING)
    assert (reading.processes, reading.failures) == ([], [])


@pytest.mark.parametrize("percent", [0, 90])
def test_a_failing_call_does_not_prove_idleness(open_nvml: Opener, percent: int) -> None:
    scenario = idle_gpu(percent)
    for symbol in (MODERN_UTILIZATION, LEGACY_UTILIZATION):
        scenario.fail(symbol, UNKNOWN)
    assert by_pid(open_nvml(scenario).read(NOTHING))[8000].sm_ratio is None


def test_a_process_with_only_impossible_samples_is_unknown_not_idle(open_nvml: Opener) -> None:
    scenario = idle_gpu(0)
    scenario.gpus[0].compute(8001, GIB)
    scenario.gpus[0].uses(8000, 4_000_000_000)
    assert {process.sm_ratio for process in open_nvml(scenario).read(NOTHING).processes} == {None}
    scenario.gpus[0].uses(8001, 40)
    found = by_pid(open_nvml(scenario).read(NOTHING))
    assert (found[8000].sm_ratio, found[8000].encoder_ratio, found[8001].sm_ratio) == (None, None, 0.4)


def test_samples_are_read_right_after_the_clock_was_set_back(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    now, scenario, wanted = time.time(), idle_gpu(0), frozenset({"utilization_mean_ratio"})
    gpu, before = scenario.gpus[0], list(scenario.gpus[0].lines)
    gpu.used(8000, now + 3600, sm=10)
    gpu.was_busy(now + 3600, 10)
    nvml = open_nvml(scenario)
    nvml.read(wanted)
    gpu.lines = before
    gpu.used(8000, now, sm=70)
    gpu.was_busy(now, 70)
    fake_nvml.change(scenario)
    reading = nvml.read(wanted)
    assert by_pid(reading)[8000].sm_ratio == 0.7
    assert reading.readings[0].signals == {"utilization_mean_ratio": 0.7}


MEMORY = frozenset({"memory_used_bytes", "memory_reserved_bytes"})


def test_an_empty_process_list_with_memory_in_use_is_unknown(open_nvml: Opener) -> None:
    reading = open_nvml(Scenario([a100(0)])).read(MEMORY)
    assert not reading.readings[0].processes_known
    assert [failure.collector for failure in reading.failures] == ["processes"]
    assert "hostPID" in reading.failures[0].reason


def test_an_empty_process_list_on_an_unused_gpu_is_known(open_nvml: Opener) -> None:
    scenario = Scenario([a100(0)])
    scenario.gpus[0].rest()
    reading = open_nvml(scenario).read(MEMORY)
    assert (reading.readings[0].processes_known, reading.failures) == (True, [])


def test_without_reserved_memory_in_the_reading_memory_in_use_proves_nothing(open_nvml: Opener) -> None:
    scenario = Scenario([a100(0)])
    scenario.gpus[0].numbers["no_memory_v2"] = 1
    assert open_nvml(scenario).read(MEMORY).readings[0].processes_known
