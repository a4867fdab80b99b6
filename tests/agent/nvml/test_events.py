"""XID errors from the event thread, through the real pynvml."""

import time
from collections.abc import Callable

import pytest

from gpusteward.agent.nvml import Nvml, NvmlReading
from tests.fakes.nvml_library import FakeNvml, Opener
from tests.fakes.nvml_scenarios import Scenario, a100, a100x8, mig, reloaded

XID = frozenset({"last_xid", "power_watts"})


def read_until(nvml: Nvml, holds: Callable[[NvmlReading], bool]) -> NvmlReading:
    """Read until it holds: events come by a thread."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        reading = nvml.read(XID)
        if holds(reading):
            return reading
    return pytest.fail("it never came to hold")


def test_the_last_xid_is_zero_from_the_start(open_nvml: Opener) -> None:
    for reading in open_nvml(a100x8()).read(XID).readings:
        assert (reading.signals["last_xid"], dict(reading.xid_counts)) == (0, {})


def test_a_gpu_without_event_support_has_no_last_xid(open_nvml: Opener) -> None:
    scenario = Scenario([a100(0), a100(1)])
    del scenario.gpus[1].numbers["events"]
    first, second = open_nvml(scenario).read(XID).readings
    assert "last_xid" in first.signals
    assert "last_xid" not in second.signals


def test_xids_are_counted_by_code_on_their_own_gpu(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    scenario = a100x8()
    nvml = open_nvml(scenario)
    nvml.read(XID)
    for number, xid in enumerate((31, 31, 79), start=1):
        scenario.xid(number, 3, xid=xid)
    fake_nvml.change(scenario)
    reading = read_until(nvml, lambda found: sum(found.readings[3].xid_counts.values()) == 3)
    assert dict(reading.readings[3].xid_counts) == {31: 2, 79: 1}
    assert reading.readings[3].signals["last_xid"] == 79
    assert dict(reading.readings[4].xid_counts) == {}
    assert reading.readings[4].signals["last_xid"] == 0


def test_counts_survive_release_and_a_driver_reload(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    scenario = a100x8()
    scenario.xid(1, 0, xid=63)
    nvml = open_nvml(scenario)
    read_until(nvml, lambda found: bool(found.readings[0].xid_counts))
    nvml.release()
    fake_nvml.change(reloaded(scenario))
    assert dict(nvml.read(XID).readings[0].xid_counts) == {63: 1}
    scenario.xid(2, 0, xid=63)
    fake_nvml.change(scenario)
    reading = read_until(nvml, lambda found: found.readings[0].xid_counts.get(63) == 2)
    assert reading.readings[0].signals["last_xid"] == 63


def test_a_failing_wait_does_not_end_the_event_thread(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    scenario = a100x8()
    scenario.fail("nvmlEventSetWait_v2", 15)
    scenario.xid(1, 0, xid=48)
    nvml = open_nvml(scenario)
    assert not nvml.read(XID).readings[0].xid_counts
    healed = a100x8()
    healed.xid(1, 0, xid=48)
    fake_nvml.change(healed)
    read_until(nvml, lambda found: dict(found.readings[0].xid_counts) == {48: 1})


@pytest.mark.parametrize("instance", [None, (0, 0), (0, 0xFFFFFFFF), (3, 0)])
def test_an_xid_on_a_gpu_without_mig_belongs_to_the_gpu_whatever_instance_the_driver_names(
    open_nvml: Opener, instance: tuple[int, int] | None
) -> None:
    scenario = a100x8()
    scenario.xid(1, 3, xid=31, instance=instance)
    reading = read_until(open_nvml(scenario), lambda found: bool(found.readings[3].signals["last_xid"]))
    assert dict(reading.readings[3].xid_counts) == {31: 1}


@pytest.mark.parametrize(("instance", "counted_on"), [((0, 0), 0), ((7, 0), 2), ((7, 5), 2), ((7, 0xFFFFFFFF), 2)])
def test_an_xid_of_an_unknown_instance_belongs_to_the_next_larger_unit(
    open_nvml: Opener, instance: tuple[int, int], counted_on: int
) -> None:
    scenario = mig()
    scenario.xid(1, 0, xid=43, instance=instance)
    reading = read_until(open_nvml(scenario), lambda found: bool(found.readings[0].signals["last_xid"]))
    assert [index for index, each in enumerate(reading.readings) if each.xid_counts] == [counted_on]


def test_an_xid_stays_with_the_gpu_when_instances_are_created_later(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    scenario = mig()
    instances, scenario.gpus[0].instances = scenario.gpus[0].instances, []
    scenario.xid(1, 0, xid=43, instance=(7, 0))
    nvml = open_nvml(scenario)
    read_until(nvml, lambda found: dict(found.readings[0].xid_counts) == {43: 1})
    scenario.gpus[0].instances = instances
    fake_nvml.change(scenario)
    parent, *others = nvml.read(XID).readings
    assert (dict(parent.xid_counts), [dict(each.xid_counts) for each in others]) == ({43: 1}, [{}] * 4)


def lose(scenario: Scenario, fake_nvml: FakeNvml, gpu: int, *, number: int = 1) -> None:
    """The GPU falls off the bus as the driver reports it: XID 79, then every call fails."""
    scenario.xid(number, gpu, xid=79)
    scenario.gpus[gpu].lose()
    fake_nvml.change(scenario)


def test_the_xids_of_a_lost_gpu_stay_known(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    scenario = a100x8()
    nvml = open_nvml(scenario)
    before = nvml.read(XID).readings[2].gpu
    lose(scenario, fake_nvml, 2)
    reading = read_until(nvml, lambda found: bool(found.readings[2].xid_counts)).readings[2]
    assert (reading.gpu, reading.lost) == (before, True)
    assert (reading.signals, dict(reading.xid_counts)) == ({"last_xid": 79}, {79: 1})


def test_the_xids_of_lost_mig_instances_stay_known(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    scenario = mig()
    scenario.xid(1, 0, xid=43, instance=(7, 0))
    nvml = open_nvml(scenario)
    read_until(nvml, lambda found: bool(found.readings[2].xid_counts))
    lose(scenario, fake_nvml, 0, number=2)
    lost = read_until(nvml, lambda found: found.readings[0].signals["last_xid"] == 79).readings[:4]
    assert [each.signals["last_xid"] for each in lost] == [79] * 4
    assert [dict(each.xid_counts) for each in lost] == [{79: 1}, {}, {43: 1}, {}]


@pytest.mark.parametrize("is_counted", [True, False])
def test_a_lost_gpu_keeps_its_xids_when_nvml_is_opened_again(
    open_nvml: Opener, fake_nvml: FakeNvml, is_counted: bool
) -> None:
    scenario = a100x8()
    nvml = open_nvml(scenario)
    nvml.read(XID)
    lost = scenario.gpus[2]
    lose(scenario, fake_nvml, 2)
    read_until(nvml, lambda found: bool(found.readings[2].xid_counts))
    nvml.release()
    if not is_counted:  # the driver no longer lists it, and the GPUs behind it have new indices
        del scenario.gpus[2]
    fake_nvml.change(scenario)
    (reading,) = [each for each in nvml.read(XID).readings if each.gpu.uuid == lost.uuid]
    assert (reading.lost, reading.signals, dict(reading.xid_counts)) == (True, {"last_xid": 79}, {79: 1})


@pytest.mark.parametrize("xids", [(79,), (79, 154)])
def test_a_gpu_that_vanishes_after_its_xid_79_is_lost_and_one_that_was_removed_is_not(
    open_nvml: Opener, fake_nvml: FakeNvml, xids: tuple[int, ...]
) -> None:
    scenario = a100x8()
    for number, xid in enumerate(xids):
        scenario.xid(1 + number, 2, xid=xid)
    nvml = open_nvml(scenario)
    read_until(nvml, lambda found: found.readings[2].xid_counts.keys() == set(xids))
    fallen = scenario.gpus[2].uuid
    del scenario.gpus[2:4]
    fake_nvml.change(scenario)
    readings = nvml.read(XID).readings
    assert [each.gpu.uuid for each in readings if each.lost] == [fallen]
    assert len(readings) == 7


def test_one_lost_gpu_does_not_hide_the_xids_of_the_others(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    scenario = a100x8()
    nvml = open_nvml(scenario)
    nvml.read(XID)
    lose(scenario, fake_nvml, 2)
    read_until(nvml, lambda found: bool(found.readings[2].xid_counts))
    scenario.xid(2, 5, xid=94)
    fake_nvml.change(scenario)
    read_until(nvml, lambda found: dict(found.readings[5].xid_counts) == {94: 1})


def test_a_gpu_that_recovers_is_watched_again_and_no_longer_lost(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    scenario = a100x8()
    nvml = open_nvml(scenario)
    nvml.read(XID)
    lose(scenario, fake_nvml, 2)
    scenario.xid(2, 5, xid=94)
    fake_nvml.change(scenario)
    read_until(nvml, lambda found: bool(found.readings[5].xid_counts))
    scenario.gpus[2].lines.remove("lost")
    scenario.xid(3, 2, xid=31)
    fake_nvml.change(scenario)
    reading = read_until(nvml, lambda found: dict(found.readings[2].xid_counts) == {79: 1, 31: 1})
    assert not any(each.lost for each in reading.readings)
