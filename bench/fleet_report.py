"""Renders the results of `bench.analyzer` as Markdown."""

from collections.abc import Iterable
from statistics import median

from bench.bars import KIB, MB
from bench.fleet_limits import LimitCheck, check_limits
from bench.fleet_results import Results, Served, Ways
from bench.readings import Memory
from bench.report import render_table

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


def render_report(results: Results) -> str:
    return "\n".join(
        [
            "# Analyzer benchmark\n",
            _render_about(results),
            "## Limits\n\n" + _render_checks(check_limits(results)),
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


def _render_about(results: Results) -> str:
    about = results.about
    versions = [f"{side}: {', '.join(f'{n} {v}' for n, v in found.items())}" for side, found in about.versions.items()]
    lines = [
        f"Made by `{about.command}` on {about.date}.",
        f"{about.processor}, {about.cores} cores; {about.kernel}; {about.python}; {about.c_library}",
        *versions,
    ]
    return "".join(f"- {line}\n" for line in lines)


def _render_checks(checks: Iterable[LimitCheck]) -> str:
    checks = list(checks)
    rows = [(check.name, check.limit, check.measured, check.verdict) for check in checks]
    judged = "".join(f"- {check.name}: {check.method}.\n" for check in checks)
    return f"{render_table(('limit of', 'limit', 'measured', 'verdict'), rows)}\n{judged}"


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
    return f"{memory.rss * KIB / MB:.0f} ({memory.peak * KIB / MB:.0f})"
