"""Reasons of a verdict as text."""

import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.reasons import explain_row, make_verdict
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.core.messages import Language
from gpusteward.core.node.containers import Workload
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, Doubt, Signature, State, Step, VerdictName
from gpusteward.messages import unknown_reasons
from gpusteward.messages import verdicts as texts
from tests.analyzer.usage_tables import AT, WINDOW, Stats, allocation, resting, signal, table_of, working

RULES = Rules()
JOB = Workload("PyTorchJob", "team", "train")


def explain(
    row: Stats, *earlier: Stats, language: Language = "en", owner: Workload | None = None, **options: object
) -> str:
    history = VerdictHistory()
    for back, each in reversed(list(enumerate((row, *earlier)))):
        at = AT - 300 * back
        table = table_of(each, at=at, allocations=[allocation(owner=owner)], **(options if not back else {}))
        verdicts, history = judge(table, RULES, history, now=at)
    return " ".join(explain_row(verdicts, 0, rules=RULES, language=language))


def test_the_reasons_of_an_idle_gpu_have_its_memory_its_start_and_why_the_score_is_ignored():
    text = explain(resting(72))
    assert "every activity signal peaked at 0 over 10 minutes, with 100% of the samples present" in text
    assert "Idle since 2026-09-21 14:03 UTC" in text
    assert "72.0 GiB of memory is held but not used" in text
    assert (
        "gpu-oour's score is 19.7 of 100, in its band low, because held memory counts as use. It is no verdict" in text
    )


def test_reasons_are_available_in_chinese():
    text = explain(resting(72), language="zh")
    assert "峰值均为 0" in text
    assert "72.0 GiB 显存" in text


def test_the_reason_of_an_active_gpu_has_its_utilization():
    assert "60.0% on average and 90% at its peak over 10 minutes" in explain(working())


def test_work_that_only_another_signal_shows_names_that_signal():
    assert "Tensor pipe activity reached 20.0%" in explain(resting() | signal(Measure.TENSOR, 0.2))
    assert "Encoder utilization reached 80.0%" in explain(resting() | {(Measure.ENCODER, Stat.PEAK): 0.8})
    assert "PCIe traffic reached 1,200 MB/s" in explain(resting() | {(Measure.PCIE, Stat.PEAK): 1.2e9})


@pytest.mark.parametrize(
    ("row", "options", "words"),
    [
        (resting(), {"coverage": 0.5}, "only 50% of the samples are present; idle requires 90%"),
        ({}, {}, "could not be measured"),
        (
            working(),
            {"unknown": {0: unknown_reasons.REPORTED_BY_TWO_NODES}},
            "Not judged: two nodes report this allocation.",
        ),
        (resting(watts=400), {}, "draws 400 W"),
        (resting() | {(Measure.CORE, Stat.COUNT): 2.0}, {}, "only in 2 samples; idle requires 5 in 10 minutes"),
        (resting() | {(Measure.DRAM, Stat.MEAN): 0.0}, {}, "a mean but no peak"),
    ],
)
def test_an_unknown_verdict_has_its_reason(row, options, words):
    assert words in explain(row, **options)


def test_why_a_source_could_not_measure_is_explained_in_both_languages():
    reason = unknown_reasons.QUERY_FAILED.fill(quantity="core", error="timeout {x}")
    assert "Not judged: core could not be read: timeout {x}." in explain(working(), unknown={0: reason})
    assert "未作判断：无法读取 core：timeout {x}。" in explain(working(), unknown={0: reason}, language="zh")


def test_the_reason_of_a_pause_has_the_time_of_the_last_work():
    assert "shortly before (2026-09-21 14:08 UTC): this still counts as a pause" in explain(resting(), working())


def test_the_reason_of_a_hung_job_has_the_time_it_stopped_if_it_was_observed():
    assert "worked until about 2026-09-21 13:53 UTC" in explain(resting(), resting(), resting(), working(), owner=JOB)
    assert "before it was first observed" in explain(resting(), owner=JOB)


def test_every_doubt_signature_and_activity_has_a_text():
    assert texts.DOUBTS.keys() == set(Doubt) - {Doubt.NONE}
    assert texts.SIGNATURE_REASONS.keys() == set(Signature)
    assert texts.WORKLOADS.keys() == set(VerdictName)


def test_a_row_becomes_a_complete_verdict():
    verdicts, _ = judge(table_of(resting(72)), RULES, VerdictHistory(), now=AT)
    verdict = make_verdict(verdicts, 0, rules=RULES)
    assert (verdict.state, verdict.activity, verdict.signature) == (State.IDLE, Activity.IDLE, Signature.PARKED)
    assert verdict.highest_step is Step.RECLAIM
    assert verdict.idle_since == AT - WINDOW
    assert verdict.score == pytest.approx(20 * 72 * 1024 / 81559 + 10 * 110 / 700)
    assert len(verdict.reasons) == 5


def test_what_could_not_be_scored_has_no_score():
    verdicts, _ = judge(table_of({}), RULES, VerdictHistory(), now=AT)
    verdict = make_verdict(verdicts, 0, rules=RULES, language="zh")
    assert verdict.score is None
    assert verdict.idle_since is None


def test_a_workload_has_reasons_in_both_languages():
    verdicts, _ = judge(table_of(resting(), working()), RULES, VerdictHistory(), now=AT)
    workloads = judge_workloads(verdicts, RULES)
    assert workloads.verdict(0).reasons == ("1 of 2 GPUs of this workload is in use.",)
    assert workloads.verdict(0, language="zh").finding == "2 张 GPU 中有 1 张未使用"
