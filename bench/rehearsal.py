"""`python -m bench.rehearsal`: a simulated cluster, a Prometheus that scrapes it, an analyzer on top, for half an hour.

Writes bench/results/rehearsal.md. Exits with 0 whether the limits hold or not.
"""

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from urllib.parse import urlencode

from bench.measure import (
    describe_run,
    name_command,
    print_progress,
    read_busy_seconds,
    read_cpu_seconds,
    read_memory,
)
from bench.programs import Client, run_module, run_serve
from bench.rehearsal_nodes import GPUS_PER_NODE, create_nodes
from bench.rehearsal_report import ANALYZER, Cycle, Reading, Results, Scraped, render_report
from bench.rehearsal_truth import Comparison, compare_result
from bench.report import publish
from gpusteward.simulate.nodes import SimulatedNode
from tests.agent.test_agent_process import free_port
from tests.analyzer.engines import find_program, run_engine

SCRAPE_SECONDS = 15
READ_SECONDS = 5.0
PROGRESS_SECONDS = 60.0
COMPARE_CYCLES = 5
READY_SECONDS = 120.0
SEED = 12
NODES_JOB, ANALYZER_JOB = "gpusteward-agent", "gpusteward-analyzer"
SIZED_NODES = 20


@dataclass(slots=True)
class Plan:
    """What is run and for how long."""

    nodes: int
    minutes: float
    cycle_seconds: int
    window_minutes: float


@contextmanager
def run_prometheus(
    folder: Path, nodes: Sequence[SimulatedNode], *, nodes_port: int, analyzer_port: int
) -> Iterator[tuple[int, int]]:
    """The pid and the port of a Prometheus that scrapes every node, and the analyzer."""
    targets = [
        {"targets": [f"127.0.0.1:{nodes_port}"], "labels": {"__metrics_path__": f"/{name}/metrics", "instance": name}}
        for name in (node.name for node in nodes)
    ]
    jobs = [
        {"job_name": NODES_JOB, "honor_labels": True, "static_configs": targets},
        {"job_name": ANALYZER_JOB, "static_configs": [{"targets": [f"127.0.0.1:{analyzer_port}"]}]},
    ]
    settings = {"global": {"scrape_interval": f"{SCRAPE_SECONDS}s"}, "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(json.dumps(settings))
    port = free_port()
    command = [
        find_program("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    with run_engine(command, f"http://127.0.0.1:{port}", "/-/ready") as engine:
        yield engine.process.pid, port


@dataclass(slots=True)
class Watch:
    """Reads the programs until the time is over."""

    plan: Plan
    nodes: Sequence[SimulatedNode]
    folder: Path
    pids: tuple[int, ...]
    port: int
    readings: list[Reading] = field(default_factory=list)
    cycles: list[Cycle] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    failed_cycles: int = 0
    _began: float = field(default_factory=time.monotonic)
    _busy: float = field(default_factory=read_busy_seconds)
    _shown: float = 0.0
    _finished: int = 0

    def run(self) -> None:
        while (passed := time.monotonic() - self._began) < self.plan.minutes * 60:
            self._read(passed)
            self._read_cycle(passed)
            self._show(passed)
            time.sleep(READ_SECONDS)
        if not self.cycles:
            raise RuntimeError("no cycle has ended")
        self._compare()

    def _read(self, passed: float) -> None:
        cpu = tuple(read_cpu_seconds(pid) for pid in self.pids)
        busy = read_busy_seconds()
        if self.readings:
            before = self.readings[-1]
            own = sum(cpu) - sum(before.cpu_seconds)
            others = max((busy - self._busy - own) / (passed - before.seconds), 0.0)
        else:
            others = 0.0
        self._busy = busy
        rss = tuple(read_memory(pid).rss for pid in self.pids)
        ledger, engine = _measure_folder(self.folder / "ledger"), _measure_folder(self.folder / "data")
        self.readings.append(Reading(passed, cpu, rss, others, ledger, engine))

    def _read_cycle(self, passed: float) -> None:
        """The last cycle, if it is a new one."""
        try:
            health = Client(self.port).read_health()
        except (OSError, RuntimeError):  # it starts
            return
        cycles = health["cycles"]
        self.failed_cycles = cycles["failed"]
        if cycles["finished"] <= self._finished:
            return
        self._finished = cycles["finished"]
        unknown = sum(health["unknown"].values())
        self.cycles.append(Cycle(passed, cycles["last_seconds"], health["allocations"], unknown, health["coverage"]))
        if len(self.cycles) % COMPARE_CYCLES == 0:
            self._compare()

    def _compare(self) -> None:
        self.comparisons.append(compare_result(Client(self.port), self.nodes, edge=SCRAPE_SECONDS))

    def _show(self, passed: float) -> None:
        if passed < self._shown:
            return
        self._shown += PROGRESS_SECONDS
        memory = ", ".join(f"{kib / 1000:.0f}" for kib in self.readings[-1].rss_kib)
        cycle = (
            f"; last cycle {self.cycles[-1].seconds:.2f} s, unknown {self.cycles[-1].unknown}" if self.cycles else ""
        )
        print_progress(f"  minute {passed / 60:.0f} of {self.plan.minutes:g}: RSS {memory} MB{cycle}")


def _measure_folder(folder: Path) -> int:
    """Bytes of all files; those that are removed meanwhile do not count."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def query(port: int, expression: str) -> float:
    """The value of an expression with one result; 0 without a result."""
    answer = Client(port).get_json(f"/api/v1/query?{urlencode({'query': expression})}")
    return float(answer["data"]["result"][0]["value"][1]) if answer["data"]["result"] else 0.0


def wait_for_nodes(port: int, count: int) -> None:
    """Until Prometheus has scraped every node."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if query(port, f'sum(up{{job="{NODES_JOB}"}})') >= count:
            return
        time.sleep(1)
    raise RuntimeError(f"Prometheus has not read every node within {READY_SECONDS:g} s")


def read_scraped(port: int, *, nodes_port: int, nodes: Sequence[SimulatedNode], seconds: float) -> Scraped:
    over = f"[{seconds:.0f}s]"
    some = [Client(nodes_port).get(f"/{node.name}/metrics") for node in nodes[:SIZED_NODES]]

    def durations(job: str) -> list[float]:
        name = f'scrape_duration_seconds{{job="{job}"}}{over}'
        return [
            1000 * query(port, f"quantile(0.5, quantile_over_time(0.5, {name}))"),
            1000 * query(port, f"max(max_over_time({name}))"),
        ]

    return Scraped(
        series=query(port, "prometheus_tsdb_head_series") or query(port, 'count({__name__!=""})'),
        samples_per_second=query(port, "sum(scrape_samples_scraped)") / SCRAPE_SECONDS,
        failed_scrapes=query(port, f"sum(count_over_time(up{over}) - sum_over_time(up{over}))"),
        node_milliseconds=durations(NODES_JOB),
        analyzer_milliseconds=durations(ANALYZER_JOB),
        analyzer_samples=query(port, f'scrape_samples_scraped{{job="{ANALYZER_JOB}"}}'),
        page_bytes=mean(len(gzip.decompress(page)) for page in some),
        packed_bytes=mean(len(page) for page in some),
    )


def measure(plan: Plan) -> Results:
    print_progress(f"{plan.nodes:,} nodes with {plan.nodes * GPUS_PER_NODE:,} GPUs for {plan.minutes:g} min")
    nodes = create_nodes(plan.nodes, SEED)
    with tempfile.TemporaryDirectory(prefix="gpusteward-bench-") as name, ExitStack() as stack:
        folder, port = Path(name), free_port()
        nodes_pid, nodes_port = stack.enter_context(run_module("bench.rehearsal_nodes", plan.nodes, SEED))
        engine_pid, engine_port = stack.enter_context(
            run_prometheus(folder, nodes, nodes_port=nodes_port, analyzer_port=port)
        )
        wait_for_nodes(engine_port, plan.nodes)
        print_progress("  Prometheus has read every node")
        settings = {
            "prometheus.url": f"http://127.0.0.1:{engine_port}",
            "prometheus.time_window_min": f"{plan.window_minutes:g}",
            "scheduler.interval": plan.cycle_seconds,
            "ledger.directory": folder / "ledger",
        }
        analyzer, _ = stack.enter_context(run_serve(folder, settings, port=port))
        watch = Watch(plan, nodes, folder, (engine_pid, analyzer.pid, nodes_pid), port)
        watch.run()
        since = watch.readings[-1].seconds - 3 * SCRAPE_SECONDS  # without the start of the analyzer
        scraped = read_scraped(engine_port, nodes_port=nodes_port, nodes=nodes, seconds=since)
    return Results(
        about=describe_run(name_command("rehearsal"), find_versions()),
        nodes=plan.nodes,
        gpus=plan.nodes * GPUS_PER_NODE,
        minutes=plan.minutes,
        cycle_seconds=plan.cycle_seconds,
        window_seconds=plan.window_minutes * 60,
        scrape_seconds=SCRAPE_SECONDS,
        readings=watch.readings,
        cycles=watch.cycles,
        failed_cycles=watch.failed_cycles,
        comparisons=watch.comparisons,
        scraped=scraped,
    )


def find_versions() -> dict[str, dict[str, str]]:
    program = find_program("prometheus")
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    first = (text.stdout or text.stderr).split()
    return {
        ANALYZER: {name: version(name) for name in ("gpusteward", "numpy", "httptools")},
        "engine": {"prometheus": first[first.index("version") + 1]},
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.rehearsal", description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=500, help="of eight GPUs each")
    parser.add_argument("--minutes", type=float, default=30, help="how long the analyzer runs")
    parser.add_argument("--cycle-seconds", type=int, default=60, help="between the starts of two cycles")
    parser.add_argument("--window-minutes", type=float, default=10, help="the judged window")
    parser.add_argument("--dry", action="store_true", help="print the result, write nothing")
    chosen = parser.parse_args()
    plan = Plan(chosen.nodes, chosen.minutes, chosen.cycle_seconds, chosen.window_minutes)
    return publish("rehearsal", lambda: render_report(measure(plan)), is_dry=chosen.dry)


if __name__ == "__main__":
    sys.exit(main())
