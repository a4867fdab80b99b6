"""/api/v1: pages, sorting, filters, ETag, and the one error shape."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.settings.settings import Settings
from tests.analyzer.api.sample_results import H100, small_result
from tests.analyzer.api.server import Api, FakeSource, running_api
from tests.analyzer.usage_tables import AT

LISTS = ("workloads", "allocations", "gpus", "namespaces")


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with running_api(small_result()) as running:
        yield running


def items(api: Api, path: str) -> list[dict[str, object]]:
    response = api.get(f"/api/v1/{path}")
    assert response.status == 200, response.body
    return list(response.json["items"])


def names(api: Api, query: str) -> list[object]:
    return [row["name"] for row in items(api, f"workloads{query}")]


def test_workloads_with_the_most_idle_gpus_come_first_then_the_longest_idle(api: Api):
    rows = items(api, "workloads")
    counts = [(row["name"], row["allocations"], row["idle_allocations"], row["unknown_allocations"]) for row in rows]
    assert counts == [("server", 1, 1, 0), ("trainer", 2, 1, 0), ("lonely", 1, 0, 0), ("unread", 1, 0, 1)]
    gpus = [(row["name"], row["gpus"], row["idle_gpus"], row["unknown_gpus"]) for row in rows]
    assert gpus == [("server", 1, 1, 0), ("trainer", 2, 1, 0), ("lonely", round(1 / 7, 6), 0, 0), ("unread", 1, 0, 1)]


def test_unknown_values_come_last_in_both_directions(api: Api):
    assert names(api, "?sort=score")[-1] == "unread"
    assert names(api, "?sort=-score")[-1] == "unread"
    assert names(api, "?sort=-score")[:-1] == names(api, "?sort=score")[-2::-1]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?namespace=chat&sort=name", ["lonely", "server"]),
        ("?activity=idle", ["server"]),
        ("?state=unknown", ["unread"]),
        ("?state=unknown&state=idle&sort=name", ["server", "unread"]),
        ("?signature=parked", ["server"]),
        ("?kind=Job", ["trainer"]),
        ("?node=n2&sort=name", ["server", "trainer"]),
        ("?node=n2&namespace=vision", ["trainer"]),
        ("?model=none", []),
        ("?q=TRAIN", ["trainer"]),
        ("?sort=-name", ["unread", "trainer", "server", "lonely"]),
    ],
)
def test_filters_and_sorting_of_workloads(api: Api, query: str, expected: list[str]):
    assert names(api, query) == expected


def test_a_gpu_lists_its_holders(api: Api):
    (row,) = items(api, "gpus?q=lonely")
    assert (row["id"], row["uuid"], row["instance"], row["activity"]) == ("GPU-d/7", "GPU-d", "7", "active")
    assert row["holders"] == [
        {
            "namespace": "chat",
            "pod": "lonely",
            "container": "main",
            "share": "mig",
            "activity": "active",
            "verdict": "active",
            "proof": "sampled",
            "gpu_fraction": round(1 / 7, 6),
        }
    ]
    assert row["gpus"] == round(1 / 7, 6)


def test_a_namespace_has_the_sums_of_its_allocations(api: Api):
    (row,) = items(api, "namespaces?namespace=vision")
    counts = ("allocations", "active", "idle", "unknown", "workloads", "idle_workloads")
    assert [row[name] for name in counts] == [3, 1, 1, 1, 2, 0]


def test_an_unknown_allocation_has_a_reason(api: Api):
    (row,) = items(api, "allocations?workload=Pod/vision/unread")
    assert (row["score"], row["state"], row["doubt"]) == (None, "unknown", "no-data")
    assert row["core_mean_ratio"] is None


@pytest.mark.parametrize("resource", LISTS)
def test_pages_by_cursor_give_every_row_once(api: Api, resource: str):
    seen: list[object] = []
    path = f"/api/v1/{resource}?limit=1"
    while path:
        page = api.get(path).json
        seen += page["items"]
        path = f"/api/v1/{resource}?limit=1&cursor={page['next']}" if page["next"] else ""
    assert seen == items(api, resource)
    assert page["total"] == len(seen)


def test_a_cursor_of_an_earlier_result_is_refused_with_advice():
    with running_api(small_result()) as api:
        cursor = api.get("/api/v1/workloads?limit=1").json["next"]
        api.publish(small_result(number=2, at=AT + 300))
        response = api.get(f"/api/v1/workloads?limit=1&cursor={cursor}")
    assert (response.status, response.json["type"]) == (410, "urn:gpusteward:problem:cursor-expired")
    assert "without a cursor" in response.json["detail"]


@pytest.mark.parametrize("change", ["&sort=name", "&namespace=chat"])
def test_a_cursor_belongs_to_its_sorting_and_filters(api: Api, change: str):
    cursor = api.get("/api/v1/workloads?limit=1").json["next"]
    assert api.get(f"/api/v1/workloads?limit=1&cursor={cursor}{change}").status == 422


@pytest.mark.parametrize("cursor", ["x", "%00", "W10", "WyIxIiwiMiIsLTFd", "eyJ9", "Zm9v" * 100])
def test_a_forged_cursor_is_a_client_error(api: Api, cursor: str):
    assert api.get(f"/api/v1/workloads?cursor={cursor}").status in (410, 422)


@pytest.mark.parametrize("path", ["/api/v1/workloads", "/api/v1/gpus?limit=2", "/results", "/results/stats"])
def test_a_response_that_the_client_has_is_not_sent_again(path: str):
    with running_api(small_result()) as api:
        first = api.get(path)
        again = api.get(path, If_None_Match=first.headers["etag"])
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
        api.publish(small_result(number=2, at=AT + 300))
        assert api.get(path, If_None_Match=first.headers["etag"]).status == 200


def test_another_query_has_another_etag(api: Api):
    tags = [api.get(f"/api/v1/{path}").headers["etag"] for path in ("gpus", "gpus?limit=2", "workloads")]
    assert len(set(tags)) == 3


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "sort=pods", "state=odd", "namepsace=chat", "cursor="])
@pytest.mark.parametrize("resource", LISTS)
def test_a_wrong_parameter_is_named(api: Api, resource: str, query: str):
    response = api.get(f"/api/v1/{resource}?{query}")
    assert (response.status, response.headers["content-type"]) == (422, "application/problem+json")
    assert query.partition("=")[0] in response.json["detail"]
    assert "odd" not in response.json["detail"]


def test_one_workload_has_reasons_in_both_languages_and_its_evidence(api: Api):
    english = api.get("/api/v1/workloads/Job/vision/trainer").json
    chinese = api.get("/api/v1/workloads/Job/vision/trainer?language=zh").json
    assert english["finding"] == "1 of 2 GPUs unused"
    assert chinese["finding"] != english["finding"]
    assert english["nodes"] == ["n1", "n2"]
    busy, unused = english["allocations"]
    assert busy["evidence"]["core_ratio.peak"] == 1.0
    assert "No work: every activity signal" in unused["reasons"][0]
    assert english["allocations_total"] == 2


def test_an_opinion_is_shown_beside_the_verdict(api: Api):
    (only,) = api.get("/api/v1/workloads/Deployment/chat/server").json["allocations"]
    assert (only["opinion"]["status"], only["opinion"]["model"]) == ("suspicious", "gpt-4")


def test_a_workload_that_holds_nothing_is_not_found(api: Api):
    for path in ("Job/vision/gone", "Job/vision/gone/series"):
        response = api.get(f"/api/v1/workloads/{path}")
        assert (response.status, response.json["type"]) == (404, "urn:gpusteward:problem:not-found")


@pytest.mark.parametrize("resource", LISTS)
def test_before_the_first_result_lists_are_not_ready(resource: str):
    with running_api(None) as api:
        response = api.get(f"/api/v1/{resource}")
    assert (response.status, response.json["type"]) == (503, "urn:gpusteward:problem:not-ready")
    assert response.headers["retry-after"] == "5"


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/api/v1/gpus/x", 404)])
def test_every_error_is_a_problem_object(api: Api, path: str, status: int):
    response = api.get(path)
    assert (response.status, response.headers["content-type"]) == (status, "application/problem+json")
    assert set(response.json) == {"type", "title", "status", "detail"}


def test_an_internal_error_is_a_problem_without_details():
    class BrokenSource(FakeSource):
        def describe(self) -> Mapping[str, Any]:
            raise RuntimeError("token=abc")

    with running_api(small_result(), source=BrokenSource()) as api:
        response = api.get("/api/v1/sources")
    assert (response.status, response.json["type"]) == (500, "urn:gpusteward:problem:internal")
    assert b"abc" not in response.body


def test_health_counts_unknown_allocations_by_reason(api: Api):
    health = api.get("/api/v1/health").json
    assert (health["ready"], health["allocations"], health["unknown"]) == (True, 5, {"no-data": 1})


def test_a_workload_has_its_users_models_nodes_and_the_cost_of_its_idle_gpus():
    """Money counts shares as fractions; a model without a price has no cost, never 0."""
    prices = PriceSettings(currency="EUR", per_gpu_hour={"H100": 4.0})
    with running_api(small_result(settings=Settings(prices=prices))) as priced:
        rows = {row["name"]: row for row in items(priced, "workloads?sort=-idle_cost")}
    trainer, server, lonely = (rows[name] for name in ("trainer", "server", "lonely"))
    assert (trainer["nodes"], trainer["nodes_total"], trainer["models"]) == (["n1", "n2"], 2, [H100])
    assert (trainer["currency"], trainer["cost_micros_per_hour"]) == ("EUR", 8_000_000)
    assert trainer["idle_cost_micros_per_hour"] == 4_000_000
    assert server["idle_cost_micros"] == round(4_000_000 * 600 / 3600), "idle for ten minutes"
    assert (lonely["idle_cost_micros"], lonely["cost_micros_per_hour"]) == (None, round(4_000_000 / 7))
    assert list(rows)[:2] == ["server", "trainer"]
    with running_api(small_result()) as unpriced:
        listed = items(unpriced, "workloads?sort=-idle_cost")
    assert [row["idle_cost_micros"] for row in listed] == [None] * 4
    assert [row["name"] for row in listed][:2] == ["server", "trainer"], "idle GPUs first, also without a price"
