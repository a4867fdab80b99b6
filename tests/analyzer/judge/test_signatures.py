"""Signatures: the kind of use or idleness, and the highest action for each."""

from dataclasses import replace

import pytest

from gpusteward.analyzer.judge.history import History
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.reasons import explain_row
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.tables import SIGNATURES, STEPS
from gpusteward.core.containers import Workload
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Signature, Step
from tests.analyzer.usage_tables import AT, DAY, WINDOW, Stats, allocation, resting, signal, table_of, working

RULES = Rules()
JOB = Workload("PyTorchJob", "team", "train")
NOTEBOOK = Workload("Notebook", "team", "lab")


def name(
    row: Stats,
    *earlier: Stats,
    owner: Workload | None = None,
    started_at: float | None = AT - DAY,
    every: float = 900,
    window: float = WINDOW,
) -> Signature:
    """The signature of the last of several cycles, given newest first."""
    history = History()
    for back, each in reversed(list(enumerate((row, *earlier)))):
        at = AT - back * every
        table = table_of(each, allocations=[allocation(owner=owner, started_at=started_at)], at=at)
        verdicts, history = judge(replace(table, window_seconds=window), RULES, history, now=at)
    return SIGNATURES[verdicts.signature[0]]


def without(row: Stats, *measures: Measure) -> Stats:
    return {key: value for key, value in row.items() if key[0] not in measures}


def test_an_allocation_without_a_process_is_empty():
    assert name(resting(0.0, processes=0)) is Signature.EMPTY


def test_an_allocation_without_memory_is_empty_where_processes_are_unknown():
    assert name(without(resting(0.003), Measure.PROCESSES)) is Signature.EMPTY


def test_a_model_in_memory_that_does_nothing_is_parked():
    assert name(resting(40)) is Signature.PARKED
    assert name(without(resting(40), Measure.PROCESSES)) is Signature.PARKED
    assert name(without(resting(40), Measure.MEMORY_USED)) is Signature.PARKED


def test_an_idle_gpu_of_which_neither_memory_nor_processes_are_known_has_no_name():
    assert name(without(resting(), Measure.PROCESSES, Measure.MEMORY_USED)) is Signature.UNKNOWN


def test_a_job_that_worked_and_then_stopped_is_hung():
    assert name(resting(), working(), owner=JOB, started_at=AT - 2000) is Signature.HUNG


def test_a_job_that_started_before_the_first_observation_may_hang():
    assert name(resting(), owner=JOB) is Signature.HUNG
    assert name(resting(), resting(), resting(), owner=JOB) is Signature.HUNG
    assert name(resting(), owner=JOB, started_at=None) is Signature.HUNG


def test_a_job_that_never_worked_since_it_was_first_seen_is_parked():
    assert name(resting(), resting(), owner=JOB, started_at=AT - 1500) is Signature.PARKED


@pytest.mark.parametrize("kind", ["Notebook", "StatefulSet", "Deployment", "Pod"])
def test_an_interactive_workload_or_a_server_never_hangs(kind):
    assert name(resting(), working(), owner=Workload(kind, "team", "x")) is Signature.PARKED


def test_a_job_that_holds_nothing_is_empty_not_hung():
    assert name(resting(0, processes=0), working(), owner=JOB) is Signature.EMPTY


def flat(level: float, *, copy: float = 0.0, spread: float = 0.0) -> Stats:
    return resting(2) | signal(Measure.CORE, level, level + spread, spread=spread) | signal(Measure.MEMORY_COPY, copy)


@pytest.mark.parametrize("level", [0.02, 0.1, 0.4])
def test_work_that_is_flat_low_and_constant_for_half_an_hour_is_keep_alive(level):
    assert name(*[flat(level)] * 5, every=300) is Signature.KEEP_ALIVE
    assert name(*[flat(level)] * 5, every=300, owner=JOB) is Signature.KEEP_ALIVE
    assert name(*[flat(level)] * 30, every=60, window=60) is Signature.KEEP_ALIVE
    assert name(flat(level), window=1800) is Signature.KEEP_ALIVE


@pytest.mark.parametrize(
    ("windows", "every", "window"),
    [(1, 300, 600), (4, 300, 600), (1, 60, 60), (29, 60, 60), (10, 900, 600), (100, 300, 60)],
    ids=["one window", "25 minutes", "one minute", "29 minutes", "gaps between", "short windows far apart"],
)
def test_too_short_an_observation_is_not_keep_alive(windows, every, window):
    assert name(*[flat(0.1)] * windows, every=every, window=window) is Signature.STEADY


@pytest.mark.parametrize("before", [flat(0.15), resting(2), working(), {}], ids=["level", "rest", "work", "gap"])
def test_a_change_restarts_the_observation(before):
    assert name(*[flat(0.1)] * 4, before, *[flat(0.1)] * 4, every=300) is Signature.STEADY


def test_time_before_the_start_of_a_pod_does_not_count_towards_keep_alive():
    assert name(flat(0.1), window=3600, started_at=AT - 1000) is Signature.STEADY


def test_a_replaced_pod_has_no_history():
    history = History()
    for number in range(9):
        at, started_at = AT + 300 * number, AT - DAY if number < 5 else AT + 1300
        table = table_of(flat(0.1), allocations=[allocation(started_at=started_at)], at=at)
        verdicts, history = judge(table, RULES, history, now=at)
        expected = Signature.KEEP_ALIVE if number == 4 else Signature.STEADY
        assert SIGNATURES[verdicts.signature[0]] is expected


@pytest.mark.parametrize(
    "row",
    [
        flat(0.9),
        flat(0.01),
        flat(0.2, copy=0.1),
        flat(0.04, copy=0.02),
        flat(0.02, copy=0.01),
        without(flat(0.2), Measure.MEMORY_COPY),
        flat(0.2, spread=0.03),
        flat(0.2) | signal(Measure.CORE, 0.2, 0.6),
        flat(0.2) | {(Measure.MEMORY_USED, Stat.SPREAD): 1e9},
        without(flat(0.2), Measure.MEMORY_USED)
        | {(Measure.MEMORY_USED, Stat.MEAN): 2e9, (Measure.MEMORY_USED, Stat.PEAK): 3e9},
        {key: value for key, value in flat(0.2).items() if key != (Measure.CORE, Stat.SPREAD)},
        flat(0.2) | {(Measure.CORE, Stat.COUNT): 2.0},
    ],
    ids=[
        *("high", "too low to tell", "moves data", "server at 4 %", "server at 2 %", "data unknown", "swings", "peaks"),
        *("allocates", "allocates, no spread", "spread unknown", "few samples"),
    ],
)
def test_work_that_may_be_real_is_not_keep_alive(row):
    assert name(*[row] * 12, every=300) is not Signature.KEEP_ALIVE


def test_a_low_job_with_a_loaded_gpu_is_starved():
    assert name(working(0.15, 0.8, spread=0.2), owner=JOB) is Signature.STARVED


def test_a_low_server_is_bursty_not_starved():
    assert name(working(0.15, 0.8, spread=0.2)) is Signature.BURSTY


def test_a_low_job_that_holds_next_to_nothing_is_not_starved():
    row = working(0.15, 0.8, spread=0.2) | signal(Measure.MEMORY_USED, 1e9)
    assert name(row, owner=JOB) is Signature.BURSTY


def test_without_a_spread_a_high_peak_means_bursty():
    row = {key: value for key, value in working(0.2, 0.9).items() if key[1] is not Stat.SPREAD}
    assert name(row) is Signature.BURSTY


def test_even_work_is_steady():
    assert name(working(0.9, 0.97, spread=0.03), owner=JOB) is Signature.STEADY


def test_a_young_pod_without_work_is_starting():
    assert name(resting(), started_at=AT - 899) is Signature.STARTING
    assert name({}, started_at=AT - 60) is Signature.STARTING
    assert name(resting(), started_at=AT - 901) is Signature.PARKED


def test_a_young_active_pod_has_started():
    assert name(working(0.9, 0.97, spread=0.03), started_at=AT - 60) is Signature.STEADY


def test_a_pod_of_unknown_age_is_not_starting():
    assert name(resting(), owner=NOTEBOOK, started_at=None) is Signature.PARKED


def test_an_unknown_verdict_has_no_signature():
    assert name({}) is Signature.UNKNOWN


@pytest.mark.parametrize("signature", Signature)
def test_only_empty_and_parked_may_ever_be_reclaimed(signature):
    is_free = signature in (Signature.EMPTY, Signature.PARKED)
    assert (signature.highest_step is Step.RECLAIM) == is_free


def test_a_parked_allocation_of_unknown_owner_may_hang_and_is_never_reclaimed():
    owners = [None, Workload("Pod", "team", "pod-1"), None, Workload("RayCluster", "team", "of-a-job")]
    held = [replace(allocation(number), container=replace(allocation(number).container, workload=owner))
            for number, owner in enumerate(owners)]  # fmt: skip
    table = table_of(resting(), resting(), resting(0, processes=0), resting(), allocations=held)
    verdicts, _ = judge(table, RULES, History(), now=AT)
    assert [STEPS[step] for step in verdicts.step] == [Step.NOTICE, Step.RECLAIM, Step.RECLAIM, Step.NOTICE]
    assert "this may be a hung job" in " ".join(explain_row(verdicts, 0, rules=RULES))
    assert "A RayCluster may belong to a job" in " ".join(explain_row(verdicts, 3, rules=RULES))


def test_a_starting_pod_leads_to_no_action():
    assert Signature.STARTING.highest_step is Step.NOTHING
