"""`python -m bench.scrape`: `gpusteward serve` without an engine, scraping many nodes itself.

Writes bench/results/scrape.md and scrape.json. Exits with 0 whether the limits hold or not.
"""

import argparse
import gzip
import json
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.machines import describe_run
from bench.progress import print_progress
from bench.readings import read_busy_seconds, read_cpu_seconds, read_memory
from bench.scrape_pages import GOLDEN, VARIANTS, pack_pages, read_variants, rename
from bench.scrape_report import Parts, Results, judge, render_report
from bench.served import Client
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from tests.agent.test_agent_process import free_port

RESULTS = Path(__file__).parent / "results"
WINDOW_SECONDS = 600
CYCLE_SECONDS = 30
SLICES = 4
FIRST_ROUND_SECONDS = 120.0
LOOP_NODES = 100


@contextmanager
def run_nodes(nodes: int) -> Iterator[int]:
    """The port of a server with the pages of all nodes."""
    command = [sys.executable, "-m", "bench.scrape_server", str(nodes)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def run_serve(folder: Path, targets: Sequence[str], *, interval: float) -> Iterator[tuple[int, int]]:
    """The pid and the port of an analyzer that scrapes these targets."""
    (folder / "targets.json").write_text(json.dumps([{"targets": list(targets)}]))
    port = free_port()
    chosen = {
        "scrape.targets_file": folder / "targets.json",
        "scrape.interval": f"{interval:g}",
        "scheduler.interval": CYCLE_SECONDS,
        "ledger.enabled": "false",
        "logging.level": "warning",
    }
    flags = [f"--address=127.0.0.1:{port}", *(f"--set={path}={value}" for path, value in chosen.items())]
    program = Path(sys.executable).with_name("gpusteward")
    process = subprocess.Popen([program, "serve", *flags], cwd=folder)
    try:
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(30)


def measure(nodes: int, *, seconds: float, interval: float, command: str) -> Results:
    print_progress(f"{nodes:,} nodes, every {interval:g} s, for {seconds:g} s")
    parts = measure_parts(nodes, interval=interval)
    with tempfile.TemporaryDirectory() as name, run_nodes(nodes) as port:
        targets = [f"http://127.0.0.1:{port}/{node}/metrics" for node in range(nodes)]
        began = time.monotonic()
        with run_serve(Path(name), targets, interval=interval) as (pid, address):
            _wait_for_all(address, nodes)
            first_round, first_cpu = time.monotonic() - began, read_cpu_seconds(pid)
            shares, others, cycles = _watch(pid, address, seconds=seconds)
            sources, health = _get_json(address, "/api/v1/sources"), _get_json(address, "/api/v1/health")
            memory = read_memory(pid)
    print_progress(f"  {memory.peak} KiB at most, {shares} of a core, cycles {cycles} s")
    return Results(
        about=describe_run(
            command, {"analyzer": {name: version(name) for name in ("gpusteward", "numpy", "httptools")}}
        ),
        nodes=nodes,
        interval=interval,
        seconds=seconds,
        page_bytes=len(GOLDEN.read_bytes()),
        packed_bytes=len(next(iter(pack_pages(1)))[0]),
        first_round_seconds=first_round,
        first_round_cpu=first_cpu,
        shares=shares,
        others=others,
        memory=memory,
        scrapes_ok=sources["scrapes"]["ok"],
        scrapes_failed=sources["scrapes"]["failed"],
        cycle_seconds=cycles,
        allocations=health["allocations"],
        parts=parts,
    )


def _get_json(port: int, path: str) -> dict[str, Any]:
    return dict(json.loads(Client(port).get(path)))


def _wait_for_all(port: int, nodes: int) -> None:
    """Wait until every target was scraped once."""
    deadline = time.monotonic() + FIRST_ROUND_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.2)
        try:
            if _get_json(port, "/api/v1/sources")["scrapes"]["ok"] >= nodes:
                return
        except OSError:
            continue
    raise RuntimeError(f"not every target was read within {FIRST_ROUND_SECONDS:g} s")


def _watch(pid: int, port: int, *, seconds: float) -> tuple[list[float], list[float], list[float]]:
    """CPU of the program and of all else, slice by slice, and how long its cycles took."""
    shares, others, cycles = [], [], []
    for _ in range(SLICES):
        began, cpu, busy = time.monotonic(), read_cpu_seconds(pid), read_busy_seconds()
        time.sleep(seconds / SLICES)
        passed, mine = time.monotonic() - began, read_cpu_seconds(pid) - cpu
        shares.append(mine / passed)
        others.append(max((read_busy_seconds() - busy - mine) / passed, 0.0))
        cycle = _get_json(port, "/api/v1/health")["cycles"]
        if cycle["last_error"]:
            raise RuntimeError(f"a cycle failed: {cycle['last_error']}")
        cycles.append(cycle["last_seconds"])
    return shares, others, cycles


def measure_parts(nodes: int, *, interval: float) -> Parts:
    """Each part in its own loop; the table over as many nodes as are scraped."""
    variants = read_variants()
    some = [[rename(page, node) for node in range(min(nodes, LOOP_NODES))] for page in variants]
    packed = [gzip.compress(page, compresslevel=1) for page in some[0]]
    began = time.process_time()
    for page in packed:
        gzip.decompress(page)
    unpack = (time.process_time() - began) / len(packed)
    first, steady = _measure_pages(some, interval)
    with closing(_fill(nodes, interval)) as source:
        reads = [_measure_read(source, interval) for _ in range(3)]
        return Parts(unpack * 1e6, first * 1e3, steady * 1e6, reads, source.store.series, source.store.nbytes)


def _source(interval: float) -> ScrapeSource:
    settings = ScrapeSettings(interval=interval, kubernetes="never")
    return ScrapeSource(settings, window_seconds=WINDOW_SECONDS)


def _measure_pages(pages: Sequence[Sequence[bytes]], interval: float) -> tuple[float, float]:
    """CPU seconds of a page seen for the first time, and of one seen before."""
    with closing(_source(interval)) as source:
        times = []
        for round_number in range(2 * VARIANTS):
            mine = pages[round_number % VARIANTS]
            began = time.process_time()
            for node, page in enumerate(mine):
                source.ingest(str(node), page, 1e9 + round_number * interval)
            times.append((time.process_time() - began) / len(mine))
    return times[0], min(times[1:])


def _fill(nodes: int, interval: float) -> ScrapeSource:
    """A source with a full window of every node."""
    source = _source(interval)
    variants = read_variants()
    for node in range(nodes):
        pages = [rename(page, node) for page in variants]
        for number in range(int(WINDOW_SECONDS / interval) + 1):
            source.ingest(str(node), pages[number % VARIANTS], 1e9 + number * interval)
    return source


def _measure_read(source: ScrapeSource, interval: float) -> float:
    began = time.process_time()
    source.read(1e9 + WINDOW_SECONDS + interval / 2)
    return (time.process_time() - began) * 1000


def write_results(results: Results) -> None:
    bars = [{**asdict(bar), "verdict": bar.verdict} for bar in judge(results)]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "scrape.md").write_text(render_report(results))
    (RESULTS / "scrape.json").write_text(json.dumps({**asdict(results), "bars": bars}, indent=1) + "\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.scrape", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000, help="of eight GPUs each")
    parser.add_argument("--seconds", type=float, default=120, help="how long to watch")
    parser.add_argument("--interval", type=float, default=15, help="seconds between two scrapes of a node")
    parser.add_argument("--dry", action="store_true", help="print the result, write nothing")
    return parser.parse_args(arguments)


def main() -> int:
    for stopping in (signal.SIGINT, signal.SIGTERM):  # stops the processes it started
        signal.signal(stopping, signal.default_int_handler)
    chosen = parse(sys.argv[1:])
    command = shlex.join(("python", "-m", "bench.scrape", *sys.argv[1:]))
    try:
        results = measure(chosen.nodes, seconds=chosen.seconds, interval=chosen.interval, command=command)
    except KeyboardInterrupt:
        print_progress("interrupted: everything is stopped, nothing is written")
        return 130
    if not chosen.dry:
        write_results(results)
    print(render_report(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
