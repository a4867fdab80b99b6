"""Workloads whose work is short, rare or late, judged from the signals that different exporters have.

Each workload is a list of busy intervals, so the truth of every window is exact. Scrapes have a phase of their own per
workload, as in a cluster.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.judge.history import History
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.scrape.ring_buffers import measure_increase
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, STEPS, Column, UsageTable
from gpusteward.core.containers import Container, Workload
from gpusteward.core.usages import AllocationKey, Measure, Stat
from gpusteward.core.verdicts import Activity, Proof, Step

SEEDS = range(20)
SECONDS = 6 * 3600.0
WINDOW = 600.0
CYCLE = 300.0
AT = 1_790_000_000.0
START = AT - SECONDS
IDLE_WATTS, BUSY_WATTS, LIMIT_WATTS = 60.0, 300.0, 700.0
AGENT_SECONDS = 5.0
"""How often the agent collects."""
GIB = float(1 << 30)

Intervals = list[tuple[float, float]]


class Workload6h(NamedTuple):
    """A kind of work over six hours."""

    name: str
    owner_kind: str
    draw: Callable[[np.random.Generator], Intervals]
    is_video: bool = False  # the video engines work, not the core
    is_young: bool = False  # the pod starts at the beginning, else long before


def _every(period: float, duration: float, *, jitter: float = 0.0) -> Callable[[np.random.Generator], Intervals]:
    """Work once per period: always at the same time, or up to `jitter` later."""

    def draw(chance: np.random.Generator) -> Intervals:
        first = START - period + chance.random() * period
        starts = np.arange(first, AT, period)
        starts = starts + chance.random(len(starts)) * jitter
        return [(start, start + duration) for start in starts.tolist()]

    return draw


def _load_first(chance: np.random.Generator) -> Intervals:
    """40 minutes of loading data, then work to the end."""
    return [(START + 2400 + chance.random() * 60, AT)]


WORKLOADS = (
    Workload6h("20 s of work every 20 min", "Deployment", _every(1200, 20, jitter=60)),
    Workload6h("request of 3 s about every 5 min", "Deployment", _every(300, 3, jitter=297)),
    Workload6h("health check of 0.2 s every 30 s", "Deployment", _every(30, 0.2, jitter=2)),
    Workload6h("notebook, user back every 50 min", "Notebook", _every(3000, 300, jitter=600)),
    Workload6h("training with pauses of 15 min", "PyTorchJob", _every(3600, 2700)),
    Workload6h("40 min of loading before the first kernel", "PyTorchJob", _load_first, is_young=True),
    Workload6h("video transcoding", "Deployment", _every(SECONDS * 2, SECONDS * 2), is_video=True),
    Workload6h("20 s of transcoding every 20 min", "Deployment", _every(1200, 20, jitter=60), is_video=True),
)


class Signals(NamedTuple):
    """What an exporter provides."""

    name: str
    step: float
    has_engine: bool = False  # engine activity of the time between two collections
    has_energy: bool = False  # the energy counter
    is_agent: bool = False


SIGNALS = (
    *(Signals(f"dcgm gauges, {step:.0f} s", step) for step in (15.0, 30.0, 60.0)),
    Signals("dcgm gauges and energy, 30 s", 30.0, has_energy=True),
    Signals("dcgm with engine activity, 30 s", 30.0, has_engine=True),
    Signals("gpusteward agent, 30 s", 30.0, is_agent=True),
)


@dataclass(frozen=True)
class Row:
    """One workload of one seed."""

    kind: Workload6h
    seed: int
    times: Column  # ends of intervals, and the busy seconds until then
    seconds: Column
    phase: float  # of its scrapes

    def busy(self, at: Column | float) -> Column:
        return np.interp(at, self.times, self.seconds)

    def mean(self, at: Column, span: float) -> Column:
        return (self.busy(at) - self.busy(at - span)) / span


@dataclass(frozen=True, slots=True)
class Missed:
    """All windows of one workload, judged from one set of signals."""

    workload: str
    signals: str
    worked: int  # windows with work
    idle_while_working: int  # of these judged idle
    reclaimable_while_working: int
    sampled_reclaimable: int  # of all windows: reclaimable, proven by samples only
    reclaimable: int  # of all windows


def judge_disturbed(rules: Rules) -> list[Missed]:
    """Every workload from every set of signals."""
    rows = [_draw_row(kind, seed) for kind in WORKLOADS for seed in SEEDS]
    return [missed for signals in SIGNALS for missed in _judge_signals(rows, signals, rules)]


def _draw_row(kind: Workload6h, seed: int) -> Row:
    chance = np.random.default_rng((seed, WORKLOADS.index(kind)))
    intervals = kind.draw(chance)
    times = np.array([moment for interval in intervals for moment in interval])
    steps = np.array([length for start, end in intervals for length in (0.0, end - start)])
    return Row(kind, seed, times, np.cumsum(steps), chance.random() * 60)


def _judge_signals(rows: Sequence[Row], signals: Signals, rules: Rules) -> Iterator[Missed]:
    history = History()
    counts = {kind.name: np.zeros(5, dtype=int) for kind in WORKLOADS}
    for at in np.arange(START + WINDOW, AT + 1, CYCLE).tolist():
        table = _make_table(rows, signals, at)
        verdicts, history = judge(table, rules, history, now=at)
        worked = np.array([float(row.busy(at) - row.busy(at - WINDOW)) > 0 for row in rows])
        is_idle = verdicts.activity == ACTIVITIES.index(Activity.IDLE)
        may_reclaim = is_idle & (verdicts.step == STEPS.index(Step.RECLAIM))
        is_sampled = verdicts.proof == PROOFS.index(Proof.SAMPLED)
        columns = (worked, worked & is_idle, worked & may_reclaim, may_reclaim & is_sampled, may_reclaim)
        for number, row in enumerate(rows):
            counts[row.kind.name] += [int(column[number]) for column in columns]
    for kind in WORKLOADS:
        yield Missed(kind.name, signals.name, *counts[kind.name].tolist())


def _make_table(rows: Sequence[Row], signals: Signals, at: float) -> UsageTable:
    measured = [_measure(row, signals, at) for row in rows]
    keys = dict.fromkeys(key for row in measured for key in row)
    stats = {key: np.array([row.get(key, np.nan) for row in measured]) for key in keys}
    return UsageTable(at, WINDOW, [_allocate(row) for row in rows], stats, np.ones(len(rows)))


def _allocate(row: Row) -> AllocationKey:
    name = f"{WORKLOADS.index(row.kind)}-{row.seed}"
    started_at = START if row.kind.is_young else START - 86_400
    owner = Workload(row.kind.owner_kind, "bench", name)
    pod = Container("bench", name, f"uid-{name}", "main", owner, (), started_at)
    return AllocationKey(f"GPU-{name}", "", pod, "node", "0", "NVIDIA H100 80GB HBM3", "exclusive")


def _measure(row: Row, signals: Signals, at: float) -> Mapping[tuple[Measure, Stat], float]:
    """What the source would compute from the scrapes within the window."""
    last = at - (at - row.phase) % signals.step
    scrapes = last - signals.step * np.arange(round(WINDOW / signals.step))[::-1]
    # NVML reports whole per cents of the last second; the agent the mean since its last collection.
    seen = row.mean(scrapes, AGENT_SECONDS) if signals.is_agent else np.round(row.mean(scrapes, 1.0), 2)
    nothing = np.zeros(len(scrapes))
    core, video = (nothing, seen) if row.kind.is_video else (seen, nothing)
    watts = IDLE_WATTS + BUSY_WATTS * row.mean(scrapes, 1.0)
    stats = {
        **_sum_up(Measure.CORE, core),
        **_sum_up(Measure.MEMORY_COPY, np.round(core * 0.3, 2)),
        **_sum_up(Measure.MEMORY_USED, np.full(len(scrapes), 20 * GIB)),
        **_sum_up(Measure.POWER, watts),
        (Measure.CORE, Stat.COUNT): float(len(scrapes)),
        (Measure.MEMORY_TOTAL, Stat.LAST): 80 * GIB,
        (Measure.POWER_LIMIT, Stat.LAST): LIMIT_WATTS,
    }
    if video.any():
        stats |= {(Measure.ENCODER, Stat.MEAN): float(video.mean()), (Measure.ENCODER, Stat.PEAK): float(video.max())}
    return stats | _integrate(row, signals, scrapes, at)


def _integrate(row: Row, signals: Signals, scrapes: Column, at: float) -> dict[tuple[Measure, Stat], float]:
    """The signals that include the time between two scrapes."""
    stats: dict[tuple[Measure, Stat], float] = {}
    if signals.has_energy:
        stats[Measure.ENERGY, Stat.MEAN] = IDLE_WATTS + BUSY_WATTS * float(row.mean(np.array([at]), WINDOW)[0])
    if signals.has_engine:
        engine = np.zeros(len(scrapes)) if row.kind.is_video else row.mean(scrapes, signals.step)
        stats |= _sum_up(Measure.ENGINE, engine) | {(Measure.BUSY, Stat.MEAN): float(engine.mean())}
    if signals.is_agent:
        collected = row.busy(scrapes - scrapes % AGENT_SECONDS)
        increase = float(measure_increase(collected[:, None], scrapes, start=at - WINDOW, end=at)[0]) / WINDOW
        core, video = (0.0, increase) if row.kind.is_video else (increase, 0.0)
        stats[Measure.BUSY, Stat.MEAN] = stats[Measure.CORE, Stat.MEAN] = core
        stats |= {(Measure.VIDEO, Stat.MEAN): video, (Measure.VIDEO, Stat.PEAK): video} if video else {}
    return stats


def _sum_up(measure: Measure, samples: Column) -> dict[tuple[Measure, Stat], float]:
    return {
        (measure, Stat.MEAN): float(samples.mean()),
        (measure, Stat.PEAK): float(samples.max()),
        (measure, Stat.SPREAD): float(samples.std()),
    }
