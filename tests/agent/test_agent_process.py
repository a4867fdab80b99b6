"""The agent as a process: real command line, real pynvml on the fake driver, real signals."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.conftest import give_up
from tests.fakes import nvml_scenarios as nvml
from tests.fakes.nvml_library import environment
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

LIB_RM_VERSION_MISMATCH = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
COMMAND = (sys.executable, "-m", "gpusteward.cli.main")


class RunningAgent:
    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def value(self, name: str) -> float | None:
        """The first sample of a metric, if it is on the page."""
        lines = self.get("/metrics")[1].splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{")), None)

    def wait_for(self, condition: Callable[["RunningAgent"], bool], seconds: float = 60) -> None:
        def is_so() -> bool:
            assert self.process.poll() is None, "the agent has ended"
            return condition(self)

        wait_until(is_so, seconds, lambda: f"condition not met after {seconds} s")


@contextmanager
def running(
    *flags: str, env: Mapping[str, str], prefix: tuple[str, ...] = (), command: tuple[str, ...] = COMMAND
) -> Iterator[RunningAgent]:
    agent = start_agent(*flags, env=env, command=(*prefix, *command))
    process = agent.process
    try:
        agent.wait_for(is_listening)
        yield agent
    finally:
        process.terminate()
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise


def start_agent(*flags: str, env: Mapping[str, str], command: tuple[str, ...]) -> RunningAgent:
    """Start the agent; with another port if a parallel test took the free one first."""
    for _attempt in range(5):
        port = free_port()
        address = f"--address=127.0.0.1:{port}"
        arguments = [*command, "agent", address, "--interval=0.5", "--kubernetes=false", *flags]
        process = subprocess.Popen(arguments, env=env, stderr=subprocess.PIPE, text=True)
        agent = RunningAgent(process, f"http://127.0.0.1:{port}")
        while process.poll() is None:
            if is_listening(agent):
                return agent
            time.sleep(0.05)
        stderr = process.communicate()[1]
        assert "is in use" in stderr, stderr
    raise AssertionError("no free port was found")


def free_port() -> int:
    """Below the ports that the kernel gives to connections, one of which could take it before the program listens."""
    for port in random.sample(range(10_000, 32_000), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


def is_listening(agent: RunningAgent) -> bool:
    try:
        return agent.get("/healthz")[0] == 200
    except OSError:
        return False


def is_ready(agent: RunningAgent) -> bool:
    return agent.get("/readyz")[0] == 200


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "scenario"
    nvml.a100x8().write(path)
    return path


def test_it_serves_the_driver_data_and_stops_cleanly(scenario: Path):
    with running(env=environment(scenario)) as agent:
        agent.wait_for(is_ready)
        assert agent.value("DCGM_FI_DEV_GPU_UTIL") == 50
        snapshot = json.loads(agent.get("/snapshot")[1])
        assert len(snapshot["readings"]) == 8
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(20) == 0


def test_a_signal_is_handled_even_before_the_first_cycle(scenario: Path):
    with running(env=environment(scenario)) as agent:  # it listens; the first cycle may not have finished
        agent.process.send_signal(signal.SIGUSR1)
        agent.wait_for(lambda it: "released" in it.get("/readyz")[1])
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(20) == 0


def test_during_a_hanging_driver_call_the_page_is_served_with_its_age(scenario: Path):
    with running(env=environment(scenario)) as agent:
        agent.wait_for(is_ready)
        nvml.hung_call().write(scenario)
        agent.wait_for(lambda it: (it.value("gpusteward_snapshot_age_seconds") or 0) > 1.5)
        assert agent.value("DCGM_FI_DEV_GPU_UTIL") is None
        assert agent.value("gpusteward_gpu_info") == 1
        code, reason = agent.get("/readyz")
        assert (code, "old" in reason) == (503, True)
        assert agent.get("/healthz")[0] == 200
        nvml.a100x8().write(scenario)
        agent.wait_for(is_ready)
        assert agent.value("DCGM_FI_DEV_GPU_UTIL") == 50


def test_it_stops_during_a_hanging_driver_call(scenario: Path):
    with running(env=environment(scenario)) as agent:
        agent.wait_for(is_ready)
        nvml.hung_call().write(scenario)
        agent.wait_for(lambda it: not is_ready(it))
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(20) == 0


def test_it_starts_without_a_driver_reports_that_and_finds_the_driver_later(scenario: Path):
    nvml.no_driver().write(scenario)
    with running(env=environment(scenario)) as agent:
        agent.wait_for(lambda it: "driver" in it.get("/readyz")[1].lower())
        assert agent.value("gpusteward_collector_success") is not None
        nvml.a100x8().write(scenario)
        agent.wait_for(is_ready)
        assert agent.value("DCGM_FI_DEV_GPU_UTIL") == 50


def test_it_starts_without_the_nvidia_library(tmp_path: Path):
    with running(env={**os.environ}) as agent:
        agent.wait_for(lambda it: "NVML" in it.get("/readyz")[1])
        assert agent.get("/metrics")[0] == 200


def test_it_recovers_after_the_driver_was_reloaded(scenario: Path):
    with running(env=environment(scenario)) as agent:
        agent.wait_for(is_ready)
        machine = nvml.a100x8()
        machine.gpus[0].numbers["gpu_percent"] = 77
        nvml.reloaded(machine).write(scenario)
        agent.wait_for(lambda it: it.value("DCGM_FI_DEV_GPU_UTIL") == 77)


def test_a_driver_upgrade_makes_it_unhealthy_so_that_it_is_restarted_with_the_new_library(scenario: Path):
    with running(env=environment(scenario)) as agent:
        agent.wait_for(is_ready)
        machine = nvml.reloaded(nvml.a100x8(), code=LIB_RM_VERSION_MISMATCH)
        machine.lines.append(f"init {LIB_RM_VERSION_MISMATCH}")
        machine.write(scenario)
        agent.wait_for(lambda it: it.get("/healthz")[0] == 503)
        assert "Restart the agent" in agent.get("/healthz")[1]


def test_sigusr1_releases_the_driver_for_the_configured_time(scenario: Path):
    with running("--release-seconds=2", env=environment(scenario)) as agent:
        agent.wait_for(is_ready)
        agent.process.send_signal(signal.SIGUSR1)
        agent.wait_for(lambda it: "released" in it.get("/readyz")[1])
        assert agent.value("DCGM_FI_DEV_GPU_UTIL") is None
        agent.wait_for(is_ready)


def test_a_lost_gpu_does_not_affect_the_others(scenario: Path):
    with running(env=environment(scenario)) as agent:
        agent.wait_for(is_ready)
        nvml.with_lost_gpu(2).write(scenario)
        agent.wait_for(lambda it: 'gpusteward_gpu_up{node="' in it.get("/metrics")[1] and lost_gpus(it) == ["2"])
        page = agent.get("/metrics")[1]
        assert page.count("\nDCGM_FI_DEV_GPU_UTIL{") == 7


def lost_gpus(agent: RunningAgent) -> list[str]:
    lines = agent.get("/metrics")[1].splitlines()
    return [
        line.split('gpu="')[1][0] for line in lines if line.startswith("gpusteward_gpu_up{") and line.endswith(" 0")
    ]


def test_it_needs_no_capability_and_writes_no_file(scenario: Path, component: Callable[[str], str], tmp_path: Path):
    """As in deploy/manifests/agent.yaml: a root without capabilities, on a read-only root file system."""
    if os.geteuid() != 0:
        give_up("only root can drop root's capabilities")
    bare = (
        component("unshare"), "--mount", "--propagation", "private", "sh", "-ec",
        'mount -o remount,ro,bind / && exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"', "sh",
    )  # fmt: skip
    with running(env=environment(scenario), prefix=bare) as agent:
        agent.wait_for(is_ready)
        assert agent.value("DCGM_FI_DEV_GPU_UTIL") == 50
        status = Path(f"/proc/{agent.process.pid}/status").read_text()
        assert "CapEff:\t0000000000000000" in status
        mounts = Path(f"/proc/{agent.process.pid}/mounts").read_text().splitlines()
        assert any(line.split()[1] == "/" and line.split()[3].startswith("ro") for line in mounts)


def fails(*flags: str, code: int = 2, command: tuple[str, ...] = COMMAND) -> str:
    """Its standard error when it refuses to start with this exit code."""
    arguments = [*command, "agent", "--kubernetes=false", f"--address=127.0.0.1:{free_port()}", *flags]
    done = subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=20)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_the_log_is_json_by_a_flag_and_its_level_comes_from_the_environment_too(scenario: Path):
    for level, events in (("info", {"agent_started", "nvml_opened"}), ("error", set())):
        with running("--log-format=json", env={**environment(scenario), "GPUSTEWARD_LOG_LEVEL": level}) as agent:
            agent.wait_for(is_ready)
            agent.process.terminate()
            lines = agent.process.communicate(timeout=20)[1].splitlines()
        assert {json.loads(line)["event"] for line in lines} >= events
        assert bool(lines) is bool(events)


def test_a_port_in_use_is_one_clear_message():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        stderr = fails(f"--address=127.0.0.1:{port}")
    assert str(port) in stderr
    assert len(stderr.splitlines()) == 1


@pytest.mark.parametrize("line", ["DCGM_FI_DEV_GPU_UTILL, gauge, x", "DCGM_FI_DEV_GPU_UTIL, histogram, x"])
def test_a_wrong_field_list_is_one_clear_message(tmp_path: Path, line: str):
    path = tmp_path / "counters.csv"
    path.write_text(f"# ours\n{line}\n")
    stderr = fails(f"--collectors={path}")
    assert "line 2" in stderr
    assert "DCGM_FI_DEV_GPU_UTIL" in stderr


@pytest.mark.parametrize("text", ["0", "-2", "two", "nan", None])
def test_a_wrong_ratio_is_one_clear_message(tmp_path: Path, text: str | None):
    path = tmp_path / "gpu_allocation.txt"
    if text is not None:
        path.write_text(text)
    stderr = fails(f"--ratio-file={path}")
    assert str(path) in stderr
    assert len(stderr.splitlines()) == 1


def test_a_missing_field_list_of_dcgm_exporters_image_is_replaced_by_the_built_in_one(scenario: Path):
    with running("-f", "/etc/dcgm-exporter/default-counters.csv", env=environment(scenario)) as agent:
        agent.wait_for(is_ready)
        assert agent.value("DCGM_FI_DEV_GPU_UTIL") == 50


def test_it_runs_with_the_arguments_and_the_configuration_file_of_dcgm_exporter(scenario: Path, tmp_path: Path):
    file = tmp_path / "config.yaml"
    file.write_text(
        "version: 2\n"
        "metrics: {fields: [{name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: Temperature.}]}\n"
        "collections:\n"
        "  - {name: scrape, every: 500ms, metrics: {include: ['*']}}\n"
        "  - {name: slow, every: 5m, metrics: {include: ['DCGM_FI_DEV_NVLINK_*']}}\n"
    )
    env = environment(scenario) | {"DCGM_EXPORTER_CONFIG_FILE": str(file)}
    with running("-d", "g:0,1+i:0", "--web-config-file=", "-s", "f", env=env) as agent:
        agent.wait_for(is_ready)
        page = agent.get("/metrics")[1]
        assert page.count("\nDCGM_FI_DEV_GPU_TEMP{") == 2
        assert "# HELP DCGM_FI_DEV_GPU_TEMP Temperature.\n" in page
        assert "DCGM_FI_DEV_GPU_UTIL" not in page
        agent.process.terminate()
        log = agent.process.communicate(timeout=20)[1]
    assert 'setting_ignored name=--switch-devices reason="NVSwitches and their links are not read."' in log
    assert f'setting_ignored name="collections[1].every ({file} line 5)" reason="The page has one interval' in log


def test_where_gpus_are_required_it_is_unhealthy_without_them_so_that_it_is_restarted(scenario: Path):
    with running("--health-require-gpus", env=environment(scenario)) as agent:
        agent.wait_for(is_ready)
        nvml.reloaded(nvml.Scenario([])).write(scenario)
        agent.wait_for(lambda it: it.get("/health") == (503, "there is no GPU (--health-require-gpus)\n"))
        assert agent.get("/livez")[0] == 503


def test_a_wrong_configuration_file_is_one_clear_message(tmp_path: Path):
    file = tmp_path / "config.yaml"
    file.write_text("version: 2\ncollections: {every: 5s}\n")
    stderr = fails(f"--config-file={file}")
    assert stderr == f"gpusteward: collections ({file} line 2): write a list with at least one item\n"
