"""Fake components of a pipeline. All append to one list of events, so that their order can be checked."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.resumption import NO_HISTORY, SpellHistory
from gpusteward.analyzer.pool_minutes import PoolMinutes
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.sources.live_readings import HostUse, PodProcesses
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.usages import AllocationKey

Events = list[tuple[str, object]]


@dataclass
class FakeTableSource:
    """A source with one table. `failure` is raised instead."""

    table: UsageTable
    failure: Exception | None = None

    def read(self, at: float) -> UsageTable:
        if self.failure:
            raise self.failure
        return self.table

    def describe(self) -> Mapping[str, Any]:
        return {}

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        raise AssertionError("a cycle reads no series")

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> list[Chart]:
        raise AssertionError("a cycle reads no series")

    def read_processes(self, pods: Collection[PodKey], at: float) -> PodProcesses:
        raise AssertionError("a cycle reads no processes")

    def read_host_use(self, pods: Collection[PodKey], at: float, *, seconds: float) -> Mapping[PodKey, HostUse]:
        raise AssertionError("only reclaim reads this")

    def close(self) -> None: ...


@dataclass
class FakePublisher:
    """Keeps published results."""

    events: Events = field(default_factory=list)
    failure: Exception | None = None

    def publish(self, result: Result) -> None:
        if self.failure:
            raise self.failure
        self.events.append(("published", result.number))


@dataclass
class FakeCycleLedger:
    """Keeps recorded results."""

    events: Events = field(default_factory=list)
    failure: Exception | None = None
    history: VerdictHistory = field(default_factory=VerdictHistory)

    def restore(self, table: UsageTable) -> VerdictHistory:
        self.events.append(("restored", len(table)))
        return self.history

    def record(self, result: Result) -> None:
        if self.failure:
            raise self.failure
        self.events.append(("recorded", result.number))

    def record_pools(self, pools: Mapping[WorkloadKey, PoolMinutes]) -> None:
        pass

    @property
    def spell_history(self) -> SpellHistory:
        return NO_HISTORY

    def update_spell_history(self, result: Result) -> None:
        pass


@dataclass
class FakeNotifier:
    """Keeps results and outages."""

    events: Events = field(default_factory=list)
    failure: Exception | None = None

    def notify(self, result: Result) -> None:
        if self.failure:
            raise self.failure
        self.events.append(("notified", result.number))

    def announce_outage(self, reason: str | SourceError, *, at: float) -> None:
        if self.failure:
            raise self.failure
        self.events.append(("outage", str(reason)))


@dataclass
class FakeReclaimer:
    """Keeps results."""

    events: Events = field(default_factory=list)
    failure: Exception | None = None

    def reclaim(self, result: Result) -> None:
        if self.failure:
            raise self.failure
        self.events.append(("reclaimed", result.number))

    def continue_open(self, result: Result) -> None:
        self.events.append(("continued", result.number))
