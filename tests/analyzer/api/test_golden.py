"""The OpenAPI document, the answers of /api/v1 on sample sites and the /metrics page, as they are public.

After an intended change: `make golden`, then read the diff.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from docs.openapi import render_document
from gpusteward.analyzer.ledger.snoozes import Snooze
from gpusteward.analyzer.pipeline import CycleStats
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies
from gpusteward.analyzer.reports.report import EndedWorkload, Group
from gpusteward.analyzer.reports.report_query import ReportQuery
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.tables import NodeModel
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.usages import AllocationKey
from tests.analyzer.api.fake_reclaim import FakeReclaim
from tests.analyzer.api.golden_files import assert_golden, assert_golden_json
from tests.analyzer.api.sample_results import H100, OPINION, SERVER, TRAINER, small_result
from tests.analyzer.api.server import Api, FakeLedger, make_result, running_api
from tests.analyzer.reports.example_reports import example_report, make_amounts
from tests.analyzer.reports.ledger_rows import at
from tests.analyzer.usage_tables import AT

OPERATOR = "operator-" + "o" * 20
SETTINGS = Settings.model_validate(
    {
        "prices": {"currency": "EUR", "per_gpu_hour": {"H100": 4.0}},
        "reports": {"teams": {"vision": "research"}},
        "server": {"tokens": f"operator: {OPERATOR}\n"},
    }
)
PERIOD = "since=2026-01-05T00:00:00Z&until=2026-01-12T00:00:00Z"
TRAINER_PATH, SERVER_PATH = "/api/v1/workloads/Job/vision/trainer", "/api/v1/workloads/Deployment/chat/server"
ANSWERS = {
    "workloads": "/api/v1/workloads",
    "workloads-page": "/api/v1/workloads?limit=2&sort=-name",
    "workloads-filtered": "/api/v1/workloads?namespace=chat&activity=idle&node=n2&q=SERV",
    "workloads-table": "/api/v1/workloads/table",
    "workload": f"{SERVER_PATH}?language=zh",
    "workload-active": TRAINER_PATH,
    "workload-missing": "/api/v1/workloads/Job/vision/nobody",
    "ended-workloads": "/api/v1/workloads/ended?name=trainer",
    "series": f"{TRAINER_PATH}/series",
    "processes": f"{TRAINER_PATH}/processes",
    "history": f"{SERVER_PATH}/history",
    "allocations": "/api/v1/allocations",
    "allocations-page": "/api/v1/allocations?limit=2&sort=-power&q=vision",
    "namespaces": "/api/v1/namespaces",
    "gpus": "/api/v1/gpus",
    "gpus-filtered": "/api/v1/gpus?activity=free&sort=-node",
    "gpu-map": "/api/v1/gpu-map",
    "nodes": "/api/v1/nodes",
    "node": "/api/v1/nodes/n2?language=zh",
    "node-mig": "/api/v1/nodes/n3",
    "node-processes": "/api/v1/nodes/n2/processes",
    "overview": "/api/v1/overview?language=zh",
    "health": "/api/v1/health",
    "sources": "/api/v1/sources",
    "me": "/api/v1/me",
    "session": "/api/v1/session",
    "report": f"/api/v1/reports?{PERIOD}",
    "report-groups": f"/api/v1/reports/groups?{PERIOD}",
    "plan": "/api/v1/plan",
    "plan-filtered": "/api/v1/plan?namespace=chat&language=zh",
    "actions": "/api/v1/actions",
    "action": "/api/v1/actions/a1?language=zh",
    "savings": "/api/v1/savings",
    "reclaim": "/api/v1/reclaim",
    "policies": "/api/v1/policies",
    "lendable": "/api/v1/lendable",
    "replay": "/api/v1/replay",
    "snoozes": "/api/v1/snoozes",
    "deliveries": "/api/v1/deliveries",
}
OF_CLUSTERS = ("workloads", "workloads-table", "allocations", "namespaces", "gpus", "gpu-map", "nodes", "overview")


def normalize(answer: Any) -> Any:
    """Without the name of this process; the evidence is in the order of the sample, which is any."""
    if isinstance(answer, list):
        return [normalize(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    found = {name: normalize(value) for name, value in answer.items()}
    if "replica" in found:
        found["replica"] |= {"name": "NAME", "leader": "NAME"}
    if isinstance(found.get("evidence"), dict):
        found["evidence"] = dict(sorted(found["evidence"].items()))
    return found


def name_clusters(result: Result) -> Result:
    """The same with the nodes in two clusters, each of which has a free GPU."""

    def move(one: AllocationKey) -> AllocationKey:
        user = "lee" if one.container.pod == "trainer-0" else ""
        container = replace(one.container, cluster="east" if one.node == "n1" else "west", user=user)
        return replace(one, container=container)

    usage = result.verdicts.usage
    fleet = {NodeModel("n1", H100, "east"): 2, NodeModel("n2", H100, "west"): 2, NodeModel("n3", H100, "west"): 2}
    usage = replace(usage, allocations=[move(one) for one in usage.allocations], fleet=fleet)
    return make_result(usage, settings=SETTINGS, opinions={2: OPINION})


def make_ledger() -> FakeLedger:
    """One report for every query, an ended workload and a snooze."""
    report = example_report(ReportQuery(at(0), at(168)))
    groups = [Group("trainer", "Job", "vision", make_amounts(active=10, idle=90), 0.25)]
    ended = EndedWorkload(
        *("Job", "vision", "trainer", at(0), at(100), 2, ("lee",), (H100,), ("n1",), "EUR"), make_amounts(idle=3)
    )
    ledger = FakeLedger(replace(report, groups=groups), [ended])
    server = WorkloadKey("Deployment", "chat", "server")
    ledger.snoozes[server] = Snooze(server, AT + 3600, "a demo", "lee", AT - 60)
    return ledger


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    result = small_result()
    usage = replace(result.verdicts.usage, fleet={NodeModel("n2", H100): 4, NodeModel("n3", H100): 2})
    result = make_result(usage, settings=SETTINGS, opinions={2: OPINION})
    components = {"ledger": make_ledger(), "reclaim": FakeReclaim([TRAINER, SERVER]), "policies": WatchedPolicies(None)}
    with running_api(result, **components) as running:
        yield running


@pytest.fixture(scope="module")
def clusters() -> Iterator[Api]:
    with running_api(name_clusters(small_result()), ledger=make_ledger()) as running:
        yield running


def test_the_openapi_document_is_as_published():
    assert_golden_json("openapi.json", json.loads(render_document()))


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_as_published(api: Api, name: str):
    response = api.get(ANSWERS[name], token=OPERATOR)
    assert response.status == (404 if name == "workload-missing" else 200)
    assert_golden_json(f"v1/{name}.json", normalize(response.json))


@pytest.mark.parametrize("name", OF_CLUSTERS)
def test_an_answer_of_several_clusters_is_as_published(clusters: Api, name: str):
    path = ANSWERS[name]
    answers: Any = {chosen: clusters.get(f"{path}?cluster={chosen}").json for chosen in ("west", "nowhere")}
    assert_golden_json(f"v1/{name}-of-clusters.json", {"": clusters.get(path).json, **answers})


@pytest.mark.parametrize("kind", ["csv", "focus"])
def test_a_report_is_as_published(api: Api, kind: str):
    text = api.get(f"/api/v1/reports?{PERIOD}&format={kind}", token=OPERATOR).body.decode()
    assert_golden(f"v1/report.{kind}", text.replace("\r\n", "\n"))


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_the_metrics_page_is_as_published(accept: str):
    stats = CycleStats(created_at=AT - 100, finished=3, failed=1, last_error="down", last_ended_at=AT + 1)
    with running_api(name_clusters(small_result()), reclaim=FakeReclaim([TRAINER])) as api:
        api.cycles.stats = stats
        page = api.get("/metrics", token=OPERATOR, Accept=accept).body.decode()
    assert_golden("metrics.txt" if accept == "text/plain" else "metrics.openmetrics.txt", page)
