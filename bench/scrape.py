"""`python -m bench.scrape`: `gpusteward serve` without an engine, scraping many nodes itself.

Writes bench/results/scrape.md. Exits with 0 whether the limits hold or not.
"""

import argparse
import gzip
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median

from bench.measure import (
    KIB,
    MB,
    About,
    Memory,
    describe_run,
    name_command,
    print_progress,
    read_busy_seconds,
    read_cpu_seconds,
    read_memory,
)
from bench.programs import Client, run_module, run_serve
from bench.report import Bar, at_most, publish, render_bars, render_head, render_table
from bench.scrape_nodes import GOLDEN, GPUS_PER_NODE, VARIANTS, pack_pages, read_variants, rename
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource

WINDOW_SECONDS = 600
CYCLE_SECONDS = 30
SLICES = 4
FIRST_ROUND_SECONDS = 120.0
LOOP_NODES = 100
NOTES = """\
- `gpusteward serve` as it is installed here, without an engine, its ledger switched off; its targets are paths of one
  other process, so the network is the loopback. Pages are the agent's golden page of eight GPUs (all four dialects)
  under other names; three of each node take turns, packed.
- CPU is the process's CPU clock: scrapes, cycles and the HTTP server. The window begins when every target has been read
  once; what that first round costs (every line is new then) is in its own row.
- Memory does not grow with time: the ring buffers have their full size from a target's first page on. VmHWM is its
  peak.
- The parts are loops in the bench's own process: CPU time. If other processes keep the machine busy, as the row above
  shows, the same work takes longer.
- MB is 1,000,000 bytes.
"""


@dataclass(frozen=True, slots=True)
class Parts:
    """CPU of the single steps, in one process."""

    unpack_microseconds: float  # a page
    first_milliseconds: float  # a page of which every line is new
    steady_microseconds: float  # a page whose lines are known
    read_milliseconds: list[float]  # one table of all nodes over a full window
    series: int  # kept of all nodes
    ring_bytes: int


@dataclass(frozen=True, slots=True)
class Results:
    """One run."""

    about: About
    nodes: int
    interval: float
    seconds: float  # measured
    page_bytes: int
    packed_bytes: int
    first_round_seconds: float  # wall time until every target was read once
    first_round_cpu: float  # CPU seconds of it, start of the program included
    shares: list[float]  # of one core, slice by slice
    others: list[float]  # cores that all else kept busy, slice by slice
    memory: Memory
    scrapes_ok: int
    scrapes_failed: int
    cycle_seconds: list[float]
    allocations: int
    parts: Parts = field(repr=False)

    @property
    def gpus(self) -> int:
        return self.nodes * GPUS_PER_NODE


def judge(results: Results) -> list[Bar]:
    size = f"{results.nodes:,} nodes x {GPUS_PER_NODE} GPUs every {results.interval:g} s"
    return [
        at_most(
            f"CPU, {size}", 100, median(results.shares) * 100, "% of a core", "median of the slices, cycles included"
        ),
        at_most(f"RSS, {size}", 600, results.memory.peak_mb, "MB", "VmHWM: the most it ever had"),
        at_most("scrapes that failed", 0, results.scrapes_failed, "of all", "counted by the program itself"),
    ]


def render_report(results: Results) -> str:
    return "\n".join(
        [
            render_head("The embedded source, measured", results.about),
            f"## Limits\n\n{render_bars(judge(results))}",
            f"## The whole program\n\n{render_table(('', 'measured'), _list_whole(results))}",
            f"## Its parts\n\n{render_table(('', 'CPU'), _list_parts(results))}",
            f"## How it was measured\n\n{NOTES}",
        ]
    )


def _list_whole(results: Results) -> list[tuple[str, str]]:
    memory = results.memory
    return [
        ("nodes / GPUs / allocations", f"{results.nodes:,} / {results.gpus:,} / {results.allocations:,}"),
        ("a page, as it is / packed, bytes", f"{results.page_bytes:,} / {results.packed_bytes:,}"),
        ("measured, s", f"{results.seconds:.0f}"),
        ("scrapes that went well / failed", f"{results.scrapes_ok:,} / {results.scrapes_failed:,}"),
        ("CPU, % of a core, slice by slice", ", ".join(f"{share * 100:.1f}" for share in results.shares)),
        ("cores that all else kept busy", ", ".join(f"{cores:.2f}" for cores in results.others)),
        ("first round of scrapes, s / CPU s", f"{results.first_round_seconds:.1f} / {results.first_round_cpu:.1f}"),
        ("cycles, s each", ", ".join(f"{seconds:.2f}" for seconds in results.cycle_seconds)),
        (
            "RSS / RssAnon / VmHWM, MB",
            " / ".join(f"{kib * KIB / MB:.0f}" for kib in (memory.rss, memory.anonymous, memory.peak)),
        ),
    ]


def _list_parts(results: Results) -> list[tuple[str, str]]:
    parts = results.parts
    return [
        ("unpacking a page", f"{parts.unpack_microseconds:.0f} us"),
        ("a page whose lines are known", f"{parts.steady_microseconds:.0f} us"),
        ("a page of which every line is new", f"{parts.first_milliseconds:.1f} ms"),
        ("a table of all nodes over a full window", f"{median(parts.read_milliseconds):.0f} ms"),
        ("series kept", f"{parts.series:,}"),
        ("their rings", f"{parts.ring_bytes / MB:.0f} MB"),
    ]


def measure(nodes: int, *, seconds: float, interval: float) -> Results:
    print_progress(f"{nodes:,} nodes, every {interval:g} s, for {seconds:g} s")
    parts = measure_parts(nodes, interval=interval)
    with tempfile.TemporaryDirectory() as name, run_module("bench.scrape_nodes", nodes) as (_, port):
        file = Path(name, "targets.json")
        targets = [f"http://127.0.0.1:{port}/{node}/metrics" for node in range(nodes)]
        file.write_text(json.dumps([{"targets": targets}]))
        settings = {
            "scrape.targets_file": file,
            "scrape.interval": f"{interval:g}",
            "scheduler.interval": CYCLE_SECONDS,
            "ledger.enabled": "false",
        }
        began = time.monotonic()
        with run_serve(Path(name), settings) as (process, address):
            pid = process.pid
            _wait_for_all(address, nodes)
            first_round, first_cpu = time.monotonic() - began, read_cpu_seconds(pid)
            shares, others, cycles = _watch(pid, address, seconds=seconds)
            sources, health = Client(address).get_json("/api/v1/sources"), Client(address).read_health()
            memory = read_memory(pid)
    print_progress(f"  {memory.peak} KiB at most, {shares} of a core, cycles {cycles} s")
    versions = {name: version(name) for name in ("gpusteward", "numpy", "httptools")}
    return Results(
        about=describe_run(name_command("scrape"), {"analyzer": versions}),
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


def _wait_for_all(port: int, nodes: int) -> None:
    """Wait until every target was scraped once."""
    deadline = time.monotonic() + FIRST_ROUND_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.2)
        try:
            if Client(port).get_json("/api/v1/sources")["scrapes"]["ok"] >= nodes:
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
        cycle = Client(port).read_health()["cycles"]
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
    settings = ScrapeSettings(interval=interval, selector="")
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scrape", description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000, help="of eight GPUs each")
    parser.add_argument("--seconds", type=float, default=120, help="how long to watch")
    parser.add_argument("--interval", type=float, default=15, help="seconds between two scrapes of a node")
    parser.add_argument("--dry", action="store_true", help="print the result, write nothing")
    chosen = parser.parse_args()
    return publish(
        "scrape",
        lambda: render_report(measure(chosen.nodes, seconds=chosen.seconds, interval=chosen.interval)),
        is_dry=chosen.dry,
    )


if __name__ == "__main__":
    sys.exit(main())
