"""MIG instances as separate GPUs, through the real binding."""

import time

import pytest

from gpusteward.agent.nvml import NvmlReading
from gpusteward.agent.nvml.identity import name_profile
from gpusteward.core.node.gpus import GpuReading
from gpusteward.core.node.signals import SIGNALS, Scope
from tests.fakes.nvml_library import FakeNvml, Opener
from tests.fakes.nvml_scenarios import GIB, MIB, UNKNOWN, Scenario, mig, with_lost_gpu

EVERYTHING = frozenset(SIGNALS)


def instances(reading: NvmlReading) -> list[GpuReading]:
    return [one for one in reading.readings if one.gpu.mig]


def test_instances_follow_their_parent(open_nvml: Opener) -> None:
    readings = open_nvml(mig()).read(EVERYTHING).readings
    assert [one.gpu.mig and one.gpu.mig.profile for one in readings] == [None, "3g.40gb", "1g.10gb", "1g.10gb", None]
    assert [one.is_mig_parent for one in readings] == [True, False, False, False, False]


def test_an_instance_has_its_identity(open_nvml: Opener) -> None:
    parent, _large, small, *_rest = open_nvml(mig()).read(EVERYTHING).readings
    gpu = small.gpu
    assert gpu.mig is not None
    assert (gpu.mig.gpu_instance_id, gpu.mig.compute_instance_id) == (7, 0)
    assert gpu.mig.parent_uuid == gpu.device_uuid == parent.gpu.uuid
    assert gpu.uuid == "MIG-11111111-aaaa-bbbb-cccc-000000000007"
    assert (gpu.index, gpu.minor, gpu.pci_bus_id) == (0, 0, "00000000:10:00.0")
    assert gpu.model == "NVIDIA H100 80GB HBM3"
    assert gpu.memory_total_bytes == 9728 * MIB
    assert gpu.facts["driver_version"] == "550.54.14"


def test_the_profile_is_computed_if_the_name_does_not_contain_it(open_nvml: Opener) -> None:
    scenario = mig()
    for instance in scenario.gpus[0].instances:
        instance.texts["model"] = "NVIDIA H100 80GB HBM3"
    profiles = [one.gpu.mig.profile for one in instances(open_nvml(scenario).read(EVERYTHING)) if one.gpu.mig]
    assert profiles == ["3g.40gb", "1g.10gb", "1g.10gb"]


def test_the_video_engines_of_an_instance_are_those_that_the_driver_counts(open_nvml: Opener) -> None:
    """Two instances of one profile: with and without media extensions."""
    scenario = mig()
    scenario.gpus[0].instances[1].numbers["video_engines"] = 0
    scenario.gpus[0].instances[2].numbers["video_engines"] = 3
    found = instances(open_nvml(scenario).read(EVERYTHING))
    assert [one.gpu.mig.video_engines for one in found if one.gpu.mig] == [1, 0, 3]


@pytest.mark.parametrize(
    ("slices", "memory", "total", "profile"),
    [(1, 4864, 40, "1g.5gb"), (2, 9856, 40, "2g.10gb"), (3, 19968, 40, "3g.20gb"), (7, 80896, 80, "7g.80gb")],
)
def test_profiles_are_named_as_nvidia_names_them(slices: int, memory: int, total: int, profile: str) -> None:
    sizes = {"memory_bytes": memory * MIB, "parent_memory_bytes": total * GIB}
    assert name_profile(slices, slices, **sizes) == profile
    assert name_profile(slices, 1, **sizes) == (profile if slices == 1 else f"1c.{profile}")


def test_the_placement_of_an_instance_is_known_where_the_driver_shows_it(open_nvml: Opener) -> None:
    scenario = mig()
    scenario.gpus[0].instances[1].numbers["placement"] = 4
    found = instances(open_nvml(scenario).read(EVERYTHING))
    assert [one.gpu.mig.placement_start for one in found if one.gpu.mig] == [None, 4, None]


def test_an_instance_has_its_own_memory_and_profiling(open_nvml: Opener) -> None:
    nvml = open_nvml(mig())
    nvml.read(EVERYTHING)
    large, small, unused = instances(nvml.read(EVERYTHING))
    assert large.signals["memory_total_bytes"] == 40192 * MIB
    assert (large.signals["gr_engine_ratio"], small.signals["gr_engine_ratio"]) == (0.8, 0.1)
    assert "gr_engine_ratio" not in unused.signals  # a GPU instance without work has no sample


def test_temperature_is_copied_to_instances_and_power_is_not(open_nvml: Opener) -> None:
    nvml = open_nvml(mig())
    nvml.read(EVERYTHING)
    parent, *slices = nvml.read(EVERYTHING).readings[:4]
    assert parent.signals["power_watts"] == 200
    for one in slices:
        assert one.signals["temperature_celsius"] == 40
        assert one.signals["memory_temperature_celsius"] == 50
        assert not [name for name in one.signals if SIGNALS[name].scope is Scope.DEVICE]


def test_signals_not_supported_on_mig_are_absent_not_zero(open_nvml: Opener) -> None:
    for one in open_nvml(mig()).read(EVERYTHING).readings[:4]:
        assert {"utilization_ratio", "utilization_mean_ratio", "encoder_ratio"}.isdisjoint(one.signals)


def test_processes_are_listed_on_their_instance_with_unknown_utilization(open_nvml: Opener) -> None:
    reading = open_nvml(mig()).read(EVERYTHING)
    large, small, _unused = instances(reading)
    found = {process.pid: process for process in reading.processes}
    assert (found[5000].gpu_uuid, found[5001].gpu_uuid) == (large.gpu.uuid, small.gpu.uuid)
    assert (found[5000].memory_bytes, found[5000].sm_ratio) == (12 * GIB, None)


def test_changed_mig_instances_are_read_in_the_next_cycle(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    scenario = mig()
    nvml = open_nvml(scenario)
    nvml.read(EVERYTHING)
    replaced = scenario.gpus[0].instances.pop(0)
    fake_nvml.change(scenario)
    assert [one.gpu.mig.gpu_instance_id for one in instances(nvml.read(EVERYTHING)) if one.gpu.mig] == [7, 9]
    scenario.gpus[0].instances.append(replaced)
    fake_nvml.change(scenario)
    assert len(instances(nvml.read(EVERYTHING))) == 3


def test_switching_mig_off_makes_the_gpu_whole_again(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    scenario = mig()
    nvml = open_nvml(scenario)
    nvml.read(EVERYTHING)
    scenario.gpus[0].numbers["mig_mode"] = 0
    scenario.gpus[0].numbers["gpu_percent"] = 33
    scenario.gpus[0].numbers["memory_percent"] = 3
    scenario.gpus[0].compute(5000, GIB)
    fake_nvml.change(scenario)
    reading = nvml.read(EVERYTHING)
    assert instances(reading) == []
    assert not reading.readings[0].is_mig_parent
    assert reading.readings[0].signals["utilization_ratio"] == 0.33


def test_an_unreadable_instance_does_not_affect_others(open_nvml: Opener) -> None:
    scenario = mig()
    scenario.gpus[0].instances[1].fail("nvmlDeviceGetMemoryInfo_v2", UNKNOWN)
    reading = open_nvml(scenario).read(EVERYTHING)
    large, small, _unused = instances(reading)
    assert "memory_used_bytes" in large.signals
    assert "memory_used_bytes" not in small.signals
    assert [failure.gpu_uuid for failure in reading.failures] == [small.gpu.uuid]


def test_the_instances_of_a_lost_gpu_are_lost_with_it(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    nvml = open_nvml(mig())
    nvml.read(EVERYTHING)
    fake_nvml.change(with_lost_gpu(0, mig()))
    reading = nvml.read(EVERYTHING)
    assert [one.lost for one in reading.readings] == [True, True, True, True, False]
    assert len(reading.failures) == 1


def test_instances_are_lost_with_their_gpu_and_nothing_leaks_if_it_is_lost_while_listing_them(
    open_nvml: Opener, fake_nvml: FakeNvml
) -> None:
    scenario, lost = mig(), mig()
    lost.gpus[0].fail("nvmlDeviceGetMigDeviceHandleByIndex", 15)
    nvml = open_nvml(scenario)
    for _cycle in range(3):
        nvml.read(EVERYTHING)
    held = fake_nvml.open_handles
    fake_nvml.change(lost)
    assert [one.lost for one in nvml.read(EVERYTHING).readings] == [True, True, True, True, False]
    fake_nvml.change(scenario)
    for _cycle in range(3):
        nvml.read(EVERYTHING)
    assert fake_nvml.open_handles == held


def test_an_xid_of_an_instance_is_counted_there_and_not_again_on_its_parent(
    open_nvml: Opener, fake_nvml: FakeNvml
) -> None:
    scenario: Scenario = mig()
    scenario.xid(1, 0, xid=43, instance=(7, 0))
    nvml = open_nvml(scenario)
    reading = nvml.read(EVERYTHING)
    end = time.monotonic() + 10
    while not reading.readings[0].signals["last_xid"] and time.monotonic() < end:
        reading = nvml.read(EVERYTHING)
    parent, large, small, _unused, _other = reading.readings
    assert (dict(parent.xid_counts), dict(large.xid_counts), dict(small.xid_counts)) == ({}, {}, {43: 1})
    assert [one.signals["last_xid"] for one in (parent, large, small)] == [43, 0, 43]


def test_signals_shared_by_two_compute_instances_are_exported_for_neither(
    open_nvml: Opener, fake_nvml: FakeNvml
) -> None:
    scenario = mig()
    one, other, alone = scenario.gpus[0].instances
    for number, sibling in enumerate((one, other)):
        sibling.numbers |= {"gi": 5, "ci": number}
        sibling.gpm |= {1: 80.0}
    nvml = open_nvml(scenario)
    nvml.read(EVERYTHING)
    *siblings, apart = instances(nvml.read(EVERYTHING))
    own = {name for name, signal in SIGNALS.items() if signal.scope is Scope.INSTANCE}
    assert all(own.isdisjoint(each.signals) for each in siblings)
    assert "memory_used_bytes" in apart.signals
    scenario.gpus[0].instances = [one, alone]
    fake_nvml.change(scenario)
    nvml.read(EVERYTHING)
    assert instances(nvml.read(EVERYTHING))[0].signals["gr_engine_ratio"] == 0.8
