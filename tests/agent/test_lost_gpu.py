"""A GPU that falls off the bus: the XID that reports it stays on the page, under the labels the GPU had."""

import time
from pathlib import Path

from tests.agent.test_golden_pages import START, collection
from tests.fakes.machine_examples import exclusive, lost_gpu, mig
from tests.fakes.machines import Machine
from tests.fakes.nvml_library import FakeNvml

FAMILIES = ("DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_XID_ERRORS_TOTAL")
NATIVE, TOTAL = "gpusteward_gpu_xid_errors_total", "gpusteward_gpu_all_xid_errors_total"


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
            return [line for line in page.splitlines() if uuid in line and ("DCGM" in line or "xid_errors" in line)]

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
    assert [value for labels, value in counter.items() if 'xid="79"' in labels] == ["1"]
    assert not samples(before, NATIVE), "a code has no series before it occurs"
    assert list(samples(before, TOTAL).values()) == ["0"]
    assert list(samples(after, TOTAL).values()) == ["1"], "the total begins at 0, so that increase() sees the first one"
    assert samples(after, TOTAL).keys() == samples(before, TOTAL).keys()
    for family in FAMILIES[1:]:
        assert [value for labels, value in samples(after, family).items() if 'xid="79"' in labels] == ["1"]
    assert samples(before, "DCGM_FI_DEV_POWER_USAGE")
    assert not samples(after, "DCGM_FI_DEV_POWER_USAGE"), "nothing else of a lost GPU is known"


def test_the_xid_of_a_lost_mig_device_is_exported_for_its_instances(fake_nvml: FakeNvml, tmp_path: Path):
    before, after = lose_gpu(mig(), fake_nvml, tmp_path, 0)
    assert samples(after, FAMILIES[0]).keys() == samples(before, FAMILIES[0]).keys()
    assert list(samples(after, FAMILIES[0]).values()) == ["79"] * 3
    assert list(samples(after, FAMILIES[2]).values()) == ["1"]


def write_driver_gpus(proc: Path, machine: Machine, **texts: str) -> None:
    """What the driver lists in /proc: a folder per bus id with the uuid, or the given text instead of it."""
    for gpu in machine.scenario.gpus:
        folder = proc / "driver/nvidia/gpus" / gpu.texts["bus_id"].lower().removeprefix("0000")
        folder.mkdir(parents=True)
        uuid = texts.get("uuid", gpu.uuid)
        (folder / "information").write_text(
            f"Model: \t\t {gpu.texts['model']}\nGPU UUID: \t {uuid}\nGPU Excluded:\t {texts.get('excluded', 'No')}\n"
        )


def read_up(machine: Machine, fake_nvml: FakeNvml, folder: Path) -> list[str]:
    """The samples of gpu_up that are 0, and all that the page says about holders of such a GPU."""
    fake_nvml.load(machine.scenario)
    with collection(machine, folder) as (cycles, pages):
        cycles.run_cycle(now=START, monotonic=0.0)
        page = pages.render(openmetrics=False, gzip=False).decode()
    return [line for line in page.splitlines() if line.startswith("gpusteward_gpu_up{") and line.endswith(" 0")]


def test_a_gpu_lost_before_the_start_is_down_under_its_index(fake_nvml: FakeNvml, tmp_path: Path):
    machine = lost_gpu()
    machine.pods.clear()
    assert read_up(machine, fake_nvml, tmp_path) == ['gpusteward_gpu_up{node="node-a",gpu="2"} 0']


def test_a_gpu_lost_before_the_start_has_the_uuid_that_the_driver_lists_in_proc(fake_nvml: FakeNvml, tmp_path: Path):
    machine = lost_gpu()
    machine.pods.clear()
    machine.scenario.gpus[5].lose()
    write_driver_gpus(tmp_path / "proc", machine)
    uuids = [machine.scenario.gpus[index].uuid for index in (2, 5)]
    assert read_up(machine, fake_nvml, tmp_path) == [
        f'gpusteward_gpu_up{{node="node-a",gpu="{index}",uuid="{uuid}"}} 0'
        for index, uuid in zip((2, 5), uuids, strict=True)
    ]


def test_a_uuid_that_the_driver_never_read_is_not_exported(fake_nvml: FakeNvml, tmp_path: Path):
    machine = lost_gpu()
    machine.pods.clear()
    write_driver_gpus(tmp_path / "proc", machine, uuid="GPU-????????-????-????-????-????????????")
    assert read_up(machine, fake_nvml, tmp_path) == ['gpusteward_gpu_up{node="node-a",gpu="2"} 0']


def test_a_gpu_lost_before_the_start_has_the_uuid_that_a_pod_holds(fake_nvml: FakeNvml, tmp_path: Path):
    machine = lost_gpu()
    uuid = machine.scenario.gpus[2].uuid
    assert read_up(machine, fake_nvml, tmp_path) == [f'gpusteward_gpu_up{{node="node-a",gpu="2",uuid="{uuid}"}} 0']


def test_two_gpus_lost_before_the_start_are_not_guessed_from_the_uuids_that_pods_hold(
    fake_nvml: FakeNvml, tmp_path: Path
):
    machine = lost_gpu()
    machine.scenario.gpus[5].lose()
    assert read_up(machine, fake_nvml, tmp_path) == [
        f'gpusteward_gpu_up{{node="node-a",gpu="{index}"}} 0' for index in (2, 5)
    ]
