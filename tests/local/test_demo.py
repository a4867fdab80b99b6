"""`gpusteward demo` as a process: start, verdicts, reports, Ctrl-C, no files left."""

import inspect
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusteward.analyzer.prices import PriceList, PriceSettings
from gpusteward.core.verdicts import Signature
from gpusteward.local.demo_control import DemoAddress, find_demos, write_control_file
from gpusteward.local.demo_settings import PRICES
from gpusteward.simulate.models import MODELS
from tests.cli.screens import LARGE, run, until_seen, watching
from tests.local.processes import Program, running, running_command
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.system]

ROOT = Path(__file__).parents[2]
FLAGS = ("demo", "--address", "127.0.0.1:0")


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder), "HOME": str(folder)}


def is_alive(group: int) -> bool:
    """Whether a process of this group exists."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


NOT_AT_FIRST = {Signature.STALLED, Signature.NO_REQUESTS, Signature.ASLEEP}
"""May come later: silence needs a window of requests, and what a GPU may draw that waits is learned from idle ones."""


@pytest.mark.timeout(240)
def test_it_starts_has_verdicts_and_reports_and_leaves_nothing_behind(tmp_path: Path):
    command = ["make", "-C", str(ROOT), "demo", "DEMO_ADDRESS=127.0.0.1:0"]
    with running_command(command, env={**os.environ, "TMPDIR": str(tmp_path)}) as demo:
        demo.wait_for_address(90)
        found = demo.wait_for("/api/v1/workloads?limit=500", 120)
        assert {each["activity"] for each in found["items"]} >= {"active", "idle"}
        assert {each["signature"] for each in found["items"]} >= set(Signature) - NOT_AT_FIRST, "in the first result"
        node = demo.get("/api/v1/allocations?activity=active&limit=1")["items"][0]["node"]
        assert demo.get(f"/api/v1/nodes/{node}/processes")["processes"]
        [pair] = [each for each in demo.get("/api/v1/allocations?limit=1000")["items"] if each["used_by"]]
        assert pair["activity"] == "active", "by the work of the other pod"
        running = demo.get(f"/api/v1/nodes/{pair['node']}/processes")["processes"]
        assert (pair["used_by"], pair["pod"]) in {(each["pod"], each["works_for"]) for each in running}
        report = demo.get("/api/v1/reports?since=14d&by=namespace")
        assert report["total"]["allocated_gpu_ms"] > 1000 * 3_600_000
        demo.interrupt()
    assert not is_alive(demo.process.pid), "processes that make started"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Program]:
    """Ten nodes that are scraped and judged every few seconds."""
    intervals = ("--set", "scrape.interval=2", "--set", "scheduler.interval=2", "--set", "prometheus.time_window_min=1")
    with running(*FLAGS, "--nodes", "10", *intervals, env=environment(tmp_path)) as demo:
        demo.wait_for_address(90)
        yield demo
        demo.interrupt()


def start_load(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return run_demo(folder, "load", *flags)


@pytest.mark.timeout(180)
def test_a_load_is_seen_on_the_agent_page_in_the_verdict_and_in_top(demo: Program, tmp_path: Path):
    parked = demo.wait_for("/api/v1/workloads?activity=idle&signature=parked&limit=1", 60)["items"][0]
    path = f"/api/v1/workloads/{parked['kind']}/{parked['namespace']}/{parked['name']}"

    done = start_load(tmp_path, "--share", "90", "--minutes", "2", "--workload", parked["name"])
    assert (done.returncode, done.stderr) == (0, "")
    name = f"{parked['namespace']}/{parked['kind']}/{parked['name']}"
    assert done.stdout.startswith(f"{name} keeps GPU ")
    assert " busy at 90 % for 2 min.\n" in done.stdout
    node = done.stdout.split(" --node ")[1].strip()

    processes = demo.get(f"/api/v1/nodes/{node}/processes")["processes"]
    assert "gpusteward-load" in {each["process"] for each in processes}, "on the page of the agent"
    wait_until(lambda: demo.get(path)["workload"]["activity"] == "active", seconds=60)

    async def watch() -> None:
        flags = ("--server", demo.url, "--view", "workloads", "--namespace", parked["namespace"])
        async with watching(*flags, size=LARGE) as pilot:
            screen = await until_seen(pilot, parked["name"])
            assert "active" in next(line for line in screen.splitlines() if parked["name"] in line)

    run(watch())


def test_a_load_without_a_running_demo_says_how_to_start_one(tmp_path: Path):
    done = start_load(tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "gpusteward: no demo of this user is running; start one with gpusteward demo, in another terminal\n"
    )


def test_a_demo_that_was_killed_is_passed_over(tmp_path: Path):
    folder = tmp_path / "gpusteward-demo-killed"
    folder.mkdir()
    write_control_file(folder, DemoAddress("http://127.0.0.1:9", "token"))
    assert "no demo of this user is running" in start_load(tmp_path).stderr


def test_of_several_demos_the_one_at_the_chosen_server_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for number, port in enumerate((8081, 8082)):
        folder = tmp_path / f"gpusteward-demo-{port}"
        folder.mkdir()
        write_control_file(folder, DemoAddress("http://127.0.0.1:9", "token", port))
        os.utime(folder / "control.json", (number, number))
    assert [demo.port for demo in find_demos()] == [8082, 8081], "the latest"
    assert [demo.port for demo in find_demos("http://localhost:8081/")] == [8081, 8082]


@pytest.mark.parametrize("stopping", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_stopped_while_it_simulates_its_history(tmp_path: Path, stopping: signal.Signals):
    with (
        tempfile.TemporaryFile("w+") as stderr,
        running(*FLAGS, "--nodes", "200", env=environment(tmp_path), stderr=stderr) as demo,
    ):
        wait_until(lambda: any(tmp_path.glob("gpusteward-demo-*/gpusteward.db")), seconds=60)
        os.killpg(demo.process.pid, stopping)
        assert demo.process.wait(15) == 130
        stderr.seek(0)
        assert stderr.read() == "simulating three weeks of history ...\n", "one line without a terminal"
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_that_a_library_swallows_is_raised_again():
    class Swallowing:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)  # Python handles the signal here, and drops what the handler raises

    code = f"""
import os, signal, sys, time
from gpusteward.local.demo_settings import StopSignals
sys.unraisablehook = lambda _: None
{textwrap.dedent(inspect.getsource(Swallowing))}
signals = StopSignals()
signals.check()
Swallowing()
print("swallowed")
try:
    signals.check()
except KeyboardInterrupt:
    print("raised again")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("swallowed\nraised again\n", "")


def run_demo(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpusteward.cli.main", "demo", *flags]
    return subprocess.run(command, env=environment(folder), capture_output=True, text=True, timeout=60, check=False)


def test_an_invalid_number_of_nodes_is_a_usage_error(tmp_path: Path):
    done = run_demo(tmp_path, "--nodes", "0")
    assert (done.returncode, done.stderr) == (2, "gpusteward: --nodes: '0' is not a number from 1 to 200\n")


def test_a_taken_port_is_reported_before_anything_is_simulated(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = run_demo(tmp_path, "--address", address)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"gpusteward: --address '{address}': cannot listen there: address already in use; ")
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_reported_without_loading_the_analyzer():
    code = (
        "import socket, sys; from gpusteward.cli.main import main\n"
        "other = socket.create_server(('127.0.0.1', 0))\n"
        "code = main(['demo', '--address', '127.0.0.1:%d' % other.getsockname()[1]])\n"
        "print(code, *({'fastapi', 'uvicorn', 'sqlalchemy', 'gpusteward.simulate'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "2\n"


@pytest.mark.parametrize("setting", ["prometheus.url=http://localhost:9090", "ledger.url=sqlite:////tmp/x.db"])
def test_a_setting_that_the_demo_makes_itself_cannot_be_set(tmp_path: Path, setting: str):
    done = run_demo(tmp_path, "--set", setting)
    assert done.returncode == 2
    assert f"--set {setting.partition('=')[0]}: `gpusteward demo` sets this itself" in done.stderr


def test_every_simulated_model_has_a_price_of_its_own():
    prices = PriceList(PriceSettings.model_validate(PRICES))
    found = {model.name: prices.micros_per_gpu_hour(model.name, "vision") for model in MODELS.values()}
    assert all(found.values())
    assert len(set(found.values())) == len(found), "no two models share a pattern"
