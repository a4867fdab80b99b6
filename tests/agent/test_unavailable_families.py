"""Families that a GPU model does not provide are named once in the log, one line per model."""

import logging
import math
from pathlib import Path

import pytest

from tests.agent.test_golden_pages import START, collection
from tests.fakes import nvml_scenarios as nvml
from tests.fakes.machine_examples import mig, unified_memory
from tests.fakes.machines import Machine
from tests.fakes.nvml_library import FakeNvml


@pytest.fixture
def named(fake_nvml: FakeNvml, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Runs cycles on a machine; returns the families of each log line by model and MIG mode."""
    caplog.set_level(logging.INFO, logger="gpusteward")

    def run(machine: Machine, *flags: str, cycles: int = 6) -> list[tuple[str, bool, set[str]]]:
        fake_nvml.load(machine.scenario)
        with collection(machine, tmp_path, *flags) as (collected, _pages):
            for number in range(cycles):
                collected.run_cycle(now=START + 5 * number, monotonic=0.0)
        lines = [record for record in caplog.records if record.getMessage() == "families_unavailable"]
        fields = [record.facts for record in lines]
        return [(each["model"], each["mig"], set(each["families"].split(","))) for each in fields]

    return run


def test_a_model_is_named_once_with_the_families_of_all_dialects(named) -> None:
    scenario = nvml.Scenario([nvml.a100(0), nvml.a100(1), nvml.h100(2)])
    (model, is_mig, families), *others = named(Machine(scenario))
    assert (model, is_mig) == ("NVIDIA A100-SXM4-80GB", False)
    assert {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PCIE_TX_BYTES"} <= families
    assert {"gpusteward_gpu_tensor_active_ratio", "gpusteward_gpu_engine_active_ratio"} <= families
    assert not {name for name in families if "PROF" not in name and "gpusteward" not in name}
    assert "gpusteward_gpu_utilization_ratio" not in families
    assert others == [], "an H100 provides them all"


def test_a_gpu_with_unified_memory_names_its_memory(named) -> None:
    ((model, _, families),) = named(unified_memory())
    assert model == "NVIDIA GB10"
    assert {"DCGM_FI_DEV_FB_USED", "gpusteward_gpu_memory_total_bytes"} <= families
    assert "pod_total_gpu_memory" in families
    assert "DCGM_FI_DEV_GPU_UTIL" not in families


def test_a_mig_device_has_what_its_instances_have_even_while_they_are_idle(named) -> None:
    machine = mig()
    for instance in machine.scenario.gpus[0].instances:
        instance.gpm = dict.fromkeys(instance.gpm, math.nan)  # an instance without work has no values
    ((model, is_mig, families),) = named(machine)
    assert (model, is_mig) == ("NVIDIA H100 80GB HBM3", True)
    assert "DCGM_FI_DEV_GPU_UTIL" in families
    assert not families & {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_XID_ERRORS"}


def test_a_value_that_is_missing_for_a_moment_is_not_named(named) -> None:
    scenario = nvml.Scenario([nvml.h100(0)])
    scenario.gpus[0].fail("nvmlDeviceGetPowerUsage", nvml.NOT_FOUND)
    assert named(Machine(scenario)) == []


def test_only_families_of_the_field_list_are_named(named, tmp_path: Path) -> None:
    fields = tmp_path / "fields.csv"
    machine = Machine(nvml.Scenario([nvml.a100(0)]))
    flags = ("--dialects=dcgm", f"--collectors={fields}")
    fields.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, x\nDCGM_FI_DEV_FAN_SPEED, gauge, x\n")
    assert named(machine, *flags) == [("NVIDIA A100-SXM4-80GB", False, {"DCGM_FI_DEV_FAN_SPEED"})]
