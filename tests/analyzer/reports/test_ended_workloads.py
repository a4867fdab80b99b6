"""Workloads that no longer hold a GPU, as the ledger has them."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpusteward.analyzer.ledger.database.periods import HOUR_MS
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.ended_workloads import MAX_ENDED, read_ended_workloads
from gpusteward.analyzer.reports.ledger_sums.ledger_extent import read_namespaces
from gpusteward.analyzer.reports.report import EndedWorkload
from gpusteward.analyzer.reports.report_query import EndedQuery
from tests.analyzer.reports.ledger_rows import A100, H100, LedgerRows, at, open_ledger_rows


@pytest.fixture
def rows(database_url: str) -> Iterator[LedgerRows]:
    with open_ledger_rows(database_url) as ledger:
        yield ledger


def read(rows: LedgerRows, name: str, **choice: Any) -> list[EndedWorkload]:
    return read_ended_workloads(rows.engine, EndedQuery(name, **choice), prices=PriceSettings())


def test_a_workload_has_its_end_its_hours_and_its_cost(rows: LedgerRows) -> None:
    """Also hours that are rolled up into days, and those after them; of all its pods."""
    for number, model in ((1, A100), (2, H100)):
        rows.hold(number, owner_name="train", user_name="lee", node=f"n{number}", model=model, ended_ms=at(26))
        for hour in (0, 1, 25):
            rows.use(number, hour=hour, active=HOUR_MS // 4, idle=HOUR_MS * 3 // 4)
    rows.record_until(26)
    (found,) = read(rows, "train", namespace="team", kind="job")
    assert (found.kind, found.namespace, found.name, found.ended_ms) == ("Job", "team", "train", at(26))
    assert (found.users, found.models, found.nodes, found.devices) == (("lee",), (A100, H100), ("n1", "n2"), 2)
    assert (found.amounts.allocated_gpu_ms, found.amounts.idle_gpu_ms) == (6 * HOUR_MS, 4.5 * HOUR_MS)
    assert found.amounts.idle_cost_micros == 3 * 0.75 * (2_000_000 + 3_500_000)


def test_a_workload_is_found_by_the_name_of_a_pod_and_has_all_its_pods(rows: LedgerRows) -> None:
    for number in (1, 2):
        rows.hold(number, owner_name="train", pod=f"train-{number}", ended_ms=at(number))
        rows.use(number, hour=0, active=HOUR_MS)
    rows.record_until(3)
    (found,) = read(rows, "train-1")
    assert (found.name, found.devices, found.ended_ms) == ("train", 2, at(2))
    assert read(rows, "train-1", namespace="other") == []
    assert read(rows, "train", kind="Deployment") == []
    assert read(rows, "trai") == []


def test_a_reader_finds_workloads_of_visible_namespaces_only(rows: LedgerRows) -> None:
    for number, cluster in ((1, ""), (2, "prod")):
        rows.hold(number, owner_name="train", cluster=cluster, ended_ms=at(1))
    rows.record_until(2)
    visible = (("prod", "team"), ("", "other"))
    assert [each.cluster for each in read(rows, "train", visible=visible)] == ["prod"]
    assert read(rows, "train", visible=()) == []
    assert sorted(read_namespaces(rows.engine)) == [("", "team"), ("prod", "team")]


def test_a_workload_that_still_holds_a_gpu_has_no_end(rows: LedgerRows) -> None:
    rows.hold(1, owner_name="train", ended_ms=at(1))
    rows.hold(2, owner_name="train")
    rows.record_until(2)
    (found,) = read(rows, "train")
    assert found.ended_ms is None


def test_of_many_workloads_with_one_name_the_latest_are_listed(rows: LedgerRows) -> None:
    for number in range(1, MAX_ENDED + 3):
        rows.hold(number, namespace=f"team-{number}", owner_name="train", ended_ms=at(number))
    rows.record_until(20)
    ends = [one.ended_ms for one in read(rows, "train")]
    assert ends == [at(hour) for hour in range(MAX_ENDED + 2, 2, -1)]
