"""`python -m bench.sharded`: a cycle of the analyzer over several engines (`prometheus.urls`), compared with curl.

Writes bench/results/sharded.md and sharded.json. Exits with 0 whether the limits are met or not. 100,000 GPUs need
about 12 GB of disk and as much memory.
"""

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from statistics import median

from bench.analyzer import AHEAD_SECONDS, AHEAD_SECONDS_A_GPU, RESULTS, find_versions, wait_for_quiet
from bench.bars import KIB, MB
from bench.compared_ways import Analysis, Curl, make_settings, record_cycle, write_request
from bench.fleet_data import Fleet, plan_fleet, write_blocks
from bench.fleet_results import CycleTime, Served
from bench.machines import About, describe_run
from bench.progress import print_progress
from bench.report import render_table
from bench.served import measure_serve
from tests.analyzer.engines import running_prometheus

WINDOW_SECONDS = 600
CURL_LIMIT = 1.15
MEMORY_LIMIT_MB = 350


@dataclass(frozen=True, slots=True)
class Sharded:
    """All results of one run; seconds by round."""

    about: About
    gpus: int
    engines: int
    queries: int  # of a cycle, all engines together
    allocations: int
    busy_cores: list[float]
    curl: list[float]
    cycles: list[CycleTime]
    served: Served

    @property
    def over_curl(self) -> float:
        """Cycle / curl of the same round, median of the rounds."""
        return median(cycle.whole / floor for cycle, floor in zip(self.cycles, self.curl, strict=True))

    @property
    def peak_mb(self) -> float:
        return self.served.after_requests.peak * KIB / MB


@contextmanager
def run_engines(folder: Path, gpus: int, engines: int) -> Iterator[tuple[Fleet, list[str]]]:
    """The first fleet, and the address of a Prometheus for each part of the site."""
    part = gpus // engines
    planned = plan_fleet(part, window_seconds=WINDOW_SECONDS, ahead_seconds=AHEAD_SECONDS + AHEAD_SECONDS_A_GPU * gpus)
    with ExitStack() as stack:
        urls = []
        for number in range(engines):
            own = folder / f"engine-{number}"
            write_blocks(replace(planned, first=number * part), own)
            print_progress(f"  engine {number + 1}: {part:,} GPUs")
            urls.append(stack.enter_context(running_prometheus(own)).url)
        yield planned, urls


def prepare_curl(urls: Sequence[str], *, at: float, config: Path) -> tuple[Curl, int]:
    """One curl for the recorded requests of all engines in turn, and their number. As many requests run at once as the
    analyzer sends."""
    recorded = [[write_request(url, request) for request in record_cycle(url, WINDOW_SECONDS, at=at)] for url in urls]
    requests = [request for request in chain.from_iterable(zip_longest(*recorded)) if request]
    config.write_text("next\n".join(requests))
    per_engine = make_settings(urls[0], WINDOW_SECONDS).prometheus.max_concurrent_queries
    return Curl(config, per_engine * len(urls)), len(requests)


def measure(gpus: int, engines: int, *, rounds: int, command: str) -> Sharded:
    with tempfile.TemporaryDirectory(prefix="gpusteward-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        fleet, urls = stack.enter_context(run_engines(folder, gpus, engines))
        served = measure_serve(",".join(urls), gpus, folder=folder)  # at once: it reads the present
        print_progress(f"  served: {served.after_requests.peak} KiB at most, cycles {served.cycle_seconds} s")
        at = float(fleet.end)
        curl, queries = prepare_curl(urls, at=at, config=folder / "curl.conf")
        analysis = Analysis(make_settings(",".join(urls), WINDOW_SECONDS))
        stack.callback(analysis.source.close)
        _, result = analysis.run(at)
        busy, floors, cycles = [], [], []
        for number in range(rounds):
            busy.append(wait_for_quiet())
            if number % 2:
                floors.append(curl.run())
            cycles.append(analysis.run(at)[0])
            if not number % 2:
                floors.append(curl.run())
            print_progress(f"  curl {floors[-1]:.3f} s, cycle {cycles[-1].whole:.3f} s")
    about = describe_run(command, find_versions())
    return Sharded(about, gpus, engines, queries, len(result.verdicts), busy, floors, cycles, served)


def render(found: Sharded) -> str:
    limits = [
        (
            f"a cycle over {found.gpus:,} GPUs in {found.engines} engines against curl",
            f"at most {CURL_LIMIT} x",
            f"{found.over_curl:.2f} x",
            "PASS" if found.over_curl <= CURL_LIMIT else "MISSED",
        ),
        (
            "highest RSS of `gpusteward serve`",
            f"at most {MEMORY_LIMIT_MB} MB",
            f"{found.peak_mb:.0f} MB",
            "PASS" if found.peak_mb <= MEMORY_LIMIT_MB else "MISSED",
        ),
    ]
    seconds = {
        "curl": found.curl,
        "cycle until published": [cycle.whole for cycle in found.cycles],
        "of that, read": [cycle.read for cycle in found.cycles],
        "CPU of the analyzer": [cycle.cpu for cycle in found.cycles],
        "other programs, cores": found.busy_cores,
    }
    rows = [(name, f"{median(values):.3f}", ", ".join(f"{v:.3f}" for v in values)) for name, values in seconds.items()]
    about = found.about
    return (
        "# Several engines\n\n"
        f"- Made by `{about.command}` on {about.date}.\n"
        f"- {about.processor}, {about.cores} cores; {about.kernel}; {about.python}\n"
        f"- {found.engines} Prometheus servers on the same machine, each with {found.gpus // found.engines:,} GPUs;"
        f" window {WINDOW_SECONDS // 60} min; {found.queries} queries a cycle; {found.allocations:,} allocations.\n"
        "- curl: one process with the recorded queries of all engines in turn, with the analyzer's concurrency;"
        " responses are discarded. Both take turns in every round.\n\n"
        f"{render_table(('limit of', 'limit', 'measured', 'verdict'), limits)}\n"
        f"{render_table(('seconds', 'median', 'by round'), rows)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sharded", description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=100_000)
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    began = time.monotonic()
    command = shlex.join(("python", "-m", "bench.sharded", *sys.argv[1:]))
    found = measure(chosen.gpus, chosen.engines, rounds=chosen.rounds, command=command)
    limits = {"over_curl": found.over_curl, "peak_mb": found.peak_mb}
    (RESULTS / "sharded.md").write_text(render(found))
    (RESULTS / "sharded.json").write_text(json.dumps({**asdict(found), **limits}, indent=1) + "\n")
    print(render(found))
    print_progress(f"written to bench/results/sharded.md and sharded.json after {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
