"""`python -m bench.analyzer`: a cycle of the analyzer beside curl and the seed's way, on a real Prometheus.

Writes bench/results/analyzer.md and analyzer.json. Ends with 0 whether the bars hold or not: a result is a result.
At 50,000 GPUs it wants some 6 GB of disk for a while, and as much memory.
"""

import argparse
import json
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from urllib.parse import parse_qs

from bench.fleet_bars import LONG, SHORT, judge
from bench.fleet_data import Fleet, plan_fleet, write_blocks
from bench.fleet_report import render_report
from bench.fleet_results import Results, Served, Ways
from bench.machines import describe_run
from bench.progress import say
from bench.readings import read_busy_seconds
from bench.served import measure_serve
from bench.three_ways import Analysis, Curl, Seed, make_settings, prepare_curl, record_questions
from bench.wire_tap import Asked
from gpusteward import __version__
from gpusteward.analyzer.tables import ACTIVITIES
from gpusteward.core.verdicts import Activity
from tests.analyzer.engines import find_program, running_prometheus

RESULTS = Path(__file__).parent / "results"
SIZES = (1_000, 10_000, 50_000)
LONG_SIZES = (10_000,)
ROUNDS = {1_000: 9, 10_000: 5, 50_000: 3}
SAMPLED_GPUS = 120
LISTEN_SECONDS = 0.5
QUIET_CORES = 0.3
PATIENCE_SECONDS = 20.0
"""A round waits so long for the rest of the machine to be quiet; then it runs all the same."""
AHEAD_SECONDS, AHEAD_SECONDS_A_GPU = 60, 0.006
"""How far the data reaches ahead of now: `gpusteward serve` asks for now, and blocks take time to be made."""


@contextmanager
def stand_fleet(folder: Path, gpus: int, *, window_seconds: float) -> Iterator[tuple[Fleet, str]]:
    """The fleet, and the address of a Prometheus that has it."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        own = Path(name)
        fleet = plan_fleet(
            gpus, window_seconds=window_seconds, ahead_seconds=AHEAD_SECONDS + AHEAD_SECONDS_A_GPU * gpus
        )
        began = time.monotonic()
        write_blocks(fleet, own)
        say(f"  {len(fleet.moments) * gpus * 6 / 1e6:.1f} million samples in {time.monotonic() - began:.0f} s")
        with running_prometheus(own) as engine:
            yield fleet, engine.url


class Bench:
    """One run in a folder of its own."""

    def __init__(self, folder: Path, *, rounds: int | None) -> None:
        self._folder = folder
        self._rounds = rounds

    def measure(self, gpus: int, *, window_minutes: float) -> tuple[Ways, Served | None]:
        """The three ways; and `serve`, which comes first: it asks for now, and the data ends soon."""
        say(f"{gpus:,} GPUs, {window_minutes:g} min")
        with stand_fleet(self._folder, gpus, window_seconds=window_minutes * 60) as (fleet, url):
            served = measure_serve(url, gpus, folder=self._folder) if window_minutes == SHORT else None
            if served:
                say(f"  served: {served.after_requests.peak} KiB at most, cycles {served.cycle_seconds} s")
            return self._compare(fleet, url, window_minutes), served

    def _compare(self, fleet: Fleet, url: str, window_minutes: float) -> Ways:
        at, window = float(fleet.end), window_minutes * 60
        questions = record_questions(url, window, at=at)
        analysis = Analysis(make_settings(url, window))
        try:
            first, result = analysis.run(at)
            sample = range(0, fleet.gpus, max(1, fleet.gpus // SAMPLED_GPUS))
            ways = Ways(
                gpus=fleet.gpus,
                window_minutes=window_minutes,
                queries=[_name_question(question) for question in questions],
                allocations=len(result.verdicts),
                unknown=int((result.verdicts.activity == ACTIVITIES.index(Activity.UNKNOWN)).sum()),
                sampled_gpus=len(sample),
                first_cycle=first,
            )
            at_once = analysis.settings.prometheus.max_concurrent_queries
            curl = prepare_curl(url, questions, at_once=at_once, folder=self._folder)
            seed = Seed(url, fleet, window, at)
            for number in range(self._rounds or ROUNDS.get(fleet.gpus, 3)):
                ways.others.append(_wait_for_quiet())
                self._run_round(ways, curl, analysis, at=at, is_curl_first=number % 2 == 0)
                _run_seed(ways, seed, sample)
            ways.alone = curl.run_alone()
        finally:
            analysis.source.close()
        return ways

    @staticmethod
    def _run_round(ways: Ways, curl: Curl, analysis: Analysis, *, at: float, is_curl_first: bool) -> None:
        if is_curl_first:
            ways.curl.append(curl.run())
        cycle, _ = analysis.run(at)
        ways.cycles.append(cycle)
        if not is_curl_first:
            ways.curl.append(curl.run())
        say(f"  curl {ways.curl[-1]:.3f} s, cycle {cycle.whole:.3f} s")


def _run_seed(ways: Ways, seed: Seed, sample: Sequence[int]) -> None:
    ways.seed.append(seed.run(sample))
    ways.seed_by_uuid.append(seed.run(sample, condition=""))
    ways.seed_kept.append(seed.run(sample, condition="", keeps_connections=True))
    say(f"  the seed's way {ways.seed[-1]:.1f} s, by UUID {ways.seed_by_uuid[-1]:.1f} s")


def _wait_for_quiet() -> float:
    """How many cores all else kept busy, when it was quiet or the wait was over."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (cores := _listen()) > QUIET_CORES and time.monotonic() < deadline:
        pass
    return cores


def _listen() -> float:
    """How many cores are busy while the bench does nothing."""
    busy = read_busy_seconds()
    time.sleep(LISTEN_SECONDS)
    return (read_busy_seconds() - busy) / LISTEN_SECONDS


def _name_question(question: Asked) -> str:
    asked = parse_qs(question.body)
    return asked["query"][0] if "query" in asked else f"{question.method} {question.path}"


def measure(sizes: Sequence[int], long_sizes: Sequence[int], *, rounds: int | None, command: str) -> Results:
    wanted = [(gpus, SHORT) for gpus in sizes] + [(gpus, LONG) for gpus in long_sizes]
    with tempfile.TemporaryDirectory(prefix="gpusteward-bench-") as folder:
        bench = Bench(Path(folder), rounds=rounds)
        found = [bench.measure(gpus, window_minutes=minutes) for gpus, minutes in sorted(wanted)]
    about = describe_run(command, find_versions())
    return Results(about, [ways for ways, _ in found], [served for _, served in found if served])


def find_versions() -> dict[str, dict[str, str]]:
    packages = ("numpy", "msgspec", "httpx2", "uvicorn", "fastapi")
    return {
        "analyzer": {"gpusteward": __version__, **{name: version(name) for name in packages}},
        "engine": {"prometheus": _ask_version("prometheus")},
        "others": {"curl": _ask_version("curl"), "requests": version("requests")},
    }


def _ask_version(program: str) -> str:
    said = subprocess.run([find_program(program), "--version"], check=True, capture_output=True, text=True)
    return next(word for word in (said.stdout + said.stderr).split() if word[0].isdigit())


def write_results(results: Results) -> None:
    bars = [{**asdict(bar), "verdict": bar.verdict} for bar in judge(results)]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "analyzer.md").write_text(render_report(results))
    (RESULTS / "analyzer.json").write_text(json.dumps({**asdict(results), "bars": bars}, indent=1) + "\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.analyzer", description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=_sizes, default=SIZES, help="GPUs, with a window of 10 min: 1000,10000,50000")
    parser.add_argument("--long-sizes", type=_sizes, default=LONG_SIZES, help="GPUs, with a window of 2 h: 10000")
    parser.add_argument("--rounds", type=int, help="of each size; otherwise more of them where they are short")
    return parser.parse_args(arguments)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def main() -> int:
    for stopping in (signal.SIGINT, signal.SIGTERM):  # however it is stopped, it stops what it started
        signal.signal(stopping, signal.default_int_handler)
    chosen = parse(sys.argv[1:])
    command = shlex.join(("python", "-m", "bench.analyzer", *sys.argv[1:]))
    try:
        results = measure(chosen.sizes, chosen.long_sizes, rounds=chosen.rounds, command=command)
    except KeyboardInterrupt:
        say("interrupted: everything is stopped, nothing is written")
        return 130
    write_results(results)
    print(render_report(results))
    say("written to bench/results/analyzer.md and analyzer.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
