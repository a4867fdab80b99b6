"""Counting the replicas that are at work at once, from samples as a source returns them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.pool_minutes import UNKNOWN, ManagedPool
from gpusteward.analyzer.pool_watch import PoolWatch
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.analyzer.tables import ServerPod
from gpusteward.core.node.containers import Container, Workload, WorkloadKey
from gpusteward.core.usages import AllocationKey, Measure
from tests.analyzer.usage_tables import allocation, resting, table_of

BEGIN = 1_790_553_600.0  # a full minute
KEY = WorkloadKey("Deployment", "team", "server")


@dataclass
class Samples:
    """Of pods by name: at which seconds after BEGIN their samples show work."""

    step: float = 15.0
    work: dict[str, Sequence[float]] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)  # of pods that are gone
    begins: dict[str, float] = field(default_factory=dict)
    busy: Mapping[str, float] = field(default_factory=dict)
    reads: list[tuple[int, float]] = field(default_factory=list)

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> list[Chart]:
        self.reads.append((len(allocations), seconds))
        charts = []
        for one in allocations:
            pod = one.container.pod
            begin = max(at - seconds, BEGIN + self.begins.get(pod, -1e9))
            end = min(at, BEGIN + self.ends.get(pod, 1e9))
            first = np.ceil((begin - BEGIN) / self.step)
            times = BEGIN + self.step * np.arange(first, np.floor((end - BEGIN) / self.step) + 1)
            worked = set(self.work.get(pod, ()))
            core = [(float(time), 0.5 if time - BEGIN in worked else 0.0) for time in times]
            lines = {Measure.CORE: core}
            if pod in self.busy:
                lines[Measure.BUSY] = [(time, self.busy[pod]) for time, _ in core]
            charts.append(Chart(one, lines))
        return charts


def make_result(at: float, *, replicas: int = 3, owner: Workload | None = None, names=(), servers=()) -> Result:
    names = names or [f"pod-{number}" for number in range(replicas)]
    allocations = [
        replace(
            allocation(number, owner=owner),
            container=replace(allocation(number, owner=owner).container, pod=name, started_at=BEGIN - 86_400),
        )
        for number, name in enumerate(names)
    ]
    table = table_of(*[resting()] * len(names), allocations=allocations, at=at)
    table = replace(table, servers=servers)
    verdicts, _ = judge(table, Settings().rules, VerdictHistory(), now=at)
    return Result(1, at, 0.1, Settings(), verdicts, judge_workloads(verdicts, Settings().rules))


def count(samples: Samples, *, minutes: int = 10, **options):
    watch = PoolWatch(samples, **{name: options.pop(name) for name in ("read_managed",) if name in options})
    [found] = watch.update(make_result(BEGIN + minutes * 60, **options)).values()
    return found.slice(int(BEGIN // 60), found.end)


def test_replicas_that_work_one_after_another_are_never_counted_as_at_work_at_once():
    """A window of ten minutes has all three of them at work; at once it is one."""
    samples = Samples(work={"pod-0": [60, 75], "pod-1": [150], "pod-2": [180, 195]})
    found = count(samples)
    assert found.active.tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]  # a sample stands for the time before it
    assert found.ready.tolist() == [3] * 10
    assert found.wanted.tolist() == [3] * 10


def test_replicas_that_work_in_the_same_samples_are_counted_together():
    found = count(Samples(work={"pod-0": [60, 75], "pod-1": [75], "pod-2": [90]}))
    assert found.active.tolist()[:3] == [1, 2, 0]


def test_what_is_sampled_less_than_once_a_minute_is_not_known():
    assert set(count(Samples(step=60.0)).active.tolist()) == {0}
    assert set(count(Samples(step=120.0)).active.tolist()) == {UNKNOWN}


def test_a_replica_that_is_not_measured_makes_its_minutes_unknown():
    found = count(Samples(ends={"pod-1": 300.0}))
    assert found.active.tolist() == [0] * 5 + [UNKNOWN] * 5


def test_a_replica_that_is_gone_worked_until_then():
    samples = Samples(work={"pod-2": [390]})
    watch = PoolWatch(samples)
    watch.update(make_result(BEGIN + 300))
    samples.ends["pod-2"] = 420.0
    [found] = watch.update(make_result(BEGIN + 600, replicas=2)).values()
    found = found.slice(int(BEGIN // 60), found.end)
    assert found.active.tolist() == [0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert found.wanted.tolist() == [3] * 7 + [2] * 3


def test_a_cycle_reads_only_what_is_new():
    samples = Samples()
    watch = PoolWatch(samples)
    watch.update(make_result(BEGIN + 600))
    watch.update(make_result(BEGIN + 900))
    assert samples.reads[1][1] <= 300 + 240
    watch.update(make_result(BEGIN + 86_400))
    [found] = watch.update(make_result(BEGIN + 86_700)).values()
    assert found.active.tolist().count(UNKNOWN) > 1300, "what nobody has read is not known"


def test_a_replica_that_starts_counts_as_active_but_not_where_it_was_given_back():
    """A deployment of new replicas needs all of them; one that we have given back would keep all of them for ever."""

    def result(at: float) -> Result:
        found = make_result(at)
        young = replace(found.verdicts.usage.allocations[2].container, started_at=BEGIN)
        allocations = [
            *found.verdicts.usage.allocations[:2],
            replace(found.verdicts.usage.allocations[2], container=young),
        ]
        table = replace(found.verdicts.usage, allocations=allocations)
        verdicts, _ = judge(table, Settings().rules, VerdictHistory(), now=at)
        return replace(found, verdicts=verdicts, workloads=judge_workloads(verdicts, Settings().rules))

    samples = Samples(begins={"pod-2": 0.0})
    [found] = PoolWatch(samples).update(result(BEGIN + 600)).values()
    assert found.slice(int(BEGIN // 60), found.end).active.tolist()[1:] == [1] * 9
    assert set(found.slice(int(BEGIN // 60), found.end).ready.tolist()) == {2}
    raised = {KEY: ManagedPool(wanted=8, raised_at=BEGIN - 10)}
    [found] = PoolWatch(samples, read_managed=lambda: raised).update(result(BEGIN + 600)).values()
    assert set(found.active.tolist()) == {0}
    assert set(found.wanted.tolist()) == {8}, "as many as there were before any were lowered"


def test_blips_of_a_server_without_requests_are_no_work():
    servers = [ServerPod("vLLM", Container("team", f"pod-{number}"), requests=0, is_silent=True) for number in (0, 1)]
    samples = Samples(
        work={f"pod-{number}": [60] for number in range(3)}, busy={f"pod-{number}": 0.002 for number in range(2)}
    )
    assert count(samples, servers=servers).active.tolist()[:2] == [1, 0], "pod-2 has no counters of requests"
    samples = replace(samples, busy=dict.fromkeys(samples.busy, 0.3))
    assert count(samples, servers=servers).active.tolist()[0] == 3, "a GPU that works is not without work"


def test_a_group_of_a_leader_worker_set_is_one_replica():
    names = ["lws-0", "lws-0-1", "lws-1", "lws-1-1"]
    owner = Workload("LeaderWorkerSet", "team", "lws")
    found = count(Samples(work={"lws-0": [60], "lws-0-1": [60], "lws-1-1": [60]}), names=names, owner=owner)
    assert (found.active.tolist()[0], found.wanted.tolist()[0], found.gpus) == (2, 2, 2.0)


@pytest.mark.parametrize("kind", ["StatefulSet", "Job", "Notebook"])
def test_never_reads_what_is_no_pool(kind):
    samples = Samples()
    assert PoolWatch(samples).update(make_result(BEGIN + 600, owner=Workload(kind, "team", "x"))) == {}
    assert PoolWatch(samples).update(make_result(BEGIN + 600, replicas=1)) == {}
    assert samples.reads == []
