"""Signatures: the kind of use or idleness, and the highest action for each."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.reasons import explain_row, make_verdict
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.tables import SIGNATURES, STEPS
from gpusteward.core.node.containers import Workload
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, Signature, Step, Verdict
from tests.analyzer.usage_tables import AT, DAY, WINDOW, Stats, allocation, resting, signal, table_of, working

RULES = Rules()
JOB = Workload("PyTorchJob", "team", "train")
NOTEBOOK = Workload("Notebook", "team", "lab")


def judge_rows(
    row: Stats,
    *earlier: Stats,
    owner: Workload | None = None,
    started_at: float | None = AT - DAY,
    every: float = 900,
    window: float = WINDOW,
) -> Verdict:
    """The verdict of the last of several cycles, given newest first."""
    history = VerdictHistory()
    for back, each in reversed(list(enumerate((row, *earlier)))):
        at = AT - back * every
        table = table_of(each, allocations=[allocation(owner=owner, started_at=started_at)], at=at)
        verdicts, history = judge(replace(table, window_seconds=window), RULES, history, now=at)
    return make_verdict(verdicts, 0, rules=RULES)


def name(row: Stats, *earlier: Stats, **options: Any) -> Signature:
    return judge_rows(row, *earlier, **options).signature


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


def sharing(gibibytes: float) -> Stats:
    """Nothing says whose memory of the GPU it is."""
    row = without(resting(), Measure.PROCESSES, Measure.MEMORY_USED)
    return row | signal(Measure.MEMORY_SHARED, gibibytes * 2**30)


def test_a_holder_of_a_gpu_on_which_nobody_works_is_parked_or_empty_by_the_memory_of_all_holders():
    assert name(sharing(0.003)) is Signature.EMPTY
    parked = judge_rows(sharing(40), owner=Workload("Deployment", "team", "server"))
    assert (parked.signature, parked.highest_step) == (Signature.PARKED, Step.RECLAIM)
    assert "40.0 GiB of the memory of the GPU is held but not used, by it or by others" in " ".join(parked.reasons)


def test_a_job_that_may_hold_the_memory_of_a_shared_gpu_may_be_hung():
    verdict = judge_rows(sharing(40), owner=JOB)
    assert (verdict.signature, verdict.highest_step) == (Signature.HUNG, Step.NOTICE)


def test_never_reclaims_a_holder_of_a_shared_gpu_whose_memory_has_just_grown():
    verdict = judge_rows(sharing(40), sharing(20), owner=Workload("Deployment", "team", "server"))
    assert (verdict.signature, verdict.highest_step) == (Signature.STARTING, Step.NOTHING)


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
    history = VerdictHistory()
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


def test_a_job_that_transcodes_is_steady_not_starved():
    assert name(resting() | {(Measure.ENCODER, Stat.PEAK): 0.8}, owner=JOB) is Signature.STEADY


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


def test_never_starting_once_a_young_pod_has_worked():
    young = [allocation(0, started_at=AT - 890)]
    _, history = judge(table_of(working(), allocations=young, at=AT - 870), RULES, VerdictHistory(), now=AT - 870)
    verdicts, _ = judge(table_of(resting(), allocations=young), RULES, history, now=AT)
    assert SIGNATURES[verdicts.signature[0]] is Signature.PARKED


def test_a_pod_of_unknown_age_is_not_starting():
    assert name(resting(), owner=NOTEBOOK, started_at=None) is Signature.PARKED


def test_an_unknown_verdict_has_no_signature():
    assert name({}) is Signature.UNKNOWN


@pytest.mark.parametrize("signature", Signature)
def test_only_empty_parked_and_no_requests_may_ever_be_reclaimed(signature):
    is_free = signature in (Signature.EMPTY, Signature.PARKED, Signature.NO_REQUESTS)
    assert (signature.highest_step is Step.RECLAIM) == is_free


def test_a_parked_allocation_of_unknown_owner_may_hang_and_is_never_reclaimed():
    owners = [None, Workload("Pod", "team", "pod-1"), None, Workload("RayCluster", "team", "of-a-job")]
    held = [replace(allocation(number), container=replace(allocation(number).container, workload=owner))
            for number, owner in enumerate(owners)]  # fmt: skip
    worked = table_of(*[working()] * 4, allocations=held, at=AT - 2 * WINDOW)
    _, history = judge(worked, RULES, VerdictHistory(), now=AT - 2 * WINDOW)
    table = table_of(resting(), resting(), resting(0, processes=0), resting(), allocations=held)
    verdicts, _ = judge(table, RULES, history, now=AT)
    assert [STEPS[step] for step in verdicts.step] == [Step.NOTICE, Step.RECLAIM, Step.RECLAIM, Step.NOTICE]
    assert "this may be a hung job" in " ".join(explain_row(verdicts, 0, rules=RULES))
    assert "A RayCluster may belong to a job" in " ".join(explain_row(verdicts, 3, rules=RULES))


def test_a_starting_pod_leads_to_no_action():
    assert Signature.STARTING.highest_step is Step.NOTHING


EMPTY = resting(0.0, processes=0)
KINDS_OF_JOBS = ("Job", "PyTorchJob", "RayJob", "TrainJob", "RayCluster", "SomeVendorTrainingJob")


@pytest.mark.parametrize("kind", KINDS_OF_JOBS)
@pytest.mark.parametrize("row", [EMPTY, resting(2)], ids=["empty", "parked"])
@pytest.mark.parametrize("age", [1500, 2400, DAY], ids=["seen from the start", "40 minutes", "start not observed"])
def test_a_job_that_never_worked_stays_at_a_notice(kind: str, row: Stats, age: float):
    verdict = judge_rows(*[row] * 8, owner=Workload(kind, "team", "load"), started_at=AT - age, every=300)
    assert verdict.activity is Activity.IDLE
    assert verdict.highest_step is Step.NOTICE
    assert any("loading data" in reason for reason in verdict.reasons) or verdict.signature is Signature.HUNG


def test_an_allocation_of_unknown_owner_that_never_worked_stays_at_a_notice():
    held = replace(allocation(), container=replace(allocation().container, workload=None))
    verdicts, _ = judge(table_of(EMPTY, allocations=[held]), RULES, VerdictHistory(), now=AT)
    verdict = make_verdict(verdicts, 0, rules=RULES)
    assert (verdict.signature, verdict.highest_step) == (Signature.EMPTY, Step.NOTICE)
    assert any("its owner is unknown" in reason for reason in verdict.reasons)


def test_a_job_that_has_worked_and_holds_nothing_may_be_reclaimed():
    verdict = judge_rows(EMPTY, working(), owner=JOB)
    assert (verdict.signature, verdict.highest_step) == (Signature.EMPTY, Step.RECLAIM)


def loading(*gibibytes: float) -> list[Stats]:
    """One cycle after the other with this much memory, newest first; nothing has worked."""
    return [resting(each) for each in reversed(gibibytes)]


@pytest.mark.parametrize("owner", [JOB, NOTEBOOK, None], ids=["job", "notebook", "server"])
def test_a_pod_whose_memory_grows_before_its_first_work_is_starting(owner: Workload | None):
    for minutes in (20, 30, 40):
        rows = loading(*(0.25 * number for number in range(minutes // 5)))
        verdict = judge_rows(*rows, owner=owner, started_at=AT - minutes * 60, every=300)
        assert (verdict.signature, verdict.highest_step) == (Signature.STARTING, Step.NOTHING)
        assert any("still loading" in reason for reason in verdict.reasons)


def test_memory_that_grows_within_the_first_window_seen_means_starting():
    grows = resting() | {(Measure.MEMORY_USED, Stat.MEAN): 20e9, (Measure.MEMORY_USED, Stat.PEAK): 20.5e9}
    assert name(grows, owner=NOTEBOOK) is Signature.STARTING


def test_a_pod_that_stopped_loading_is_starting_for_the_grace_period_only():
    rows = loading(1, 2, 3, 3, 3, 3)
    assert name(*rows[1:], every=300) is Signature.STARTING
    assert name(*rows, every=300) is Signature.PARKED


def test_noise_of_a_few_mebibytes_is_not_growth():
    for held, noise in ((2, 0.01), (36, 0.1)):
        rows = loading(*(held + noise * (number % 3) for number in range(12)))
        assert name(*rows, every=300) is Signature.PARKED


def test_a_server_that_has_worked_and_leaks_memory_is_not_starting():
    assert name(*loading(11, 12, 13, 14), working(), every=900) is Signature.PARKED


def blips(duty: float = 0.2 / 30, *, peak: float = 0.05, **other: float) -> Stats:
    """What the agent reports of a server that is only checked: 0.2 s of work every 30 s."""
    return (
        resting(20)
        | signal(Measure.CORE, duty, peak, spread=0.01)
        | {(Measure.BUSY, Stat.MEAN): duty}
        | {(Measure(measure), Stat.MEAN): value for measure, value in other.items()}
    )


TWO_HOURS = 25  # cycles of five minutes


def test_a_server_with_short_regular_blips_for_two_hours_only_has_health_checks():
    verdict = judge_rows(*[blips(), blips(0.19 / 30)] * 13, every=300)
    sends_input = [row | {(Measure.PCIE, Stat.PEAK): 30e6} for row in (blips(), blips(0.19 / 30))]
    assert name(*sends_input * 13, every=300) is Signature.HEALTH_CHECK
    assert (verdict.activity, verdict.signature) == (Activity.ACTIVE, Signature.HEALTH_CHECK)
    assert verdict.highest_step is Step.NOTICE
    assert verdict.signature.is_suspicious, "shown by `gpusteward idle`"
    assert any("0.67% of the time" in reason for reason in verdict.reasons)


@pytest.mark.parametrize(
    "rows",
    [
        [blips()] * 20,
        [blips(0.01, peak=0.6)] * TWO_HOURS,
        [blips(0.005, peak=0.2)] * TWO_HOURS,
        [blips(0.005), blips(0.009), blips(0.002), blips(0.005)] * 8,
        [*[blips()] * 12, working(), *[blips()] * 12],
        [*[blips()] * 12, resting(20), *[blips()] * 12],
        [blips() | signal(Measure.MEMORY_USED, 20e9, 21e9, spread=0.5e9)] * TWO_HOURS,
        [blips() | signal(Measure.MEMORY_USED, 20e9 - 5e7 * back) for back in range(TWO_HOURS)],
        [without(blips(), Measure.BUSY)] * TWO_HOURS,
        [blips(dram_ratio=0.02)] * TWO_HOURS,
        [blips() | {(Measure.ENCODER, Stat.PEAK): 0.3}] * TWO_HOURS,
        [blips() | {(Measure.PCIE, Stat.PEAK): 400e6}] * TWO_HOURS,
    ],
    ids=[
        "90 minutes",
        "3 s in 5 min",
        "1 s",
        "irregular",
        "worked",
        "paused",
        "memory",
        "grows",
        "sampled",
        "memory traffic",
        "video",
        "PCIe traffic",
    ],
)
def test_short_work_that_may_be_real_is_not_a_health_check(rows: list[Stats]):
    assert name(*rows, every=300) not in (Signature.HEALTH_CHECK, Signature.KEEP_ALIVE)


def test_a_job_never_has_only_health_checks():
    assert name(*[blips()] * TWO_HOURS, every=300, owner=JOB) is Signature.STARVED


RANDOM_SERVERS = range(20)


def random_requests(seed: int) -> list[Stats]:
    """Requests of 0.2 to 1 s, as rare as they may be for a duty below one per cent, in windows of ten minutes."""
    chance = np.random.default_rng(seed)
    requests = np.sort(chance.uniform(0, 12 * 3600, 12 * 40))
    seconds = chance.uniform(0.2, 1.0, len(requests))
    found = []
    for end in range(600, 12 * 3600, 300):
        rows = (requests > end - 600) & (requests <= end)
        seen = chance.random(rows.sum()) < 5 / 30  # the agent's means of 5 s, scraped every 30 s
        busy = float(seconds[rows].sum()) / 600
        peak = max([busy, *(seconds[rows][seen] / 5)])
        found.append(blips(busy, peak=float(peak)) if busy else resting(20))
    return found


@pytest.fixture(scope="module")
def signatures_of_servers() -> list[set[Signature]]:
    """Of each server with requests at random times, in all cycles of twelve hours."""
    servers = [allocation(seed, started_at=AT - DAY) for seed in RANDOM_SERVERS]
    history, found = VerdictHistory(), [set[Signature]() for _ in servers]
    cycles = list(zip(*map(random_requests, RANDOM_SERVERS), strict=True))
    for number, rows in enumerate(cycles, start=1):
        at = AT - (len(cycles) - number) * 300
        verdicts, history = judge(table_of(*rows, allocations=servers, at=at), RULES, history, now=at)
        for signatures, code in zip(found, verdicts.signature, strict=True):
            signatures.add(SIGNATURES[code])
    return found


@pytest.mark.parametrize("seed", RANDOM_SERVERS)
def test_requests_at_random_times_are_not_health_checks(signatures_of_servers: list[set[Signature]], seed: int):
    assert Signature.HEALTH_CHECK not in signatures_of_servers[seed]
