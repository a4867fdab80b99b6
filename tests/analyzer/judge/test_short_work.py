"""Short work under gauges and under counters: what is called idle while work runs is never reclaimable."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES, STEPS
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, Signature, Step
from tests.analyzer.usage_tables import AT, WINDOW, Stats, allocation, resting, table_of

pytestmark = pytest.mark.slow

HOURS = 6
TICK = 0.1  # seconds
CYCLE = 300.0
RULES = Rules()
WORK = {"20 s every 20 min": (20.0, 1200.0, 0.2), "3 s about every 5 min": (3.0, 300.0, 0.5)}
"""Seconds of work, period, and how much of the period the beginning varies."""
HEALTH_CHECK = (0.2, 30.0, 0.0)
GAUGES = {key: value for key, value in resting(20).items() if key[0] is not Measure.BUSY}


Case = tuple[bool, Activity, Signature, Step]


def make_work(length: float, period: float, jitter: float, *, seed: int) -> NDArray[np.float64]:
    """1 where a kernel runs, by ticks."""
    chance = np.random.default_rng(seed)
    busy = np.zeros(int(HOURS * 3600 / TICK))
    for begin in np.arange(chance.uniform(0, period), HOURS * 3600 - period, period):
        first = int((begin + chance.uniform(0, jitter * period)) / TICK)
        busy[first : first + round(length / TICK)] = 1
    return busy


def mean_before(total: NDArray[np.float64], at: NDArray[np.int64], seconds: float) -> NDArray[np.float64]:
    """The mean of the last seconds before each of these ticks, from the sums of all ticks before."""
    back = round(seconds / TICK)
    return (total[at] - total[np.maximum(at - back, 0)]) / back


def judge_work(busy: NDArray[np.float64], *, scrape: float, has_counter: bool) -> Iterator[Case]:
    """Whether work ran in each window, and the verdict. A gauge shows the last second, the agent's the last 5."""
    history, total, offset = VerdictHistory(), np.concatenate(([0.0], np.cumsum(busy))), 7.3
    for end in np.arange(WINDOW + 60, HOURS * 3600, CYCLE):
        samples = (np.arange(end - WINDOW + offset, end, scrape) / TICK).astype(np.int64)
        window = busy[round((end - WINDOW) / TICK) : round(end / TICK)]
        gauge = mean_before(total, samples, 5.0 if has_counter else 1.0)
        mean = float(window.mean()) if has_counter else float(gauge.mean())
        row: Stats = GAUGES | {
            (Measure.CORE, Stat.MEAN): mean,
            (Measure.CORE, Stat.PEAK): max(float(gauge.max()), mean),
            (Measure.CORE, Stat.LAST): float(gauge[-1]),
            (Measure.CORE, Stat.SPREAD): float(gauge.std()),
            (Measure.CORE, Stat.COUNT): float(len(samples)),
        }
        row |= {(Measure.BUSY, Stat.MEAN): mean} if has_counter else {}
        table = table_of(row, allocations=[allocation(started_at=AT - 86_400)], at=AT + float(end))
        verdicts, history = judge(table, RULES, history, now=table.at)
        yield (
            bool(window.any()),
            ACTIVITIES[verdicts.activity[0]],
            SIGNATURES[verdicts.signature[0]],
            STEPS[verdicts.step[0]],
        )


@pytest.mark.parametrize("scrape", [15.0, 30.0, 60.0], ids=lambda seconds: f"{seconds:g} s")
@pytest.mark.parametrize("work", [*WORK.values(), HEALTH_CHECK], ids=[*WORK, "health check"])
def test_a_gauge_misses_short_work_but_never_makes_it_reclaimable(work: tuple[float, float, float], scrape: float):
    works = [make_work(*work, seed=seed) for seed in range(3)]
    found = [case for busy in works for case in judge_work(busy, scrape=scrape, has_counter=False)]
    assert any(worked for worked, *_ in found)
    assert Step.RECLAIM not in {step for *_, step in found}


@pytest.mark.parametrize("work", [*WORK.values(), HEALTH_CHECK], ids=[*WORK, "health check"])
def test_a_counter_misses_no_work(work: tuple[float, float, float]):
    for seed in range(3):
        for worked, activity, _, step in judge_work(make_work(*work, seed=seed), scrape=30.0, has_counter=True):
            assert not (worked and activity is Activity.IDLE)
            assert not (worked and step is Step.RECLAIM)


def test_a_server_that_is_only_checked_gets_its_own_signature_and_real_requests_do_not():
    last = [*judge_work(make_work(*HEALTH_CHECK, seed=1), scrape=30.0, has_counter=True)][-1]
    assert last[1:] == (Activity.ACTIVE, Signature.HEALTH_CHECK, Step.NOTICE)
    for work in WORK.values():
        for seed in range(5):
            cases = judge_work(make_work(*work, seed=seed), scrape=30.0, has_counter=True)
            assert Signature.HEALTH_CHECK not in {signature for _, _, signature, _ in cases}
