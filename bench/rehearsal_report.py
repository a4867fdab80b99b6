"""Results of `bench.rehearsal`: limits and report."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import linear_regression, mean, median

from bench.measure import KIB, MB, About
from bench.rehearsal_truth import Comparison
from bench.report import Bar, at_most, render_bars, render_head, render_table

PROMETHEUS, ANALYZER, NODES = "Prometheus", "analyzer", "simulated agents"
PROGRAMS = (PROMETHEUS, ANALYZER, NODES)
FLAT_SHARE, FLAT_MB = 0.02, 2.0
MOST_UNKNOWN_PERCENT = 10.0
"""MIG instances before Hopper cannot be measured, and pods that have just started are not judged."""
ROWS_OVER_TIME = 15

NOTES = """\
- The simulated agents are one process with the simulator of `gpusteward demo`: every page is computed and rendered
  for each scrape. What a real agent costs is in [agent.md](agent.md).
- Prometheus scrapes every node as a target of its own every 15 s, and the analyzer too. It has no recording rules.
- The analyzer runs with its defaults (SQLite ledger, 10-minute window) but for the interval between cycles, which
  is shorter than its default of 300 s. There is no API server: owners come from the labels of the agents.
- CPU is the process's CPU clock, in % of one core, from the end of the warm-up (one window and two cycles) on.
  Memory is VmRSS; its slope is a least-squares line from the end of the warm-up on. "Flat": from the first to the
  last fifth of that time it grows by less than 2 % or 2 MB, median to median. The memory of Prometheus rises until
  it cuts its first block after two to three hours.
- Prometheus starts empty. In the first ten minutes every verdict is unknown: a scrape job is not judged before its
  interval is known.
- Truth is what the simulator's workloads did within the window of the compared result. Work within one scrape
  interval of the ends of the window is a row of its own: the samples do not cover it. Reading all allocations for
  the comparison is part of the analyzer's CPU.
- The ledger is the SQLite file with its write-ahead log, which is merged at checkpoints. A row is kept per hour and
  allocation: the file grows at each full hour and with new pods, little in between.
- MB is 1,000,000 bytes.
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """All programs at one moment, in the order of `PROGRAMS`."""

    seconds: float  # since the start of the analyzer
    cpu_seconds: tuple[float, ...]
    rss_kib: tuple[int, ...]
    other_cores: float  # kept busy by all else since the reading before
    ledger_bytes: int
    engine_bytes: int


@dataclass(frozen=True, slots=True)
class Cycle:
    """A finished cycle of the analyzer."""

    at_seconds: float
    seconds: float
    allocations: int
    unknown: int
    coverage: float


@dataclass(frozen=True, slots=True)
class Scraped:
    """What Prometheus says about itself and its scrapes at the end."""

    series: float
    samples_per_second: float
    failed_scrapes: float
    node_milliseconds: list[float]  # median and longest scrape of a node
    analyzer_milliseconds: list[float]  # the same of the analyzer's /metrics
    analyzer_samples: float
    page_bytes: float  # of a node, mean of some
    packed_bytes: float


@dataclass(frozen=True, slots=True)
class Results:
    """One run."""

    about: About
    nodes: int
    gpus: int
    minutes: float
    cycle_seconds: float
    window_seconds: float
    scrape_seconds: float
    readings: list[Reading]
    cycles: list[Cycle]
    failed_cycles: int
    comparisons: list[Comparison]
    scraped: Scraped

    @property
    def warm_up_seconds(self) -> float:
        """One window and two cycles, but never more than half of the run."""
        return min(self.window_seconds + 2 * self.cycle_seconds, self.readings[-1].seconds / 2)

    @property
    def unknown_percent(self) -> float:
        last = self.cycles[-1]
        return 100 * last.unknown / max(last.allocations, 1)

    @property
    def steady(self) -> list[Reading]:
        return [reading for reading in self.readings if reading.seconds >= self.warm_up_seconds]

    def cpu_share(self, program: int) -> float:
        first, last = self.steady[0], self.steady[-1]
        return (last.cpu_seconds[program] - first.cpu_seconds[program]) / (last.seconds - first.seconds)

    def peak_mb(self, program: int) -> float:
        return max(reading.rss_kib[program] for reading in self.readings) * KIB / MB

    def growth_mb(self, program: int) -> float:
        """From the first fifth after the warm-up to the last, median to median."""
        rss = [reading.rss_kib[program] for reading in self.steady]
        fifth = max(len(rss) // 5, 1)
        return (median(rss[-fifth:]) - median(rss[:fifth])) * KIB / MB

    def slope_mb_per_hour(self, program: int) -> float:
        line = linear_regression(
            [reading.seconds / 3600 for reading in self.steady],
            [reading.rss_kib[program] * KIB / MB for reading in self.steady],
        )
        return line.slope

    def is_flat(self, program: int) -> bool:
        steady = median(reading.rss_kib[program] for reading in self.steady) * KIB / MB
        return self.growth_mb(program) <= max(FLAT_SHARE * steady, FLAT_MB)


def judge(results: Results) -> list[Bar]:
    wrong = sum(each.wrongly_idle for each in results.comparisons)
    own = PROGRAMS.index(ANALYZER)
    steady = median(reading.rss_kib[own] for reading in results.steady) * KIB / MB
    return [
        at_most("failed cycles", 0, results.failed_cycles, "", "of the analyzer"),
        at_most("longest cycle", results.cycle_seconds, max(c.seconds for c in results.cycles), "s", "wall clock"),
        at_most("failed scrapes", 0, results.scraped.failed_scrapes, "", "`up` is 0, nodes and analyzer"),
        at_most("working allocations judged idle", 0, wrong, "", "all comparisons with the truth"),
        at_most("unknown allocations", MOST_UNKNOWN_PERCENT, results.unknown_percent, "%", "of the last cycle"),
        at_most(
            "growth of the analyzer's memory",
            max(FLAT_SHARE * steady, FLAT_MB),
            results.growth_mb(own),
            "MB",
            "first to last fifth after the warm-up, median to median",
        ),
    ]


def render_report(results: Results) -> str:
    """The whole page."""
    plan = (
        f"{results.nodes:,} simulated nodes with {results.gpus:,} GPUs; {results.minutes:g} min; scrapes every"
        f" {results.scrape_seconds:g} s, cycles every {results.cycle_seconds:g} s over a window of"
        f" {results.window_seconds / 60:g} min."
    )
    return "\n".join(
        [
            render_head("Scale rehearsal", results.about, plan),
            f"## Limits\n\n{render_bars(judge(results))}",
            f"## Programs\n\n{_render_programs(results)}",
            f"## Cycles and pages\n\n{_render_figures(results)}",
            f"## Verdicts and truth\n\n{_render_truth(results.comparisons)}",
            f"## Over time\n\n{_render_over_time(results)}",
            f"## How it was measured\n\n{NOTES}",
        ]
    )


def _render_programs(results: Results) -> str:
    header = ("", "CPU, % of a core", "highest RSS, MB", "growth, MB", "slope, MB per hour", "memory")
    rows = [
        (
            name,
            f"{results.cpu_share(number) * 100:.1f}",
            f"{results.peak_mb(number):.0f}",
            f"{results.growth_mb(number):+.1f}",
            f"{results.slope_mb_per_hour(number):+.1f}",
            "flat" if results.is_flat(number) else "grows",
        )
        for number, name in enumerate(PROGRAMS)
    ]
    others = mean(reading.other_cores for reading in results.steady)
    return f"{render_table(header, rows)}\nAll other programs of the machine: {others:.2f} cores.\n"


def _render_figures(results: Results) -> str:
    seconds, scraped = [cycle.seconds for cycle in results.cycles], results.scraped
    ledger = [reading.ledger_bytes for reading in results.readings]
    rows = [
        ("cycles", f"{len(seconds)}"),
        ("a cycle, s: median, longest", f"{median(seconds):.2f}, {max(seconds):.2f}"),
        ("allocations of the last cycle", f"{results.cycles[-1].allocations:,}"),
        ("coverage of the last cycle", f"{results.cycles[-1].coverage:.3f}"),
        ("/metrics of the analyzer, ms: median, longest", _join(scraped.analyzer_milliseconds)),
        ("/metrics of the analyzer, samples", f"{scraped.analyzer_samples:,.0f}"),
        ("/metrics of a node, ms: median, longest", _join(scraped.node_milliseconds)),
        ("/metrics of a node, bytes: plain, packed", f"{scraped.page_bytes:,.0f}, {scraped.packed_bytes:,.0f}"),
        ("series in Prometheus", f"{scraped.series:,.0f}"),
        ("samples per second", f"{scraped.samples_per_second:,.0f}"),
        ("data of Prometheus on disk, MB", f"{results.readings[-1].engine_bytes / MB:.0f}"),
        ("ledger on disk, MB: first cycle, end", f"{_first_ledger(ledger) / MB:.1f}, {ledger[-1] / MB:.1f}"),
    ]
    return render_table(("", "measured"), rows)


def _first_ledger(sizes: Sequence[int]) -> int:
    return next((size for size in sizes if size), 0)


def _join(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.1f}" for number in numbers)


def _render_truth(comparisons: Sequence[Comparison]) -> str:
    """The last result in full, and the totals of each."""
    last = comparisons[-1]
    activities = sorted({activity for row in last.counts.values() for activity in row})
    table = render_table(
        ("the last result", *activities),
        [(name, *(str(row.get(each, "")) for each in activities)) for name, row in last.counts.items()],
    )
    header = ("result", "active", "idle", "unknown", "worked, judged idle", "missing")
    rows = [
        (
            f"{number}",
            *(f"{each.count(activity)}" for activity in ("active", "idle", "unknown")),
            f"{each.wrongly_idle}",
            f"{each.missing}",
        )
        for number, each in enumerate(comparisons, 1)
    ]
    return f"{table}\n{render_table(header, rows)}"


def _render_over_time(results: Results) -> str:
    header = ("minute", *(f"{name}: CPU %, MB" for name in PROGRAMS), "cycle, s", "ledger, MB")
    return render_table(header, _list_moments(results))


def _list_moments(results: Results) -> Iterator[Sequence[str]]:
    step = max(len(results.readings) // ROWS_OVER_TIME, 1)
    chosen = results.readings[::step]
    for before, reading in pairwise(chosen):
        passed = reading.seconds - before.seconds
        shares = [(b - a) / passed * 100 for a, b in zip(before.cpu_seconds, reading.cpu_seconds, strict=True)]
        done = [cycle.seconds for cycle in results.cycles if before.seconds < cycle.at_seconds <= reading.seconds]
        yield (
            f"{reading.seconds / 60:.1f}",
            *(f"{s:.0f}, {rss * KIB / MB:.0f}" for s, rss in zip(shares, reading.rss_kib, strict=True)),
            _join(done) if done else "",
            f"{reading.ledger_bytes / MB:.1f}",
        )
