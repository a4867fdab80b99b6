"""Renders the results as a Markdown report."""

from collections.abc import Iterable, Sequence
from statistics import median

from bench.bars import KIB, MB, Bar, judge
from bench.results import Comparison, Endurance, Floor, Measured, Results
from bench.sides import AGENT, NVITOP

Row = Sequence[str]

NOTES = """\
- Both exporters run at the same time on the same fake `libnvidia-ml.so.1` (`tests/fakes/nvml`) with the same processes
  and are measured in the same windows or alternately. Calls of a real driver cost more than those of the fake.
- The processes are real: nvitop-exporter reads them from `/proc`. The agent reads each `stat` from `/proc` too; cgroups
  come from a fake tree, because 64 pods do not run here. It has a kubelet socket and an API server with TLS, as in
  every cluster, and all four dialects are enabled. The pages differ: the agent exports pods and all DCGM fields,
  nvitop-exporter exports the host and the CPU and memory of each process.
- Each exporter is installed into a fresh virtual environment with its bytecode compiled, as an image ships it, and runs
  with no Python switches set.
- CPU is the process's CPU clock (`clock_getcpuclockid`): all threads, including ended ones. CPU shares are
  the median of windows without a scrape; a scrape's cost is that of a row of scrapes less the idle share, the median
  of the rounds. The client keeps its connection where the server does; nvitop-exporter's closes it each time.
- CPU time is higher on a busy machine, because caches and hardware threads are shared, for both exporters alike. The
  other load of the machine is shown below each table; the ratios are not affected.
- A single scrape is made once a second at the 1 s interval: the page is new each time, so it must be compressed, and
  the processor's caches are as cold as for a real Prometheus.
- MB is 1,000,000 bytes, and memory is VmRSS, RssAnon and VmHWM (the peak) of the kernel.
"""

FLOOR = """\
## Compared with the lower bound

CPU for one collection. The first three are loops in one process, measured alternately; the last is the CPU share above
for one interval, with cold caches before each cycle. The fake returns at once; a real driver calls the kernel for most
calls, which raises the lower bound and leaves the rest unchanged.
"""

COLLECTORS = """\
## One cycle by collector

In the loop: CPU of its part of a mean cycle (the kubelet is queried every 30 s or when pods change, not in each cycle).
Running: time, not CPU, from `gpusteward_collector_duration_seconds` of the agent at the 1 s interval. The rest is
outside of collectors: attribution, counters, the page.
"""


def render_report(results: Results) -> str:
    """The whole page."""
    first = results.comparisons[0]
    parts = [
        "# Benchmark of the agent\n",
        _render_about(results),
        "## Limits\n\n" + render_bars(judge(results)),
        *(_render_comparison(comparison) for comparison in results.comparisons),
        _render_floors(results.floors, results.comparisons),
        _render_collectors(first.agent, results.floors[0]),
        _render_endurance(results.endurance),
        f"## How it was measured\n\n{NOTES}",
    ]
    return "\n".join(parts)


def render_table(header: Row, rows: Iterable[Row]) -> str:
    """A Markdown table, readable as it is: the first column to the left, numbers to the right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "".join(f"| {' | '.join(_align(line, widths))} |\n" for line in (lines[0], rule, *lines[1:]))


def _align(line: Row, widths: Sequence[int]) -> list[str]:
    return [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]


def render_bars(bars: Iterable[Bar]) -> str:
    """Each limit with its result, then how it is measured."""
    bars = list(bars)
    rows = [(bar.promise, f"{bar.limit:g} {bar.unit}", f"{bar.measured:.3g}", bar.verdict) for bar in bars]
    judged = "".join(f"- {bar.promise}: {bar.judged_by}.\n" for bar in bars)
    return f"{render_table(('limit of', 'at most', 'measured', 'verdict'), rows)}\n{judged}"


def _render_about(results: Results) -> str:
    about = results.about
    versions = [
        f"{side}: {', '.join(f'{name} {version}' for name, version in sorted(packages.items()))}"
        for side, packages in about.versions.items()
    ]
    lines = [
        f"Made by `{about.command}` on {about.date}.",
        f"{about.processor}, {about.cores} cores; {about.kernel}; {about.python}; {about.c_library}",
        *versions,
    ]
    return "".join(f"- {line}\n" for line in lines)


def _render_comparison(comparison: Comparison) -> str:
    title = f"## Side by side: {comparison.gpus} GPUs, {comparison.processes} processes, {comparison.pods} pods\n"
    rows = [(what, _show(ours), _show(theirs), f"{theirs / ours:.1f}") for what, ours, theirs in _compare(comparison)]
    return f"{title}\n{render_table(('', AGENT, NVITOP, 'theirs / ours'), rows)}\n{_render_windows(comparison)}"


def _render_windows(comparison: Comparison) -> str:
    """Every window behind the medians: how much the machine varied."""
    lines = [
        f"- CPU at {interval}, % of a core, window by window: {AGENT} {_join(ours)}; {NVITOP} {_join(theirs)}.\n"
        for (interval, ours), theirs in zip(
            comparison.agent.idle_shares.items(), comparison.nvitop.idle_shares.values(), strict=True
        )
    ]
    others = ", ".join(f"{cores:.2f}" for cores in comparison.others)
    return "".join([*lines, f"- Cores kept busy by all else on the machine meanwhile: {others}.\n"])


def _join(shares: Iterable[float]) -> str:
    return ", ".join(f"{share * 100:.3f}" for share in shares)


def _compare(comparison: Comparison) -> list[tuple[str, float, float]]:
    """What, ours, theirs; in the order in which it is shown."""
    ours, theirs = _list_figures(comparison, comparison.agent), _list_figures(comparison, comparison.nvitop)
    return [(name, value, theirs[name]) for name, value in ours.items()]


def _list_figures(comparison: Comparison, side: Measured) -> dict[str, float]:
    idle, scraped = side.memory["idle"], side.memory["scraped"]
    figures = {
        "RSS while idle, MB": idle.rss * KIB / MB,
        "RssAnon while idle, MB": idle.anonymous * KIB / MB,
        "RSS after the scrapes, MB": scraped.rss * KIB / MB,
        "highest RSS ever, MB": scraped.peak * KIB / MB,
    }
    for interval in comparison.intervals:
        figures[f"CPU at {interval:g} s, % of a core"] = side.cpu_share(interval) * 100
    figures[f"CPU at {comparison.intervals[0]:g} s, scraped every 15 s, % of a core"] = (
        median(side.scraped_shares) * 100
    )
    figures |= {f"CPU of a scrape, {mode}, ms": side.scrape_cpu(mode) for mode in side.scrapes}
    figures |= {f"CPU of a lone scrape, {mode}, ms": side.lone_scrape_cpu(mode) for mode in side.lone_scrapes}
    figures |= {f"time of a scrape, {mode}, ms": side.scrape_wall(mode) for mode in side.scrapes}
    figures |= {f"page, {mode}, bytes": size for mode, size in side.page_bytes.items()}
    return figures | {"series on the page": side.series}


def _render_floors(floors: Iterable[Floor], comparisons: Sequence[Comparison]) -> str:
    rows: list[Row] = []
    for floor, comparison in zip(floors, comparisons, strict=True):
        rows += _list_steps(floor, comparison.agent.cycle_milliseconds(5))
    return f"{FLOOR}\n{render_table(('GPUs / processes', 'CPU, ms', 'times the lower bound'), rows)}"


def _list_steps(floor: Floor, running: float) -> list[Row]:
    bare = median(floor.bare_calls)
    steps = {
        f"the bare {floor.calls} NVML calls of one collection": bare,
        "`Nvml.read`: the same calls, decoded": median(floor.nvml_read),
        "the whole cycle: attribution, four dialects, the page": median(floor.whole_cycle),
        "a cycle of the running agent, one in 5 s": running,
    }
    size = f"{floor.gpus} / {floor.processes}"
    return [(f"{size}: {what}", f"{ms:.3f}", f"{ms / bare:.1f}") for what, ms in steps.items()]


def _render_collectors(agent: Measured, floor: Floor) -> str:
    running = {name: median(values) * 1000 for name, values in agent.collectors.items()}
    names = sorted(floor.collectors, key=lambda name: -floor.collectors[name])
    rows = [
        (name, f"{floor.collectors[name]:.3f}", f"{running[name]:.3f}" if name in running else "") for name in names
    ]
    return f"{COLLECTORS}\n{render_table(('collector', 'in the loop, CPU ms', 'running, ms'), rows)}"


def _render_endurance(endurance: Endurance) -> str:
    step = max(1, len(endurance.moments) // 10)
    shown = endurance.moments[step - 1 :: step]
    rows = [("0", "0", "0", _megabytes(endurance.before.rss), _megabytes(endurance.before.anonymous))]
    rows += [
        (
            f"{moment.cycles:,}",
            f"{moment.scrapes:,}",
            f"{moment.pod_changes:,}",
            _megabytes(moment.memory.rss),
            _megabytes(moment.memory.anonymous),
        )
        for moment in shown
    ]
    last = endurance.moments[-1]
    return (
        f"## Endurance\n\n{last.cycles:,} cycles and {last.scrapes:,} scrapes"
        f" while {last.pod_changes:,} pods were added, changed or deleted, with"
        " their claims and their processes; at the 0.5 s interval. The first quarter is the warm-up.\n\n"
        + render_table(("cycles", "scrapes", "pod changes", "RSS, MB", "RssAnon, MB"), rows)
        + f"\nGrowth after the warm-up: {endurance.growth_kib * KIB / MB:+.2f} MB in {endurance.cycles:,} cycles."
        f" Over 5,000 cycles without a pause: {endurance.bytes_a_cycle:+.0f} bytes a cycle.\n"
    )


def _megabytes(kib: int) -> str:
    return f"{kib * KIB / MB:.1f}"


def _show(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}"
