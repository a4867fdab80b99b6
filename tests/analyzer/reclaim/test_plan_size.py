"""The time a plan takes, without a cluster."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.schema_version import create_tables
from gpusteward.analyzer.reclaim.components import ReclaimComponents
from gpusteward.analyzer.reclaim.execution.journal import Journal
from gpusteward.analyzer.reclaim.permission import ActorLease, Switch
from gpusteward.analyzer.reclaim.plan import Outcome
from gpusteward.analyzer.reclaim.reclaimer import Reclaimer
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.node.containers import OwnerEvidence, Workload
from tests.analyzer.reclaim.memory_cluster import MemoryCluster
from tests.analyzer.reclaim.world import FixedPolicies
from tests.analyzer.usage_tables import AT, allocation, resting, table_of

pytestmark = pytest.mark.slow

WORKLOADS = 10_000


def test_a_plan_over_ten_thousand_idle_workloads_takes_about_a_second(tmp_path: Path) -> None:
    """All of them are idle and refused, which costs the most guards without a request."""
    settings = Settings.model_validate({"reclaim": {"mode": "observe"}})
    owners = [
        Workload("Deployment", "kube-x", f"w-{number}", evidence=OwnerEvidence.READ, uid=f"{number}")
        for number in range(WORKLOADS)
    ]
    allocations = [replace_pod(number, owner) for number, owner in enumerate(owners)]
    table = table_of(*[resting(0.0, processes=0.0)] * WORKLOADS, allocations=allocations)
    verdicts, _ = judge(table, settings.rules, VerdictHistory(), now=AT)
    result = Result(1, AT, 0.1, settings, verdicts, judge_workloads(verdicts, settings.rules))
    engine = open_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
    create_tables(engine)
    cluster = MemoryCluster(0)
    components = ReclaimComponents(
        cluster=cluster,
        journal=Journal(engine, lambda: "cluster"),
        switch=Switch(engine, None, namespace=""),
        lease=ActorLease(cluster, namespace="x", name="x", holder="x"),
        policies=FixedPolicies(),
        clock=lambda: AT,
    )
    reclaimer = Reclaimer(settings.reclaim, components)
    started = time.process_time()
    reclaimer.reclaim(result)
    seconds = time.process_time() - started
    engine.dispose()
    plan = reclaimer.last_plan
    assert plan is not None
    assert plan.counts == {Outcome.REFUSE: WORKLOADS, Outcome.NOTHING: 0}
    assert len(plan.decisions) == WORKLOADS
    print(f"{seconds:.2f} s")
    assert seconds < 3.0, "about a second on a quiet machine"


def replace_pod(number: int, owner: Workload):  # type: ignore[no-untyped-def]
    found = allocation(number, owner=owner)
    return replace(found, container=replace(found.container, namespace="kube-x"))
