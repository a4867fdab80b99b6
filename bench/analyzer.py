"""`python -m bench.analyzer`: a cycle of the analyzer compared with curl and gpu-oour's queries on a real Prometheus.

Writes bench/results/analyzer.md. Exits with 0 whether the limits are met or not. At 50,000 GPUs it needs about 6 GB of
disk and as much memory.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from math import log
from pathlib import Path
from statistics import linear_regression, median
from urllib.parse import parse_qs

from bench.fleet_data import Fleet, run_fleet
from bench.measure import KIB, MB, About, Memory, describe_run, name_command, print_progress, wait_for_quiet
from bench.report import Bar, publish, render_bars, render_head, render_table
from bench.served import PAGE, PAGE_GZIP, WORKLOADS, Served, measure_serve
from bench.ways import (
    Analysis,
    GpuOour,
    RecordedRequest,
    Ways,
    add_unread_signals,
    make_settings,
    prepare_curl,
    record_cycle,
)
from gpusteward import __version__
from gpusteward.analyzer.tables import ACTIVITIES
from gpusteward.core.verdicts import Activity
from tests.analyzer.engines import find_program

SIZES = (1_000, 10_000, 50_000)
LONG_SIZES = (10_000,)
SHORT, LONG = 10, 120  # minutes of a window
ROUNDS = 7
SAMPLED_GPUS = 120
NOTES = """\
- One real Prometheus on the loopback interface per row, which contains nothing but this fleet: blocks made by promtool
  from six DCGM signals with eleven labels every 30 s. Prometheus and its clients run on the same machine.
- All fleets run at the same time and take turns in every round; growth is computed within one round. A turn waits up to
  20 s for the rest of the machine to be quiet. It consists of curl and a cycle, each first in turn, then gpu-oour's
  queries, all at the same time of the data. Before the first round each query was sent twice, so caches are warm.
- curl: one process, the recorded queries of a cycle (below), with the concurrency of the analyzer; responses are
  discarded. Its start, a few milliseconds, is included.
- A cycle: read, judge, publish, after discovery, as eleven cycles of twelve are. The /metrics page, in both formats and
  compressed, is rendered afterwards; until it is ready, a scrape gets the previous page.
- gpu-oour's queries: for each GPU one `query_range` for each of the six signals, eight threads, `requests.get` without
  a session, so with a new connection each time; the mean is computed from the JSON. Measured on a sample of GPUs spread
  over the fleet and scaled to all. Two variants that gpu-oour does not have: by UUID, without the `pod!=""` that makes
  Prometheus go through all pods for each GPU; and the same with kept connections.
- gpu-oour's queries give means only. A cycle has the means and peaks of what is judged (core, memory copy, memory,
  power), the mean of the clock, the spread and the number of core samples, and the holders. Means and peaks of all six
  signals need three more queries: curl was measured with them too.
- `gpusteward serve` is the program as installed for development, with its defaults, started anew; it ends after its
  cycles and requests. MB is 1,000,000 bytes; memory is as reported by the kernel. Its client is Python's, in another
  process on the same machine, on a kept connection.
- Differences below 1.25 x between single rounds are noise here.
"""


@dataclass(frozen=True, slots=True)
class Results:
    about: About
    ways: list[Ways]
    served: list[Served]


def check_limits(results: Results) -> list[Bar]:
    """Only for the sizes that were measured."""
    short = [ways for ways in results.ways if ways.window_minutes == SHORT]
    return [
        *(_over_curl(ways) for ways in results.ways),
        *(check for ways in short if ways.gpus in (1_000, 50_000) for check in _against_oour(ways)),
        *(_memory(served) for served in results.served if served.gpus == 50_000),
        *_growth(sorted(short, key=lambda ways: ways.gpus)),
        *_windows(results.ways),
        *_responses(results.served),
    ]


def _over_curl(ways: Ways) -> Bar:
    return Bar(
        f"a cycle over {ways.gpus:,} GPUs, {ways.window_minutes:g} min, against curl",
        "at most 1.2 x",
        f"{ways.over_curl:.2f} x",
        ways.over_curl <= 1.2,
        "each round's cycle until its result is published against its curl, median; until /metrics shows it "
        f"{ways.over_curl_with_page:.2f} x",
    )


def _against_oour(ways: Ways) -> Iterator[Bar]:
    """gpu-oour's queries as they are, and without the part of their condition that costs most and selects nothing. The
    cycle as it is, and extrapolated to signals that it does not read."""
    judged = "gpu-oour's queries on a sample, scaled to all, against the same round's cycle; median of the rounds"
    factor = f"{ways.cost_of_all_signals:.2f}, which is what curl needs with three more queries"
    every = f"{judged}; the cycle multiplied by {factor}"
    for seconds, cost, how, method in (
        (ways.oour, 1.0, "", judged),
        (ways.oour, ways.cost_of_all_signals, ", if the peak of the clock and free memory were read too", every),
        (ways.oour_by_uuid, 1.0, ', without its `pod!=""`', judged),
    ):
        faster = ways.faster_than(seconds) / cost
        name = f"faster than gpu-oour's queries at {ways.gpus:,} GPUs{how}"
        yield Bar(name, "at least 80 x", f"{faster:.0f} x", faster >= 80, method)


def _memory(served: Served) -> Bar:
    peak = served.after_requests.peak_mb
    return Bar(
        f"RSS of `gpusteward serve` at {served.gpus:,} GPUs",
        "at most 200 MB",
        f"{peak:.0f} MB",
        peak <= 200,
        "VmHWM: the highest value, after all cycles and requests",
    )


def _growth(ways: Sequence[Ways]) -> Iterator[Bar]:
    """The exponent over all sizes; single steps, which are noisy, are listed beside it."""
    if len(ways) < 2:
        return
    sizes = [log(each.gpus) for each in ways]
    power = linear_regression(sizes, [log(median(each.cycles_whole)) for each in ways]).slope
    yield Bar(
        f"a cycle grows from {ways[0].gpus:,} to {ways[-1].gpus:,} GPUs with their number to the power of",
        "at most 1",
        f"{power:.2f}",
        power <= 1,
        "least squares over the medians of the sizes. Steps, medians of each round's ratio: "
        + "; ".join(_describe_step(small, large) for small, large in pairwise(ways)),
    )


def _describe_step(small: Ways, large: Ways) -> str:
    grown, floor = _grow(large.cycles_whole, small.cycles_whole), _grow(large.curl, small.curl)
    return (
        f"{large.gpus / small.gpus:g} x the GPUs of {small.gpus:,} took {grown:.2f} x the time, of curl {floor:.2f} x,"
        f" of the analyzer's own CPU {_grow(large.cycles_cpu, small.cycles_cpu):.2f} x"
    )


def _grow(large: Iterable[float], small: Iterable[float]) -> float:
    """Sizes take turns, so one round sees the machine in one state."""
    return median(more / less for more, less in zip(large, small, strict=True))


def _windows(ways: Iterable[Ways]) -> Iterator[Bar]:
    by_window = {(each.gpus, each.window_minutes): each for each in ways}
    for (gpus, minutes), long in by_window.items():
        short = by_window.get((gpus, SHORT))
        if minutes == LONG and short is not None:
            ours, floor = _grow(long.cycles_whole, short.cycles_whole), _grow(long.curl, short.curl)
            yield Bar(
                f"a cycle grows from {SHORT} min to 2 h beyond what curl grows",
                "at most 1.5 x",
                f"{ours / floor:.2f} x",
                ours / floor <= 1.5,
                f"at {gpus:,} GPUs, medians of the rounds: the cycle grew {ours:.2f} x, curl {floor:.2f} x",
            )


def _responses(served: Iterable[Served]) -> Iterator[Bar]:
    limits: tuple[tuple[int, str, float], ...] = (
        (10_000, PAGE, 50),
        (10_000, PAGE_GZIP, 50),
        (50_000, WORKLOADS, 20),
    )
    by_size = {each.gpus: each for each in served}
    for gpus, name, limit in limits:
        if gpus in by_size:
            yield _check_response(by_size[gpus].milliseconds[name], f"{name} at {gpus:,} GPUs", limit=limit)


def _check_response(milliseconds: Sequence[float], name: str, *, limit: float) -> Bar:
    middle = median(milliseconds)
    spread = f"first {milliseconds[0]:.1f}, worst {max(milliseconds):.1f}"
    return Bar(
        name,
        f"at most {limit:g} ms",
        f"{middle:.1f} ms",
        middle <= limit,
        f"median of {len(milliseconds)} requests on one connection, to the last byte; {spread}",
    )


def render_report(results: Results) -> str:
    return "\n".join(
        [
            render_head("Analyzer benchmark", results.about),
            "## Limits\n\n" + render_bars(check_limits(results)),
            "## Compared ways\n\nSeconds for the whole fleet, medians of the rounds.\n\n" + _render_ways(results.ways),
            "Round by round:\n\n" + "".join(map(_render_rounds, results.ways)),
            "## A cycle\n\nMedians, in seconds. Read: until the usage table is complete; includes the engine's work."
            " Page: rendered afterwards. CPU is the analyzer's own, including the page; the rest is waiting.\n\n"
            + _render_cycles(results.ways),
            _render_queries(results.ways),
            "## gpusteward serve\n\n" + _render_served(results.served),
            f"## How it was measured\n\n{NOTES}",
        ]
    )


def _name(ways: Ways) -> str:
    return f"{ways.gpus:,} GPUs, {ways.window_minutes:g} min"


def _render_ways(all_ways: Iterable[Ways]) -> str:
    header = ("", "curl", "cycle", "cycle / curl", "gpu-oour", "/ cycle", "by UUID", "/ cycle", "and kept", "/ cycle")
    rows = [
        (
            _name(ways),
            f"{median(ways.curl):.3f}",
            f"{median(ways.cycles_whole):.3f}",
            f"{ways.over_curl:.2f}",
            f"{median(ways.oour):.1f}",
            f"{ways.faster_than(ways.oour):.0f}",
            f"{median(ways.oour_by_uuid):.1f}",
            f"{ways.faster_than(ways.oour_by_uuid):.0f}",
            f"{median(ways.oour_kept):.1f}",
            f"{ways.faster_than(ways.oour_kept):.0f}",
        )
        for ways in all_ways
    ]
    return render_table(header, rows)


def _render_rounds(ways: Ways) -> str:
    columns = {
        "curl": ways.curl,
        "cycle": ways.cycles_whole,
        "curl with three more queries": ways.curl_all_signals,
        f"gpu-oour's queries, from {ways.sampled_gpus} GPUs": ways.oour,
        "by UUID alone": ways.oour_by_uuid,
        "and connections kept": ways.oour_kept,
    }
    shown = "; ".join(f"{name} {', '.join(f'{value:.3f}' for value in values)}" for name, values in columns.items())
    busy = ", ".join(f"{cores:.2f}" for cores in ways.busy_cores)
    return f"- {_name(ways)}: {shown}. Cores used by other programs before each round: {busy}.\n"


def _render_cycles(all_ways: Iterable[Ways]) -> str:
    header = ("", "whole", "read", "judge", "page", "CPU", "first one", "allocations", "not judged", "queries")
    rows = [
        (
            _name(ways),
            *(
                f"{median(getattr(cycle, part) for cycle in ways.cycles):.3f}"
                for part in ("whole", "read", "judged", "rendered", "cpu")
            ),
            f"{ways.first_cycle.whole:.3f}",
            f"{ways.allocations:,}",
            f"{ways.unknown:,}",
            str(len(ways.queries)),
        )
        for ways in all_ways
    ]
    return render_table(header, rows)


def _render_queries(all_ways: list[Ways]) -> str:
    """Of the largest fleet with the short window; the others differ in window or fleet only."""
    ways = max(all_ways, key=lambda each: (-each.window_minutes, each.gpus))
    lines = "".join(f"{took:7.3f}  {query}\n" for query, took in zip(ways.queries, ways.alone_seconds, strict=True))
    total = f"{sum(ways.alone_seconds):7.3f}  together, one after another\n"
    return f"Its queries, with the seconds that curl needs for each ({_name(ways)}):\n\n```\n{lines}{total}```\n"


def _render_served(all_served: Iterable[Served]) -> str:
    rows: list[tuple[str, ...]] = []
    for served in all_served:
        rows += [(f"{served.gpus:,} GPUs: {what}", value) for what, value in _list_figures(served).items()]
    return render_table(("`gpusteward serve`", ""), rows)


def _list_figures(served: Served) -> dict[str, str]:
    figures = {
        "start to first result, s": f"{served.start_seconds:.2f}",
        "cycles without the page, s": ", ".join(f"{seconds:.2f}" for seconds in served.cycle_seconds),
        "allocations; mean coverage; not judged": f"{served.allocations:,}; {served.coverage:.2f}; "
        f"{sum(served.unknown.values()):,}",
        "RSS after the cycles (highest ever), MB": _show(served.after_cycles),
        "RSS after the requests (highest ever), MB": _show(served.after_requests),
    }
    for name, values in served.milliseconds.items():
        figures[f"{name}, ms: median, first, worst; bytes"] = (
            f"{median(values):.1f}, {values[0]:.1f}, {max(values):.1f}; {served.sizes[name]:,}"
        )
    return figures


def _show(memory: Memory) -> str:
    return f"{memory.rss * KIB / MB:.0f} ({memory.peak_mb:.0f})"


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
        ways.oour.append(self._oour.run(self._sample))
        ways.oour_by_uuid.append(self._oour.run(self._sample, condition=""))
        ways.oour_kept.append(self._oour.run(self._sample, condition="", keeps_connections=True))
        print_progress(f"  gpu-oour's queries {ways.oour[-1]:.1f} s, by UUID {ways.oour_by_uuid[-1]:.1f} s")

    def close(self) -> None:
        """Measures last what each request costs on its own."""
        self.ways.alone_seconds = self._curl.run_alone()
        self._analysis.source.close()


def _name_request(request: RecordedRequest) -> str:
    fields = parse_qs(request.body)
    return fields["query"][0] if "query" in fields else f"{request.method} {request.path}"


def measure(sizes: Sequence[int], long_sizes: Sequence[int], *, rounds: int) -> Results:
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
                served.append(measure_serve(url, gpus, folder=folder))
        comparisons = [Comparison(fleet, url, window_minutes=minutes, folder=folder) for fleet, url, minutes in fleets]
        for number in range(rounds):
            for comparison in comparisons:
                comparison.run_round(is_curl_first=number % 2 == 0)
        for comparison in comparisons:
            comparison.close()
    about = describe_run(name_command("analyzer"), find_versions())
    return Results(about, [comparison.ways for comparison in comparisons], served)


def find_versions() -> dict[str, dict[str, str]]:
    packages = ("numpy", "msgspec", "httpx2", "uvicorn", "fastapi")
    return {
        "analyzer": {"gpusteward": __version__, **{name: version(name) for name in packages}},
        "engine": {"prometheus": _read_version("prometheus")},
        "others": {"curl": _read_version("curl"), "requests": version("requests")},
    }


def _read_version(program: str) -> str:
    output = subprocess.run([find_program(program), "--version"], check=True, capture_output=True, text=True)
    return next((word for word in (output.stdout + output.stderr).split() if word[0].isdigit()), "unknown")


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.analyzer", description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=_sizes, default=SIZES, help="GPUs, with a window of 10 min: 1000,10000,50000")
    parser.add_argument("--long-sizes", type=_sizes, default=LONG_SIZES, help="GPUs, with a window of 2 h: 10000")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each size, in turns")
    parser.add_argument("--dry", action="store_true", help="print the result, write nothing")
    chosen = parser.parse_args()
    return publish(
        "analyzer",
        lambda: render_report(measure(chosen.sizes, chosen.long_sizes, rounds=chosen.rounds)),
        is_dry=chosen.dry,
    )


if __name__ == "__main__":
    sys.exit(main())
