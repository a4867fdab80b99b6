"""The judge against the truth of simulated workloads, 200 seeds a kind."""

from dataclasses import replace

import numpy as np
import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.tables import SIGNATURES
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, Signature, Step
from gpusteward.simulate.fleets import fleet
from gpusteward.simulate.workloads import HOST_MIXES, IDLE_HOST_MIX, Kind
from tests.analyzer.judge.truth_cases import (
    MOMENTS,
    RULES,
    Case,
    even_servers,
    find_brief_work,
    judge_nodes,
    lone_nodes,
)
from tests.analyzer.usage_tables import AGENT_STEP, WINDOW, Sampled, truth_key
from tests.simulate.single_workload import single_workload_node

pytestmark = pytest.mark.slow

SEEDS = range(200)


def judged(kind: Kind) -> list[Case]:
    """All seeds, on a working morning and at night."""
    nodes = lone_nodes(kind, SEEDS)
    return [case for at in MOMENTS[:2] for case in judge_nodes(nodes, at)]


@pytest.mark.parametrize("kind", Kind)
def test_no_active_workload_is_judged_idle_and_nearly_all_idle_ones_are(kind):
    cases = judged(kind)
    assert len(cases) >= 300
    assert not [case for case in cases if case.is_false_idle]
    rested = [case for case in cases if not case.worked]
    assert sum(case.activity is Activity.IDLE for case in rested) >= 0.95 * len(rested)
    expected = {Kind.EMPTY: Signature.EMPTY, Kind.PARKED: Signature.PARKED}
    if kind in expected:
        assert {case.signature for case in cases} == {expected[kind]}
    found = sum(case.signature is Signature.KEEP_ALIVE for case in cases)
    assert found >= 0.95 * len(cases) if kind is Kind.KEEP_ALIVE else not found  # some pods are too young


def test_a_server_under_a_low_and_even_load_is_not_classified_as_keep_alive():
    cases = [case for at in MOMENTS[:2] for case in judge_nodes(even_servers(range(80)), at)]
    assert len(cases) >= 150
    assert {case.signature for case in cases} == {Signature.STEADY}


@pytest.mark.parametrize(
    ("window", "step"), [(60, 30), (60, 15), (60, 5), (120, 30), (600, 300), (600, 150)], ids=lambda each: f"{each}s"
)
def test_with_a_short_window_or_few_samples_nothing_is_keep_alive_and_no_active_workload_idle(window, step):
    """Within one burst of requests everything is flat, between two of them there is nothing."""
    nodes = [*lone_nodes(Kind.INFERENCE, range(80)), *lone_nodes(Kind.STARVED, range(20))]
    cases = [case for at in MOMENTS[:2] for case in judge_nodes(nodes, at, window=window, step=step, cycles=1)]
    assert Signature.KEEP_ALIVE not in {case.signature for case in cases}
    assert not [case for case in cases if case.is_false_idle]


def test_in_a_fleet_with_every_sharing_mode_nothing_that_works_or_hangs_may_be_reclaimed():
    cases = judge_nodes(fleet(40), MOMENTS[0])
    assert {case.share for case in cases} == {"exclusive", "mig", "time-sliced", "mps", "hami", "ratio", "fraction"}
    for case in cases:
        assert not case.is_false_idle
        if case.signature.highest_step is Step.RECLAIM:
            assert case.kind in (Kind.EMPTY, Kind.PARKED, Kind.NOTEBOOK)


def test_with_the_agents_counter_even_seconds_of_work_between_two_scrapes_are_seen():
    """Gauges scraped every 30 s miss some of these; the busy-seconds counter sees all of them."""
    seen = 0
    for seed in range(25):
        for at in find_brief_work(Kind.NOTEBOOK, seed, least=0.05, most=12, count=2):
            (case,) = judge_nodes([single_workload_node(Kind.NOTEBOOK, seed)], at, counter_step=AGENT_STEP, cycles=2)
            assert case.activity is Activity.ACTIVE
            seen += 1
    assert seen >= 40


def test_in_a_day_of_the_simulated_fleet_only_scripts_are_keep_alive_and_only_the_stalled_gang_is_stalled():
    """With the host as a witness as it is simulated: what each kind reads and writes for its work. Of the demo there is
    the node of the stalled gang: seven GPUs that spin, and one that is silent. No fleet has one that spins alone: after
    a day nothing that is measured tells it from a script."""
    lone = (node for kind in Kind if kind is not Kind.STALLED for node in lone_nodes(kind, range(6)))
    nodes = [*lone, *even_servers(range(6)), *fleet(3), fleet(12, demo_at=MOMENTS[0])[11]]
    sampled, history, found = Sampled(nodes), VerdictHistory(), set[tuple[Kind, Signature, bool]]()
    for number in range(26 * 6):
        at = MOMENTS[0] - (26 * 6 - 1 - number) * WINDOW
        table = sampled.table(at, step=60.0, counter_step=60.0)
        truths = sampled.truths(at)
        kinds = [truths[truth_key(held)].kind for held in table.allocations]
        mixes = [HOST_MIXES.get(kind, IDLE_HOST_MIX) for kind in kinds]
        disk, network = (np.array([getattr(mix, name) for mix in mixes]) for name in ("disk_bytes", "network_bytes"))
        work = table.column(Measure.CORE, Stat.MEAN)
        rates = {Measure.DISK: disk * work, Measure.NETWORK: network * work + IDLE_HOST_MIX.network_bytes}
        host = {(measure, stat): rate for measure, rate in rates.items() for stat in (Stat.MEAN, Stat.PEAK)}
        verdicts, history = judge(replace(table, stats={**table.stats, **host}), RULES, history, now=at)
        is_ineffective = ~np.isnan(verdicts.ineffective_since)
        codes = zip(kinds, verdicts.signature.tolist(), is_ineffective.tolist(), strict=True)
        found |= {(kind, SIGNATURES[code], proven) for kind, code, proven in codes}
    accused = {each for each in found if each[1] in (Signature.KEEP_ALIVE, Signature.STALLED)}
    scripts = {(Kind.KEEP_ALIVE, Signature.KEEP_ALIVE, proven) for proven in (False, True)}
    assert accused == scripts | {(Kind.STALLED, Signature.STALLED, True)}
