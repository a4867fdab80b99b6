"""`gpusteward up` with and without GPUs: real agent and analyzer on a fake driver."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpusteward.local.up import is_accessible
from tests.fakes import nvml_scenarios as nvml
from tests.fakes.nvml_library import environment
from tests.local.processes import running

pytestmark = [pytest.mark.slow, pytest.mark.system]

SLEEPER = "import sys; sys.stdin.read()"


@pytest.mark.timeout(180)
def test_a_process_on_a_gpu_is_attributed_to_its_user_and_no_process_is_left(tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdin=subprocess.PIPE) as sleeper:
        nvml.crowd(2, 1, pids=[sleeper.pid]).write(tmp_path / "scenario")
        env = {**environment(tmp_path / "scenario"), "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
        words = ("up", "--address", "127.0.0.1:0", "--set", "scrape.interval=1", "--interval", "10")
        with (tmp_path / "stderr").open("w") as stderr, running(*words, env=env, stderr=stderr) as up:
            up.wait_for_address(60)
            found = up.wait_for("/api/v1/allocations", 60)
            (held,) = found["items"]
            assert (held["namespace"], Path(sys.executable).resolve().name.startswith(held["pod"][:6])) == (
                os.environ.get("USER") or "root",
                True,
            )
            children = Path(f"/proc/{up.process.pid}/task/{up.process.pid}/children").read_text().split()
            assert len(children) == 1, "the agent"
            assert up.interrupt() == 0
        log = (tmp_path / "stderr").read_text()
        assert ("analyzer_stopped" in log, " ERROR " in log, "hostPID" in log) == (True, False, False), log
        assert not Path(f"/proc/{children[0]}").exists()
        assert (tmp_path / "data" / "gpusteward" / "gpusteward.db").exists()
        assert sleeper.stdin is not None
        sleeper.stdin.close()


@pytest.mark.timeout(180)
def test_it_stops_and_logs_an_error_if_its_agent_exits(tmp_path: Path):
    nvml.crowd(1, 1, pids=[os.getpid()]).write(tmp_path / "scenario")
    env = {**environment(tmp_path / "scenario"), "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    with (
        (tmp_path / "stderr").open("w") as stderr,
        running("up", "--address=127.0.0.1:0", env=env, stderr=stderr) as up,
    ):
        up.wait_for_address(60)
        (agent,) = Path(f"/proc/{up.process.pid}/task/{up.process.pid}/children").read_text().split()
        os.kill(int(agent), signal.SIGKILL)
        assert up.process.wait(30) == 1
    assert "agent_exited" in (tmp_path / "stderr").read_text()


def test_a_kubelet_socket_without_permission_is_not_accessible():
    class Closed(type(Path())):
        def exists(self) -> bool:
            raise PermissionError

    assert not is_accessible(Closed("/var/lib/kubelet/x"))


def test_without_a_driver_the_error_names_what_is_missing_and_suggests_the_demo(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "gpusteward.cli.main", "up"],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "libnvidia-ml.so.1 was not found" in line
    assert line.endswith("=utility. Without a GPU, run gpusteward demo: it simulates a cluster")
    assert "--source" not in line, "up does not have this flag"
