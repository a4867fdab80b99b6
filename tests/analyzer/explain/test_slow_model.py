"""A slow model delays no result: opinions follow in a later publication, and notices wait for them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.pipeline import Components, Pipeline
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.scheduler import CycleScheduler
from gpusteward.analyzer.settings.settings import SchedulerSettings, Settings
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners
from tests.analyzer.explain.cases import ai
from tests.analyzer.pipeline_fakes import FakePublisher, FakeTableSource
from tests.analyzer.usage_tables import AT, allocation, resting, table_of
from tests.fakes.model_server import ANSWER, FakeModel

WAIT_SECONDS = 20.0


class SlowModel(FakeModel):
    """Responds only when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.may_respond = threading.Event(), threading.Event()
        self.answer = self.respond

    def respond(self, _: Any) -> dict[str, Any]:
        self.is_asked.set()
        assert self.may_respond.wait(WAIT_SECONDS)
        return ANSWER | {"status": "active"}

    def __exit__(self, *_: object) -> None:
        self.may_respond.set()
        super().__exit__()


class Publications(FakePublisher):
    """Keeps published results and waits for them."""

    def __init__(self) -> None:
        super().__init__([])
        self.results: list[Result] = []
        self.notified: list[Result] = []
        self.changed = threading.Condition()

    def publish(self, result: Result) -> None:
        with self.changed:
            self.results.append(result)
            self.changed.notify_all()

    def notify(self, result: Result) -> None:
        with self.changed:
            self.notified.append(result)
            self.changed.notify_all()

    def announce_outage(self, *_: object, **__: object) -> None:
        raise AssertionError("no cycle fails")

    def wait_for(self, results: int, notified: int) -> None:
        with self.changed:
            done = self.changed.wait_for(
                lambda: len(self.results) >= results and len(self.notified) >= notified, WAIT_SECONDS
            )
        assert done, (len(self.results), len(self.notified))


@pytest.fixture
def model() -> Iterator[SlowModel]:
    with SlowModel() as slow:
        yield slow


@contextmanager
def running(settings: Settings) -> Iterator[tuple[CycleScheduler, Publications]]:
    seen = Publications()
    source = FakeTableSource(table_of(resting(), allocations=[allocation()], at=time.time()))
    explainer = Explainer(settings.ai)
    pipeline = Pipeline(Components(source, ClusterOwners(None), explainer, seen, None, seen))
    scheduler = CycleScheduler(pipeline, lambda: settings)
    scheduler.start()
    try:
        yield scheduler, seen
    finally:
        explainer.interrupt()
        scheduler.stop(timeout_seconds=WAIT_SECONDS)
        pipeline.requests.join(WAIT_SECONDS)


def test_a_result_is_published_at_once_and_again_with_its_opinions(model: SlowModel):
    with running(Settings(ai=ai(model.url + "/v1", enabled=True))) as (_, seen):
        assert model.is_asked.wait(WAIT_SECONDS)
        seen.wait_for(results=1, notified=0)
        assert (dict(seen.results[0].opinions), seen.notified) == ({}, [])
        model.may_respond.set()
        seen.wait_for(results=2, notified=1)
    first, second = seen.results
    assert second.opinions[0].status == "active"
    assert (first.is_low.any(), second.is_low.any()) == (True, False)
    assert (second.at, second.seconds, second.number) == (first.at, first.seconds, 2)
    assert seen.notified == [second]  # nobody is told what the model objects to


def test_the_next_cycle_does_not_wait_for_the_model_either(model: SlowModel):
    settings = Settings(ai=ai(model.url + "/v1", enabled=True), scheduler=SchedulerSettings(interval=1))
    with running(settings) as (_, seen):
        assert model.is_asked.wait(WAIT_SECONDS)
        seen.wait_for(results=2, notified=0)
        assert (len(model.requests), seen.notified) == (1, [])
        model.may_respond.set()
        seen.wait_for(results=3, notified=1)
    assert seen.notified[0].opinions[0].status == "active"
    assert len(model.requests) == 1


def test_notices_are_sent_without_opinions_when_the_time_of_the_model_is_up(model: SlowModel):
    settings = Settings(ai=ai(model.url + "/v1", enabled=True, cycle_timeout=0.2))
    with running(settings) as (_, seen):
        seen.wait_for(results=1, notified=1)
    assert seen.notified == seen.results
    assert not seen.notified[0].opinions


def test_opinions_are_shown_although_none_are_cached(model: SlowModel):
    model.may_respond.set()
    with running(Settings(ai=ai(model.url + "/v1", enabled=True, cache_size=0))) as (_, seen):
        seen.wait_for(results=2, notified=1)
    assert seen.results[1].opinions[0].status == "active"


def test_without_the_model_notices_wait_for_nothing(model: SlowModel):
    pipeline_settings = Settings(ai=ai(model.url + "/v1"))
    seen = Publications()
    source = FakeTableSource(table_of(resting(), allocations=[allocation()]))
    components = Components(source, ClusterOwners(None), Explainer(pipeline_settings.ai), seen, None, seen)
    result = Pipeline(components).run(pipeline_settings, at=AT, use_ai=False)
    assert seen.notified == [result]
    assert model.requests == []


def test_opinions_on_an_older_result_do_not_bring_it_back(model: SlowModel):
    with running(Settings(ai=ai(model.url + "/v1", enabled=True))) as (scheduler, seen):
        assert model.is_asked.wait(WAIT_SECONDS)
        scheduler.request_cycle(use_ai=False)
        seen.wait_for(results=2, notified=1)
        model.may_respond.set()
        scheduler.request_cycle(use_ai=False)
        seen.wait_for(results=3, notified=2)
    assert [result.number for result in seen.notified] == [2, 3]
    times = [result.at for result in seen.results]
    assert times == sorted(times)


def test_opinions_on_an_earlier_result_do_not_end_the_wait_for_those_on_this_one(model: SlowModel):
    settings, seen = Settings(ai=ai(model.url + "/v1", enabled=True)), Publications()
    source = FakeTableSource(table_of(resting(), allocations=[allocation()], at=time.time()))
    pipeline = Pipeline(Components(source, ClusterOwners(None), Explainer(settings.ai), seen, None, seen))
    pipeline.run(settings, at=time.time(), use_ai=True)
    assert model.is_asked.wait(WAIT_SECONDS)
    assert pipeline.publish_opinions() is None  # as the scheduler does when the earlier ones arrive during this cycle
    assert seen.notified == []
    model.may_respond.set()
    pipeline.requests.join(WAIT_SECONDS)
    result = pipeline.publish_opinions()
    assert result is not None
    assert (result.opinions[0].status, seen.notified) == ("active", [result])
