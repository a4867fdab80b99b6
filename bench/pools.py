"""`python -m bench.pools`: the pool rule in closed loop, on a trace of inference pods and on made-up demand.

The load of a replica that is gone goes to another one, what fits nowhere is unmet; the rule sees only replicas that
run, and acts on a sample after it. Times are simulated: the figures are the same on every machine.

Writes bench/results/pools.md. Exits with 1 where a limit is missed.
"""

import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean, median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.measure import describe_run, name_command, print_progress
from bench.report import Bar, publish, render_bars, render_head, render_table
from gpusteward.analyzer.pool_minutes import LONGEST_MINUTES, MINUTE, UNKNOWN, PoolMinutes
from gpusteward.analyzer.reclaim.policies.pool_rule import PRESETS, KeepRule, choose_preset, decide_pool
from tests.analyzer.reclaim.pod_trace import FOLDER, STEP, Samples, find_spells, read_trace

CYCLE_SECONDS, REGRET_SECONDS, ORACLE_SECONDS = 300.0, 1800.0, 1800.0
PHASES = (0.0, 60.0, 120.0, 180.0, 240.0)
STARTS = (0.0, 600.0)
DRAWS, SEEDS = 25, 3
MONDAY = 1_790_553_600.0
REPLICAS, DAYS, DAY = 32, 8, 1440
Numbers = NDArray[np.int64]


class Run(NamedTuple):
    """What became of one pool."""

    saved_hours: float  # of replicas
    releases: int  # replicas that were given back
    regretted: int
    unmet: float  # share of the demand
    actions: tuple[tuple[float, int], ...] = ()  # when, and how many replicas were lowered from then on


def simulate(
    demand: Numbers,
    wanted: Numbers,
    rule: KeepRule,
    *,
    step: float,
    since: float,
    phase: float = 0.0,
    start: float = 0.0,
    cycle: float = CYCLE_SECONDS,
) -> Run:
    """`demand`, `wanted`: replicas that have work, and that somebody wants, at each sample. `start`: seconds until a
    replica that was given back is ready."""
    first, times = int(since // MINUTE), since + step * np.arange(1, len(demand) + 1)  # a sample ends its interval
    counts = np.full((3, int(times[-1] // MINUTE) - first + 1), UNKNOWN, np.int16)
    lowered, next_at, before = 0, since + phase, int(wanted[0])
    starting: list[float] = []  # when they are ready
    stack: list[tuple[float, int]] = []  # released last, given back first
    releases = regretted = unmet = 0
    saved, actions = 0.0, []
    for at, need, replicas in zip(times.tolist(), demand.tolist(), wanted.tolist(), strict=True):
        starting = [each for each in starting if each > at]
        ready = max(0, replicas - lowered - len(starting))
        unmet += need - min(need, ready)
        saved += lowered * step
        minute = int((at - 1e-6) // MINUTE) - first
        counts[:, minute] = max(int(counts[0, minute]), min(need, ready)), ready, replicas
        if at < next_at:
            continue
        next_at += cycle * (1 + (at - next_at) // cycle)
        end = int(at // MINUTE) - first  # the present minute is not over
        begin = max(0, end - LONGEST_MINUTES)
        known = PoolMinutes(first + begin, *counts[:, begin:end], start_seconds=start or None)
        surplus = decide_pool(known, rule, cycle_seconds=cycle).surplus
        if surplus != lowered:
            actions.append((at, surplus))
        if surplus > lowered:
            stack.append((at, surplus - lowered))
            releases += surplus - lowered
        missing, has_left = lowered - surplus, replicas < before
        starting += [at + start] * (missing if start and not has_left else 0)
        while missing > 0:
            released_at, count = stack.pop()
            taken = min(count, missing)
            regretted += taken * (at - released_at <= REGRET_SECONDS and not has_left)
            missing -= taken
            if count > taken:
                stack.append((released_at, count - taken))
        lowered, before = surplus, replicas
    return Run(saved / 3600, releases, regretted, unmet / max(1, int(demand.sum())), tuple(actions))


def count_trace(trace: Mapping[str, Samples], pods: Iterable[str]) -> tuple[Numbers, Numbers, float]:
    """Demand and replicas at each sample, and the hours of all idle times that an oracle would take."""
    begin, end = min(own[0][0] for own in trace.values()), max(own[-1][0] for own in trace.values())
    demand, wanted = (np.zeros(round((end - begin) / STEP) + 1, np.int64) for _ in range(2))
    oracle = 0.0
    for pod in pods:
        samples = trace[pod]
        first, last = (round((samples[place][0] - begin) / STEP) for place in (0, -1))
        wanted[first : last + 1] += 1
        for at, value in samples:
            demand[round((at - begin) / STEP)] += value > 0
        for started, ended, _ in find_spells(samples, at=end):
            seconds = (end if ended is None else ended) - started
            oracle += seconds if seconds >= ORACLE_SECONDS else 0
    return demand, wanted, oracle / 3600


# Made-up demand of 32 replicas, minute by minute over eight days from a Monday on.


def _minutes() -> Numbers:
    return np.arange(DAYS * DAY)


def _add_noise(base: NDArray[np.float64], chance: np.random.Generator) -> Numbers:
    return np.clip(np.rint(base + chance.normal(0, 1, len(base))), 0, REPLICAS).astype(np.int64)


def _office(chance: np.random.Generator) -> NDArray[np.float64]:
    hours, jitter = _minutes() % DAY, np.repeat(chance.integers(-5, 6, DAYS), DAY)
    return np.where((hours >= 9 * 60 + jitter) & (hours < 18 * 60), 22.0, 2.0)


def wave(chance: np.random.Generator) -> Numbers:
    return _add_noise(11 + 9 * np.sin(2 * np.pi * (_minutes() / DAY - 0.35)), chance)


def office(chance: np.random.Generator) -> Numbers:
    return _add_noise(_office(chance), chance)


def crowd(chance: np.random.Generator) -> Numbers:
    demand = chance.integers(1, 4, DAYS * DAY)
    for day in range(DAYS):
        begin = day * DAY + 12 * 60 + int(chance.integers(-8, 9))
        demand[begin : begin + 60] = chance.integers(24, 30, 60)
    return demand


def bursts(chance: np.random.Generator) -> Numbers:
    demand = chance.integers(1, 4, DAYS * DAY)
    for _ in range(DAYS * 3):
        begin, length = int(chance.integers(0, DAYS * DAY - 30)), int(chance.integers(5, 31))
        demand[begin : begin + length] = int(chance.integers(10, 29))
    return demand


def rare(chance: np.random.Generator) -> Numbers:
    return chance.binomial(REPLICAS, 0.02, DAYS * DAY)


def hourly(_: np.random.Generator) -> Numbers:
    return np.where(_minutes() % 60 < 5, REPLICAS, 0)


def two_hourly(_: np.random.Generator) -> Numbers:
    return np.where(_minutes() % 120 < 10, REPLICAS, 0)


def holidays(chance: np.random.Generator) -> Numbers:
    demand = _add_noise(_office(chance), chance)
    demand[3 * DAY : 5 * DAY] = chance.integers(0, 2, 2 * DAY)
    return demand


def growth(chance: np.random.Generator) -> Numbers:
    rise = 4 + 18 * _minutes() / (DAYS * DAY)
    return _add_noise(rise + 3 * np.sin(2 * np.pi * (_minutes() / DAY - 0.35)), chance)


def deploys(chance: np.random.Generator) -> Numbers:
    """A wave, and every day all replicas start again for ten minutes."""
    demand = wave(chance)
    for day in range(DAYS):
        begin = day * DAY + int(chance.integers(0, DAY - 10))
        demand[begin : begin + 10] = REPLICAS
    return demand


class Limits(NamedTuple):
    unmet: tuple[float, float]  # with a start of 0 and of 10 minutes
    saved: float  # share of the idle time, at least; 0: nothing is released


DEMANDS: Mapping[Callable[[np.random.Generator], Numbers], Limits | None] = {
    wave: Limits((0.0005, 0.0005), 0.5),
    office: Limits((0.001, 0.003), 0.58),
    crowd: Limits((0.005, 0.012), 0.68),
    bursts: Limits((0.03, 0.09), 0.3),
    rare: Limits((0.002, 0.002), 0.8),
    hourly: Limits((0.0, 0.0), 0.0),
    two_hourly: Limits((0.0, 0.0), 0.0),
    holidays: None,
    deploys: None,
    growth: None,
}


def run_trace(
    trace: Mapping[str, Samples], pods: Iterable[str], rule: KeepRule, *, phase: float = 0.0, start: float = 0.0
) -> tuple[Run, float]:
    """The run, and its share of the oracle."""
    demand, wanted, oracle = count_trace(trace, pods)
    since = min(own[0][0] for own in trace.values())
    found = simulate(demand, wanted, rule, step=STEP, since=since, phase=phase, start=start)
    return found, found.saved_hours / oracle


def run_demand(
    make: Callable[[np.random.Generator], Numbers], rule: KeepRule, *, start: float
) -> tuple[float, float, float]:
    """Unmet and saved share, and regret, over the seeds."""
    demands = [make(np.random.default_rng(seed)) for seed in range(SEEDS)]
    wanted = np.full(DAYS * DAY, REPLICAS)
    runs = [simulate(each, wanted, rule, step=MINUTE, since=MONDAY, start=start) for each in demands]
    idle = sum(float((wanted - each).sum()) / 60 for each in demands)
    return mean(run.unmet for run in runs), sum(run.saved_hours for run in runs) / idle, find_regret(runs)


def find_regret(runs: Sequence[Run]) -> float:
    return sum(run.regretted for run in runs) / max(1, sum(run.releases for run in runs))


def measure_trace() -> list[Bar]:
    trace, bars = read_trace(), []
    for name, least, most in (("keen", 0.9, 0.13), ("careful", 0.83, 0.1)):
        found = [run_trace(trace, trace, PRESETS[name], phase=phase) for phase in PHASES]
        about = f"76 pods, {name}, mean of {len(PHASES)} phases"
        bars += _make_bars(about, mean(share for _, share in found), [run for run, _ in found], least=least, most=most)
    for size, least, most in ((32, 0.85, 0.12), (16, 0.7, 0.13), (8, 0.38, 0.1)):
        draws = [random.Random(seed).sample(sorted(trace), size) for seed in range(DRAWS)]
        for start in STARTS:
            found = [run_trace(trace, pods, choose_preset(size), start=start) for pods in draws]
            about = f"{size} pods, start {start / 60:.0f} min, median of {DRAWS} draws"
            shares = median(share for _, share in found)
            bars += _make_bars(about, shares, [run for run, _ in found], least=least, most=most)
    return bars


def _make_bars(about: str, share: float, runs: Sequence[Run], *, least: float, most: float) -> list[Bar]:
    regret, unmet = find_regret(runs), float(np.quantile([run.unmet for run in runs], 0.95))
    return [
        Bar(f"{about}: share of the oracle", f">= {least:g}", f"{share:.3f}", share >= least),
        Bar(f"{about}: regret", f"<= {most:.0%}", f"{regret:.1%}", regret <= most),
        Bar(f"{about}: unmet, 95th percentile", "<= 0.05%", f"{unmet:.3%}", unmet <= 0.0005),
    ]


def measure_demands() -> tuple[list[Bar], list[Sequence[str]]]:
    """The limits hold for the default of this size; the table has both presets."""
    bars, rows = [], []
    for make, limits in DEMANDS.items():
        for name, rule in PRESETS.items():
            found = [run_demand(make, rule, start=start) for start in STARTS]
            texts = [f"{unmet:.3%} / {saved:.2f} / {regret:.0%}" for unmet, saved, regret in found]
            rows.append((f"{make.__name__}, {name}", *texts))
            if limits is None or rule is not choose_preset(REPLICAS):
                continue
            for start, most, (unmet, saved, _) in zip(STARTS, limits.unmet, found, strict=True):
                about = f"{make.__name__}, start {start / 60:.0f} min"
                bars.append(Bar(f"{about}: unmet", f"<= {most:.2%}", f"{unmet:.3%}", unmet <= most))
                holds = saved >= limits.saved if limits.saved else saved == 0
                bars.append(Bar(f"{about}: saved of idle time", f">= {limits.saved:g}", f"{saved:.2f}", holds))
        print_progress(f"  {make.__name__}")
    return bars, rows


def measure() -> tuple[str, bool]:
    bars = measure_trace() if FOLDER.exists() else []
    made, rows = measure_demands()
    header = ("demand, rule", *(f"start {start / 60:.0f} min: unmet / saved / regret" for start in STARTS))
    page = "\n".join(
        [
            render_head("Pools", describe_run(name_command("pools"), {})),
            render_bars([*bars, *made]),
            render_table(header, rows),
        ]
    )
    return page, all(bar.holds for bar in [*bars, *made])


def main() -> int:
    results: list[bool] = []

    def write() -> str:
        page, holds = measure()
        results.append(holds)
        return page

    return publish("pools", write) or (0 if all(results) else 1)


if __name__ == "__main__":
    sys.exit(main())
