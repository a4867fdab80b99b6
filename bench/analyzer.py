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
from contextlib import ExitStack, contextmanager
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
from bench.three_ways import Analysis, Seed, add_unjudged, make_settings, prepare_curl, record_questions
from bench.wire_tap import Asked
from gpusteward import __version__
from gpusteward.analyzer.tables import ACTIVITIES
from gpusteward.core.verdicts import Activity
from tests.analyzer.engines import find_program, running_prometheus

RESULTS = Path(__file__).parent / "results"
SIZES = (1_000, 10_000, 50_000)
LONG_SIZES = (10_000,)
ROUNDS = 7
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


class Contest:
    """The three ways on one fleet, round by round."""

    def __init__(self, fleet: Fleet, url: str, *, window_minutes: float, folder: Path) -> None:
        self._at, window = float(fleet.end), window_minutes * 60
        questions = record_questions(url, window, at=self._at)
        self._analysis = Analysis(make_settings(url, window))
        self._seed = Seed(url, fleet, window, self._at)
        self._sample = range(0, fleet.gpus, max(1, fleet.gpus // SAMPLED_GPUS))
        at_once = self._analysis.settings.prometheus.max_concurrent_queries
        config = folder / f"curl-{fleet.gpus}-{window_minutes:g}.conf"
        self._curl = prepare_curl(url, questions, at_once=at_once, config=config)
        every = add_unjudged(questions)
        self._curl_of_all = prepare_curl(url, every, at_once=at_once, config=config.with_suffix(".all.conf"))
        first, result = self._analysis.run(self._at)
        self.ways = Ways(
            gpus=fleet.gpus,
            window_minutes=window_minutes,
            queries=[_name_question(question) for question in questions],
            allocations=len(result.verdicts),
            unknown=int((result.verdicts.activity == ACTIVITIES.index(Activity.UNKNOWN)).sum()),
            sampled_gpus=len(self._sample),
            first_cycle=first,
        )

    def run_round(self, *, is_curl_first: bool) -> None:
        ways = self.ways
        ways.others.append(_wait_for_quiet())
        if is_curl_first:
            ways.curl.append(self._curl.run())
        cycle, _ = self._analysis.run(self._at)
        ways.cycles.append(cycle)
        if not is_curl_first:
            ways.curl.append(self._curl.run())
        ways.curl_of_all.append(self._curl_of_all.run())
        say(f"  {ways.gpus:,} GPUs, {ways.window_minutes:g} min: curl {ways.curl[-1]:.3f} s, cycle {cycle.whole:.3f} s")
        _run_seed(ways, self._seed, self._sample)

    def close(self) -> None:
        """And last, what each question costs by itself."""
        self.ways.alone = self._curl.run_alone()
        self._analysis.source.close()


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


def measure(sizes: Sequence[int], long_sizes: Sequence[int], *, rounds: int, command: str) -> Results:
    """All fleets stand at once and take turns: what disturbs the machine for a minute disturbs every size alike."""
    wanted = [(gpus, SHORT) for gpus in sizes] + [(gpus, LONG) for gpus in long_sizes]
    served: list[Served] = []
    with tempfile.TemporaryDirectory(prefix="gpusteward-bench-") as name, ExitStack() as standing:
        folder = Path(name)
        fleets = []
        for gpus, minutes in sorted(wanted):
            say(f"{gpus:,} GPUs, {minutes:g} min")
            fleet, url = standing.enter_context(stand_fleet(folder, gpus, window_seconds=minutes * 60))
            fleets.append((fleet, url, minutes))
            if minutes == SHORT:  # now: it asks for now, and the data ends soon
                served.append(_measure_serve(url, gpus, folder))
        contests = [Contest(fleet, url, window_minutes=minutes, folder=folder) for fleet, url, minutes in fleets]
        for number in range(rounds):
            for contest in contests:
                contest.run_round(is_curl_first=number % 2 == 0)
        for contest in contests:
            contest.close()
    about = describe_run(command, find_versions())
    return Results(about, [contest.ways for contest in contests], served)


def _measure_serve(url: str, gpus: int, folder: Path) -> Served:
    served = measure_serve(url, gpus, folder=folder)
    say(f"  served: {served.after_requests.peak} KiB at most, cycles {served.cycle_seconds} s")
    return served


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
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each size, in turns")
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
