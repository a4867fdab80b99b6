"""The table of workload kinds: what holds for every row."""

import pytest

from gpusteward.core.kinds import KINDS, Loss, WorkloadClass, WorkloadKind, find_class, find_kind, may_be_job
from gpusteward.messages.reclaim_kinds import LOSSES

ROWS = list(KINDS.values())


@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: f"{kind.group}/{kind.name}")
def test_a_row_says_how_its_kind_is_suspended_or_nothing_about_it(kind: WorkloadKind) -> None:
    ways = [bool(kind.suspended), kind.stop is not None and kind.resume is not None, kind.is_evicted]
    assert sum(ways) == (0 if kind.loss is None else 1)
    assert not kind.replicas or kind.suspended == {kind.replicas: 0}
    assert not kind.has_deletion_cost or (kind.is_pool and kind.replicas)
    assert bool(kind.managers) == bool(kind.managed_by)


def test_rows_of_one_name_are_used_alike_since_metrics_name_no_group() -> None:
    for kind in ROWS:
        assert kind.use in (None, find_kind(kind.name).use), kind
        assert kind.is_owner or kind.children == ()


def test_what_is_between_a_workload_and_its_pods_can_be_read() -> None:
    between = {child for kind in ROWS for child in kind.children}
    assert between <= {kind.name for kind in ROWS if kind.is_owner}


def test_a_kind_that_is_not_in_the_table_is_a_job_with_the_longest_window() -> None:
    assert find_class("NeverHeardOf") is WorkloadClass.BATCH
    assert not find_kind("NeverHeardOf").is_owner
    assert find_kind("Deployment", "example.com").loss is None
    assert [may_be_job(name) for name in ("", "SomeJob", "RayCluster", "Notebook")] == [True, True, True, False]


def test_every_loss_has_a_text() -> None:
    assert LOSSES.keys() == set(Loss)
