"""The control webhook beside a model whose budget is too small to ask about all GPUs in one cycle."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.pipeline import Components, Pipeline
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.node.containers import Workload
from tests.analyzer.explain.cases import ai
from tests.analyzer.notify.notifier_setup import running_notifier, settings_of
from tests.analyzer.pipeline_fakes import FakePublisher, FakeTableSource
from tests.analyzer.usage_tables import AT, allocation, resting, table_of
from tests.fakes.model_server import ANSWER, FakeModel
from tests.fakes.receivers import Receiver
from tests.waiting import wait_until

GPUS, BUDGET, INTERVAL = 200, 20, 10.0  # seconds: the cases stay alike, so that none is asked about again
CYCLES = GPUS // BUDGET
ACTIVE, IDLE = (ANSWER | {"status": status, "adjusted_score": score} for status, score in (("active", 65), ("idle", 1)))


def count_calls_of_gpu_oour(answer: dict[str, Any] | None, *, low: float) -> int:
    """gpu-oour asks about every GPU of low utilization before it calls, and calls for those whose score stays low."""
    return GPUS if answer is None or answer["adjusted_score"] < low else 0


class Source(FakeTableSource):
    """The same use in every window."""

    def read(self, at: float) -> UsageTable:
        held = [allocation(each, owner=Workload("Deployment", "team", f"web-{each}")) for each in range(GPUS)]
        return table_of(*[resting()] * GPUS, allocations=held, at=at)


class Site:
    """200 GPUs of low utilization, a model with a budget of 20 requests per cycle, and the control webhook."""

    def __init__(self, settings: Settings, receiver: Receiver, notifier: Any) -> None:
        self.settings, self._receiver, self._notifier = settings, receiver, notifier
        parts = Source(table_of()), ClusterOwners(None), Explainer(settings.ai), FakePublisher([])
        components = Components(*parts, notifier=notifier)
        self._pipeline, self._number = Pipeline(components), 0

    def run(self) -> int:
        """One cycle; the number of GPUs that it calls for."""
        self._receiver.accepted.clear()
        at = AT + self._number * INTERVAL
        self._number += 1
        assert self._pipeline.run(self.settings, at=at, use_ai=self.settings.ai.enabled) is not None
        self._pipeline.requests.join(60)
        self._pipeline.publish_opinions()
        wait_until(lambda: not self._notifier.counters.pending.get("control"))
        return len(self._receiver.accepted)


@contextmanager
def running_site(model: FakeModel, *, is_on: bool = True, control: dict[str, Any] | None = None) -> Iterator[Site]:
    with Receiver() as receiver:
        asked = ai(model.url + "/v1", enabled=is_on, budget=BUDGET, retry_times=1, concurrency=8)
        sections = {"enabled": True, "api_url": receiver.url, **(control or {})}
        settings = settings_of(control=sections).model_copy(update={"ai": asked})
        with running_notifier(settings) as notifier:
            yield Site(settings, receiver, notifier)


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with FakeModel() as fake:
        yield fake


def test_as_in_gpu_oour_no_call_leaves_for_gpus_that_the_model_takes_for_used(model: FakeModel):
    model.answer = ACTIVE
    with running_site(model) as site:
        calls = [site.run() for _ in range(CYCLES + 2)]
        low = site.settings.thresholds.low_utilization
    assert len(model.requests) == GPUS
    assert set(calls) == {count_calls_of_gpu_oour(ACTIVE, low=low)} == {0}


def test_a_gpu_is_called_for_from_the_cycle_on_in_which_the_model_has_agreed(model: FakeModel):
    model.answer = IDLE
    with running_site(model) as site:
        calls = [site.run() for _ in range(CYCLES + 1)]
        low = site.settings.thresholds.low_utilization
    assert calls[:CYCLES] == [BUDGET * number for number in range(1, CYCLES + 1)]
    assert calls[-1] == count_calls_of_gpu_oour(IDLE, low=low) == GPUS


def test_calls_wait_for_a_model_that_is_down_no_longer_than_the_setting(model: FakeModel):
    model.always = 500
    with running_site(model, control={"opinion_wait_minutes": 3 * INTERVAL / 60}) as site:
        calls = [site.run() for _ in range(4)]
        low = site.settings.thresholds.low_utilization
    assert calls == [0, 0, 0, count_calls_of_gpu_oour(None, low=low)]


@pytest.mark.parametrize(("is_on", "control"), [(False, {}), (True, {"opinion_wait_minutes": 0})])
def test_without_the_model_or_without_waiting_all_are_called_for_at_once(
    model: FakeModel, is_on: bool, control: dict[str, Any]
):
    model.always = 500
    with running_site(model, is_on=is_on, control=control) as site:
        assert site.run() == GPUS
