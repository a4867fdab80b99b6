"""How many series the agent exports: a site pays for each of them."""

from collections import Counter
from pathlib import Path

import pytest

from bench.nodes import create_pods
from gpusteward.agent.dialects.dcgm import DcgmDialect
from gpusteward.agent.dialects.dcgm_options import DcgmOptions, DeviceSelection
from gpusteward.agent.dialects.native import NativeDialect
from gpusteward.agent.field_list import FieldList, default_fields
from gpusteward.core.exposition import LabelCache
from gpusteward.core.node.gpus import GpuProcess, Place
from tests.agent.dialects.snapshot_views import Page, claim, reading, view
from tests.agent.dialects.snapshot_views import fields as list_fields
from tests.agent.test_golden_pages import render
from tests.fakes.machines import Machine
from tests.fakes.nvml_library import FakeNvml
from tests.fakes.nvml_scenarios import crowd

GPUS, PROCESSES = 8, 64


def count_series(machine: Machine, fake_nvml: FakeNvml, folder: Path, *flags: str) -> Counter[str]:
    """By family. `render` leaves out one family of the agent itself, which is added here."""
    fake_nvml.load(machine.scenario)
    page = render(machine, folder, *flags)
    found = Counter(line.partition("{")[0] for line in page.splitlines() if not line.startswith("#"))
    found["gpusteward_collector_duration_seconds"] = found["gpusteward_collector_success"]
    return found


def shared() -> Machine:
    pids = list(range(1000, 1000 + PROCESSES))
    scenario = crowd(GPUS, PROCESSES, pids=pids)
    return Machine(scenario, create_pods(scenario, pids))


def test_eight_gpus_with_64_processes_and_all_dialects_have_at_most_1200_series_and_three_for_each_pod(
    fake_nvml: FakeNvml, tmp_path: Path
):
    machine = shared()
    found = count_series(machine, fake_nvml, tmp_path)
    assert found["nvidia_pid_pod"] == found["gpusteward_process_memory_bytes"] == PROCESSES
    of_pods = sum(count for name, count in found.items() if name.startswith("gpusteward_pod_"))
    assert of_pods == 3 * len(machine.pods)
    assert found.total() - of_pods <= 1200, found.most_common()


def test_a_gpu_without_processes_has_at_most_45_series_with_its_share_of_those_of_the_agent(
    fake_nvml: FakeNvml, tmp_path: Path
):
    idle = crowd(GPUS, 0)
    for gpu in idle.gpus:
        gpu.numbers |= {"gpu_percent": 0, "memory_percent": 0}
    found = count_series(Machine(idle), fake_nvml, tmp_path)
    assert found["DCGM_FI_DEV_GPU_UTIL"] == found["gpusteward_gpu_up"] == GPUS
    assert found.total() <= 45 * GPUS, found.most_common()


def test_a_process_has_one_native_series_and_with_all_series_five(fake_nvml: FakeNvml, tmp_path: Path):
    (tmp_path / "few").mkdir()
    few = count_series(shared(), fake_nvml, tmp_path / "few")
    (tmp_path / "all").mkdir()
    every = count_series(shared(), fake_nvml, tmp_path / "all", "--all-series")
    assert sum(few[name] for name in few if name.startswith("gpusteward_process_")) == PROCESSES
    assert sum(every[name] for name in every if name.startswith("gpusteward_process_")) == 5 * PROCESSES


SIGNALS = {"memory_used_bytes": 2.0, "memory_free_bytes": 3.0, "memory_clock_hertz": 1e9, "encoder_ratio": 0.0}


@pytest.mark.parametrize(
    ("options", "fields", "is_repeated"),
    [
        (DcgmOptions(), default_fields(), True),
        (DcgmOptions(), list_fields("DCGM_FI_DEV_GPU_TEMP"), False),
        (DcgmOptions(device_per_pod=True), default_fields(), False),
        (DcgmOptions(devices=DeviceSelection("g", frozenset({1}))), default_fields(), False),
    ],
    ids=["all devices", "other fields", "use of pods", "some devices"],
)
def test_a_native_family_is_left_out_only_where_every_gpu_has_it_under_its_dcgm_name(
    options: DcgmOptions, fields: FieldList, *, is_repeated: bool
):
    labels = LabelCache()
    beside = DcgmDialect(options, fields, labels=labels)
    seen = view([reading(signals=SIGNALS)], [claim("a")])
    found = Page(NativeDialect(labels, beside=beside).families(seen)).names()
    repeated = {f"gpusteward_gpu_{name}" for name in ("memory_clock_hertz", "encoder_ratio", "memory_used_bytes")}
    assert found & repeated == (set() if is_repeated else repeated)
    assert "gpusteward_gpu_memory_free_bytes" not in found, "nothing reads it"
    assert "gpusteward_use_memory_bytes" in found


def test_parts_that_nobody_holds_have_no_series_while_they_are_not_used():
    unused = reading(signals={**SIGNALS, "memory_used_bytes": 0.0})
    assert "gpusteward_use_memory_bytes" not in Page(NativeDialect(LabelCache()).families(view([unused]))).names()
    daemon = GpuProcess(7, unused.gpu.uuid, place=Place.HOST, memory_bytes=2)
    used = view([reading(signals=SIGNALS)], processes=[daemon])
    labels, value = Page(NativeDialect(LabelCache()).families(used)).only("gpusteward_use_memory_bytes")
    assert (labels["by"], value) == ("host", 2)


def test_an_event_has_a_series_from_its_first_time_on_and_all_events_one_that_begins_at_0():
    codes, every = "gpusteward_gpu_xid_errors_total", "gpusteward_gpu_all_xid_errors_total"
    reasons, all_reasons = "gpusteward_gpu_clock_events_total", "gpusteward_gpu_all_clock_events_total"
    before = reading(signals={"last_xid": 0.0}, clock_event_counts={"gpu_idle": 0, "hw_thermal": 0})
    after = reading(
        signals={"last_xid": 31.0}, xid_counts={31: 2, 79: 1}, clock_event_counts={"gpu_idle": 0, "hw_thermal": 3}
    )
    page = Page(NativeDialect(LabelCache()).families(view([before])))
    assert not page.names() & {codes, reasons}
    assert page.values(every) == page.values(all_reasons) == [0]
    page = Page(NativeDialect(LabelCache()).families(view([after])))
    assert {labels["xid"]: value for labels, value in page.samples(codes)} == {"31": 2, "79": 1}
    assert {labels["reason"]: value for labels, value in page.samples(reasons)} == {"hw_thermal": 3}
    assert page.values(every) == page.values(all_reasons) == [3]
