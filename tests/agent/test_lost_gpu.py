"""A GPU that falls off the bus: the XID that reports it stays on the page, under the labels the GPU had."""

import time
from pathlib import Path

from tests.agent.test_golden_pages import START, collection
from tests.fakes.machine_examples import exclusive, mig
from tests.fakes.machines import Machine
from tests.fakes.nvml_library import FakeNvml

FAMILIES = ("DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_XID_ERRORS_TOTAL")
NATIVE = "gpusteward_gpu_xid_errors_total"


def write_fields(folder: Path) -> str:
    path = folder / "fields.csv"
    path.write_text("".join(f"{name}, gauge, XIDs\n" for name in (*FAMILIES, "DCGM_FI_DEV_POWER_USAGE")))
    return f"--collectors={path}"


def lose_gpu(machine: Machine, fake_nvml: FakeNvml, folder: Path, index: int) -> tuple[list[str], list[str]]:
    """The lines of the page about this GPU before and after the driver reports XID 79 and loses it."""
    fake_nvml.load(machine.scenario)
    bus_id, uuid = (machine.scenario.gpus[index].texts[name] for name in ("bus_id", "uuid"))
    with collection(machine, folder, write_fields(folder)) as (cycles, pages):

        def lines(at: float) -> list[str]:
            cycles.run_cycle(now=at, monotonic=0.0)
            page = pages.render(openmetrics=False, gzip=False).decode()
            return [line for line in page.splitlines() if uuid in line and ("DCGM" in line or NATIVE in line)]

        before = lines(START)
        machine.scenario.xid(1, index, xid=79)
        machine.scenario.gpus[index].lose()
        fake_nvml.change(machine.scenario)
        end = time.monotonic() + 10
        while 'xid="79"} 1' not in "\n".join(after := lines(START + 5)) and time.monotonic() < end:
            pass
    assert bus_id in before[0]
    return before, after


def samples(lines: list[str], family: str) -> dict[str, str]:
    """Labels and value of each sample."""
    found = (line.removeprefix(family).rpartition(" ") for line in lines if line.startswith(f"{family}{{"))
    return {labels: value for labels, _, value in found}


def test_the_xid_of_a_lost_gpu_is_exported_under_the_labels_it_had(fake_nvml: FakeNvml, tmp_path: Path):
    before, after = lose_gpu(exclusive(), fake_nvml, tmp_path, 2)
    gauge, counter = samples(after, FAMILIES[0]), samples(after, NATIVE)
    assert list(gauge.values()) == ["79"]
    assert gauge.keys() == samples(before, FAMILIES[0]).keys()
    assert 'pod="bert-worker-0"' in "".join(gauge)
    assert counter.keys() == samples(before, NATIVE).keys(), "the counter of XID 79 continues from its 0"
    assert [value for labels, value in counter.items() if 'xid="79"' in labels] == ["1"]
    for family in FAMILIES[1:]:
        assert [value for labels, value in samples(after, family).items() if 'xid="79"' in labels] == ["1"]
    assert samples(before, "DCGM_FI_DEV_POWER_USAGE")
    assert not samples(after, "DCGM_FI_DEV_POWER_USAGE"), "nothing else of a lost GPU is known"


def test_the_xid_of_a_lost_mig_device_is_exported_for_its_instances(fake_nvml: FakeNvml, tmp_path: Path):
    before, after = lose_gpu(mig(), fake_nvml, tmp_path, 0)
    assert samples(after, FAMILIES[0]).keys() == samples(before, FAMILIES[0]).keys()
    assert list(samples(after, FAMILIES[0]).values()) == ["79"] * 3
    assert list(samples(after, FAMILIES[2]).values()) == ["1"]
