"""The order of the stages of a cycle, and what a failure of each of them costs."""

import queue
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from gpusteward.analyzer import pipeline
from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.judge.allocation_columns import read_allocation_columns
from gpusteward.analyzer.judge.history import Past, VerdictHistory
from gpusteward.analyzer.metrics import analyzer_metrics as metrics
from gpusteward.analyzer.metrics.health_metrics import ledger_families
from gpusteward.analyzer.pipeline import Components, Pipeline
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.scheduler import CycleScheduler
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.tables import SIGNATURES, ServerPod, UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.node.containers import Container
from gpusteward.core.verdicts import Signature
from tests.analyzer.api.server import FakeCycles, FakeDeliveries, FakeLedger, make_dependencies
from tests.analyzer.pipeline_fakes import (
    Events,
    FakeCycleLedger,
    FakeNotifier,
    FakePublisher,
    FakeReclaimer,
    FakeTableSource,
)
from tests.analyzer.usage_tables import AT, allocation, resting, table_of

SETTINGS = Settings()
HOUR = 3600.0


class Cycles:
    """A pipeline on fakes that write into one list of events."""

    def __init__(self) -> None:
        self.events: Events = []
        self.source = FakeTableSource(table_of(resting(), allocations=[allocation()]))
        self.publisher = FakePublisher(self.events)
        self.ledger = FakeCycleLedger(self.events)
        self.notifier = FakeNotifier(self.events)
        self.reclaimer = FakeReclaimer(self.events)
        self.is_leader = True
        self.pipeline = Pipeline(
            Components(
                self.source,
                ClusterOwners(None),
                Explainer(SETTINGS.ai),
                self.publisher,
                self.ledger,
                self.notifier,
                self.reclaimer,
                is_leader=lambda: self.is_leader,
            )
        )

    @property
    def stats(self):
        return self.pipeline.stats

    def run(self) -> Result | None:
        return self.pipeline.run(SETTINGS, at=AT, use_ai=False)


def test_a_result_is_published_before_it_is_recorded_and_recorded_before_it_is_notified():
    cycles = Cycles()
    result = cycles.run()
    assert result is not None
    assert cycles.events == [
        ("restored", 1),
        ("published", 1),
        ("recorded", 1),
        ("notified", 1),
        ("reclaimed", 1),
    ]
    assert (cycles.stats.finished, cycles.stats.failed, cycles.stats.last_error) == (1, 0, "")
    assert list(cycles.stats.stages) == ["read", "judge", "explain", "publish", "pools", "record", "notify", "reclaim"]


def test_only_the_leader_reclaims_and_the_others_continue_what_is_open():
    """The leader may be the analyzer of another cluster."""
    cycles = Cycles()
    cycles.is_leader = False
    assert cycles.run() is not None
    assert cycles.events == [("restored", 1), ("published", 1), ("continued", 1)]


def test_a_failing_reclaimer_costs_neither_a_result_nor_a_notification():
    cycles = Cycles()
    cycles.reclaimer.failure = ZeroDivisionError("oops")
    assert cycles.run() is not None
    assert cycles.events[-1] == ("notified", 1)
    assert cycles.stats.stage_error("reclaim") == "unexpected ZeroDivisionError: oops"


def test_the_history_is_restored_once():
    cycles = Cycles()
    cycles.run()
    cycles.run()
    assert [name for name, _ in cycles.events].count("restored") == 1


def test_a_source_that_cannot_be_read_fails_the_cycle_and_the_outage_is_announced():
    cycles = Cycles()
    cycles.run()
    cycles.events.clear()
    cycles.source.failure = SourceError("the engine does not respond")
    assert cycles.run() is None
    assert cycles.events == [("outage", "the engine does not respond")]
    assert (cycles.stats.finished, cycles.stats.failed) == (1, 1)
    assert cycles.stats.last_error == "the engine does not respond"
    cycles.source.failure = None
    assert cycles.run() is not None
    assert cycles.stats.last_error == ""


@pytest.mark.parametrize("component", ["source", "publisher"])
def test_a_defect_in_a_required_stage_costs_this_cycle_only(component: str):
    cycles = Cycles()
    getattr(cycles, component).failure = ZeroDivisionError("oops")
    assert cycles.run() is None
    assert cycles.events[-1] == ("outage", "unexpected ZeroDivisionError: oops")
    getattr(cycles, component).failure = None
    assert cycles.run() is not None


def test_a_failing_ledger_costs_no_notification_is_shown_and_is_over_with_the_next_cycle(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level("WARNING", logger="gpusteward")
    cycles = Cycles()
    cycles.ledger.failure = ZeroDivisionError("oops")
    assert (cycles.run() is not None, cycles.run() is not None) == (True, True)
    assert [event for event in cycles.events if event[0] not in ("restored", "reclaimed")] == [
        ("published", 1),
        ("notified", 1),
        ("published", 2),
        ("notified", 2),
    ]
    assert [record.getMessage() for record in caplog.records] == ["stage_failed"], "each reason is logged once"
    assert (cycles.stats.finished, cycles.stats.stages["record"].failures) == (2, 2)
    assert describe_ledger(cycles) == (False, "unexpected ZeroDivisionError: oops", 0)
    cycles.ledger.failure = None
    cycles.run()
    assert describe_ledger(cycles) == (True, "", 1)


def test_never_records_a_cycle_during_which_the_clock_was_set(monkeypatch: pytest.MonkeyPatch):
    cycles, now = Cycles(), time.time
    read = cycles.source.read

    def set_clock(at: float) -> UsageTable:
        monkeypatch.setattr(pipeline.time, "time", lambda: now() - 365 * 86_400)
        return read(at)

    monkeypatch.setattr(cycles.source, "read", set_clock)
    assert cycles.run() is not None
    assert "recorded" not in [name for name, _ in cycles.events]
    assert "the clock moved by -31536000 s" in describe_ledger(cycles)[1]
    monkeypatch.undo()
    assert cycles.run() is not None
    assert cycles.events[-3:] == [("recorded", 2), ("notified", 2), ("reclaimed", 2)]


def describe_ledger(cycles: Cycles) -> tuple[bool, str, float]:
    """Readiness and error as in /api/v1/health, and `ledger_up` as in /metrics."""

    class ReadyLedger(FakeLedger):
        def describe(self) -> dict[str, object]:
            return {"is_ready": True, "error": "", "buffered_cycles": 0, "lost_cycles": 0}

    described = make_dependencies(cycles=FakeCycles(cycles.stats), ledger=ReadyLedger()).describe_ledger()
    assert described is not None
    families = {family.metric: family.samples for family in ledger_families(described)}
    ((_, is_up),) = families[metrics.LEDGER_UP]
    return described["is_ready"], described["error"], is_up


def test_a_failing_notifier_costs_neither_a_result_nor_the_thread():
    cycles = Cycles()
    cycles.notifier.failure = ZeroDivisionError("oops")
    assert cycles.run() is not None
    described = make_dependencies(cycles=FakeCycles(cycles.stats), deliveries=FakeDeliveries()).describe_deliveries()
    assert described["fault"] == "unexpected ZeroDivisionError: oops"
    cycles.source.failure = SourceError("the engine does not respond")
    assert cycles.run() is None
    assert cycles.stats.last_error == "the engine does not respond"


def test_every_cycle_is_counted_once_in_the_histogram():
    cycles = Cycles()
    cycles.run()
    succeeded_at = cycles.stats.last_succeeded_at
    assert succeeded_at is not None
    cycles.source.failure = SourceError("the engine does not respond")
    cycles.run()
    assert cycles.stats.last_succeeded_at == succeeded_at, "a failed cycle does not count as the last one"
    assert cycles.stats.duration_counts[-1] == 2
    assert cycles.stats.seconds_total > 0
    assert cycles.stats.last_ended_at is not None


class BlockedPipeline(Pipeline):
    """Every cycle waits until it is allowed to end."""

    def __init__(self, components: Components) -> None:
        super().__init__(components)
        self.started, self.allowed = threading.Semaphore(0), threading.Semaphore(0)
        self.used_ai: list[bool] = []

    def run(self, settings: Settings, *, at: float, use_ai: bool) -> Result | None:
        self.used_ai.append(use_ai)
        self.started.release()
        assert self.allowed.acquire(timeout=10)
        return None


class WatchedEvent(threading.Event):
    """Notes at each wait whether it is already set, which ends the wait at once."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: queue.Queue[bool] = queue.Queue()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.put(self.is_set())
        return super().wait(timeout)


@contextmanager
def running_scheduler() -> Iterator[tuple[CycleScheduler, BlockedPipeline, WatchedEvent]]:
    """A scheduler whose first cycle has started."""
    components = Components(FakeTableSource(table_of()), ClusterOwners(None), Explainer(SETTINGS.ai), FakePublisher())
    pipeline, wake = BlockedPipeline(components), WatchedEvent()
    scheduler = CycleScheduler(pipeline, lambda: SETTINGS, wake=wake)
    scheduler.start()
    try:
        assert pipeline.started.acquire(timeout=10)
        yield scheduler, pipeline, wake
    finally:
        pipeline.allowed.release(10)
        scheduler.stop(timeout_seconds=10)
    assert not scheduler.is_alive()


def test_several_requests_during_a_cycle_start_one_more_and_no_queue_of_them():
    with running_scheduler() as (scheduler, pipeline, wake):
        for _ in range(30):
            scheduler.request_cycle()
        pipeline.allowed.release()
        assert wake.waits.get(timeout=10) is True, "the first cycle is followed by a second one at once"
        assert pipeline.started.acquire(timeout=10)
        pipeline.allowed.release()
        assert wake.waits.get(timeout=10) is False, "after the second one it waits for the interval"
        assert len(pipeline.used_ai) == 2


def test_a_request_for_the_model_is_kept_when_another_one_leaves_it_open():
    with running_scheduler() as (scheduler, pipeline, _):
        scheduler.request_cycle(use_ai=True)
        scheduler.request_cycle()
        pipeline.allowed.release()
        assert pipeline.started.acquire(timeout=10)
        assert pipeline.used_ai == [False, True]


class NotedWaits(threading.Event):
    """Does not wait, and notes for how long it would have."""

    def __init__(self, source: FakeTableSource) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.source = source
        self.scheduler: CycleScheduler | None = None

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(round(timeout or 0))
        if len(self.seconds) == 2:
            self.source.failure, self.source.table = None, table_of(resting(), allocations=[allocation()])
        if len(self.seconds) == 4 and self.scheduler:
            threading.Thread(target=self.scheduler.stop, kwargs={"timeout_seconds": 10}).start()
            return super().wait(10)
        return True


def test_until_the_first_allocation_is_judged_cycles_follow_each_other_faster():
    cycles = Cycles()
    cycles.source.failure = SourceError("the engine is starting, too")
    wake = NotedWaits(cycles.source)
    wake.scheduler = CycleScheduler(cycles.pipeline, lambda: SETTINGS, wake=wake)
    wake.scheduler.start()
    wake.scheduler.join(10)
    assert wake.seconds == [15, 15, SETTINGS.scheduler.interval, SETTINGS.scheduler.interval]


def test_a_reader_judges_and_publishes_but_neither_records_nor_notifies():
    events: Events = []
    source = FakeTableSource(table_of(resting(), allocations=[allocation()]))
    parts = (FakePublisher(events), FakeCycleLedger(events), FakeNotifier(events))
    is_leader = [False]
    components = Components(source, ClusterOwners(None), Explainer(SETTINGS.ai), *parts, is_leader=lambda: is_leader[0])
    pipeline = Pipeline(components)
    pipeline.run(SETTINGS, at=AT, use_ai=False)
    source.failure = SourceError("down")
    pipeline.run(SETTINGS, at=AT, use_ai=False)
    assert events == [("restored", 1), ("published", 1)]
    source.failure, is_leader[0] = None, True
    pipeline.run(SETTINGS, at=AT, use_ai=False)
    assert [name for name, _ in events[2:]] == ["published", "recorded", "notified"]


def test_requests_of_servers_reach_the_verdict_of_their_workload():
    cycles, held = Cycles(), allocation()
    server = ServerPod("vLLM", Container(held.container.namespace, held.container.pod), requests=0, is_silent=True)
    cycles.source.table = replace(cycles.source.table, servers=[server])
    result = cycles.run()
    assert result is not None
    assert [SIGNATURES[code] for code in result.workloads.signature] == [Signature.NO_REQUESTS]
    assert result.verdicts.usage.servers == ()


class HostSource(FakeTableSource):
    """Keeps which pods it was asked about; their hosts cannot be read."""

    asked: list[str]

    def read_host_use(self, pods: Collection[PodKey], at: float, *, seconds: float) -> Mapping[PodKey, HostUse]:
        self.asked = [pod.name for pod in pods]
        raise SourceError("no such series")


def test_the_hosts_of_what_stood_still_in_earlier_cycles_are_read_and_a_failure_costs_no_cycle():
    cycles = Cycles()
    table = cycles.source.table
    source = HostSource(table)
    past = replace(
        Past.unknown(1), seen_at=np.array([AT]), started_at=table.started_at, frozen_since=np.array([AT - HOUR])
    )
    cycles.ledger.history = VerdictHistory(read_allocation_columns(table.allocations).hashes, past)
    cycles.pipeline = Pipeline(
        Components(source, ClusterOwners(None), Explainer(SETTINGS.ai), cycles.publisher, cycles.ledger)
    )
    assert cycles.run() is not None
    assert source.asked == ["pod-0"]
