"""A verdict is about a workload: all GPUs of all its pods."""

import time

import numpy as np
import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.workloads import WorkloadTable, judge_workloads
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.node.containers import Container, Workload, WorkloadKey
from gpusteward.core.usages import AllocationKey
from gpusteward.core.verdicts import Activity, Signature, State, Step, WorkloadVerdict
from tests.analyzer.usage_tables import AT, DAY, WINDOW, Stats, allocation, large_table, resting, table_of, working

RULES = Rules()
JOB = Workload("Job", "team", "train")


def join(table: UsageTable) -> WorkloadTable:
    return judge_workloads(judge(table, RULES, VerdictHistory(), now=table.at)[0], RULES)


def only(*rows: Stats, owner: Workload | None = None, **options: object) -> WorkloadVerdict:
    allocations = [allocation(number, owner=owner) for number in range(len(rows))]
    workloads = join(table_of(*rows, allocations=allocations, **options))
    assert len(workloads) == 1
    return workloads.verdict(0)


def test_a_workload_is_idle_if_every_gpu_is():
    verdict = only(resting(), resting(0, processes=0))
    assert (verdict.activity, verdict.state, verdict.highest_step) == (Activity.IDLE, State.IDLE, Step.RECLAIM)
    assert (verdict.gpus, verdict.idle_gpus, verdict.unknown_gpus) == (2, 2, 0)
    assert verdict.idle_since == AT - WINDOW
    assert verdict.finding == ""


def test_idle_gpus_beside_an_active_one_are_a_finding():
    verdict = only(*[resting()] * 3, *[working()] * 5)
    assert verdict.activity is Activity.ACTIVE
    assert verdict.idle_since is None
    assert verdict.finding == "3 of 8 GPUs unused"
    assert verdict.highest_step is Step.NOTICE


def test_one_unknown_gpu_makes_the_workload_unknown():
    verdict = only(resting(), {})
    assert verdict.activity is Activity.UNKNOWN
    assert verdict.signature is Signature.UNKNOWN
    assert verdict.highest_step is Step.NOTICE
    assert (verdict.idle_gpus, verdict.unknown_gpus) == (1, 1)
    assert verdict.idle_since is None


def test_a_workload_of_which_nothing_is_known_has_no_score():
    verdict = only({}, {})
    assert verdict.score is None
    assert verdict.state is State.UNKNOWN


def test_a_workload_is_idle_since_its_last_gpu_is():
    allocations = [allocation(0, started_at=AT - DAY), allocation(1, started_at=AT - 500)]
    verdict = join(table_of(resting(), resting(), allocations=allocations)).verdict(0)
    assert verdict.idle_since == AT - 500


def test_the_most_careful_signature_of_an_idle_workload_counts():
    owner = JOB
    assert only(resting(), resting(0, processes=0), owner=owner).signature is Signature.HUNG
    assert only(resting(), resting(0, processes=0), owner=owner).highest_step is Step.NOTICE


def test_a_starting_pod_prevents_any_action_on_its_workload():
    allocations = [allocation(0), allocation(1, started_at=AT - 60)]
    assert join(table_of(resting(), resting(), allocations=allocations)).verdict(0).highest_step is Step.NOTHING


def test_every_signature_has_its_own_rank():
    assert len({signature.rank for signature in Signature}) == len(Signature)


def test_a_pod_without_an_owner_is_its_own_workload():
    held = [AllocationKey(f"GPU-{pod}", "", Container("team", f"pod-{pod}", f"uid-{pod}", "main")) for pod in (0, 0, 1)]
    workloads = join(table_of(resting(), working(), resting(), allocations=held))
    assert list(workloads.keys) == [WorkloadKey("Pod", "team", "pod-0"), WorkloadKey("Pod", "team", "pod-1")]
    assert [workloads.verdict(number).activity for number in range(2)] == [Activity.ACTIVE, Activity.IDLE]


def test_the_rows_of_a_workload_are_found_again():
    owners = [Workload("Job", "team", name) for name in "abcab"]
    table = table_of(
        *[resting()] * 5, allocations=[allocation(number, owner=owner) for number, owner in enumerate(owners)]
    )
    workloads = join(table)
    assert [workloads.rows(number).tolist() for number in range(3)] == [[0, 3], [1, 4], [2]]
    assert workloads.find(WorkloadKey("Job", "team", "b")) == 1
    assert workloads.find(WorkloadKey("Job", "team", "z")) is None


def test_the_evidence_of_a_workload_is_summed_up_and_leaves_out_the_unknown():
    verdict = only(working(0.6, 0.9), working(0.2, 0.5), coverage=[1.0, 0.8])
    assert verdict.evidence["core_mean_ratio"] == pytest.approx(0.4)
    assert verdict.evidence["core_peak_ratio"] == 0.9
    assert verdict.evidence["power_watts"] == 800
    assert verdict.evidence["coverage"] == 0.8
    assert "power_watts" not in only({}).evidence
    assert only(working()).nodes == ("node-0",)


def test_an_empty_cluster_has_no_workloads():
    assert len(join(table_of())) == 0


def test_fifty_thousand_rows_are_judged_and_joined_quickly():
    """Detects a loop over rows, with a margin for a busy machine; `bench.judge_truth` measures."""
    table, history = large_table(50_000), VerdictHistory()
    verdicts, history = judge(table, RULES, history, now=AT)
    spent = []
    for _ in range(5):
        start = time.process_time()
        verdicts, history = judge(table, RULES, history, now=AT)
        workloads = judge_workloads(verdicts, RULES)
        spent.append(time.process_time() - start)
    assert min(spent) < 0.3
    assert len(workloads) == 3125
    assert int(workloads.gpus.sum()) == 50_000
    assert np.isnan(workloads.idle_since).sum() == (workloads.activity != 1).sum()
