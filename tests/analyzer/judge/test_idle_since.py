"""`idle_since` is the last moment at which work was seen: at most one cycle late, and never before work."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.tables import ACTIVITIES, UsageTable
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity
from tests.analyzer.usage_tables import AT, allocation

STEP = 57.0
CYCLE = 300.0
PODS = 40
HOURS = 12
RULES = Rules()


@dataclass(frozen=True)
class Spell:
    """The first idle verdict of a spell."""

    pod: int
    said_at: float
    idle_since: float
    last_work: float  # of all samples up to then; NaN: never


def make_duty_cycles(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sample times, and the duty cycle of each pod (column): requests in bursts, with pauses of a minute to hours."""
    chance = np.random.default_rng(seed)
    times = AT + np.arange(int(HOURS * 3600 / STEP)) * STEP
    duty = np.zeros((len(times), PODS))
    for pod in range(PODS):
        row = int(chance.integers(0, 60))
        while row < len(times):
            length = int(chance.integers(1, 12))
            duty[row : row + length, pod] = chance.uniform(0.02, 0.9, len(duty[row : row + length, pod]))
            row += length + int(chance.exponential(40)) + 1
    return times, duty


def judge_trace(
    times: NDArray[np.float64], duty: NDArray[np.float64], *, window: float, without: tuple[float, float] = (0, 0)
) -> Iterator[Spell]:
    """Cycles of five minutes over a trace. No samples are read in the time `without`."""
    pods = duty.shape[1]
    held = [allocation(pod, started_at=float(times[0])) for pod in range(pods)]
    is_missing = (times > without[0]) & (times <= without[1])
    history, was_idle = VerdictHistory(), np.zeros(pods, dtype=bool)
    for at in np.arange(times[0] + window, times[-1], CYCLE):
        rows = (times > at - window) & (times <= at) & ~is_missing
        block = duty[rows]
        stats = {
            (Measure.CORE, Stat.MEAN): block.mean(axis=0) if len(block) else np.full(pods, np.nan),
            (Measure.CORE, Stat.PEAK): block.max(axis=0) if len(block) else np.full(pods, np.nan),
            (Measure.CORE, Stat.COUNT): np.full(pods, float(len(block))),
        }
        coverage = np.full(pods, min(1.0, len(block) * STEP / window))
        verdicts, history = judge(UsageTable(float(at), window, held, stats, coverage), RULES, history, now=float(at))
        is_idle = verdicts.activity == ACTIVITIES.index(Activity.IDLE)
        for pod in np.flatnonzero(is_idle & ~was_idle).tolist():
            worked = times[(duty[:, pod] > 0) & (times <= at) & ~is_missing]
            last = float(worked[-1]) if len(worked) else np.nan
            yield Spell(pod, float(at), float(verdicts.idle_since[pod]), last)
        was_idle = is_idle


@pytest.mark.parametrize("window", [600.0, 3600.0], ids=["10 min", "60 min"])
def test_idle_since_is_at_most_one_cycle_after_the_last_work_and_never_before_it(window: float):
    spells = [spell for seed in range(3) for spell in judge_trace(*make_duty_cycles(seed), window=window)]
    late = np.array([spell.idle_since - spell.last_work for spell in spells if not np.isnan(spell.last_work)])
    assert len(late) >= 50
    assert late.min() >= 0
    assert late.max() <= CYCLE + STEP
    assert np.median(late) <= CYCLE / 2 + STEP


def test_a_pod_that_never_worked_is_idle_since_its_start():
    times = AT + np.arange(60) * STEP
    spells = list(judge_trace(times, np.zeros((60, 2)), window=600.0))
    assert [spell.idle_since for spell in spells] == [AT, AT]


def test_time_that_nobody_measured_is_not_claimed():
    """A gap longer than the window between the last work and the first verdict."""
    times = AT + np.arange(200) * STEP
    duty = np.zeros((200, 1))
    duty[:20] = 0.5
    outage = (times[25], times[25] + 3600)
    (spell,) = judge_trace(times, duty, window=600.0, without=(float(outage[0]), float(outage[1])))
    assert outage[1] - 0.1 * 600 - STEP <= spell.idle_since
    (spell,) = judge_trace(times, duty, window=600.0)
    assert times[19] <= spell.idle_since <= times[19] + CYCLE + STEP
