"""Results of `bench.scrape`: limits and report."""

from dataclasses import dataclass, field
from statistics import median

from bench.bars import KIB, MB, Bar
from bench.machines import About
from bench.readings import Memory
from bench.report import render_bars, render_table
from bench.scrape_pages import GPUS_PER_NODE

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
        Bar(f"CPU, {size}", 100, median(results.shares) * 100, "% of a core", "median of the slices, cycles included"),
        Bar(f"RSS, {size}", 600, results.memory.peak * KIB / MB, "MB", "VmHWM: the most it ever had"),
        Bar("scrapes that failed", 0, results.scrapes_failed, "of all", "counted by the program itself"),
    ]


def render_report(results: Results) -> str:
    about = results.about
    return "\n".join(
        [
            "# The embedded source, measured\n",
            f"- Made by `{about.command}` on {about.date}.",
            f"- {about.processor}, {about.cores} cores; {about.kernel}; {about.python}; {about.c_library}\n",
            f"## Limits\n\n{render_bars(judge(results))}",
            f"## The whole program\n\n{render_table(('', 'measured'), _list_whole(results))}",
            f"## Its parts\n\n{render_table(('', 'CPU'), _list_parts(results))}",
            f"## How it was measured\n\n{NOTES}",
        ]
    )


def _list_whole(results: Results) -> list[tuple[str, str]]:
    return [
        ("nodes / GPUs / allocations", f"{results.nodes:,} / {results.gpus:,} / {results.allocations:,}"),
        ("a page, as it is / packed, bytes", f"{results.page_bytes:,} / {results.packed_bytes:,}"),
        ("measured, s", f"{results.seconds:.0f}"),
        ("scrapes that went well / failed", f"{results.scrapes_ok:,} / {results.scrapes_failed:,}"),
        ("CPU, % of a core, slice by slice", ", ".join(f"{share * 100:.1f}" for share in results.shares)),
        ("cores that all else kept busy", ", ".join(f"{cores:.2f}" for cores in results.others)),
        ("first round of scrapes, s / CPU s", f"{results.first_round_seconds:.1f} / {results.first_round_cpu:.1f}"),
        ("cycles, s each", ", ".join(f"{seconds:.2f}" for seconds in results.cycle_seconds)),
        ("RSS / RssAnon / VmHWM, MB", " / ".join(f"{kib * KIB / MB:.0f}" for kib in _kib(results.memory))),
    ]


def _kib(memory: Memory) -> tuple[int, int, int]:
    return memory.rss, memory.anonymous, memory.peak


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
