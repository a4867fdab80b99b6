"""What pods do on their hosts is read for workloads that may be stalled, and for no others."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from gpusteward.analyzer.host_witnesses import MAX_PODS, MAX_PODS_OF_A_DAY, add_host_use
from gpusteward.analyzer.judge.allocation_columns import read_allocation_columns
from gpusteward.analyzer.judge.history import Past, VerdictHistory
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.usages import AllocationKey, Measure, Stat
from tests.analyzer.pipeline_fakes import FakeTableSource
from tests.analyzer.usage_tables import AT, DAY, resting, table_of

RULES = Rules()


@dataclass
class HostSource(FakeTableSource):
    """Knows what pods use of their hosts; keeps what it was asked."""

    use: Mapping[str, HostUse] = field(default_factory=dict)
    asked: list[tuple[list[str], float]] = field(default_factory=list)

    def read_host_use(self, pods: Collection[PodKey], at: float, *, seconds: float) -> Mapping[PodKey, HostUse]:
        self.asked.append((sorted(pod.name for pod in pods), seconds))
        if self.failure:
            raise self.failure
        return {pod: self.use[pod.name] for pod in pods if pod.name in self.use}


def make_table(pods: Mapping[str, str]) -> UsageTable:
    """One GPU for each pod, by the names of pods and jobs."""
    held = [
        AllocationKey(f"GPU-{pod}", "", Container("team", pod, "", "main", Workload("Job", "team", job), (), AT - DAY))
        for pod, job in pods.items()
    ]
    return table_of(*[resting()] * len(held), allocations=held)


def frozen(table: UsageTable, *seconds: float) -> VerdictHistory:
    """A history in which each row has stood still for so long."""
    since = AT - np.array(seconds)
    unknown = Past.unknown(len(table))
    past = Past(**{**vars(unknown), "frozen_since": since, "started_at": table.started_at})
    return VerdictHistory(read_allocation_columns(table.allocations).hashes, past)


TABLE = make_table({"a-0": "a", "a-1": "a", "b-0": "b"})


def read(
    source: HostSource, history: VerdictHistory, table: UsageTable = TABLE
) -> dict[tuple[Measure, Stat], list[float]]:
    found = add_host_use(table, history, source, rules=RULES)
    return {key: column.tolist() for key, column in found.stats.items() if key[0] in (Measure.DISK, Measure.NETWORK)}


@pytest.mark.parametrize(
    "history", [VerdictHistory(), frozen(TABLE, np.nan, np.nan, np.nan), frozen(TABLE, 0, 1700, 0)]
)
def test_nothing_is_read_while_no_workload_has_stood_still_for_long(history: VerdictHistory):
    source = HostSource(TABLE)
    assert add_host_use(TABLE, history, source, rules=RULES) is TABLE
    assert source.asked == []


def test_all_pods_of_a_workload_are_read_over_the_time_that_counts_and_the_busiest_one_decides():
    source = HostSource(TABLE, use={"a-0": HostUse(9.0, 5.0, 7.0), "a-1": HostUse(None, 1.0, 70.0)})
    columns = read(source, frozen(TABLE, 1800, np.nan, 60))
    assert source.asked == [(["a-0", "a-1"], 1800)]
    for stat in (Stat.MEAN, Stat.PEAK):
        assert columns[Measure.DISK, stat] == pytest.approx([5, 5, np.nan], nan_ok=True)
        assert columns[Measure.NETWORK, stat] == pytest.approx([70, 70, np.nan], nan_ok=True)


@pytest.mark.parametrize("other", [{}, {"a-1": HostUse(1.0, None, None)}], ids=["pod unknown", "signals unknown"])
def test_a_workload_with_one_unknown_pod_is_unknown_but_what_another_one_does_is_known(other: Mapping[str, HostUse]):
    source = HostSource(TABLE, use={"a-0": HostUse(9.0, 5e6, 7.0), **other})
    columns = read(source, frozen(TABLE, 1800, 1800, 60))
    assert np.isnan(columns[Measure.DISK, Stat.MEAN]).all()
    assert columns[Measure.DISK, Stat.PEAK] == pytest.approx([5e6, 5e6, np.nan], nan_ok=True)


def test_a_failure_costs_the_witness_only():
    source = HostSource(TABLE, failure=SourceError("the engine does not respond"))
    assert add_host_use(TABLE, frozen(TABLE, 1800, 1800, 1800), source, rules=RULES) is TABLE


def test_the_number_of_pods_is_bounded_and_the_longest_come_first():
    table = make_table({f"pod-{number}": f"job-{number}" for number in range(MAX_PODS + 50)})
    source = HostSource(table)
    read(source, frozen(table, *range(2000, 2000 + len(table))), table)
    (names, _), *_ = source.asked
    assert len(names) == MAX_PODS
    assert f"pod-{len(table) - 1}" in names
    assert "pod-0" not in names


def test_a_pod_of_the_same_name_that_was_started_again_has_not_stood_still():
    history = frozen(TABLE, 1800, 1800, 1800)
    restarted = make_table({"a-0": "a"})
    restarted.__dict__["started_at"] = np.array([AT - 60.0])
    source = HostSource(restarted)
    assert add_host_use(restarted, history, source, rules=RULES) is restarted
    assert source.asked == []


def holding(table: UsageTable, constant: float, frozen_for: float = np.nan) -> VerdictHistory:
    past = replace(frozen(table, *[frozen_for] * len(table)).past, constant_since=np.full(len(table), AT - constant))
    return VerdictHistory(read_allocation_columns(table.allocations).hashes, past)


def test_of_a_workload_that_holds_a_level_for_half_a_day_a_whole_day_is_read():
    source = HostSource(TABLE, use={"a-0": HostUse(0.0, 1.0, 2.0)})
    assert read(source, holding(TABLE, 11.9 * 3600)) == {}
    read(source, holding(TABLE, 12 * 3600))
    assert source.asked == [(["a-0", "a-1", "b-0"], 25 * 3600)]


def test_what_a_workload_that_stands_still_does_now_counts_more_than_its_day():
    source = HostSource(TABLE, use={"b-0": HostUse(0.0, 1.0, 2.0)})
    history = holding(TABLE, 13 * 3600, 1900)
    read(source, history)
    assert [seconds for _, seconds in source.asked] == [25 * 3600, 1800]


def test_fewer_pods_are_read_over_a_day():
    table = make_table({f"pod-{number}": f"job-{number}" for number in range(MAX_PODS_OF_A_DAY + 5)})
    source = HostSource(table)
    read(source, holding(table, 13 * 3600), table)
    assert [len(names) for names, _ in source.asked] == [MAX_PODS_OF_A_DAY]


def test_a_workload_with_too_many_pods_keeps_no_other_from_being_read():
    table = make_table({**{f"large-{number}": "large" for number in range(MAX_PODS_OF_A_DAY + 1)}, "small-0": "small"})
    source = HostSource(table)
    read(source, holding(table, 13 * 3600), table)
    assert [names for names, _ in source.asked] == [["small-0"]]


def test_of_a_pair_nobody_measures_the_pod_that_works():
    """That its holder is still proves nothing; that it works is known."""
    held = [replace(each, used_by="server-0") if each.container.pod == "a-1" else each for each in TABLE.allocations]
    table = table_of(*[resting()] * len(held), allocations=held)
    source = HostSource(table, use={pod: HostUse(0.0, 1.0, 2.0) for pod in ("a-0", "a-1", "b-0")})
    columns = read(source, frozen(table, 1800, 1800, 1800), table)
    assert columns[Measure.DISK, Stat.MEAN] == pytest.approx([np.nan, np.nan, 1.0], nan_ok=True)
    assert columns[Measure.DISK, Stat.PEAK] == pytest.approx([1.0, 1.0, 1.0])
