"""`python -m bench.useful [FIRST_SEED]`: all scenes of `tests/analyzer/judge/useful_scenes.py`, workloads whose use is
known: which are called stalled, kept busy or idle, with three sets of signals, through a real Prometheus (counters of
hosts) and through scraping (the agent's only). Writes bench/results/useful.md. Exits with 1 if work is accused or
reclaimable.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from bench.measure import describe_run, print_progress
from bench.report import Bar, publish, render_bars, render_head, render_table
from gpusteward.core.verdicts import Activity, Signature
from tests.analyzer.judge.useful import (
    CYCLE,
    FOUND_MINUTES,
    HOURS,
    REST_MINUTES,
    SHORT_HOURS,
    Found,
    Signals,
    Way,
    judge_scenes,
)
from tests.analyzer.judge.useful_scenes import SCENES, Place, Scene, Truth

SEEDS = 3
CALLED = (Signature.STALLED.value, Signature.KEEP_ALIVE.value, *(each.value for each in Activity), "reclaimable")
Results = dict[tuple[Signals, Way], list[Found]]


def sum_called(found: Iterable[Found], *truths: Truth) -> Counter[str]:
    return sum((one.called[truth] for one in found for truth in truths), Counter[str]())


def list_bars(results: Results) -> list[Bar]:
    bars = []
    for (signals, way), found in results.items():
        side = f"{signals}, {way}"
        stalled = [one for one in found if one.called[Truth.STALLED] and signals.shows(one.scene)]
        minutes = FOUND_MINUTES[way.has_hosts(signals)]
        late = [one for one in stalled if one.minutes > minutes]
        share, promise = 1 - len(late) / len(stalled), f"{side}: stalled found within {minutes} min"
        bars.append(Bar(promise, "95 % of scenes", f"{share:.0%} of {len(stalled)}", share >= 0.95))
        work, waits = sum_called(found, Truth.WORKS), sum_called(found, Truth.WAITS)
        wrong = sum(work[each] for each in ("stalled", "keep-alive", "idle"))
        bars.append(Bar(f"{side}: work called stalled, keep-alive or idle", "0 windows", _of(wrong, work), not wrong))
        bars.append(
            Bar(f"{side}: work reclaimable", "0 windows", _of(work["reclaimable"], work), not work["reclaimable"])
        )
        wrong = waits["stalled"] + waits["keep-alive"]
        promise = f"{side}: what only waits called stalled or keep-alive"
        bars.append(Bar(promise, "0 windows", _of(wrong, waits), not wrong))
        for key, is_meant in (("idle", signals.shows), ("reclaimable", signals.proves)):
            rested = sum((one.rested for one in found if is_meant(one.scene)), Counter[str]())
            if rested:
                share = rested[key] / rested["windows"]
                bars.append(Bar(f"{side}: truly idle is {key}", "90 %", f"{share:.1%}", share >= 0.9))
    return bars


def _of(number: int, counts: Counter[str]) -> str:
    return f"{number:,} of {counts['windows']:,}"


def render_page(results: Results, seeds: Sequence[int]) -> str:
    about, note = describe_run(f"python -m bench.useful {seeds[0]}"), f"Seeds {', '.join(map(str, seeds))}."
    lines = [
        render_head("Useful work: verdicts on workloads whose use is known", about, note),
        f"{len(SCENES)} kinds of workload over {SHORT_HOURS:g} hours, those of a day and a night over {HOURS:g}, "
        f"judged every {CYCLE // 60} minutes over windows of 10. Levels, spread and start are drawn from published "
        "ranges. The samples of GPUs and the requests of servers are the same in a real Prometheus and on scraped "
        "pages. The bytes of pods are cAdvisor's in Prometheus, which nothing scrapes otherwise, or the agent's in "
        "both.\n",
        "## Limits\n",
        render_bars(list_bars(results)),
        "Stalled: of scenes with power, and memory copies or profiling; of a MIG instance gauges have neither, nor its "
        f"utilization. Truly idle: windows from {REST_MINUTES:.0f} minutes of a scene on, since DCGM must be watched "
        "for an hour; reclaimable: of what can be proven to be idle.\n",
        "## Truly idle: reclaimable, by class\n",
        _render_classes(results),
        "Gauges prove nothing. The video engines of a MIG instance may work unseen, except where its decoders are "
        "profiled (DCGM on Hopper and newer) or it has none, which the agent knows. What waits and is reclaimable "
        "below is the holder of a pair of pods whose launcher sleeps: DCGM does not know the other pod, and reclaim "
        "refuses the holder by its label.\n",
    ]
    for (signals, way), found in results.items():
        rows = [
            (truth.value, f"{counts['windows']:,}", *(f"{counts[each]:,}" for each in CALLED))
            for truth in Truth
            if (counts := sum_called(found, truth))
        ]
        lines += [f"## Windows: {signals}, {way}\n", render_table(("truth / called", "windows", *CALLED), rows)]
    lines += [
        "## Minutes until found, by scene\n",
        "From the beginning of the stall or of the artificial load; `-`: not found. One value for each seed.\n",
        _render_scenes(results, _render_minutes, accused=True),
        "## Windows of other scenes: active / unknown / idle\n",
        "Of work, of what waits and of what is idle; `!`: called stalled or keep-alive, `r`: reclaimable.\n",
        _render_scenes(results, _render_windows, accused=False),
    ]
    return "\n".join(lines)


CLASSES: Mapping[str, Callable[[Scene], bool]] = {
    "whole GPUs": lambda scene: scene.place is Place.GPU,
    "MIG instances with video reported": lambda scene: scene.place is Place.MIG and scene.has_video,
    "MIG instances without": lambda scene: scene.place is Place.MIG and not scene.has_video,
    "MPS": lambda scene: scene.place is Place.MPS,
    "time slices": lambda scene: scene.place is Place.SLICE,
}


def _render_classes(results: Results) -> str:
    rows = []
    for name, is_meant in CLASSES.items():
        rested = [
            sum((one.rested for one in found if is_meant(one.scene)), Counter[str]()) for found in results.values()
        ]
        rows.append((name, *(f"{each['reclaimable']:,} of {each['windows']:,}" for each in rested)))
    return render_table(("", *(f"{signals}, {way}" for signals, way in results)), rows)


def _render_scenes(results: Results, render: Callable[[list[Found]], str], *, accused: bool) -> str:
    """Those that are to be found, or all others."""
    rows = []
    for scene in SCENES:
        own = [[one for one in found if one.scene is scene] for found in results.values()]
        called = own[0][0].called
        if bool(called[Truth.STALLED] or called[Truth.HELD]) is accused:
            rows.append((scene.name, *map(render, own)))
    return render_table(("", *(f"{signals}, {way}" for signals, way in results)), rows)


def _render_minutes(found: list[Found]) -> str:
    return " ".join(f"{one.minutes:.0f}" if one.found_minutes else "-" for one in found)


def _render_windows(found: list[Found]) -> str:
    counts = sum_called(found, *Truth)
    text = " / ".join(str(counts[each]) for each in ("active", "unknown", "idle"))
    accused = counts["stalled"] + counts["keep-alive"]
    return text + (f" !{accused}" if accused else "") + (f" r{counts['reclaimable']}" if counts["reclaimable"] else "")


def main(arguments: Sequence[str]) -> int:
    first = int(arguments[0]) if arguments else 1
    seeds, results = range(first, first + SEEDS), Results()
    for signals in Signals:
        for way in Way:
            results[signals, way] = []
            for seed in seeds:
                print_progress(f"{signals}, {way}, seed {seed}")
                with tempfile.TemporaryDirectory() as folder:
                    results[signals, way] += judge_scenes(signals, way, seed=seed, folder=Path(folder))
    publish("useful", lambda: render_page(results, list(seeds)))
    work = sum((sum_called(found, Truth.WORKS) for found in results.values()), Counter[str]())
    return 1 if work["stalled"] or work["keep-alive"] or work["reclaimable"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
