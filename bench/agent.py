"""`python -m bench.agent`: the agent compared with nvitop-exporter, with its lower bound, and under endurance.

Writes bench/results/agent.md. Exits with 0 whether or not the limits are met.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.compare import Comparison, ComparisonRun, Measured, Plan
from bench.cycles import FAST_CYCLES
from bench.endurance import Endurance, PodChurn, endure
from bench.exporters import AGENT, NVITOP, ROOT, Install, install_agent, install_nvitop, run_exporter
from bench.measure import KIB, MB, About, describe_run, name_command, print_progress
from bench.nodes import Node, create_pods, start_node
from bench.report import Bar, Row, at_most, publish, render_bars, render_head, render_table
from tests.fakes.nvml_scenarios import crowd

STANDARD, LARGE = (8, 64), (16, 512)  # GPUs, processes
PLANS = {
    STANDARD: Plan(intervals=(5.0, 1.0), scrapes={AGENT: 200, NVITOP: 50}, lone_scrapes=30),
    LARGE: Plan(intervals=(5.0,), scrapes={AGENT: 50, NVITOP: 20}, rounds=4),
}
FLOOR_ROUNDS = {STANDARD: (20, 20), LARGE: (12, 8)}  # rounds, turns in each
ENDURANCE_INTERVAL = 0.5

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


@dataclass(frozen=True, slots=True)
class Floor:
    """CPU of the agent's own work in one process, in a tight loop; milliseconds, round by round."""

    gpus: int
    processes: int
    calls: int  # of NVML in one collection
    bare_calls: list[float]
    nvml_read: list[float]
    whole_cycle: list[float]
    collectors: dict[str, float]  # of each and of the rest, for one cycle


@dataclass(frozen=True, slots=True)
class Results:
    """One run."""

    about: About
    comparisons: list[Comparison]  # the standard size first
    floors: list[Floor]
    endurance: Endurance


def judge(results: Results) -> list[Bar]:
    """The limits of the agent on the first node: 8 GPUs, 64 processes, 64 pods."""
    agent, nvitop, endurance = results.comparisons[0].agent, results.comparisons[0].nvitop, results.endurance
    highest = max(agent.peak_mb, endurance.moments[-1].memory.peak_mb)
    return [
        at_most("RSS", 38, highest, "MB", "VmHWM: the most it ever had, start-up and endurance included"),
        at_most(
            "RSS compared with nvitop-exporter",
            1.1,
            agent.peak_mb / nvitop.peak_mb,
            "times",
            "VmHWM of both while they ran side by side",
        ),
        at_most("CPU at the 5 s interval", 0.25, agent.cpu_share(5) * 100, "% of a core", "median of the idle windows"),
        at_most("CPU of a scrape", 2, agent.highest_scrape_cpu, "ms", "the highest of the ways to scrape below"),
        at_most("RSS over 5,000 cycles", 50, endurance.bytes_a_cycle, "bytes a cycle", "after the first 1,000"),
        at_most(
            "RSS stays flat under scrapes and pod changes",
            1,
            endurance.growth_mb,
            "MB of growth",
            "first five readings after the warm-up to the last five, median to median",
        ),
    ]


def render_report(results: Results) -> str:
    """The whole page."""
    first = results.comparisons[0]
    parts = [
        render_head("Benchmark of the agent", results.about),
        "## Limits\n\n" + render_bars(judge(results)),
        *(_render_comparison(comparison) for comparison in results.comparisons),
        _render_floors(results.floors, results.comparisons),
        _render_collectors(first.agent, results.floors[0]),
        _render_endurance(results.endurance),
        f"## How it was measured\n\n{NOTES}",
    ]
    return "\n".join(parts)


def _render_comparison(comparison: Comparison) -> str:
    title = f"## Side by side: {comparison.gpus} GPUs, {comparison.processes} processes, {comparison.pods} pods\n"
    agent, nvitop = comparison.agent, comparison.nvitop
    theirs = _list_figures(comparison, nvitop)
    rows = [
        (what, _show(ours), _show(theirs[what]), f"{theirs[what] / ours:.1f}")
        for what, ours in _list_figures(comparison, agent).items()
    ]
    # Every window behind the medians: how much the machine varied.
    windows = {
        f"at {interval}": (shares, nvitop.idle_shares[interval]) for interval, shares in agent.idle_shares.items()
    }
    windows["while scraped"] = agent.scraped_shares, nvitop.scraped_shares
    lines = [
        f"- CPU {when}, % of a core, window by window: {AGENT} {_join(ours)}; {NVITOP} {_join(others)}.\n"
        for when, (ours, others) in windows.items()
    ]
    others = ", ".join(f"{cores:.2f}" for cores in comparison.others)
    lines.append(f"- Cores kept busy by all else on the machine meanwhile: {others}.\n")
    return f"{title}\n{render_table(('', AGENT, NVITOP, 'theirs / ours'), rows)}\n{''.join(lines)}"


def _join(shares: Iterable[float]) -> str:
    return ", ".join(f"{share * 100:.3f}" for share in shares)


def _list_figures(comparison: Comparison, found: Measured) -> dict[str, float]:
    """In the order in which they are shown."""
    idle, scraped = found.memory["idle"], found.memory["scraped"]
    figures = {
        "RSS while idle, MB": idle.rss * KIB / MB,
        "RssAnon while idle, MB": idle.anonymous * KIB / MB,
        "RSS after the scrapes, MB": scraped.rss * KIB / MB,
        "highest RSS ever, MB": scraped.peak_mb,
    }
    for interval in comparison.intervals:
        figures[f"CPU at {interval:g} s, % of a core"] = found.cpu_share(interval) * 100
    figures[f"CPU at {comparison.intervals[0]:g} s, scraped every 15 s, % of a core"] = (
        median(found.scraped_shares) * 100
    )
    figures |= {f"CPU of a scrape, {mode}, ms": cost for mode, cost in found.scrape_cpu.items()}
    figures |= {f"CPU of a lone scrape, {mode}, ms": cost for mode, cost in found.lone_scrape_cpu.items()}
    figures |= {f"time of a scrape, {mode}, ms": cost for mode, cost in found.scrape_wall.items()}
    figures |= {f"page, {mode}, bytes": size for mode, size in found.page_bytes.items()}
    return figures | {"series on the page": found.series}


def _show(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def _render_floors(floors: Iterable[Floor], comparisons: Sequence[Comparison]) -> str:
    rows: list[Row] = []
    for floor, comparison in zip(floors, comparisons, strict=True):
        bare, share = median(floor.bare_calls), comparison.agent.cpu_share(5)
        steps = {
            f"the bare {floor.calls} NVML calls of one collection": bare,
            "`Nvml.read`: the same calls, decoded": median(floor.nvml_read),
            "the whole cycle: attribution, four dialects, the page": median(floor.whole_cycle),
            "a cycle of the running agent, one in 5 s": share * 5 * 1000,
        }
        size = f"{floor.gpus} / {floor.processes}"
        rows += [(f"{size}: {what}", f"{ms:.3f}", f"{ms / bare:.1f}") for what, ms in steps.items()]
    return f"{FLOOR}\n{render_table(('GPUs / processes', 'CPU, ms', 'times the lower bound'), rows)}"


def _render_collectors(agent: Measured, floor: Floor) -> str:
    running = {name: f"{median(values) * 1000:.3f}" for name, values in agent.collectors.items()}
    names = sorted(floor.collectors, key=lambda name: -floor.collectors[name])
    rows = [(name, f"{floor.collectors[name]:.3f}", running.get(name, "")) for name in names]
    return f"{COLLECTORS}\n{render_table(('collector', 'in the loop, CPU ms', 'running, ms'), rows)}"


def _render_endurance(endurance: Endurance) -> str:
    step, last = max(1, len(endurance.moments) // 10), endurance.moments[-1]
    numbers = [(0, 0, 0, endurance.before)]
    numbers += [(m.cycles, m.scrapes, m.pod_changes, m.memory) for m in endurance.moments[step - 1 :: step]]
    rows = [
        (*(f"{count:,}" for count in counts), f"{memory.rss * KIB / MB:.1f}", f"{memory.anonymous * KIB / MB:.1f}")
        for *counts, memory in numbers
    ]
    return (
        f"## Endurance\n\n{last.cycles:,} cycles and {last.scrapes:,} scrapes"
        f" while {last.pod_changes:,} pods were added, changed or deleted, with"
        " their claims and their processes; at the 0.5 s interval. The first quarter is the warm-up.\n\n"
        + render_table(("cycles", "scrapes", "pod changes", "RSS, MB", "RssAnon, MB"), rows)
        + f"\nGrowth after the warm-up: {endurance.growth_mb:+.2f} MB in {endurance.cycles:,} cycles."
        f" Over 5,000 cycles without a pause: {endurance.bytes_a_cycle:+.0f} bytes a cycle.\n"
    )


class Bench:
    """One run in its own folder."""

    def __init__(self, folder: Path, agent: Install, *, nvitop: Install) -> None:
        self._folder, self._agent, self._nvitop = folder, agent, nvitop

    def run(self) -> Results:
        versions = {AGENT: self._agent.versions, NVITOP: self._nvitop.versions}
        comparisons, floors = [], []
        for (gpus, processes), plan in PLANS.items():
            with start_node(self._folder / f"node-{gpus}", gpus, processes=processes) as node:
                print_progress(f"{gpus} GPUs, {processes} processes: both exporters")
                comparisons.append(ComparisonRun(node, plan).compare(self._agent, self._nvitop))
                print_progress("  the floor")
                floor = self._run_module(node, "bench.floor", *FLOOR_ROUNDS[gpus, processes])
                floors.append(Floor(gpus, processes, **floor))
        return Results(describe_run(name_command("agent"), versions), comparisons, floors, self._endure())

    def _run_module(self, node: Node, module: str, *arguments: int) -> Any:
        """In a process where the agent is installed: the bench itself has the fakes loaded."""
        counts = [str(count) for count in arguments]
        command = [self._agent.program("python"), "-m", module, *counts, *node.agent_flags, "--log-level=error"]
        done = subprocess.run(command, cwd=ROOT, env=node.environment, check=True, stdout=subprocess.PIPE)
        return json.loads(done.stdout)

    def _endure(self) -> Endurance:
        gpus, processes = STANDARD
        print_progress("endurance")
        with (
            start_node(self._folder / "endurance", gpus, processes=processes) as node,
            run_exporter(AGENT, self._agent, node, interval=ENDURANCE_INTERVAL) as exporter,
        ):
            pods = create_pods(crowd(gpus, processes, pids=node.pids), node.pids)
            fast_rss = self._run_module(node, "bench.cycles", FAST_CYCLES)
            return endure(exporter, PodChurn(node, pods), fast_rss=fast_rss)


def measure() -> Results:
    print_progress("installing both exporters into .build/")
    agent, nvitop = install_agent(), install_nvitop()
    print_progress(f"gpusteward {agent.versions['gpusteward']}, nvitop-exporter {nvitop.versions['nvitop-exporter']}")
    with tempfile.TemporaryDirectory(prefix="gpusteward-bench-") as folder:
        return Bench(Path(folder), agent, nvitop=nvitop).run()


if __name__ == "__main__":
    sys.exit(publish("agent", lambda: render_report(measure())))
