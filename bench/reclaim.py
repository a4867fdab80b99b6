"""`python -m bench.reclaim`: the cost of reclaim. How fast GPUs become free is measured kind by kind on a real control
plane (`make bench-reclaim-kinds`).

Writes bench/results/reclaim.md. Exits with 0 whether the limits hold or not. `--parts plan,memory` measures
some of it.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.fleet_data import run_fleet
from bench.measure import KIB, MB, describe_run, name_command, print_progress, read_memory
from bench.report import Bar, publish, render_bars, render_head
from bench.ways import Analysis, make_settings
from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.schema_version import create_tables
from gpusteward.analyzer.reclaim.plan import Outcome
from gpusteward.analyzer.reclaim.reclaimer import Reclaimer
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.process_memory import freeze_gc
from tests.analyzer.reclaim.memory_cluster import STEP, WINDOW, MemoryCluster, MemoryFleet, make_reclaimer
from tests.analyzer.reclaim.world import suspend_policy
from tests.analyzer.usage_tables import AT

WORKLOADS = 10_000
ROUNDS = 5
MEMORY_CYCLES, MEMORY_WORKLOADS, MEMORY_EVERY = 10_000, 12, 500
CYCLE_GPUS, GPUS_PER_WORKLOAD, IDLE_SHARE, CYCLE_ROUNDS = 10_000, 4, 0.25, 16
OBSERVE = {"reclaim": {"mode": "observe"}}


class Stage(NamedTuple):
    """The stage `reclaim` of one cycle, in seconds."""

    wall: float
    cpu: float
    warnings: int  # sent


@dataclass
class Found:
    limits: list[Bar] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@contextmanager
def opened(folder: Path, name: str) -> Iterator[Any]:
    engine = open_engine(f"sqlite:///{folder / name}.db")
    create_tables(engine)
    yield engine
    engine.dispose()


def measure_plan(found: Found, folder: Path) -> None:
    """All workloads are idle: the most guards, and the most objects that may be read in a cycle."""
    print_progress(f"plan over {WORKLOADS:,} workloads")
    settings = Settings.model_validate(OBSERVE)
    now = [AT]
    for name, idle in (("a third is idle", WORKLOADS // 3), ("all are idle", WORKLOADS)):
        cluster, fleet = MemoryCluster(WORKLOADS), MemoryFleet(settings, WORKLOADS, idle=idle)
        with opened(folder, f"plan-{idle}") as engine:
            reclaimer = make_reclaimer(
                settings, cluster, engine, policy=suspend_policy(window_seconds=86_400.0), clock=lambda: now[0]
            )
            cpu, wall = [], []
            freeze_gc()
            for number in range(ROUNDS):
                now[0] = AT + number * STEP
                result = fleet.judge(now[0])
                started, began = time.process_time(), time.perf_counter()
                reclaimer.reclaim(result)
                cpu.append(time.process_time() - started)
                wall.append(time.perf_counter() - began)
        text = f"{median(cpu):.2f} s of CPU, {median(wall):.2f} s in all"
        found.limits.append(Bar(f"plan over {WORKLOADS:,} workloads, {name}", "1 s", text, median(cpu) <= 1.0))
        found.notes.append(f"{name}: {cluster.requests / ROUNDS:.0f} requests per plan, answered from memory")


def measure_memory(found: Found, folder: Path) -> None:
    """Idle spells come and go; all guards, dry runs, journal."""
    print_progress(f"memory over {MEMORY_CYCLES:,} cycles")
    settings = Settings.model_validate(OBSERVE)
    cluster, now = MemoryCluster(MEMORY_WORKLOADS), [AT]
    fleets = [MemoryFleet(settings, MEMORY_WORKLOADS, idle=idle) for idle in (MEMORY_WORKLOADS, 0)]
    readings = []
    with opened(folder, "memory") as engine:
        reclaimer = make_reclaimer(settings, cluster, engine, clock=lambda: now[0])
        for number in range(MEMORY_CYCLES):
            now[0] = AT + number * STEP
            fleet = fleets[number // 50 % 2]
            reclaimer.reclaim(fleet.judge(now[0]))
            if number % MEMORY_EVERY == MEMORY_EVERY - 1:
                readings.append(read_memory(os.getpid()).rss * KIB / MB)
                print_progress(f"  {number + 1:,} cycles: {readings[-1]:.1f} MB")
    after = readings[len(readings) // 4 :]
    growth = median(after[-5:]) - median(after[:5])
    name = f"memory over {MEMORY_CYCLES:,} cycles"
    found.limits.append(Bar(name, "1 MB of growth", f"{growth:.2f} MB", growth <= 1))
    found.notes.append("RSS in MB: " + ", ".join(f"{each:.1f}" for each in readings))


def measure_cycle(found: Found, folder: Path) -> None:
    """A cycle that reads a fleet from a real Prometheus, in turns with the stage `reclaim` for as many workloads."""
    print_progress(f"a cycle over {CYCLE_GPUS:,} GPUs, with and without reclaim")
    settings, workloads = Settings.model_validate(OBSERVE), CYCLE_GPUS // GPUS_PER_WORKLOAD
    idle = round(workloads * IDLE_SHARE)
    cluster, now = MemoryCluster(workloads), [AT]
    memory_fleet = MemoryFleet(settings, workloads, idle=idle)
    cycles, stages = [], []
    with run_fleet(folder, CYCLE_GPUS, window_seconds=WINDOW) as (fleet, url), opened(folder, "cycle") as engine:
        analysis = Analysis(make_settings(url, WINDOW))
        reclaimer = make_reclaimer(settings, cluster, engine, clock=lambda: now[0])
        at = float(fleet.end)
        analysis.run(at)  # with discovery, not counted
        freeze_gc()
        for number in range(CYCLE_ROUNDS):
            cycles.append(analysis.run(at)[0])
            now[0] = AT + number * STEP
            stages.append(_time_stage(reclaimer, memory_fleet.judge(now[0])))
        analysis.source.close()
    before = median(each.whole + each.rendered for each in cycles)
    sending = next(number for number, stage in enumerate(stages) if stage.warnings)
    for name, part in (("before any warning", stages[:sending]), ("while all are warned", stages[sending + 1 :])):
        more = median(stage.wall for stage in part)
        text = f"{more / before:.1%}: {more * 1000:.0f} ms on top of {before * 1000:.0f} ms"
        found.limits.append(Bar(f"longer cycle, {CYCLE_GPUS:,} GPUs, {name}", "5 %", text, more / before <= 0.05))
    cpu_before, cpu_more = median(each.cpu for each in cycles), median(stage.cpu for stage in stages)
    found.notes += [
        f"of CPU, {cpu_more * 1000:.0f} ms on top of the {cpu_before * 1000:.0f} ms of the analyzer",
        f"the one cycle that sends {stages[sending].warnings:,} warnings at once: {stages[sending].wall * 1000:.0f} ms"
        " more",
        "the result of a cycle is published before reclaim begins: nobody who reads it waits for reclaim",
        f"a cycle reads {CYCLE_GPUS:,} GPUs of {workloads:,} workloads from Prometheus, judges them, renders /metrics;"
        f" reclaim decides on {idle:,} idle ones of as many, {cluster.requests / CYCLE_ROUNDS:.0f} requests per cycle",
        "cycles in ms: " + ", ".join(f"{(each.whole + each.rendered) * 1000:.0f}" for each in cycles),
        "reclaim in ms: " + ", ".join(f"{stage.wall * 1000:.0f}" for stage in stages),
    ]


def _time_stage(reclaimer: Reclaimer, result: Result) -> Stage:
    cpu, began = time.process_time(), time.perf_counter()
    reclaimer.reclaim(result)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    plan = reclaimer.last_plan
    return Stage(wall, cpu, plan.counts.get(Outcome.WARN, 0) if plan else 0)


PARTS: Mapping[str, Callable[[Found, Path], None]] = {
    "plan": measure_plan,
    "cycle": measure_cycle,
    "memory": measure_memory,
}


def measure(parts: list[str]) -> str:
    found = Found()
    with tempfile.TemporaryDirectory() as name:
        for part in parts:
            PARTS[part](found, Path(name))
    lines = [
        render_head("Cost of reclaim", describe_run(name_command("reclaim")), f"load {os.getloadavg()[1]:.0f}"),
        render_bars(found.limits),
        "Objects are read from memory: the time of the API server is not in it. The limit of a plan is for CPU time.",
        "",
        *[f"- {note}" for note in found.notes],
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reclaim")
    parser.add_argument("--parts", default=",".join(PARTS))
    chosen = parser.parse_args()
    return publish("reclaim", lambda: measure(chosen.parts.split(",")))


if __name__ == "__main__":
    sys.exit(main())
