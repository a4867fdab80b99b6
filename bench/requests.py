"""`python -m bench.requests`: what the requests of inference servers add to a cycle, on a real Prometheus.

Writes bench/results/requests.md. Exits with 0 whether the limit is met or not.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.analyzer import find_versions
from bench.fleet_data import Fleet, run_fleet
from bench.measure import About, describe_run, name_command, print_progress, wait_for_quiet
from bench.report import Bar, publish, render_bars, render_head, render_table
from bench.ways import Analysis, make_settings
from gpusteward.core.usages import Measure, Stat
from tests.analyzer.engines import Sample

WINDOW_SECONDS = 600.0
ENGINE = 'model_name="m",engine="0"'
METRICS = {
    **{f'vllm:request_success_total{{{ENGINE},finished_reason="{why}"': 1.0 for why in ("stop", "length", "abort")},
    f"vllm:prompt_tokens_total{{{ENGINE}": 900.0,
    f"vllm:generation_tokens_total{{{ENGINE}": 300.0,
    f"vllm:iteration_tokens_total_count{{{ENGINE}": 300.0,
    f"vllm:num_requests_running{{{ENGINE}": 0.0,
    f"vllm:num_requests_waiting{{{ENGINE}": 0.0,
    **{
        f'vllm:engine_sleep_state{{{ENGINE},sleep_state="{state}"': 0.0
        for state in ("awake", "weights_offloaded", "discard_all")
    },
}
"""Series of one page -> what is added to it at every scrape of a server that serves. Half of them serve."""
NOTES = """\
- Two real Prometheus on the loopback interface with the fleet of bench/results/analyzer.md; one of them also has the
  eleven series of vLLM and the start of the process of each server, scraped every 30 s. The pods of the servers are
  pods that hold GPUs.
- Cycles are read, judged and published, after discovery, in turns; which one is first alternates. The ratio is that of
  each round, and the bar their median.
- A site without such metrics is asked nothing more: `test_a_site_without_servers_is_asked_nothing_more`.
"""


@dataclass(frozen=True, slots=True)
class Results:
    about: About
    gpus: int
    servers: int
    known: int  # GPUs of which the cycle knew the requests
    plain: list[float] = field(default_factory=list)  # seconds of each cycle
    served: list[float] = field(default_factory=list)


def list_samples(fleet: Fleet, servers: int) -> Iterator[Sample]:
    """Four GPUs are one pod, as in the fleet. OpenMetrics wants the series of a metric together."""
    others = {"process_start_time_seconds{": fleet.start - 86_400.0, "up{": 1.0}
    for series in (*METRICS, *others):
        name, _, labels = series.partition("{")
        for number in range(servers):
            target = (
                f'namespace="team-{number % 40}",pod="train-{number:05}-0",container="main",'
                f'instance="10.99.{number >> 8}.{number & 255}:8000",job="servers"'
            )
            text = f"{{{labels},{target}}}" if labels else f"{{{target}}}"
            for step, at in enumerate(fleet.moments):
                served = 1000.0 + METRICS.get(series, 0.0) * step * (number % 2)
                yield name, text, others.get(series, served), float(at)


def measure(gpus: int, servers: int, *, rounds: int) -> Results:
    with tempfile.TemporaryDirectory(prefix="gpusteward-bench-") as name, ExitStack() as stack:
        fleets = [
            stack.enter_context(run_fleet(Path(name), gpus, window_seconds=WINDOW_SECONDS, list_further=further))
            for further in (lambda _: (), lambda fleet: list_samples(fleet, servers))
        ]
        at = float(min(each.end for each, _ in fleets))
        plain, served = (Analysis(make_settings(url, WINDOW_SECONDS)) for _, url in fleets)
        stack.callback(plain.source.close)
        stack.callback(served.source.close)
        plain.run(at)
        _, result = served.run(at)
        known = result.verdicts.usage.column(Measure.REQUESTS, Stat.COUNT)
        about = describe_run(name_command("requests"), find_versions())
        results = Results(about, gpus, servers, int((known >= 0).sum()))
        for number in range(rounds):
            wait_for_quiet()
            for analysis, seconds in ((plain, results.plain), (served, results.served))[:: 1 if number % 2 else -1]:
                seconds.append(analysis.run(at)[0].whole)
            print_progress(f"  {results.plain[-1]:.3f} s, with servers {results.served[-1]:.3f} s")
    return results


def render_report(results: Results) -> str:
    ratios = [mine / other for mine, other in zip(results.served, results.plain, strict=True)]
    name = f"a cycle over {results.gpus:,} GPUs with {results.servers:,} inference servers, against one without"
    bar = Bar(name, "at most 1.15 x", f"{median(ratios):.2f} x", median(ratios) <= 1.15, "median of the rounds")
    rows = [
        (f"{number}", f"{plain:.3f}", f"{served:.3f}", f"{ratio:.2f}")
        for number, (plain, served, ratio) in enumerate(zip(results.plain, results.served, ratios, strict=True), 1)
    ]
    return "\n".join(
        [
            render_head("Requests of inference servers: the cost of a cycle", results.about),
            f"## Limit\n\n{render_bars([bar])}",
            f"## Rounds\n\nSeconds of a cycle. The requests of {results.known:,} GPUs were known.\n",
            render_table(("round", "without servers", "with servers", "ratio"), rows),
            f"## How it was measured\n\n{NOTES}",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.requests", description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--servers", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dry", action="store_true", help="print the result, write nothing")
    chosen = parser.parse_args()
    return publish(
        "requests",
        lambda: render_report(measure(chosen.gpus, chosen.servers, rounds=chosen.rounds)),
        is_dry=chosen.dry,
    )


if __name__ == "__main__":
    sys.exit(main())
