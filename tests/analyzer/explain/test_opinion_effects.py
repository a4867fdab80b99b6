"""A second opinion through a whole cycle and the API: it can lower the step, never raise it, and it is shown."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.notify.control_webhook import control_events
from gpusteward.analyzer.pipeline import Components, Pipeline
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners
from gpusteward.analyzer.tables import STEPS
from gpusteward.core.node.containers import Workload
from gpusteward.core.usages import Measure
from gpusteward.core.verdicts import Activity, Step
from tests.analyzer.api.server import Api, running_api
from tests.analyzer.explain.cases import ai
from tests.analyzer.pipeline_fakes import FakePublisher, FakeTableSource
from tests.analyzer.usage_tables import AT, Stats, allocation, resting, signal, table_of, working
from tests.fakes.model_server import ANSWER, FakeModel

SERVER = Workload("Deployment", "team", "server")
TRAINER = Workload("Job", "team", "trainer")
OTHER = Workload("Deployment", "team", "other")
MADE_UP = resting(2) | signal(Measure.CORE, 0.1) | signal(Measure.MEMORY_COPY, 0.0)


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with FakeModel() as fake:
        yield fake


def run(model: FakeModel, *rows: tuple[Workload, Stats], use_ai: bool = True, **changes: Any) -> Result:
    """One cycle over these rows, each with its owner, with opinions of the model."""
    settings = Settings(ai=ai(model.url + "/v1", **changes))
    allocations = [allocation(number, owner=owner) for number, (owner, _) in enumerate(rows)]
    table = table_of(*(row for _, row in rows), allocations=allocations)
    components = Components(FakeTableSource(table), ClusterOwners(None), Explainer(settings.ai), FakePublisher())
    return run_explained(Pipeline(components), settings, use_ai=use_ai)


def run_explained(pipeline: Pipeline, settings: Settings, *, use_ai: bool = True) -> Result:
    """The last result of one cycle: that with the opinions, if there are any new ones."""
    result = pipeline.run(settings, at=AT, use_ai=use_ai)
    assert result is not None
    pipeline.requests.join(20)
    return pipeline.publish_opinions() or result


def steps(result: Result) -> list[Step]:
    return [STEPS[step] for step in result.verdicts.step]


def workload_steps(result: Result) -> dict[str, Step]:
    return {key[2]: STEPS[step] for key, step in zip(result.workloads.keys, result.workloads.step, strict=True)}


def doubt_only(pod: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A model that objects to one pod and agrees with everything else."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        objects = f'"{pod}"' in request["messages"][-1]["content"]
        return ANSWER if objects else ANSWER | {"status": "idle"}

    return answer


@pytest.mark.parametrize("status", ["suspicious", "active"])
def test_a_confident_objection_restrains_the_allocation_and_its_workload(model: FakeModel, status: str):
    model.answer = ANSWER | {"status": status}
    result = run(model, (SERVER, resting()))
    assert steps(result) == [Step.NOTICE]
    assert workload_steps(result) == {"server": Step.NOTICE}
    verdict = result.workloads.verdict(0)
    assert (verdict.activity, verdict.highest_step) == (Activity.IDLE, Step.NOTICE)


def test_one_doubted_gpu_restrains_its_whole_workload_and_no_other(model: FakeModel):
    model.answer = doubt_only("pod-1")
    result = run(model, (SERVER, resting()), (SERVER, resting(16)), (OTHER, resting(20)))
    assert steps(result) == [Step.RECLAIM, Step.NOTICE, Step.RECLAIM]
    assert workload_steps(result) == {"server": Step.NOTICE, "other": Step.RECLAIM}


@pytest.mark.parametrize(
    ("answer", "changes"),
    [
        (ANSWER | {"status": "idle"}, {}),
        (ANSWER | {"confidence": 0.69}, {}),
        (ANSWER, {"threshold": 0.95}),
        (ANSWER, {"use_ai": False}),
        (ANSWER, {"budget": 0}),
    ],
    ids=["agrees", "is not sure", "is not sure enough for the settings", "was not called", "has no budget"],
)
def test_without_a_confident_objection_the_rules_apply(
    model: FakeModel, answer: dict[str, Any], changes: dict[str, Any]
):
    model.answer = answer
    result = run(model, (SERVER, resting()), **changes)
    assert workload_steps(result) == {"server": Step.RECLAIM}
    assert not result.verdicts.objections


@pytest.mark.parametrize("status", ["idle", "suspicious", "active"])
def test_no_opinion_ever_gives_a_step_or_makes_anything_idle(model: FakeModel, status: str):
    model.answer = ANSWER | {"status": status, "confidence": 1.0, "adjusted_score": 0}
    rows = ((SERVER, working()), (OTHER, {}), (TRAINER, resting()), (SERVER, MADE_UP))
    without, result = (run(model, *rows, use_ai=use_ai) for use_ai in (False, True))
    assert result.opinions
    for before, after in zip(steps(without), steps(result), strict=True):
        assert STEPS.index(after) <= STEPS.index(before)
    for name, step in workload_steps(without).items():
        assert STEPS.index(workload_steps(result)[name]) <= STEPS.index(step)
    for table in ("verdicts", "workloads"):
        assert getattr(result, table).activity.tolist() == getattr(without, table).activity.tolist()
        assert getattr(result, table).state.tolist() == getattr(without, table).state.tolist()


@pytest.mark.parametrize(
    ("answer", "is_low"),
    [
        ({"status": "active", "confidence": 0.92, "adjusted_score": 65}, False),
        ({"status": "active", "confidence": 0.92, "adjusted_score": 0}, False),
        ({"status": "active", "confidence": 0.7, "adjusted_score": 65}, False),
        ({"status": "active", "confidence": 0.69, "adjusted_score": 65}, True),
        ({"status": "suspicious", "confidence": 0.92, "adjusted_score": 12}, True),
        ({"status": "suspicious", "confidence": 0.92, "adjusted_score": 20}, False),
        ({"status": "suspicious", "confidence": 0.5, "adjusted_score": 65}, True),
        ({"status": "idle", "confidence": 1.0, "adjusted_score": 90}, True),
    ],
)
@pytest.mark.parametrize("usage", [resting(), MADE_UP], ids=["idle", "low"])
def test_a_gpu_that_a_confident_model_takes_for_used_is_not_low(
    model: FakeModel, answer: dict[str, Any], is_low: bool, usage: Stats
):
    model.answer = ANSWER | answer
    result = run(model, (SERVER, usage), (TRAINER, working()))
    assert result.opinions
    assert [json.loads(event.body)["pod"] for event in control_events(result)] == ["pod-0"] * is_low
    with running_api(result) as api:
        low, stats = api.get("/results/low").json, api.get("/results/stats").json
        (namespace,) = api.get("/api/v1/namespaces").json["items"]
        page = api.get("/metrics").body.decode()
    assert (low["count"], stats["low_utilization_count"], namespace["low"]) == (is_low, is_low, is_low)
    assert f"gpu_low_utilization_count {int(is_low)}\n" in page


@pytest.mark.parametrize("status", ["idle", "suspicious", "active"])
def test_no_opinion_makes_a_busy_gpu_low(model: FakeModel, status: str):
    model.answer = ANSWER | {"status": status, "confidence": 1.0, "adjusted_score": 0}
    keep_alive = working(0.5, 0.5, spread=0.0) | signal(Measure.MEMORY_COPY, 0.0)
    result = run(model, (SERVER, working()), (OTHER, keep_alive), (TRAINER, {}))
    assert list(control_events(result)) == []


def test_a_cycle_without_the_model_is_as_careful_as_the_one_before(model: FakeModel):
    """`/analyze?use_ai=false`: nothing is asked, and what the model said before still counts."""
    model.answer = ANSWER | {"status": "active"}
    settings = Settings(ai=ai(model.url + "/v1"))
    source = FakeTableSource(table_of(resting(), allocations=[allocation(0, owner=SERVER)]))
    components = Components(source, ClusterOwners(None), Explainer(settings.ai), FakePublisher())
    pipeline = Pipeline(components)
    results = [run_explained(pipeline, settings, use_ai=use_ai) for use_ai in (True, False)]
    assert [list(control_events(result)) for result in results] == [[], []]
    assert len(model.requests) == 1
    model.always = 500  # and while the model is down
    assert not run_explained(pipeline, settings).is_low.any()


def test_an_opinion_that_is_no_longer_cached_does_not_count(model: FakeModel):
    model.answer = ANSWER | {"status": "active"}
    settings = Settings(ai=ai(model.url + "/v1", cache_size=0))
    source = FakeTableSource(table_of(resting(), allocations=[allocation(0, owner=SERVER)]))
    pipeline = Pipeline(Components(source, ClusterOwners(None), Explainer(settings.ai), FakePublisher()))
    results = [run_explained(pipeline, settings, use_ai=use_ai) for use_ai in (True, False)]
    assert [bool(result.is_low.any()) for result in results] == [False, True]


def test_a_failing_model_costs_only_its_opinion(model: FakeModel):
    model.always = 500
    result = run(model, (SERVER, resting()), retry_times=1)
    assert (steps(result), dict(result.opinion_effects)) == ([Step.RECLAIM], {})


def show(api: Api, owner: Workload, language: str) -> dict[str, Any]:
    path = f"/api/v1/workloads/{owner.kind}/{owner.namespace}/{owner.name}?language={language}"
    answer = api.get(path)
    assert answer.status == 200
    return dict(answer.json)


def test_the_api_shows_the_restraint_with_its_reason_in_both_languages(model: FakeModel):
    model.answer = doubt_only("pod-0")
    with running_api(run(model, (SERVER, resting()), (SERVER, resting(16)), (OTHER, resting()))) as api:
        english, chinese = (show(api, SERVER, language) for language in ("en", "zh"))
        free = show(api, OTHER, "en")
        listed = {row["name"]: row["highest_step"] for row in api.get("/api/v1/workloads").json["items"]}
        rows = {row["pod"]: row["highest_step"] for row in api.get("/api/v1/allocations").json["items"]}
    assert listed == {"server": "notice", "other": "reclaim"}
    assert rows == {"pod-0": "notice", "pod-1": "reclaim", "pod-2": "reclaim"}
    assert english["workload"]["highest_step"] == "notice"
    assert "A second opinion doubts that 1 of 2 GPUs of this workload is idle" in english["reasons"][-1]
    assert "第二意见认为该工作负载的 2 张 GPU 中有 1 张可能并非空闲" in chinese["reasons"][-1]
    doubted, agreed = english["allocations"]
    assert (
        "(90% confident) calls it suspicious, so the highest step is a notice: memory held, core at 0"
        in doubted["reasons"][-1]
    )
    assert (
        "（置信度 90%）认为是可疑，因此最多只发通知：memory held, core at 0" in chinese["allocations"][0]["reasons"][-1]
    )
    assert doubted["opinion"]["adjusted_score"] == 12
    assert "second opinion" not in " ".join(agreed["reasons"])
    assert "second opinion" not in " ".join(free["reasons"])


@pytest.mark.parametrize(("theirs", "is_raised"), [(0, False), (77, True)])
def test_the_exported_score_is_never_below_the_rules(model: FakeModel, theirs: float, is_raised: bool):
    model.answer = ANSWER | {"adjusted_score": theirs}
    result = run(model, (SERVER, resting()))
    with running_api(result) as api:
        page = api.get("/metrics").body.decode()
        (row,) = api.get("/results").json
    (exported,) = re.findall(r"^gpu_ai_adjusted_score\{.*\} (\S+)$", page, flags=re.MULTILINE)
    expected = theirs if is_raised else round(float(result.verdicts.score[0]), 1)
    assert float(exported) == row["ai_analysis"]["ai_adjusted_score"] == expected
    assert row["score"] == round(float(result.verdicts.score[0]), 1)


def test_braces_in_a_text_of_the_model_are_not_interpreted(model: FakeModel):
    model.answer = ANSWER | {"reason": "{gpus} {0} %s <b>{secret}</b>"}
    with running_api(run(model, (SERVER, resting()))) as api:
        shown = show(api, SERVER, "en")["allocations"][0]["reasons"][-1]
    assert "{gpus} {0} %s <b>{secret}</b>" in shown
