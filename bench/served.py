"""`gpusteward serve` as a separate process over an engine: its memory and its response times."""

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measure import Memory, print_progress, read_memory
from bench.programs import Client, run_serve

CYCLES = 3
REQUESTS = 20
WAIT_SECONDS = 180.0
PAGE, PAGE_GZIP, WORKLOADS = "/metrics, identity", "/metrics, gzip", "/api/v1/workloads"
REQUESTED = {
    WORKLOADS: ("/api/v1/workloads", "identity"),
    PAGE: ("/metrics", "identity"),
    PAGE_GZIP: ("/metrics", "gzip"),
}


@dataclass(frozen=True, slots=True)
class Served:
    """After some cycles and requests."""

    gpus: int
    cycles: int
    allocations: int
    coverage: float
    unknown: dict[str, int]
    start_seconds: float  # from its start to its first result
    cycle_seconds: list[float]  # as it reports them: without the page
    after_cycles: Memory
    after_requests: Memory
    milliseconds: dict[str, list[float]]  # by path, in the order of the requests
    sizes: dict[str, int]  # bytes of the responses


def measure_serve(engine_urls: str, gpus: int, *, folder: Path) -> Served:
    """The bench triggers each cycle. Several engines are separated by a comma."""
    began = time.monotonic()
    environ = {
        "XDG_DATA_HOME": str(folder),
        "GPUSTEWARD_PROMETHEUS__URL": engine_urls.replace(",", " "),
    }  # its own ledger
    with run_serve(folder, {"scheduler.interval": 86400}, environ=environ) as (process, port):
        health = _wait_for_cycle(process, port, 1)
        start, seconds = time.monotonic() - began, [health["cycles"]["last_seconds"]]
        for number in range(2, CYCLES + 1):
            Client(port).get("/analyze")  # a connection that is idle for a whole cycle is closed
            health = _wait_for_cycle(process, port, number)
            seconds.append(health["cycles"]["last_seconds"])
        after_cycles, client = read_memory(process.pid), Client(port)
        measured = {name: [client.measure(*each) for _ in range(REQUESTS)] for name, each in REQUESTED.items()}
        memory = read_memory(process.pid)
    print_progress(f"  served: {memory.peak} KiB at most, cycles {seconds} s")
    return Served(
        gpus=gpus,
        cycles=CYCLES,
        allocations=health["allocations"],
        coverage=health["coverage"],
        unknown=health["unknown"],
        start_seconds=start,
        cycle_seconds=seconds,
        after_cycles=after_cycles,
        after_requests=memory,
        milliseconds={name: [milliseconds for milliseconds, _ in each] for name, each in measured.items()},
        sizes={name: each[-1][1] for name, each in measured.items()},
    )


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
