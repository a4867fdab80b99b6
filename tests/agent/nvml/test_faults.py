"""Faults of drivers and GPUs and their effects, through the real binding."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpusteward.agent.nvml import Nvml
from gpusteward.core.errors import SourceError
from gpusteward.core.node.signals import SIGNALS
from tests.fakes.nvml_library import FakeNvml, Opener, environment
from tests.fakes.nvml_scenarios import (
    LOST,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
    UNKNOWN,
    Scenario,
    a100,
    a100x8,
    h100_gpm,
    hung_call,
    mig,
    no_driver,
    reloaded,
    with_lost_gpu,
)

EVERYTHING = frozenset(SIGNALS)

READ_IN_A_SUBPROCESS = """
from gpusteward.agent.nvml import Nvml
from gpusteward.core.errors import SourceError
from gpusteward.core.node.signals import SIGNALS
nvml = Nvml("node-1")
try:
    found = nvml.read(frozenset(SIGNALS))
    print(found.failures, len(found.processes), sorted(found.readings[0].signals.items()), found.processes)
except SourceError as error:
    print(error)
nvml.release()
"""


def read_in_a_subprocess(env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", READ_IN_A_SUBPROCESS], env=env, capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout


def test_a_lost_gpu_is_reported_and_the_others_are_read(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    nvml = open_nvml(a100x8())
    before = nvml.read(EVERYTHING).readings[2].gpu
    fake_nvml.change(with_lost_gpu(2))
    found = nvml.read(EVERYTHING)
    assert [reading.lost for reading in found.readings] == [index == 2 for index in range(8)]
    assert found.readings[2].gpu == before
    assert (found.readings[2].signals, found.readings[2].processes_known) == ({"last_xid": 0}, False)
    assert [process.pid for process in found.processes] == [1000, 1001, 1003, 1004, 1005, 1006, 1007]
    (failure,) = found.failures
    assert (failure.collector, failure.gpu_uuid) == ("nvml", before.uuid)
    assert "fell off the bus" in failure.reason


def test_a_recovered_gpu_is_read_again(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    nvml = open_nvml(a100x8())
    nvml.read(EVERYTHING)
    fake_nvml.change(with_lost_gpu(2))
    nvml.read(EVERYTHING)
    fake_nvml.change(a100x8())
    assert not nvml.read(EVERYTHING).readings[2].lost


def test_a_gpu_lost_before_nvml_was_opened_again_keeps_its_identity(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    nvml = open_nvml(a100x8())
    before = nvml.read(EVERYTHING).readings[2].gpu
    nvml.release()
    fake_nvml.change(with_lost_gpu(2))
    reading = nvml.read(EVERYTHING).readings[2]
    assert (reading.gpu, reading.lost) == (before, True)
    fake_nvml.change(a100x8())
    nvml.read(EVERYTHING)
    assert not nvml.read(EVERYTHING).readings[2].lost


@pytest.mark.parametrize(
    ("symbol", "code"),
    [
        ("nvmlDeviceGetHandleByIndex_v2", LOST),
        ("nvmlDeviceGetHandleByIndex_v2", UNKNOWN),
        ("nvmlDeviceGetUUID", LOST),
        ("nvmlDeviceGetUUID", UNKNOWN),
    ],
)
def test_a_gpu_that_cannot_be_opened_at_the_start_is_lost_and_a_failure(
    open_nvml: Opener, symbol: str, code: int
) -> None:
    scenario = a100x8()
    scenario.gpus[2].fail(symbol, code)
    found = open_nvml(scenario).read(EVERYTHING)
    assert [reading.lost for reading in found.readings] == [index == 2 for index in range(8)]
    assert (found.readings[2].gpu.index, found.readings[2].gpu.uuid) == (2, "")
    assert [failure.reason[:13] for failure in found.failures] == ["GPU 2 is lost"]


def test_a_gpu_without_permission_is_not_lost(open_nvml: Opener) -> None:
    scenario = a100x8()
    scenario.gpus[2].fail("nvmlDeviceGetHandleByIndex_v2", NO_PERMISSION)
    found = open_nvml(scenario).read(EVERYTHING)
    assert [reading.gpu.index for reading in found.readings] == [0, 1, 3, 4, 5, 6, 7]
    assert [failure.reason[:15] for failure in found.failures] == ["GPU 2 cannot be"]


def test_a_gpu_without_a_uuid_is_a_failure_that_says_so(open_nvml: Opener) -> None:
    scenario = a100x8()
    scenario.gpus[2].fail("nvmlDeviceGetUUID", NOT_SUPPORTED)
    found = open_nvml(scenario).read(EVERYTHING)
    assert [reading.gpu.index for reading in found.readings] == [0, 1, 3, 4, 5, 6, 7]
    reasons = [failure.reason for failure in found.failures]
    assert reasons == ["GPU 2 cannot be identified: the driver has no uuid of it"]


def test_a_failing_call_on_one_gpu_affects_one_signal(open_nvml: Opener) -> None:
    scenario = a100x8()
    scenario.gpus[5].fail("nvmlDeviceGetPowerUsage", UNKNOWN)
    found = open_nvml(scenario).read(EVERYTHING)
    assert [("power_watts" in reading.signals) for reading in found.readings] == [index != 5 for index in range(8)]
    assert found.readings[5].signals["temperature_celsius"] == 45
    assert [failure.reason for failure in found.failures] == ["nvmlDeviceGetPowerUsage: Unknown Error"]


def test_a_call_without_data_is_not_a_failure(open_nvml: Opener) -> None:
    scenario = a100x8()
    scenario.fail("nvmlDeviceGetFanSpeed", NOT_FOUND)
    scenario.fail("nvmlDeviceGetPcieReplayCounter", NOT_FOUND)
    assert open_nvml(scenario).read(EVERYTHING).failures == []


def test_without_a_driver_the_error_has_advice_and_the_driver_is_found_later(
    open_nvml: Opener, fake_nvml: FakeNvml
) -> None:
    nvml = open_nvml(no_driver())
    for _cycle in range(2):
        with pytest.raises(SourceError, match=r"kernel driver is not loaded.*nvidia-smi"):
            nvml.read(EVERYTHING)
    fake_nvml.change(a100x8())
    assert len(nvml.read(EVERYTHING).readings) == 8


def test_without_the_library_the_error_has_advice() -> None:
    text = read_in_a_subprocess({"PYTHONPATH": "src"})
    assert "libnvidia-ml.so.1 was not found" in text
    assert "--source simulated" in text


@pytest.mark.parametrize("code", [1, 9, UNKNOWN])
def test_after_a_driver_was_reloaded_nvml_is_opened_again(open_nvml: Opener, fake_nvml: FakeNvml, code: int) -> None:
    nvml = open_nvml(a100x8())
    nvml.read(EVERYTHING)
    fake_nvml.change(reloaded(a100x8(), code=code))
    with pytest.raises(SourceError, match="driver is gone"):
        nvml.read(EVERYTHING)
    assert fake_nvml.open_handles == 0
    assert len(nvml.read(EVERYTHING).readings) == 8


def test_nvml_is_opened_again_when_every_gpu_returns_unknown_errors(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    scenario = Scenario([a100(0), a100(1)])
    nvml = open_nvml(scenario)
    nvml.read(frozenset({"power_watts"}))
    scenario.fail("nvmlDeviceGetPowerUsage", UNKNOWN)
    fake_nvml.change(scenario)
    with pytest.raises(SourceError, match="no GPU responds"):
        nvml.read(frozenset({"power_watts"}))


def test_added_and_removed_gpus_are_noticed(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    nvml = open_nvml(Scenario([a100(0)]))
    assert len(nvml.read(EVERYTHING).readings) == 1
    fake_nvml.change(a100x8())
    assert len(nvml.read(EVERYTHING).readings) == 8
    fake_nvml.change(Scenario([a100(3)]))
    assert [reading.gpu.minor for reading in nvml.read(EVERYTHING).readings] == [3]


@pytest.mark.parametrize("scenario", [a100x8, mig, h100_gpm])
def test_release_frees_all_handles_and_the_next_read_opens_nvml_again(
    open_nvml: Opener, fake_nvml: FakeNvml, scenario
) -> None:
    nvml: Nvml = open_nvml(scenario())
    nvml.release()
    for _cycle in range(2):
        nvml.read(EVERYTHING)
        nvml.read(EVERYTHING)
        assert fake_nvml.open_handles > 0
        nvml.release()
        nvml.release()
        assert fake_nvml.open_handles == 0
        assert "xid-events" not in {thread.name for thread in threading.enumerate()}


def test_a_node_without_gpus_is_empty_and_not_a_failure(open_nvml: Opener) -> None:
    found = open_nvml(Scenario()).read(EVERYTHING)
    assert (found.readings, found.processes, found.failures) == ([], [], [])


def test_a_hanging_call_ends_when_the_driver_recovers(open_nvml: Opener, fake_nvml: FakeNvml) -> None:
    nvml = open_nvml(hung_call())
    done = threading.Event()
    thread = threading.Thread(target=lambda: (nvml.read(EVERYTHING), done.set()))
    thread.start()
    try:
        assert not done.wait(0.2)
    finally:
        fake_nvml.change(a100x8())
        thread.join(10)
    assert done.is_set()


def test_a_driver_of_2021_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    scenario = Scenario([a100(0)])
    scenario.gpus[0].compute(4242, 1)
    scenario.gpus[0].uses(4242, 30)
    scenario.write(tmp_path / "scenario")
    env = dict(environment(tmp_path / "scenario", old_driver=True)) | {"PYTHONPATH": "src"}
    text = read_in_a_subprocess(env)
    assert text.startswith("[] 1 ")
    for expected in ("'memory_used_bytes', 22103982080.0", "'clock_event_reasons', 0.0", "sm_ratio=0.3"):
        assert expected in text
    assert "memory_reserved_bytes" not in text


def test_failing_profiling_affects_only_the_profiling_signals(open_nvml: Opener) -> None:
    scenario = h100_gpm()
    scenario.fail("nvmlGpmSampleAlloc", 20)
    found = open_nvml(scenario).read(EVERYTHING)
    assert [reading.signals["temperature_celsius"] for reading in found.readings] == [40, 41]
    assert {failure.reason for failure in found.failures} == {"GPM: Insufficient Memory"}


def test_a_gpu_lost_during_identification_does_not_affect_others(open_nvml: Opener) -> None:
    scenario = h100_gpm()
    scenario.gpus[1].fail("nvmlGpmQueryDeviceSupport", 15)
    assert [reading.lost for reading in open_nvml(scenario).read(EVERYTHING).readings] == [False, True]
