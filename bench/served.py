"""`gpusteward serve` as a separate process: its memory and its response times."""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.fleet_results import Served
from bench.readings import read_memory
from tests.agent.test_agent_process import free_port

CYCLES = 3
REQUESTS = 20
WAIT_SECONDS = 180.0
PAGE, PAGE_GZIP, WORKLOADS = "/metrics, identity", "/metrics, gzip", "/api/v1/workloads"
REQUESTED = {
    WORKLOADS: ("/api/v1/workloads", "identity"),
    PAGE: ("/metrics", "identity"),
    PAGE_GZIP: ("/metrics", "gzip"),
}


class Client:
    """Sends requests on one connection, as a scraper does."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def get(self, path: str, encoding: str = "identity") -> bytes:
        self._connection.request("GET", path, headers={"Accept-Encoding": encoding})
        response = self._connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            raise RuntimeError(f"{path} returned {response.status}: {body[:200]!r}")
        return body

    def measure(self, path: str, encoding: str) -> tuple[float, int]:
        """Milliseconds from the request to the last byte, and the number of bytes."""
        began = time.perf_counter()
        body = self.get(path, encoding)
        return (time.perf_counter() - began) * 1000, len(body)

    def read_health(self) -> dict[str, Any]:
        return dict(json.loads(self.get("/api/v1/health")))


@contextmanager
def run_serve(engine_url: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """As installed here, with its defaults; the bench triggers each cycle. Several engines are separated by a comma."""
    port = free_port()
    flags = (f"--address=127.0.0.1:{port}", "--interval=86400", "--log-level=warning")
    program = Path(sys.executable).with_name("gpusteward")
    own = os.environ | {"XDG_DATA_HOME": str(folder), "GPUSTEWARD_PROMETHEUS__URLS": engine_url}  # its own ledger
    process = subprocess.Popen([program, "serve", *flags], cwd=folder, env=own)
    try:
        yield process, port
    finally:
        process.terminate()
        process.wait(30)


def measure_serve(engine_url: str, gpus: int, *, folder: Path) -> Served:
    began = time.monotonic()
    with run_serve(engine_url, folder) as (process, port):
        health = _wait_for_cycle(process, port, 1)
        start = time.monotonic() - began
        seconds = [health["cycles"]["last_seconds"]]
        for number in range(2, CYCLES + 1):
            Client(port).get("/analyze")  # a connection that is idle for a whole cycle is closed
            health = _wait_for_cycle(process, port, number)
            seconds.append(health["cycles"]["last_seconds"])
        after_cycles = read_memory(process.pid)
        milliseconds, sizes = _request_all(Client(port))
        return Served(
            gpus=gpus,
            cycles=CYCLES,
            allocations=health["allocations"],
            coverage=health["coverage"],
            unknown=health["unknown"],
            start_seconds=start,
            cycle_seconds=seconds,
            after_cycles=after_cycles,
            after_requests=read_memory(process.pid),
            milliseconds=milliseconds,
            sizes=sizes,
        )


def _request_all(client: Client) -> tuple[dict[str, list[float]], dict[str, int]]:
    milliseconds, sizes = {}, {}
    for name, (path, encoding) in REQUESTED.items():
        measured = [client.measure(path, encoding) for _ in range(REQUESTS)]
        milliseconds[name] = [each for each, _ in measured]
        sizes[name] = measured[-1][1]
    return milliseconds, sizes


def _wait_for_cycle(process: subprocess.Popen[bytes], port: int, number: int) -> dict[str, Any]:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"gpusteward serve ended with {process.returncode}")
        try:
            health = Client(port).read_health()
        except OSError:
            health = {}
        if health and health["cycles"]["failed"]:
            raise RuntimeError(f"a cycle failed: {health['cycles']['last_error']}")
        if health and health["cycles"]["finished"] >= number:
            return health
        time.sleep(0.1)
    raise RuntimeError(f"cycle {number} did not end within {WAIT_SECONDS} s")
