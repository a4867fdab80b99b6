"""XID errors from the event thread, through the real pynvml."""

import time
from collections.abc import Callable

import pytest

from gpusteward.agent.nvml import Nvml, NvmlReading
from tests.fakes.nvml_library import FakeNvml, Opener
from tests.fakes.nvml_scenarios import Scenario, a100, a100x8, reloaded

XID = frozenset({"last_xid"})


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
        assert (reading.signals, dict(reading.xid_counts)) == ({"last_xid": 0}, {})


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
