"""Reclaim under faults: nothing at work is suspended, nothing twice, all is restored exactly, nothing is forgotten."""

from pathlib import Path

import pytest

from tests.analyzer.reclaim.chaos.chaos import Chaos, ChaosPlan
from tests.kubernetes.cluster import Cluster

pytestmark = pytest.mark.slow


@pytest.mark.timeout(600)
def test_invariants_hold_while_everything_fails(kubernetes: Cluster, tmp_path: Path) -> None:
    plan = ChaosPlan(workloads=54, days=3, cycles_per_day=8, seed=20, most_seconds=240)
    report = Chaos(kubernetes, tmp_path, plan, print_progress=print).run()
    print(report)
    assert report.holds, "\n".join(report.details[:20])
    assert report.counts["suspensions seen in the cluster"] > 10, report
    assert report.counts["gaps in watching"] == 0
