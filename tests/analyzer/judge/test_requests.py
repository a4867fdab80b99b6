"""Requests of inference servers in verdicts: what silence proves, for whom, and what contradicts idleness."""

from dataclasses import replace

import numpy as np
import pytest

from gpusteward.analyzer.explain.opinion_effects import OpinionEffect, apply_objections
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.reasons import explain_row
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES, STEPS, VerdictTable
from gpusteward.core.node.containers import Workload
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, Objection, Signature, Step
from tests.analyzer.usage_tables import AT, DAY, WINDOW, Stats, allocation, resting, signal, table_of, working

RULES = Rules()
EVERY = 300.0
SERVER = Workload("Deployment", "team", "server")
TRAINER = Workload("RayJob", "team", "trainer")


def served(
    requests: float = 0,
    *,
    tokens: float | None = None,
    running: float = 0,
    waiting: float = 0,
    silent: bool | None = None,
) -> Stats:
    """What its server says; silent if it had no request."""
    tokens = requests * 500 if tokens is None else tokens
    is_silent = not (requests or tokens or running or waiting) if silent is None else silent
    return {
        (Measure.REQUESTS, Stat.COUNT): requests,
        (Measure.TOKENS, Stat.COUNT): tokens,
        (Measure.RUNNING, Stat.LOWEST): running,
        (Measure.RUNNING, Stat.PEAK): running,
        (Measure.WAITING, Stat.PEAK): waiting,
        (Measure.SILENT, Stat.LOWEST): float(is_silent),
    }


def blips(busy: float = 0.003) -> Stats:
    """Short work of the GPU, such as a health check that runs a kernel."""
    return resting() | signal(Measure.CORE, busy, 0.3) | {(Measure.BUSY, Stat.MEAN): busy}


def judge_rows(*rows: Stats, owner: Workload = SERVER, history: VerdictHistory | None = None) -> VerdictTable:
    """The verdict of the last of several cycles, given oldest first."""
    history = history or VerdictHistory()
    for back, row in reversed(list(enumerate(reversed(rows)))):
        at = AT - back * EVERY
        table = table_of(row, allocations=[allocation(owner=owner, started_at=AT - DAY)], at=at)
        verdicts, history = judge(table, RULES, history, now=at)
    return verdicts


def words(verdicts: VerdictTable) -> tuple[Activity, Signature, Step]:
    return ACTIVITIES[verdicts.activity[0]], SIGNATURES[verdicts.signature[0]], STEPS[verdicts.step[0]]


def test_a_loaded_server_without_requests_is_idle_as_parked_is():
    assert words(judge_rows(resting() | served())) == (Activity.IDLE, Signature.NO_REQUESTS, Step.RECLAIM)


def test_without_counters_it_is_parked():
    assert words(judge_rows(resting())) == (Activity.IDLE, Signature.PARKED, Step.RECLAIM)


def test_a_server_that_cannot_prove_its_silence_is_parked():
    assert words(judge_rows(resting() | served(silent=False)))[1] is Signature.PARKED


@pytest.mark.parametrize(
    "row", [served(3), served(0, tokens=9), served(0, waiting=2)], ids=["requests", "tokens", "waiting"]
)
def test_never_reclaimable_by_gauges_while_its_server_has_requests(row: Stats):
    assert words(judge_rows(resting() | row)) == (Activity.IDLE, Signature.PARKED, Step.NOTICE)


def test_a_running_gauge_alone_changes_nothing():
    stuck = served(running=3)
    assert words(judge_rows(resting() | stuck)) == words(judge_rows(resting()))
    assert words(judge_rows(working() | stuck)) == words(judge_rows(working()))


def test_counters_that_stand_still_never_make_a_working_gpu_idle():
    """A trainer, a notebook, or a server of something else: the GPU works, whatever the counters say."""
    assert words(judge_rows(working() | served()))[:2] == (Activity.ACTIVE, Signature.STEADY)
    assert words(judge_rows(blips(0.02) | served()))[0] is Activity.ACTIVE


@pytest.mark.parametrize("kind", ["RayJob", "PyTorchJob", "Job", "Notebook", "RayCluster", "Pod"])
def test_a_trainer_with_an_engine_inside_never_has_no_requests(kind: str):
    owner = Workload(kind, "team", "trainer")
    assert words(judge_rows(resting() | served(), owner=owner))[1] in (Signature.PARKED, Signature.HUNG)
    assert words(judge_rows(blips() | served(), owner=owner))[0] is Activity.ACTIVE
    assert np.isnan(judge_rows(blips() | served(), owner=owner).silent_since[0])


def test_work_in_less_than_one_percent_of_the_time_is_idle_with_a_notice():
    verdicts = judge_rows(*[blips() | served()] * 3)
    assert words(verdicts) == (Activity.IDLE, Signature.NO_REQUESTS, Step.NOTICE)
    assert STEPS[verdicts.step_by_silence[0]] is Step.RECLAIM


def test_it_replaces_guessing_health_checks():
    rows = 40
    assert words(judge_rows(*[blips() | served()] * rows))[1] is Signature.NO_REQUESTS
    regular = resting() | signal(Measure.CORE, 0.003, 0.06) | {(Measure.BUSY, Stat.MEAN): 0.003}
    assert words(judge_rows(*[regular] * rows))[1] is Signature.HEALTH_CHECK


@pytest.mark.parametrize(
    "proof",
    [
        {(Measure.NVLINK, Stat.PEAK): 5e6},
        {(Measure.VIDEO, Stat.PEAK): 0.1},
        signal(Measure.TENSOR, 0.02, 0.5),
    ],
    ids=["nvlink", "video", "tensor"],
)
def test_work_that_is_no_health_check_stays_work(proof: Stats):
    assert words(judge_rows(blips() | served() | proof))[0] is Activity.ACTIVE


def test_without_integrated_time_rare_work_stays_work():
    row = {key: value for key, value in blips().items() if key[0] is not Measure.BUSY}
    assert words(judge_rows(row | served()))[0] is Activity.ACTIVE


@pytest.mark.parametrize(
    ("row", "coverage"),
    [(blips(), 0.5), (blips() | signal(Measure.POWER, 500), 1.0), (blips() | {(Measure.CORE, Stat.COUNT): 3.0}, 1.0)],
    ids=["coverage", "power", "samples"],
)
def test_rare_work_is_idleness_only_where_nothing_else_contradicts(row: Stats, coverage: float):
    limit = signal(Measure.POWER_LIMIT, 700)
    table = table_of(row | served() | limit, allocations=[allocation(owner=SERVER)], coverage=coverage)
    verdicts, _ = judge(table, RULES, VerdictHistory(), now=AT)
    assert words(verdicts)[0] is Activity.ACTIVE


def test_energy_of_health_checks_contradicts_nothing():
    assert words(judge_rows(blips() | served() | {(Measure.ENERGY, Stat.PEAK): 9.0}))[1] is Signature.NO_REQUESTS


def test_checks_that_are_not_in_every_window_neither_end_nor_begin_idle_time():
    rows = [blips() | served(), resting() | served(), resting() | served(), resting() | served()] * 3
    verdicts = judge_rows(*rows)
    assert words(verdicts)[:2] == (Activity.IDLE, Signature.NO_REQUESTS)
    assert verdicts.idle_since[0] == AT - EVERY * (len(rows) - 1) - WINDOW


def test_a_request_that_has_just_ended_is_a_pause_as_any_work():
    assert words(judge_rows(working() | served(3), resting() | served()))[0] is Activity.ACTIVE


def test_when_the_gpu_last_worked_within_idle_time_is_told():
    rows = [blips() | served(), *[resting() | served()] * 5]
    verdicts = judge_rows(*rows)
    assert words(verdicts) == (Activity.IDLE, Signature.NO_REQUESTS, Step.RECLAIM)
    assert verdicts.unused_work_at[0] == AT - EVERY * 5
    assert verdicts.idle_since[0] == AT - EVERY * 5 - WINDOW


def test_silence_lasts_until_a_request_and_survives_a_gap():
    silent, unknown = resting() | served(), resting()
    assert judge_rows(*[silent] * 4).silent_since[0] == AT - 3 * EVERY - WINDOW
    assert judge_rows(silent, unknown, silent).silent_since[0] == AT - 2 * EVERY - WINDOW
    assert judge_rows(silent, unknown, unknown, unknown, silent).silent_since[0] == AT - WINDOW
    assert judge_rows(silent, silent, working() | served(2), silent, silent).silent_since[0] == AT - EVERY - WINDOW
    assert np.isnan(judge_rows(silent, unknown).silent_since[0])


def test_the_last_request_is_remembered():
    verdicts = judge_rows(working() | served(2), *[resting() | served()] * 4)
    assert verdicts.requested_at[0] == AT - 4 * EVERY
    assert np.isnan(judge_rows(resting() | served()).requested_at[0])


def asleep(memory_gib: float, says: float = 1) -> Stats:
    return resting(memory_gib) | served(silent=False) | {(Measure.ASLEEP, Stat.LOWEST): says}


def test_a_server_that_says_it_sleeps_and_has_given_its_memory_back_is_asleep():
    assert words(judge_rows(asleep(3))) == (Activity.IDLE, Signature.ASLEEP, Step.NOTICE)


def test_a_server_that_says_it_sleeps_and_holds_its_weights_is_not_asleep():
    assert words(judge_rows(asleep(72)))[1] is Signature.PARKED


def test_a_server_that_says_it_is_awake_is_not_asleep_however_little_it_holds():
    assert words(judge_rows(asleep(3, says=0)))[1] is Signature.PARKED
    assert words(judge_rows(resting(3) | served()))[1] is Signature.NO_REQUESTS


def test_an_objection_of_a_second_opinion_holds_for_silence_too():
    verdicts = judge_rows(blips() | served())
    effect = OpinionEffect(objection=Objection("active", 0.9, "it answers"))
    assert STEPS[apply_objections(verdicts, {0: effect}).step_by_silence[0]] is Step.NOTICE


def test_the_reasons_name_requests_and_silence():
    silent = " ".join(explain_row(judge_rows(*[resting() | served()] * 3), 0, rules=RULES))
    assert "no counter of requests or tokens grew" in silent
    assert "finished 0 requests in the last 10 minutes" in silent
    assert "No request since" in silent
    checked = " ".join(explain_row(judge_rows(*[blips() | served()] * 3), 0, rules=RULES))
    assert "works 0.30% of the time" in checked
    assert "peaked at 0" not in checked
    contradicted = " ".join(explain_row(judge_rows(resting() | served(3)), 0, rules=RULES))
    assert "finished 3 requests" in contradicted
    assert "contradict that nobody uses it" in contradicted
    waiting = " ".join(explain_row(judge_rows(resting() | served(waiting=2)), 0, rules=RULES, language="zh"))
    assert "2 个请求在排队" in waiting
    assert "server" not in " ".join(explain_row(judge_rows(resting()), 0, rules=RULES))


def test_a_new_pod_of_the_same_name_has_no_silence_of_the_old_one():
    row = resting() | served()
    history = VerdictHistory()
    for at, started_at in ((AT - EVERY, AT - DAY), (AT, AT - 400)):
        table = table_of(row, allocations=[allocation(owner=SERVER, started_at=started_at)], at=at)
        verdicts, history = judge(replace(table), RULES, history, now=at)
    assert verdicts.silent_since[0] == AT - 400
