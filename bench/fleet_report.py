"""Results of `bench.analyzer` -> the page a person reads."""

from collections.abc import Iterable
from statistics import median

from bench.bars import KIB, MB
from bench.fleet_bars import Bar, judge
from bench.fleet_results import Results, Served, Ways
from bench.readings import Memory
from bench.report import render_table

NOTES = """\
- One real Prometheus on the loopback for each row, with nothing in it but this fleet: blocks that promtool made of six
  DCGM signals with eleven labels every 30 s. The machine runs Prometheus and whoever asks it.
- All fleets stand at the same time, and each has its turn in every round: growth is told from one round's times. A turn
  waits up to 20 s for the rest of the machine to be quiet. It is curl and a cycle, each first in turn, then the
  seed's way; all at the same moment of the data. Before the first round each question was asked twice: nobody
  finds cold caches.
- curl: one process, the queries a cycle was heard to send (below), as many at once as the analyzer has under way, the
  answers thrown away. Its start, some milliseconds, is part of its time.
- A cycle: `Cycle.run` (read, judge), the order of the first list, and the result is up. Of a site that is known
  already, as eleven cycles in twelve are. The page at /metrics, in both formats and packed, is made right after that;
  until it is ready a scrape gets the page before, as it would have a moment earlier.
- The seed's way: for each GPU one `query_range` for each of the six signals, eight threads, `requests.get` without a
  session and so a new connection each time, the mean computed from the JSON. Measured on a sample of GPUs spread over
  the fleet and scaled to all. Beside it two that the seed does not do: by UUID, without the `pod!=""` that makes
  Prometheus go through all pods for each GPU; and that with connections kept.
- The seed's way gives means only. A cycle has means and peaks of what is judged (core, memory copy, memory, power), the
  mean of the clock, the spread and the count of the core's samples, and who holds what. Means and peaks of all six
  signals would be three queries more: curl was measured with them too.
- `gpusteward serve` is the program as it is installed for development, with its defaults, started anew; it ends after
  its cycles and requests. MB is 1,000,000 bytes; memory is what the kernel says.
- The client that asks `serve` is Python's own, in another process on the same machine, on a connection that is kept.
- Differences below 1.25 x between single rounds mean nothing here.
"""


def render_report(results: Results) -> str:
    return "\n".join(
        [
            "# The analyzer, measured\n",
            _render_about(results),
            "## What was promised\n\n" + _render_bars(judge(results)),
            "## Three ways, in turns\n\nSeconds for the whole fleet, medians of the rounds.\n\n"
            + _render_ways(results.ways),
            "Round by round:\n\n" + "".join(map(_render_rounds, results.ways)),
            "## A cycle\n\nMedians, in seconds. Read: until the table of usage is there; the engine works in that time."
            " Page: made after the whole. CPU is the analyzer's own, page included; the rest is waiting.\n\n"
            + _render_cycles(results.ways),
            _render_queries(results.ways),
            "## Served\n\n" + _render_served(results.served),
            f"## How it was measured\n\n{NOTES}",
        ]
    )


def _render_about(results: Results) -> str:
    about = results.about
    versions = [f"{side}: {', '.join(f'{n} {v}' for n, v in found.items())}" for side, found in about.versions.items()]
    lines = [
        f"Made by `{about.command}` on {about.date}.",
        f"{about.processor}, {about.cores} cores; {about.kernel}; {about.python}; {about.c_library}",
        *versions,
    ]
    return "".join(f"- {line}\n" for line in lines)


def _render_bars(bars: Iterable[Bar]) -> str:
    bars = list(bars)
    rows = [(bar.promise, bar.limit, bar.measured, bar.verdict) for bar in bars]
    judged = "".join(f"- {bar.promise}: {bar.judged_by}.\n" for bar in bars)
    return f"{render_table(('promise', 'limit', 'measured', 'verdict'), rows)}\n{judged}"


def _name(ways: Ways) -> str:
    return f"{ways.gpus:,} GPUs, {ways.window_minutes:g} min"


def _render_ways(all_ways: Iterable[Ways]) -> str:
    header = ("", "curl", "cycle", "cycle / curl", "seed", "/ cycle", "by UUID", "/ cycle", "and kept", "/ cycle")
    rows = [
        (
            _name(ways),
            f"{median(ways.curl):.3f}",
            f"{median(ways.cycles_whole):.3f}",
            f"{ways.over_curl:.2f}",
            f"{median(ways.seed):.1f}",
            f"{ways.faster_than(ways.seed):.0f}",
            f"{median(ways.seed_by_uuid):.1f}",
            f"{ways.faster_than(ways.seed_by_uuid):.0f}",
            f"{median(ways.seed_kept):.1f}",
            f"{ways.faster_than(ways.seed_kept):.0f}",
        )
        for ways in all_ways
    ]
    return render_table(header, rows)


def _render_rounds(ways: Ways) -> str:
    columns = {
        "curl": ways.curl,
        "cycle": ways.cycles_whole,
        "curl with three queries more": ways.curl_of_all,
        f"seed's way, from {ways.sampled_gpus} GPUs": ways.seed,
        "by UUID alone": ways.seed_by_uuid,
        "and connections kept": ways.seed_kept,
    }
    shown = "; ".join(f"{name} {', '.join(f'{value:.3f}' for value in values)}" for name, values in columns.items())
    busy = ", ".join(f"{cores:.2f}" for cores in ways.others)
    return f"- {_name(ways)}: {shown}. Cores kept busy by all else just before each round: {busy}.\n"


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
    """Of the largest fleet with the short window: the others ask the same of another window or fleet."""
    ways = max(all_ways, key=lambda each: (-each.window_minutes, each.gpus))
    lines = "".join(f"{took:7.3f}  {query}\n" for query, took in zip(ways.queries, ways.alone, strict=True))
    total = f"{sum(ways.alone):7.3f}  together, one after another\n"
    return f"Its queries, with the seconds each takes curl alone ({_name(ways)}):\n\n```\n{lines}{total}```\n"


def _render_served(all_served: Iterable[Served]) -> str:
    rows: list[tuple[str, ...]] = []
    for served in all_served:
        rows += [(f"{served.gpus:,} GPUs: {what}", value) for what, value in _list_figures(served).items()]
    return render_table(("`gpusteward serve`", ""), rows)


def _list_figures(served: Served) -> dict[str, str]:
    figures = {
        "from its start to its first result, s": f"{served.start_seconds:.2f}",
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
    return f"{memory.rss * KIB / MB:.0f} ({memory.peak * KIB / MB:.0f})"
