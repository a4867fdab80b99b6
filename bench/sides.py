"""An exporter as a running process."""

import http.client
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.installs import Install
from bench.nodes import Node

START_SECONDS = 60
STOP_SECONDS = 10

AGENT, NVITOP = "gpusteward agent", "nvitop-exporter"
_SERIES_OF_A_PROCESS = {AGENT: "nvidia_pid_pod{", NVITOP: "process_gpu_sm_utilization_Percentage{"}


@dataclass(frozen=True, slots=True)
class Side:
    """A running exporter."""

    name: str
    pid: int
    port: int


@contextmanager
def run_agent(install: Install, node: Node, *, interval: float) -> Iterator[Side]:
    port = _free_port()
    command = [install.program("gpusteward"), "agent", f"--address=127.0.0.1:{port}", f"--interval={interval}"]
    with _serve(AGENT, [*command, *node.agent_flags], node=node, port=port) as side:
        yield side


@contextmanager
def run_nvitop(install: Install, node: Node, *, interval: float) -> Iterator[Side]:
    port = _free_port()
    # An explicit host name: the default is this machine's address.
    command = [install.program("nvitop-exporter"), "--hostname=node-a", f"--port={port}", f"--interval={interval}"]
    with _serve(NVITOP, command, node=node, port=port) as side:
        yield side


def fetch_page(port: int) -> str:
    """The page as text; empty while the exporter does not respond."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    except ConnectionError:
        return ""
    finally:
        connection.close()


@contextmanager
def _serve(name: str, command: Sequence[str], *, node: Node, port: int) -> Iterator[Side]:
    """Run until the `with` block ends. In its own session, so that Ctrl-C reaches only the benchmark."""
    log = node.scenario.with_name(f"{port}.log")
    with log.open("w") as output:
        process = subprocess.Popen(
            command, env=node.environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            _wait_until_complete(name, process, node=node, port=port, log=log)
            yield Side(name, process.pid, port)
        finally:
            _stop(process)


def _wait_until_complete(name: str, process: subprocess.Popen[bytes], *, node: Node, port: int, log: Path) -> None:
    """Wait until every process of the node is on the page, so that both exporters do the same work."""
    series, deadline = _SERIES_OF_A_PROCESS[name], time.monotonic() + START_SECONDS
    while (found := fetch_page(port).count(f"\n{series}")) != len(node.pids):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{name} exports {found} of {len(node.pids)} processes; its output:\n{log.read_text()}")
        time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
