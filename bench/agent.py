"""`python -m bench.agent`: the agent compared with nvitop-exporter, with its lower bound, and under endurance.

Writes bench/results/agent.md and agent.json. Exits with 0 whether or not the limits are met.
"""

import json
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from bench.bars import judge
from bench.compare import ComparisonRun, Plan
from bench.cycles import FAST_CYCLES
from bench.endurance import PodChurn, endure
from bench.installs import ROOT, Install, install_agent, install_nvitop
from bench.machines import describe_run
from bench.nodes import Node, create_pods, start_node
from bench.progress import print_progress
from bench.report import render_report
from bench.results import Comparison, Endurance, Floor, Results
from bench.sides import AGENT, NVITOP, run_agent
from tests.fakes.nvml_scenarios import crowd

COMMAND = "make bench"
RESULTS = Path(__file__).parent / "results"

STANDARD, LARGE = (8, 64), (16, 512)  # GPUs, processes
PLANS = {
    STANDARD: Plan(intervals=(5.0, 1.0), scrapes={AGENT: 200, NVITOP: 50}, lone_scrapes=30),
    LARGE: Plan(intervals=(5.0,), scrapes={AGENT: 50, NVITOP: 20}, rounds=4),
}
FLOOR_ROUNDS = {STANDARD: (20, 20), LARGE: (12, 8)}  # rounds, turns in each
ENDURANCE_INTERVAL = 0.5


class Bench:
    """One run in its own folder."""

    def __init__(self, folder: Path, agent: Install, *, nvitop: Install) -> None:
        self._folder = folder
        self._agent = agent
        self._nvitop = nvitop

    def run(self) -> Results:
        versions = {AGENT: self._agent.versions, NVITOP: self._nvitop.versions}
        comparisons, floors = [], []
        for size in PLANS:
            comparison, floor = self._measure(size)
            comparisons.append(comparison)
            floors.append(floor)
        return Results(describe_run(COMMAND, versions), comparisons, floors, self._endure())

    def _measure(self, size: tuple[int, int]) -> tuple[Comparison, Floor]:
        gpus, processes = size
        with start_node(self._folder / f"node-{gpus}", gpus, processes=processes) as node:
            print_progress(f"{gpus} GPUs, {processes} processes: both exporters")
            comparison = ComparisonRun(node, PLANS[size]).compare(self._agent, self._nvitop)
            print_progress("  the floor")
            return comparison, self._measure_floor(node, size)

    def _measure_floor(self, node: Node, size: tuple[int, int]) -> Floor:
        """In a process where the agent is installed: the bench itself has the fakes loaded."""
        counts = [str(count) for count in FLOOR_ROUNDS[size]]
        command = [self._agent.program("python"), "-m", "bench.floor", *counts, *node.agent_flags, "--log-level=error"]
        done = subprocess.run(command, cwd=ROOT, env=node.environment, check=True, stdout=subprocess.PIPE)
        return Floor(*size, **json.loads(done.stdout))

    def _endure(self) -> Endurance:
        gpus, processes = STANDARD
        print_progress("endurance")
        with (
            start_node(self._folder / "endurance", gpus, processes=processes) as node,
            run_agent(self._agent, node, interval=ENDURANCE_INTERVAL) as side,
        ):
            pods = create_pods(crowd(gpus, processes, pids=node.pids), node.pids)
            return endure(side, PodChurn(node, pods), fast_rss=self._run_cycles(node))

    def _run_cycles(self, node: Node) -> list[int]:
        python = self._agent.program("python")
        command = [python, "-m", "bench.cycles", str(FAST_CYCLES), *node.agent_flags, "--log-level=error"]
        done = subprocess.run(command, cwd=ROOT, env=node.environment, check=True, stdout=subprocess.PIPE)
        return list(json.loads(done.stdout))


def write_results(results: Results) -> None:
    bars = [{**asdict(bar), "verdict": bar.verdict} for bar in judge(results)]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "agent.md").write_text(render_report(results))
    (RESULTS / "agent.json").write_text(json.dumps({**asdict(results), "bars": bars}, indent=1) + "\n")


def measure() -> Results:
    print_progress("installing both exporters into .build/")
    agent, nvitop = install_agent(), install_nvitop()
    print_progress(f"gpusteward {agent.versions['gpusteward']}, nvitop-exporter {nvitop.versions['nvitop-exporter']}")
    with tempfile.TemporaryDirectory(prefix="gpusteward-bench-") as folder:
        return Bench(Path(folder), agent, nvitop=nvitop).run()


def main() -> int:
    for stopping in (signal.SIGINT, signal.SIGTERM):  # stops the processes it started
        signal.signal(stopping, signal.default_int_handler)
    try:
        results = measure()
    except KeyboardInterrupt:
        print_progress("interrupted: all processes are stopped, nothing is written")
        return 130
    write_results(results)
    print(render_report(results))
    print_progress("written to bench/results/agent.md and agent.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
