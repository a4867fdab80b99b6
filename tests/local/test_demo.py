"""`gpusteward demo` as a process: start, verdicts, reports, Ctrl-C, no files left."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.fakes.apiserver import wait_until
from tests.local.processes import running, running_command

pytestmark = pytest.mark.slow

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


@pytest.mark.timeout(240)
def test_it_starts_has_verdicts_and_reports_and_leaves_nothing_behind(tmp_path: Path):
    command = ["make", "-C", str(ROOT), "demo", "DEMO_ADDRESS=127.0.0.1:0"]
    with running_command(command, env={**os.environ, "TMPDIR": str(tmp_path)}) as demo:
        demo.wait_for_address(90)
        found = demo.wait_for("/api/v1/workloads?limit=500", 120)
        assert {each["activity"] for each in found["items"]} >= {"active", "idle"}
        assert {"parked", "empty", "steady"} <= {each["signature"] for each in found["items"]}
        report = demo.get("/api/v1/reports?since=14d&by=namespace")
        assert report["total"]["allocated_gpu_ms"] > 1000 * 3_600_000
        demo.interrupt()
    assert not is_alive(demo.process.pid), "processes that make started"
    assert list(tmp_path.iterdir()) == []


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


def test_an_invalid_number_of_nodes_is_a_usage_error(tmp_path: Path):
    command = [sys.executable, "-m", "gpusteward.cli.main", "demo", "--nodes", "0"]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "gpusteward: --nodes: '0' is not a number from 1 to 200\n")
