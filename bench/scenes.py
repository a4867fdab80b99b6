"""`python -m bench.scenes [FIRST_SEED]`: hours of workloads whose truth is known second by second, seen through pages
of three exporters, read by the embedded source and judged every five minutes. Writes bench/results/scenes.md.

The exporter of DCGM collects every 30 s and repeats its values until then; its gauges are those of one second, its
profiling fields means since the last collection. The agent counts. Work after the newest collection is in nobody's
data: a window ends with it (docs/limits.md).
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.machines import describe_run
from bench.progress import print_progress
from bench.report import render_table
from gpusteward.analyzer.judge.history import History
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.tables import ACTIVITIES, STEPS, Column, UsageTable
from gpusteward.core.containers import Workload
from gpusteward.core.verdicts import Activity, Step

COMMAND = "python -m bench.scenes"
RESULT = Path(__file__).parent / "results/scenes.md"
HOURS, SEEDS = 3, 3
CYCLE, WINDOW, COLLECTED = 300, 600, 30
BEGIN = 1_790_000_000
GIB = 1 << 30

Chance = np.random.Generator


class Truth(NamedTuple):
    """One value per second."""

    core: Column  # share of the second in which a kernel ran
    encoder: Column
    decoder: Column
    traffic: Column  # bytes per second over PCIe
    memory: Column  # bytes

    @property
    def works(self) -> Column:
        return self.core + self.encoder + self.decoder + (self.traffic > 20e6)


class Scene(NamedTuple):
    """A kind of workload: which of its signals is on in which seconds."""

    name: str
    kind: str
    draw: Callable[[Chance, int], Column]  # activity of each second, 0 to 1
    signal: str = "core"
    loads_seconds: int = 0  # at the beginning, while nothing works
    gap_seconds: int = 0  # without scrapes, once an hour


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
    Scene("parked model", "Deployment", nothing),
    Scene("sleeping server", "Deployment", nothing),
    Scene("empty notebook", "Notebook", nothing),
)


class Signals(NamedTuple):
    """What is exported, and how often it is scraped."""

    name: str
    step: int
    has_profiling: bool = False
    is_agent: bool = False


SIGNALS = (
    *(Signals(f"gauges, {step} s", step) for step in (15, 30, 60)),
    *(Signals(f"profiling, {step} s", step, has_profiling=True) for step in (15, 30, 60)),
    Signals("agent, 30 s", 30, is_agent=True),
)


@dataclass(frozen=True)
class Row:
    """One scene with one seed: a pod alone on a GPU of its own node."""

    scene: Scene
    name: str
    truth: Truth
    joules: Column  # energy until each second
    watts: Column
    phase: int  # of collections and scrapes
    started_at: float

    @classmethod
    def draw(cls, scene: Scene, seed: int, hours: int) -> "Row":
        chance = np.random.default_rng((seed, *scene.name.encode()))
        seconds = hours * 3600
        nothing, active = np.zeros(seconds), scene.draw(chance, seconds)
        memory = np.full(seconds, 0.0 if "empty" in scene.name else 20.0 * GIB)
        if scene.loads_seconds:
            memory = np.minimum(np.arange(seconds) / scene.loads_seconds, 1.0) * 60 * GIB
        values = {"core": nothing, "encoder": nothing, "decoder": nothing, "traffic": nothing, scene.signal: active}
        truth = Truth(values["core"], values["encoder"], values["decoder"], values["traffic"] * 2e9, memory)
        draws = 180 * truth.core + 40 * (truth.encoder + truth.decoder) + 30 * (truth.traffic > 0)
        drift = 1.5 * np.sin(np.arange(seconds) / 900 + chance.random() * 6)
        watts = 70 + 40 * chance.random() + drift + chance.normal(0, 2, seconds) + draws
        started_at = BEGIN if scene.loads_seconds else BEGIN - 86_400
        name = f"s{SCENES.index(scene)}-{seed}"
        return cls(scene, name, truth, np.cumsum(watts), watts, int(chance.integers(60)), started_at)

    def scrape_times(self, step: int) -> Iterator[int]:
        """Seconds after the beginning."""
        for at in range(self.phase % step + step, len(self.watts), step):
            if not (self.scene.gap_seconds and at % 3600 < self.scene.gap_seconds):
                yield at

    def newest(self, at: int, signals: Signals) -> int:
        """Up to which second the newest sample tells anything."""
        scraped = max(each for each in range(at - signals.step, at + 1) if (each - self.phase) % signals.step == 0)
        every = 5 if signals.is_agent else COLLECTED
        return scraped - (scraped - self.phase) % every

    def render(self, signals: Signals, at: int) -> bytes:
        every = 5 if signals.is_agent else COLLECTED
        at = max(at - (at - self.phase) % every, every)
        lines = self._render_agent(at) if signals.is_agent else self._render_dcgm(at, signals)
        return "\n".join(("", *lines, "")).encode()

    def _render_dcgm(self, at: int, signals: Signals) -> Iterator[str]:
        holder = f'Hostname="{self.name}",modelName="NVIDIA L40S",namespace="bench",pod="{self.name}",container="main"'
        labels = f'{{gpu="0",UUID="GPU-{self.name}",{holder}}}'
        truth, last = self.truth, at - 1
        values = {
            "DEV_GPU_UTIL": round(100 * truth.core[last]),
            "DEV_MEM_COPY_UTIL": round(30 * truth.core[last]),
            "DEV_ENC_UTIL": round(100 * truth.encoder[last]),
            "DEV_DEC_UTIL": round(100 * truth.decoder[last]),
            "DEV_FB_USED": int(truth.memory[last] / (1 << 20)),
            "DEV_FB_FREE": int(48_000 - truth.memory[last] / (1 << 20)),
            "DEV_POWER_USAGE": round(self.watts[last], 3),
            "DEV_TOTAL_ENERGY_CONSUMPTION": int(1e9 + self.joules[last] * 1000),
        }
        if signals.has_profiling:
            span = slice(max(at - COLLECTED, 0), at)
            values |= {
                "PROF_GR_ENGINE_ACTIVE": round(float(truth.core[span].mean()), 6),
                "PROF_DRAM_ACTIVE": round(float(truth.core[span].mean()) * 0.4, 6),
                "PROF_PCIE_RX_BYTES": int(truth.traffic[span].mean() + 2e5),
            }
        return (f"DCGM_FI_{name}{labels} {value}" for name, value in values.items())

    def _render_agent(self, at: int) -> Iterator[str]:
        gpu = f'node="{self.name}",gpu="0",uuid="GPU-{self.name}"'
        pod = f'{gpu},namespace="bench",pod="{self.name}",container="main"'
        truth, span, uid = self.truth, slice(at - 5, at), f'pod_uid="uid-{self.name}"'
        video = np.minimum(truth.encoder + truth.decoder, 1.0)
        yield f'gpusteward_allocations_known{{node="{self.name}"}} 1'
        yield f'gpusteward_gpu_info{{{gpu},model="NVIDIA L40S"}} 1'
        yield f"gpusteward_gpu_utilization_ratio{{{gpu}}} {truth.core[span].mean():.4f}"
        yield f"gpusteward_gpu_busy_seconds_total{{{gpu}}} {truth.core[:at].sum():.4f}"
        yield f"gpusteward_gpu_outside_use_seconds_total{{{gpu}}} 0"
        yield f"gpusteward_gpu_power_watts{{{gpu}}} {self.watts[at - 1]:.2f}"
        yield f"gpusteward_gpu_memory_total_bytes{{{gpu}}} {48 * GIB}"
        yield f"gpusteward_gpu_pcie_rx_bytes_per_second{{{gpu}}} {truth.traffic[at - 1] + 2e5:.0f}"
        kind = f'workload_kind="{self.scene.kind}",workload="{self.name}"'
        yield f'gpusteward_allocation_info{{{pod},{uid},{kind},share="exclusive"}} 1'
        yield f"gpusteward_allocation_start_time_seconds{{{pod},{uid}}} {self.started_at}"
        own = f'{pod},{uid},by="container"'
        yield f"gpusteward_use_utilization_ratio{{{own}}} {truth.core[span].mean():.4f}"
        yield f"gpusteward_use_memory_bytes{{{own}}} {truth.memory[at - 1]:.0f}"
        yield f"gpusteward_use_processes{{{own}}} {int(truth.memory[at - 1] > 0)}"
        yield f"gpusteward_use_busy_seconds_total{{{own}}} {truth.core[:at].sum():.4f}"
        yield f"gpusteward_use_video_seconds_total{{{own}}} {video[:at].sum():.4f}"


@dataclass(frozen=True, slots=True)
class Counts:
    """The windows of one scene, judged from one set of signals."""

    scene: str
    signals: str
    worked: Counter[str]  # windows with work by activity; and "reclaimable"
    rested: Counter[str]


def judge_scenes(signals: Signals, *, seeds: Sequence[int], hours: int = HOURS) -> list[Counts]:
    rows = {row.name: row for scene in SCENES for seed in seeds for row in [Row.draw(scene, seed, hours)]}
    source = ScrapeSource(ScrapeSettings(interval=signals.step, kubernetes="never"), window_seconds=WINDOW)
    scrapes = sorted((at, name) for name, row in rows.items() for at in row.scrape_times(signals.step))
    found = {scene.name: Counts(scene.name, signals.name, Counter(), Counter()) for scene in SCENES}
    history, done = History(), 0
    for at in range(WINDOW + CYCLE, hours * 3600, CYCLE):
        while done < len(scrapes) and scrapes[done][0] <= at:
            moment, name = scrapes[done]
            source.ingest(name, rows[name].render(signals, moment), BEGIN + moment)
            done += 1
        table = _add_owners(source.read(BEGIN + at), rows)
        verdicts, history = judge(table, Rules(), history, now=BEGIN + at)
        for number, one in enumerate(table.allocations):
            row = rows[one.container.pod]
            worked = row.truth.works[at - WINDOW : row.newest(at, signals)].any()
            counts = found[row.scene.name].worked if worked else found[row.scene.name].rested
            activity = ACTIVITIES[verdicts.activity[number]]
            counts[activity.value] += 1
            may_reclaim = activity is Activity.IDLE and STEPS[verdicts.step[number]] is Step.RECLAIM
            counts["reclaimable"] += may_reclaim
    source.close()
    return list(found.values())


def _add_owners(table: UsageTable, rows: dict[str, Row]) -> UsageTable:
    """As the API server names them."""

    def own(name: str) -> Workload:
        return Workload(rows[name].scene.kind, "bench", name)

    allocations = [
        replace(
            one,
            container=replace(
                one.container, workload=own(one.container.pod), started_at=rows[one.container.pod].started_at
            ),
        )
        for one in table.allocations
    ]
    return replace(table, allocations=allocations)


def sum_up(found: Sequence[Counts]) -> Counter[str]:
    """Of all scenes: windows with work, judged idle, reclaimable."""
    total = sum((each.worked for each in found), Counter[str]())
    windows = sum(total[each.value] for each in Activity)
    return Counter({"windows": windows, "idle": total["idle"], "reclaimable": total["reclaimable"]})


def render_page(results: Sequence[Sequence[Counts]], seeds: Sequence[int]) -> str:
    about = describe_run(COMMAND, {})
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
            "# Scenes: verdicts on workloads with a known truth\n",
            f"- Made by `{about.command}` on {about.date}; seeds {', '.join(map(str, seeds))}.",
            f"- {about.processor}, {about.cores} cores; {about.python}\n",
            f"{len(SCENES)} kinds of workload over {HOURS} hours, judged every 5 minutes over windows of 10; a window "
            "ends with the newest collection that was scraped, since nobody can see later work. DCGM is collected "
            "every 30 s. Idle power varies by 2 W from second to second and by 3 W over an hour.\n",
            "## Windows with work\n",
            render_table(("signals", "windows", "judged idle", "reclaimable"), totals),
            "Gauges miss short requests, however often they are scraped: DCGM reads them every 30 s. A notice at most, "
            "which says so.\n",
            "## Windows without work\n",
            render_table(("signals", "active", "idle", "unknown", "reclaimable"), rested),
            "Active: less than a window after work. Reclaimable is what a policy may give back.\n",
            "## Windows with work, by scene: active / unknown / idle\n",
            render_table(("", *(found[0].signals for found in results)), scenes),
        ]
    )


def _render_counts(counts: Counter[str]) -> str:
    return f"{counts['active']} / {counts['unknown']} / {counts['idle']}"


def main(arguments: Sequence[str]) -> int:
    """Exits with 1 if a window with work is reclaimable, or idle too often where all of the time is measured."""
    first = int(arguments[0]) if arguments else 1
    seeds = range(first, first + SEEDS)
    results = []
    for signals in SIGNALS:
        print_progress(signals.name)
        results.append(judge_scenes(signals, seeds=seeds))
    page = render_page(results, list(seeds))
    RESULT.write_text(page)
    print(page)
    sums = {found[0].signals: sum_up(found) for found in results}
    careful = all(sums[name]["idle"] <= 0.001 * sums[name]["windows"] for name in ("profiling, 30 s", "agent, 30 s"))
    return 0 if careful and not any(one["reclaimable"] for one in sums.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
