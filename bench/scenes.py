"""`python -m bench.scenes [FIRST_SEED]`: all scenes of `tests/analyzer/judge/scenes.py`, workloads whose truth is known
second by second, with all exporters. Writes bench/results/scenes.md. Exits with 1 if a window with work is reclaimable,
or idle too often where all of the time is measured.
"""

import sys
from collections import Counter
from collections.abc import Sequence

from bench.measure import describe_run, print_progress
from bench.report import publish, render_head, render_table
from tests.analyzer.judge.scenes import HOURS, MOST_IDLE, SCENES, SIGNALS, Counts, judge_scenes, sum_up

SEEDS = 3


def render_page(results: Sequence[Sequence[Counts]], seeds: Sequence[int]) -> str:
    about, note = describe_run(f"python -m bench.scenes {seeds[0]}"), f"Seeds {', '.join(map(str, seeds))}."
    sums = [(found[0].signals, sum_up(found)) for found in results]
    totals = [
        (name, f"{one['windows']:,}", f"{one['idle'] / one['windows']:.2%}", str(one["reclaimable"]))
        for name, one in sums
    ]
    of_rest = [sum((each.rested for each in found), Counter[str]()) for found in results]
    rested = [
        (found[0].signals, *(f"{one[key]:,}" for key in ("active", "idle", "unknown", "reclaimable")))
        for found, one in zip(results, of_rest, strict=True)
    ]
    scenes = [
        (scene.name, *(_render_counts(found[number].worked) for found in results))
        for number, scene in enumerate(SCENES)
        if any(found[number].worked for found in results)
    ]
    return "\n".join(
        [
            render_head("Scenes: verdicts on workloads with a known truth", about, note),
            f"{len(SCENES)} kinds of workload over {HOURS} hours, judged every 5 minutes over windows of 10; a window "
            "ends with the newest collection that was scraped, since nobody can see later work. DCGM is collected "
            "every 30 s, give or take 0.2 %, in its own phase; a page is read up to 2 s after its time. Idle power "
            "varies by 2 W from second to second and by 3 W over an hour.\n",
            "## Windows with work\n",
            render_table(("signals", "windows", "judged idle", "reclaimable"), totals),
            "Gauges miss short requests, however often they are scraped: DCGM reads them every 30 s. A notice at most, "
            "which says so. With profiling fields every 30 s too: a scrape can skip a collection. HAMi's monitor is "
            "beside gauges of dcgm-exporter; of GPUs that it shares, only it and the agent name the pods.\n",
            "## Windows without work\n",
            render_table(("signals", "active", "idle", "unknown", "reclaimable"), rested),
            "Active: less than a window after work. Reclaimable is what a policy may give back.\n",
            "## Windows with work, by scene: active / unknown / idle\n",
            render_table(("", *(found[0].signals for found in results)), scenes),
        ]
    )


def _render_counts(counts: Counter[str]) -> str:
    return f"{counts['active']} / {counts['unknown']} / {counts['idle']}" if counts else ""


def main(arguments: Sequence[str]) -> int:
    first = int(arguments[0]) if arguments else 1
    seeds = range(first, first + SEEDS)
    results = []
    for signals in SIGNALS:
        print_progress(signals.name)
        results.append(judge_scenes(signals, seeds=seeds))
    publish("scenes", lambda: render_page(results, list(seeds)))
    sums = {found[0].signals: sum_up(found) for found in results}
    careful = all(
        sums[name]["idle"] <= MOST_IDLE * sums[name]["windows"] for name in ("profiling, 30 s", "agent, 30 s")
    )
    return 0 if careful and not any(one["reclaimable"] for one in sums.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
