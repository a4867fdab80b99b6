"""Both exporters as an image would ship them: installed, each into a fresh virtual environment with its bytecode
compiled, started on one node, and scraped."""

import http.client
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.measure import read_cpu_seconds
from bench.nodes import Node
from tests.agent.test_agent_process import free_port

ROOT = Path(__file__).parents[1]
BUILD = ROOT / ".build"
NVITOP_EXPORTER = "nvitop-exporter==1.7.2"
START_SECONDS, STOP_SECONDS = 60, 10
SETTLE_SECONDS = 0.02
"""After the last byte of a scrape, so that the end of the serving thread is included."""

AGENT, NVITOP = "gpusteward agent", "nvitop-exporter"
_SERIES_OF_A_PROCESS = {AGENT: "nvidia_pid_pod{", NVITOP: "process_gpu_sm_utilization_Percentage{"}
MODES = {
    "identity": {"Accept-Encoding": "identity"},
    "gzip": {"Accept-Encoding": "gzip"},
    "new connection": {"Accept-Encoding": "identity", "Connection": "close"},
}


@dataclass(frozen=True, slots=True)
class Install:
    """A virtual environment and what is in it."""

    folder: Path
    versions: dict[str, str]

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)


def install_agent() -> Install:
    """gpusteward from this tree, as a wheel, with the locked dependencies of the agent and nothing else."""
    folder = _make_environment("agent")
    _uv("pip", "sync", "--compile-bytecode", "--require-hashes", "requirements/agent.txt", into=folder)
    wheels = BUILD / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    _uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(wheels), ".")
    wheel = next(wheels.glob("*.whl"))
    _uv("pip", "install", "--compile-bytecode", "--no-deps", "--reinstall", str(wheel), into=folder)
    return Install(folder, _list_versions(folder))


def install_nvitop() -> Install:
    """The nearest comparable exporter, from PyPI."""
    folder = _make_environment("nvitop")
    _uv("pip", "install", "--compile-bytecode", NVITOP_EXPORTER, into=folder)
    return Install(folder, _list_versions(folder))


def _make_environment(name: str) -> Path:
    folder = BUILD / name
    _uv("venv", "--allow-existing", "--no-python-downloads", "--python", sys.executable, str(folder))
    return folder


def _list_versions(folder: Path) -> dict[str, str]:
    listed = json.loads(_uv("pip", "list", "--format", "json", into=folder))
    return {package["name"]: package["version"] for package in sorted(listed, key=lambda each: each["name"])}


def _uv(*arguments: str, into: Path | None = None) -> str:
    """Run uv; its errors go to standard error."""
    program = shutil.which("uv") or str(BUILD / "uv/bin/uv")
    target = ("--python", str(into / "bin/python")) if into else ()
    command = [program, "-q", *arguments, *target]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


@dataclass(frozen=True, slots=True)
class Exporter:
    """A running exporter."""

    name: str
    pid: int
    port: int


@contextmanager
def run_exporter(name: str, install: Install, node: Node, *, interval: float) -> Iterator[Exporter]:
    """Run until the `with` block ends. In its own session, so that Ctrl-C reaches only the benchmark."""
    port = free_port()
    if name == AGENT:
        flags = ["gpusteward", "agent", f"--address=127.0.0.1:{port}", f"--interval={interval}", *node.agent_flags]
    else:  # an explicit host name: the default is this machine's address
        flags = ["nvitop-exporter", "--hostname=node-a", f"--port={port}", f"--interval={interval}"]
    log = node.scenario.with_name(f"{port}.log")
    with log.open("w") as output:
        process = subprocess.Popen(
            [install.program(flags[0]), *flags[1:]],
            env=node.environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait_until_complete(name, process, node=node, port=port, log=log)
            yield Exporter(name, process.pid, port)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_complete(name: str, process: subprocess.Popen[bytes], *, node: Node, port: int, log: Path) -> None:
    """Wait until every process of the node is on the page, so that both exporters do the same work."""
    series, deadline = _SERIES_OF_A_PROCESS[name], time.monotonic() + START_SECONDS
    while (found := fetch_page(port).count(f"\n{series}")) != len(node.pids):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{name} exports {found} of {len(node.pids)} processes; its output:\n{log.read_text()}")
        time.sleep(0.1)


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


@dataclass(frozen=True, slots=True)
class ScrapeCost:
    """Milliseconds for one scrape."""

    cpu: float  # of the exporter
    wall: float  # as the client saw it


class Scraper:
    """Scrapes one exporter; keeps the connection if the exporter does."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def scrape(self, mode: str) -> bytes:
        self._connection.request("GET", "/metrics", headers=MODES[mode])
        response = self._connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            raise RuntimeError(f"{self._exporter.name} responded to a scrape with {response.status}")
        return body

    def measure(self, mode: str, count: int, *, idle_share: float = 0.0) -> ScrapeCost:
        """The mean of `count` scrapes in a row, without what the exporter would have used anyway meanwhile."""
        cpu, began = read_cpu_seconds(self._exporter.pid), time.perf_counter()
        for _ in range(count):
            self.scrape(mode)
        elapsed = time.perf_counter() - began
        time.sleep(SETTLE_SECONDS)
        used = read_cpu_seconds(self._exporter.pid) - cpu - idle_share * (time.perf_counter() - began)
        return ScrapeCost(used / count * 1000, elapsed / count * 1000)
