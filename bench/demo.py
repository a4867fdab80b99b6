"""`python -m bench.demo`: start time, time to the first verdicts and memory of the demo. Writes bench/results/demo.md.

Exits 0 whether the limits hold or not.
"""

import os
import sys
import tempfile
import time
from dataclasses import dataclass

from bench.measure import describe_run, name_command, print_progress, read_cpu_seconds, read_memory
from bench.report import Bar, at_most, publish, render_bars, render_head, render_table
from tests.local.processes import running

RUNS = 3
REST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    """One start."""

    address_seconds: float  # until it listens
    verdict_seconds: float  # until workloads have verdicts
    start_cpu_seconds: float  # until then
    rest_cpu_share: float  # of one core, after the start
    peak_mb: float


def measure() -> Run:
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with running("demo", "--address", "127.0.0.1:0", env={**os.environ, "TMPDIR": folder}) as demo:
            demo.wait_for_address(120)
            listening = time.monotonic() - began
            demo.wait_for("/api/v1/workloads?activity=idle", 120)
            judged, cpu = time.monotonic() - began, read_cpu_seconds(demo.process.pid)
            time.sleep(REST_SECONDS)
            share = (read_cpu_seconds(demo.process.pid) - cpu) / REST_SECONDS
            peak = read_memory(demo.process.pid).peak_mb
            demo.interrupt()
    return Run(listening, judged, cpu, share, peak)


def judge(runs: list[Run]) -> list[Bar]:
    slowest = "slowest run, wall clock"
    return [
        at_most("start", 15, max(run.address_seconds for run in runs), "s", slowest),
        at_most("first verdicts", 30, max(run.verdict_seconds for run in runs), "s", slowest),
        at_most("total memory", 400, max(run.peak_mb for run in runs), "MB", "VmHWM of the process"),
    ]


def render(runs: list[Run]) -> str:
    rows = [
        (
            f"{number}",
            f"{run.address_seconds:.1f}",
            f"{run.verdict_seconds:.1f}",
            f"{run.start_cpu_seconds:.1f}",
            f"{run.rest_cpu_share * 100:.1f}",
            f"{run.peak_mb:.0f}",
        )
        for number, run in enumerate(runs, 1)
    ]
    header = ("run", "start, s", "first verdicts, s", "CPU until then, s", "CPU after, % of a core", "peak RSS, MB")
    return "\n".join(
        [
            render_head("The demo, measured", describe_run(name_command("demo"))),
            "## Limits\n",
            render_bars(judge(runs)),
            "## Every run\n",
            render_table(header, rows),
            "40 nodes with 256 GPUs and instances, three weeks of history, from the command to its first response.",
        ]
    )


def run() -> str:
    runs = []
    for number in range(RUNS):
        print_progress(f"demo, run {number + 1} of {RUNS}")
        runs.append(measure())
    return render(runs)


if __name__ == "__main__":
    sys.exit(publish("demo", run))
