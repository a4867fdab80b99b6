"""`python -m bench.sharded`: a cycle of the analyzer over several engines (`prometheus.url`), compared with curl.

Writes bench/results/sharded.md. Exits with 0 whether the limits are met or not. 100,000 GPUs need about 12 GB of disk
and as much memory.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from statistics import median

from bench.analyzer import find_versions
from bench.fleet_data import Fleet, plan_fleet, write_blocks
from bench.measure import About, describe_run, name_command, print_progress, wait_for_quiet
from bench.report import Bar, publish, render_bars, render_head, render_table
from bench.served import Served, measure_serve
from bench.ways import Analysis, Curl, CycleTime, make_settings, record_cycle, write_request
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


@contextmanager
def run_engines(folder: Path, gpus: int, engines: int) -> Iterator[tuple[Fleet, list[str]]]:
    """The first fleet, and the address of a Prometheus for each part of the site."""
    part = gpus // engines
    planned = plan_fleet(part, window_seconds=WINDOW_SECONDS, site_gpus=gpus)
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


def measure(gpus: int, engines: int, *, rounds: int) -> Sharded:
    with tempfile.TemporaryDirectory(prefix="gpusteward-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        fleet, urls = stack.enter_context(run_engines(folder, gpus, engines))
        served = measure_serve(",".join(urls), gpus, folder=folder)  # at once: it reads the present
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
    about = describe_run(name_command("sharded"), find_versions())
    return Sharded(about, gpus, engines, queries, len(result.verdicts), busy, floors, cycles, served)


def render(found: Sharded) -> str:
    over, peak = found.over_curl, found.served.after_requests.peak_mb
    name = f"a cycle over {found.gpus:,} GPUs in {found.engines} engines against curl"
    limit = f"at most {MEMORY_LIMIT_MB} MB"
    bars = [
        Bar(name, f"at most {CURL_LIMIT} x", f"{over:.2f} x", over <= CURL_LIMIT),
        Bar("highest RSS of `gpusteward serve`", limit, f"{peak:.0f} MB", peak <= MEMORY_LIMIT_MB),
    ]
    seconds = {
        "curl": found.curl,
        "cycle until published": [cycle.whole for cycle in found.cycles],
        "of that, read": [cycle.read for cycle in found.cycles],
        "CPU of the analyzer": [cycle.cpu for cycle in found.cycles],
        "other programs, cores": found.busy_cores,
    }
    rows = [(name, f"{median(values):.3f}", ", ".join(f"{v:.3f}" for v in values)) for name, values in seconds.items()]
    notes = (
        f"{found.engines} Prometheus servers on the same machine, each with {found.gpus // found.engines:,} GPUs;"
        f" window {WINDOW_SECONDS // 60} min; {found.queries} queries a cycle; {found.allocations:,} allocations.",
        "curl: one process with the recorded queries of all engines in turn, with the analyzer's concurrency;"
        " responses are discarded. Both take turns in every round.",
    )
    head = render_head("Several engines", found.about, *notes)
    return f"{head}\n{render_bars(bars)}\n{render_table(('seconds', 'median', 'by round'), rows)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sharded", description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=100_000)
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dry", action="store_true", help="print the result, write nothing")
    chosen = parser.parse_args()
    return publish(
        "sharded",
        lambda: render(measure(chosen.gpus, chosen.engines, rounds=chosen.rounds)),
        is_dry=chosen.dry,
    )


if __name__ == "__main__":
    sys.exit(main())
