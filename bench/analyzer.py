"""`python -m bench.analyzer`: a cycle of the analyzer compared with curl and gpu-oour's queries on a real Prometheus.

Also compares the export API of VictoriaMetrics with queries. Writes bench/results/analyzer.md and analyzer.json. Exits
with 0 whether the limits are met or not. At 50,000 GPUs it needs about 6 GB of disk and as much memory.
"""

import argparse
import json
import shlex
import shutil
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

from bench.compared_ways import Analysis, GpuOour, add_unread_signals, make_settings, prepare_curl, record_cycle
from bench.fleet_data import Fleet, plan_fleet, write_blocks
from bench.fleet_limits import LONG, SHORT, check_limits
from bench.fleet_report import render_report
from bench.fleet_results import Results, Served, Ways
from bench.machines import describe_run
from bench.progress import print_progress
from bench.readings import read_busy_seconds
from bench.request_recorder import RecordedRequest
from bench.served import measure_serve
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
"""How long a round waits for the rest of the machine to be quiet, before it runs anyway."""
AHEAD_SECONDS, AHEAD_SECONDS_A_GPU = 60, 0.006
"""How far the data reaches into the future: `gpusteward serve` reads the present, and making blocks takes time."""


@contextmanager
def run_fleet(folder: Path, gpus: int, *, window_seconds: float) -> Iterator[tuple[Fleet, str]]:
    """The fleet, and the address of a Prometheus that contains it."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        own = Path(name)
        fleet = plan_fleet(
            gpus, window_seconds=window_seconds, ahead_seconds=AHEAD_SECONDS + AHEAD_SECONDS_A_GPU * gpus
        )
        began = time.monotonic()
        write_blocks(fleet, own)
        print_progress(
            f"  {len(fleet.moments) * gpus * 6 / 1e6:.1f} million samples in {time.monotonic() - began:.0f} s"
        )
        with running_prometheus(own) as engine:
            yield fleet, engine.url


class Comparison:
    """All ways on one fleet, round by round."""

    def __init__(self, fleet: Fleet, url: str, *, window_minutes: float, folder: Path) -> None:
        self._at, window = float(fleet.end), window_minutes * 60
        requests = record_cycle(url, window, at=self._at)
        self._analysis = Analysis(make_settings(url, window))
        self._oour = GpuOour(url, fleet, window, self._at)
        self._sample = range(0, fleet.gpus, max(1, fleet.gpus // SAMPLED_GPUS))
        concurrency = self._analysis.settings.prometheus.max_concurrent_queries
        config = folder / f"curl-{fleet.gpus}-{window_minutes:g}.conf"
        self._curl = prepare_curl(url, requests, concurrency=concurrency, config=config)
        every = add_unread_signals(requests)
        self._curl_all_signals = prepare_curl(
            url, every, concurrency=concurrency, config=config.with_suffix(".all.conf")
        )
        first, result = self._analysis.run(self._at)
        self.ways = Ways(
            gpus=fleet.gpus,
            window_minutes=window_minutes,
            queries=[_name_request(request) for request in requests],
            allocations=len(result.verdicts),
            unknown=int((result.verdicts.activity == ACTIVITIES.index(Activity.UNKNOWN)).sum()),
            sampled_gpus=len(self._sample),
            first_cycle=first,
        )

    def run_round(self, *, is_curl_first: bool) -> None:
        ways = self.ways
        ways.busy_cores.append(wait_for_quiet())
        if is_curl_first:
            ways.curl.append(self._curl.run())
        cycle, _ = self._analysis.run(self._at)
        ways.cycles.append(cycle)
        if not is_curl_first:
            ways.curl.append(self._curl.run())
        ways.curl_all_signals.append(self._curl_all_signals.run())
        print_progress(
            f"  {ways.gpus:,} GPUs, {ways.window_minutes:g} min: curl {ways.curl[-1]:.3f} s, cycle {cycle.whole:.3f} s"
        )
        _run_oour(ways, self._oour, self._sample)

    def close(self) -> None:
        """Measures last what each request costs on its own."""
        self.ways.alone_seconds = self._curl.run_alone()
        self._analysis.source.close()


def _run_oour(ways: Ways, oour: GpuOour, sample: Sequence[int]) -> None:
    ways.oour.append(oour.run(sample))
    ways.oour_by_uuid.append(oour.run(sample, condition=""))
    ways.oour_kept.append(oour.run(sample, condition="", keeps_connections=True))
    print_progress(f"  gpu-oour's queries {ways.oour[-1]:.1f} s, by UUID {ways.oour_by_uuid[-1]:.1f} s")


def wait_for_quiet() -> float:
    """The number of cores used by other programs, when it was quiet or the wait was over."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (cores := _listen()) > QUIET_CORES and time.monotonic() < deadline:
        pass
    return cores


def _listen() -> float:
    """The number of busy cores while the bench does nothing."""
    busy = read_busy_seconds()
    time.sleep(LISTEN_SECONDS)
    return (read_busy_seconds() - busy) / LISTEN_SECONDS


def _name_request(request: RecordedRequest) -> str:
    fields = parse_qs(request.body)
    return fields["query"][0] if "query" in fields else f"{request.method} {request.path}"


def measure(sizes: Sequence[int], long_sizes: Sequence[int], *, rounds: int, command: str) -> Results:
    """All fleets run at the same time and take turns: a disturbance of the machine affects all sizes alike."""
    wanted = [(gpus, SHORT) for gpus in sizes] + [(gpus, LONG) for gpus in long_sizes]
    served: list[Served] = []
    with tempfile.TemporaryDirectory(prefix="gpusteward-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        fleets = []
        for gpus, minutes in sorted(wanted):
            print_progress(f"{gpus:,} GPUs, {minutes:g} min")
            fleet, url = stack.enter_context(run_fleet(folder, gpus, window_seconds=minutes * 60))
            fleets.append((fleet, url, minutes))
            if minutes == SHORT:  # at once: it reads the present, and the data ends soon
                served.append(_measure_serve(url, gpus, folder))
        comparisons = [Comparison(fleet, url, window_minutes=minutes, folder=folder) for fleet, url, minutes in fleets]
        for number in range(rounds):
            for comparison in comparisons:
                comparison.run_round(is_curl_first=number % 2 == 0)
        for comparison in comparisons:
            comparison.close()
    about = describe_run(command, find_versions())
    return Results(about, [comparison.ways for comparison in comparisons], served)


def _measure_serve(url: str, gpus: int, folder: Path) -> Served:
    served = measure_serve(url, gpus, folder=folder)
    print_progress(f"  served: {served.after_requests.peak} KiB at most, cycles {served.cycle_seconds} s")
    return served


def find_versions() -> dict[str, dict[str, str]]:
    packages = ("numpy", "msgspec", "httpx2", "uvicorn", "fastapi")
    return {
        "analyzer": {"gpusteward": __version__, **{name: version(name) for name in packages}},
        "engine": {"prometheus": _read_version("prometheus"), **_find_victoria_version()},
        "others": {"curl": _read_version("curl"), "requests": version("requests")},
    }


def _find_victoria_version() -> dict[str, str]:
    return {"victoria-metrics": _read_version("victoria-metrics")} if shutil.which("victoria-metrics") else {}


def _read_version(program: str) -> str:
    output = subprocess.run([find_program(program), "--version"], check=True, capture_output=True, text=True)
    return next((word for word in (output.stdout + output.stderr).split() if word[0].isdigit()), "unknown")


def write_results(results: Results) -> None:
    checks = [{**asdict(check), "verdict": check.verdict} for check in check_limits(results)]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "analyzer.md").write_text(render_report(results))
    (RESULTS / "analyzer.json").write_text(json.dumps({**asdict(results), "limits": checks}, indent=1) + "\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.analyzer", description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=_sizes, default=SIZES, help="GPUs, with a window of 10 min: 1000,10000,50000")
    parser.add_argument("--long-sizes", type=_sizes, default=LONG_SIZES, help="GPUs, with a window of 2 h: 10000")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each size, in turns")
    return parser.parse_args(arguments)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def main() -> int:
    for stopping in (signal.SIGINT, signal.SIGTERM):  # stops the engines it started
        signal.signal(stopping, signal.default_int_handler)
    chosen = parse(sys.argv[1:])
    command = shlex.join(("python", "-m", "bench.analyzer", *sys.argv[1:]))
    try:
        results = measure(chosen.sizes, chosen.long_sizes, rounds=chosen.rounds, command=command)
    except KeyboardInterrupt:
        print_progress("interrupted: everything is stopped, nothing is written")
        return 130
    write_results(results)
    print(render_report(results))
    print_progress("written to bench/results/analyzer.md and analyzer.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
