"""Hours of workloads whose truth is known second by second, seen through pages of three exporters (`scene_rows.py`),
read by the embedded source and judged every five minutes. `test_scenes.py` has a cut of it, `python -m bench.scenes`
all.

Work after the newest collection is in nobody's data: a window ends with it (docs/limits.md).
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.tables import ACTIVITIES, STEPS, Column, UsageTable
from gpusteward.core.node.containers import Workload
from gpusteward.core.verdicts import Activity, Step
from tests.analyzer.judge.scene_rows import BEGIN, Chance, Place, Row, Scene, Scrape, Signals

HOURS = 3
CYCLE, WINDOW = 300, 600
MOST_IDLE = 0.001
"""Of windows with work, where all of the time is measured."""


def every(period: float, length: float, *, jitter: float = 0.0, level: float = 1.0) -> Callable[[Chance, int], Column]:
    def draw(chance: Chance, seconds: int) -> Column:
        active = np.zeros(seconds)
        start = chance.random() * period
        while start < seconds:
            begin = start + chance.random() * jitter
            end, first = begin + length, int(begin)
            for second in range(first, min(int(np.ceil(end)), seconds)):
                active[second] = min(1.0, active[second] + level * (min(end, second + 1) - max(begin, second)))
            start += period
        return active

    return draw


def noisy(level: float, spread: float) -> Callable[[Chance, int], Column]:
    return lambda chance, seconds: np.clip(chance.normal(level, spread, seconds), 0.01, 1.0)


def nothing(_: Chance, seconds: int) -> Column:
    return np.zeros(seconds)


def later(after: float, draw: Callable[[Chance, int], Column]) -> Callable[[Chance, int], Column]:
    return lambda chance, seconds: np.where(np.arange(seconds) < after, 0.0, draw(chance, seconds))


def until(end: float, draw: Callable[[Chance, int], Column]) -> Callable[[Chance, int], Column]:
    return lambda chance, seconds: np.where(np.arange(seconds) < end, draw(chance, seconds), 0.0)


BUSY = noisy(0.9, 0.05)
SCENES = (
    Scene("training", "PyTorchJob", noisy(0.9, 0.05)),
    Scene("training with pauses of 15 min", "PyTorchJob", every(3600, 2700, level=0.9)),
    Scene("checkpoint pauses of 2 min", "PyTorchJob", every(1200, 1080, level=0.95)),
    Scene("starved training", "PyTorchJob", every(20, 3)),
    Scene("CPU-bound, 2 s a minute", "Job", every(60, 2)),
    Scene("hyperparameter trials of 4 min", "Job", every(600, 240, jitter=60)),
    Scene("notebook, a cell of 2 s every 3 min", "Notebook", every(180, 2, jitter=120)),
    Scene("notebook, a cell of 20 s every 20 min", "Notebook", every(1200, 20, jitter=300)),
    Scene("notebook, back every 50 min", "Notebook", every(3000, 300, jitter=600)),
    Scene("request of 3 s every 5 min", "Deployment", every(300, 3, jitter=200)),
    Scene("request of 3 s every 10 min", "Deployment", every(600, 3, jitter=60)),
    Scene("request of 3 s every hour", "Deployment", every(3600, 3, jitter=600)),
    Scene("request of 0.3 s every minute", "Deployment", every(60, 0.3, jitter=20)),
    Scene("bursty inference", "Deployment", every(120, 15, jitter=100, level=0.7)),
    Scene("even inference at 5 %", "Deployment", noisy(0.05, 0.01)),
    Scene("batch of 2 min every hour", "Deployment", every(3600, 120)),
    Scene("health check of 0.2 s every 30 s", "Deployment", every(30, 0.2, jitter=2)),
    Scene("keep-alive load of 10 %", "Notebook", noisy(0.1, 0.002)),
    Scene("NVENC for 20 s every 10 min", "Deployment", every(600, 20, jitter=30, level=0.7), "encoder"),
    Scene("NVENC all the time", "Deployment", noisy(0.6, 0.1), "encoder"),
    Scene("NVDEC only", "Deployment", noisy(0.3, 0.05), "decoder"),
    Scene("NVDEC for 40 s every 15 min", "Deployment", every(900, 40, jitter=60, level=0.8), "decoder"),
    Scene("copies over PCIe only", "Deployment", every(300, 60), "traffic"),
    Scene("model loaded for 40 min, then requests", "Deployment", later(2700, every(60, 5)), loads_seconds=2400),
    Scene("restarts after 12 min of work, by OOM", "PyTorchJob", every(900, 720)),
    Scene("scrapes missing for 90 s every hour", "Deployment", every(600, 3, jitter=60), gap_seconds=90),
    Scene("hung after an hour", "PyTorchJob", until(3600, noisy(0.9, 0.05))),
    Scene("requests until noon, then none", "Deployment", until(7200, every(60, 5))),
    Scene("MIG: training", "PyTorchJob", noisy(0.9, 0.05), place=Place.MIG),
    Scene("MIG: request of 3 s every 10 min", "Deployment", every(600, 3, jitter=60), place=Place.MIG),
    Scene("MIG: nothing", "Notebook", nothing, place=Place.MIG),
    Scene("shared: request of 3 s every 5 min", "Deployment", every(300, 3, jitter=200), place=Place.SLICE),
    Scene("shared: a cell beside training", "Notebook", every(1200, 20, jitter=300), place=Place.SLICE, neighbour=BUSY),
    Scene("shared: nothing beside training", "Notebook", nothing, place=Place.SLICE, neighbour=BUSY),
    Scene("HAMi: request of 3 s every 10 min", "Deployment", every(600, 3, jitter=60), place=Place.HAMI),
    Scene("HAMi: request beside training", "Deployment", every(600, 3), place=Place.HAMI, neighbour=BUSY),
    Scene(
        "HAMi: NVENC for 20 s every 10 min",
        "Deployment",
        every(600, 20, jitter=30, level=0.7),
        "encoder",
        place=Place.HAMI,
    ),
    Scene("HAMi: nothing beside training", "Notebook", until(600, every(60, 5)), place=Place.HAMI, neighbour=BUSY),
    Scene("parked model", "Deployment", nothing),
    Scene("sleeping server", "Deployment", nothing),
    Scene("empty notebook", "Notebook", nothing),
)


SIGNALS = (
    *(Signals(f"gauges, {step} s", step) for step in (15, 30, 60)),
    *(Signals(f"profiling, {step} s", step, has_profiling=True) for step in (15, 30, 60)),
    Signals("HAMi, 30 s", 30, is_hami=True),
    Signals("agent, 30 s", 30, is_agent=True),
)


@dataclass(frozen=True, slots=True)
class Counts:
    """The windows of one scene, judged from one set of signals."""

    scene: str
    signals: str
    worked: Counter[str]  # windows with work by activity; and "reclaimable"
    rested: Counter[str]


def judge_scenes(
    signals: Signals,
    *,
    seeds: Sequence[int],
    hours: int = HOURS,
    scenes: Sequence[Scene] = SCENES,
    cycle: int = CYCLE,
) -> list[Counts]:
    rows = {
        row.name: row
        for number, scene in enumerate(scenes)
        if signals.shows(scene)
        for seed in seeds
        for row in [Row.draw(scene, f"s{number}-{seed}", seed, hours)]
    }
    source = ScrapeSource(ScrapeSettings(interval=signals.step, selector=""), window_seconds=WINDOW)
    scrapes = {name: row.list_scrapes(signals.step) for name, row in rows.items()}
    due = sorted((scrape, name) for name, each in scrapes.items() for scrape in each)
    found = {scene.name: Counts(scene.name, signals.name, Counter(), Counter()) for scene in scenes}
    history, done = VerdictHistory(), 0
    rules = Rules(cycle_seconds=cycle)
    cycles = range(WINDOW + cycle, hours * 3600, cycle)
    for at in cycles:
        while done < len(due) and due[done][0].at <= at:
            scrape, name = due[done]
            source.ingest(name, rows[name].render(signals, scrape), BEGIN + scrape.at)
            done += 1
        table = _add_owners(source.read(BEGIN + at), rows)
        verdicts, history = judge(table, rules, history, now=BEGIN + at)
        for number, one in enumerate(table.allocations):
            if (row := rows.get(one.container.pod)) is None:
                continue  # a neighbour
            newest = row.find_newest(_find_last(scrapes[row.name], at), signals)
            worked = row.truth.works[at - WINDOW : int(newest)].any()
            counts = found[row.scene.name].worked if worked else found[row.scene.name].rested
            activity = ACTIVITIES[verdicts.activity[number]]
            counts[activity.value] += 1
            may_reclaim = activity is Activity.IDLE and STEPS[verdicts.step[number]] is Step.RECLAIM
            # Reclaim needs two cycles: a counter does not know the time before the first sample of its first window.
            counts["reclaimable"] += may_reclaim and at != cycles[0]
    source.close()
    return list(found.values())


def _find_last(scrapes: Sequence[Scrape], at: float) -> Scrape:
    return scrapes[bisect_right(scrapes, at, key=lambda each: each.at) - 1]


def _add_owners(table: UsageTable, rows: dict[str, Row]) -> UsageTable:
    """As the API server names them."""

    def own(pod: str) -> dict[str, object]:
        row = rows[pod.removesuffix("-other")]
        return {"workload": Workload(row.scene.kind, "bench", pod), "started_at": row.started_at}

    allocations = [
        replace(one, container=replace(one.container, **own(one.container.pod))) for one in table.allocations
    ]
    return replace(table, allocations=allocations)


def sum_up(found: Sequence[Counts]) -> Counter[str]:
    """Of all scenes: windows with work, judged idle, reclaimable."""
    total = sum((each.worked for each in found), Counter[str]())
    windows = sum(total[each.value] for each in Activity)
    return Counter({"windows": windows, "idle": total["idle"], "reclaimable": total["reclaimable"]})
