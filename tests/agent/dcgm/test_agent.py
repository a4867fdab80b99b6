"""The agent with a DCGM hostengine: its values are on the page and in the counters, like those of NVML on Hopper."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpusteward.agent.app import build_dialects
from gpusteward.agent.collection import Collection
from gpusteward.agent.dcgm.client import Dcgm, DcgmReader
from gpusteward.agent.kubernetes.kubelet import KubeletClient
from gpusteward.agent.metrics_page import MetricsPage
from gpusteward.agent.node_source import NodeProviders, NodeSource
from gpusteward.agent.nvml import Nvml
from gpusteward.agent.processes import ProcessTable
from gpusteward.agent.settings.table import read_settings
from gpusteward.agent.settings.values import Hostengine
from gpusteward.core.exposition import LabelCache
from tests.agent.test_agent_process import running
from tests.fakes import dcgm_library, nvml_library
from tests.fakes.dcgm_library import DcgmScenario, FakeDcgm
from tests.fakes.machine_examples import mig
from tests.fakes.machines import NODE, Machine
from tests.fakes.nvml_library import FakeNvml
from tests.fakes.nvml_scenarios import a100x8

pytestmark = pytest.mark.slow

INTERVAL = 5.0


def a100_in_instances() -> Machine:
    """The MIG machine, as if its GPUs were A100: NVML cannot profile them."""
    machine = mig()
    for gpu in machine.scenario.gpus:
        gpu.texts["model"] = "NVIDIA A100-SXM4-80GB"
        del gpu.numbers["gpm_supported"]
    return machine


def hostengine_of(machine: Machine) -> DcgmScenario:
    scenario = DcgmScenario()
    scenario.listen("dcgm:5555")
    for index, gpu in enumerate(machine.scenario.gpus):
        scenario.gpu(index, gpu.uuid)
    for number, (instance, active) in enumerate(zip(machine.scenario.gpus[0].instances, (0.8, 0.1, 0.0), strict=True)):
        scenario.instance(number, 0, nvml_id=instance.numbers["gi"])
        scenario.value(f"instance {number} 1001", active)
        scenario.value(f"instance {number} 1004", active / 2)
    scenario.value("gpu 0 1009", 4096)
    scenario.value("gpu 1 1001", 0.0)
    return scenario


class Node:
    """The agent without its thread and server."""

    def __init__(self, collection: Collection, page: MetricsPage) -> None:
        self._collection = collection
        self._page = page

    def run_cycles(self, count: int) -> dict[str, float]:
        """The samples after these cycles."""
        start = time.time()
        for number in range(count):
            self._collection.run_cycle(now=start + number * INTERVAL, monotonic=0.0)
        page = self._page.render(openmetrics=False, gzip=False).decode()
        return {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
        }


@contextmanager
def running_node(machine: Machine, folder: Path, soname: str) -> Iterator[Node]:
    with machine.start(folder) as started:
        reader = DcgmReader(Hostengine("tcp", "dcgm:5555"), interval_seconds=INTERVAL, sonames=(soname,))
        dcgm = Dcgm(reader, interval_seconds=INTERVAL)
        providers = NodeProviders(ProcessTable(started.proc), KubeletClient(started.kubelet.path), dcgm=dcgm)
        source = NodeSource(NODE, Nvml(NODE, event_wait_milliseconds=10), providers)
        page = MetricsPage(node=NODE, interval_seconds=INTERVAL, clock=lambda: 0.0)
        dialects = build_dialects(read_settings(["--node-name", NODE], {}), None, LabelCache())
        try:
            yield Node(Collection(source, dialects, page, interval_seconds=INTERVAL), page)
        finally:
            source.close()


def find(samples: dict[str, float], name: str, *words: str) -> float | None:
    """The only sample of this metric whose labels contain the words; None if there is none."""
    found = [
        value for key, value in samples.items() if key.startswith(f"{name}{{") and all(word in key for word in words)
    ]
    assert len(found) < 2, f"{len(found)} samples of {name} with {words}"
    return found[0] if found else None


def test_an_instance_of_an_a100_has_utilization_and_counters(
    fake_nvml: FakeNvml, fake_dcgm: FakeDcgm, tmp_path: Path
) -> None:
    machine = a100_in_instances()
    fake_nvml.load(machine.scenario)
    fake_dcgm.load(hostengine_of(machine))
    with running_node(machine, tmp_path, fake_dcgm.soname) as node:
        samples = node.run_cycles(3)
    pod = 'pod="infer-0"'
    assert find(samples, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", 'GPU_I_ID="1"', pod) == 0.8
    assert find(samples, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 'GPU_I_ID="1"', pod) == 0.4
    assert find(samples, "DCGM_FI_PROF_PCIE_TX_BYTES") == 4096
    assert find(samples, "DCGM_FI_PROF_DRAM_ACTIVE") is None, "DCGM has no value"
    assert find(samples, "gpusteward_gpu_engine_active_ratio", 'gpu_instance_id="1"') == 0.8
    assert find(samples, "gpusteward_gpu_tensor_active_ratio", 'gpu_instance_id="1"') == 0.4
    assert find(samples, "gpusteward_gpu_utilization_ratio", 'gpu_instance_id="9"') == 0, "known to be idle"
    assert find(samples, "gpusteward_gpu_busy_seconds_total", 'gpu_instance_id="1"') == 2 * INTERVAL * 0.8
    assert find(samples, "gpusteward_use_busy_seconds_total", pod, 'by="container"') == 2 * INTERVAL * 0.8
    assert find(samples, "gpusteward_collector_success", 'collector="dcgm"') == 1


def test_a_lost_hostengine_is_counted_and_logged_once(
    fake_nvml: FakeNvml, fake_dcgm: FakeDcgm, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = a100_in_instances()
    fake_nvml.load(machine.scenario)
    fake_dcgm.load(hostengine_of(machine))
    with running_node(machine, tmp_path, fake_dcgm.soname) as node:
        before = node.run_cycles(1)
        fake_dcgm.load(DcgmScenario())
        samples = node.run_cycles(4)
    assert find(samples, "gpusteward_collector_errors_total", 'collector="dcgm"') == 4
    assert find(samples, "gpusteward_collector_success", 'collector="dcgm"') == 0
    assert find(samples, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", 'GPU_I_ID="1"') is None
    missing = {key.partition("{")[0] for key in before.keys() - samples.keys()}
    assert not any(name.startswith("DCGM_FI_DEV_") or "memory" in name or "gpu_power" in name for name in missing)
    logged = [record for record in caplog.records if record.message == "collector_failed"]
    assert len([record for record in logged if vars(record)["facts"]["collector"] == "dcgm"]) == 1


def test_nothing_is_loaded_without_the_flag() -> None:
    program = (
        "import sys, threading\n"
        "from gpusteward.agent.app import build_source\n"
        "from gpusteward.agent.settings.table import read_settings\n"
        "build_source(read_settings(['--kubernetes=false', *sys.argv[1:]], {}), None)\n"
        "print(any('agent.dcgm' in name for name in sys.modules), threading.active_count())"
    )
    for flags, expected in (((), "False 1"), (("-r", "localhost:5555"), "True 1")):
        done = subprocess.run([sys.executable, "-c", program, *flags], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


def test_dcgm_exporters_flag_works(tmp_path: Path) -> None:
    scenario = a100x8()
    scenario.write(tmp_path / "nvml")
    hostengine = DcgmScenario()
    hostengine.listen("nvidia-dcgm:5555")
    for index, gpu in enumerate(scenario.gpus):
        hostengine.gpu(7 - index, gpu.uuid)
        hostengine.value(f"gpu {7 - index} 1004", index / 10)
    hostengine.write(tmp_path / "dcgm")
    env = dcgm_library.environment(tmp_path / "dcgm", 4, nvml_library.environment(tmp_path / "nvml"))
    with running("-r", "nvidia-dcgm:5555", env=env) as agent:
        agent.wait_for(lambda each: 'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="3"' in each.get("/metrics")[1])
        page = agent.get("/metrics")[1]
    line = next(line for line in page.splitlines() if line.startswith('DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="3"'))
    assert line.endswith(" 0.3")


def test_a_hanging_hostengine_holds_up_neither_the_page_nor_the_end(tmp_path: Path) -> None:
    a100x8().write(tmp_path / "nvml")
    hostengine = DcgmScenario(faults=["hang dcgmConnect_v2"])
    hostengine.write(tmp_path / "dcgm")
    env = dcgm_library.environment(tmp_path / "dcgm", 4, nvml_library.environment(tmp_path / "nvml"))
    with running("--dcgm-hostengine", "nvidia-dcgm:5555", env=env) as agent:
        agent.wait_for(lambda each: 'collector="dcgm"} 0' in each.get("/metrics")[1])
        assert agent.value("DCGM_FI_DEV_GPU_UTIL") is not None
    assert agent.process.returncode == 0
