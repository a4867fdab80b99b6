"""gpu-oour's endpoints, metrics and errors, as its own document and FastAPI, with which it was written, have them."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.usages import Measure
from gpusteward.messages.errors import api_errors
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, FakeSettings, make_result, running_api
from tests.analyzer.usage_tables import GIB, resting, signal, table_of, working
from tests.conftest import give_up

ENDPOINTS = {
    "/": "GET",
    "/health": "GET",
    "/analyze": "GET",
    "/results": "GET",
    "/results/low": "GET",
    "/results/stats": "GET",
    "/metrics": "GET",
    "/config": "GET",
    "/config/update": "POST",
}
METRICS = {
    *("gpu_utilization_score", "gpu_core_utilization", "gpu_memory_used_mb", "gpu_power_usage_watts"),
    *("gpu_memory_copy_utilization", "gpu_sm_clock_mhz", "gpu_ai_analysis_confidence", "gpu_ai_adjusted_score"),
    *("gpu_total_count", "gpu_low_utilization_count", "gpu_idle_count", "gpu_average_score", "gpu_status_count"),
    *("gpu_namespace_count", "gpu_namespace_average_score"),
    *("gpu_analysis_total", "gpu_analysis_errors_total", "gpu_analysis_duration_seconds"),
}
"""Of its document."""
UNDOCUMENTED = {
    *("gpu_monitor_service_info", "gpu_analysis_created", "gpu_analysis_errors_created"),
    *("gpu_analysis_duration_seconds_created", "gpu_memory_total_mb", "gpu_memory_usage_percent"),
}
"""On its page, but not in its document."""
GUIDE = Path(__file__).parents[3] / "docs/switching.md"
DOCUMENTS = Path(__file__).parents[4] / "shared" / "seeds"
"""Beside the project where it is developed, and in CI."""


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with running_api(small_result()) as running:
        yield running


@pytest.fixture(scope="module")
def fastapi() -> TestClient:
    """The parameters of gpu-oour, with FastAPI's own errors."""
    app = FastAPI()

    @app.get("/analyze")
    def analyze(use_ai: bool | None = None) -> bool | None:
        return use_ai

    @app.post("/config/update")
    def update(
        threshold: int | None = None, interval: int | None = None, *, ai_enabled: bool | None = None
    ) -> list[object]:
        return [threshold, interval, ai_enabled]

    return TestClient(app)


def test_the_lists_here_are_those_of_its_document():
    documents = list(DOCUMENTS.glob("003_*.txt"))
    if not documents:
        give_up("the document of gpu-oour is not beside the checkout, in ../shared/seeds")
    for document in documents:
        text = document.read_text()
        rows = re.findall(r"^\| \**`(/[a-z/]*)`\** \| \**(GET|POST)\** \|", text, re.MULTILINE)
        assert dict(rows) == ENDPOINTS
        assert set(re.findall(r"^- `(gpu_[a-z_]+)", text, re.MULTILINE)) == METRICS
        exported = set(re.findall(r"^(gpu_[a-z_]+)(?:\{.*\})? [0-9.]+$", text, re.MULTILINE))
        assert exported <= METRICS


@pytest.mark.parametrize(("path", "method"), ENDPOINTS.items())
def test_every_endpoint_answers(api: Api, path: str, method: str):
    assert api.get(path, method=method).status == 200


def test_both_pages_of_fastapi_answer(api: Api):
    docs, redoc = api.get("/docs"), api.get("/redoc")
    assert (redoc.status, redoc.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert redoc.body == docs.body


def test_every_metric_name_is_on_the_page(api: Api):
    page = api.get("/metrics").body.decode()
    names = {sample.name for family in parse_text(page) for sample in family.samples}
    families = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}
    assert names | families >= METRICS | UNDOCUMENTED


def test_the_histogram_has_the_fifteen_buckets_of_gpu_oour(api: Api):
    registry = CollectorRegistry()
    Histogram("gpu_analysis_duration_seconds", "as gpu-oour creates it", registry=registry)
    expected = _find_buckets(generate_latest(registry).decode())
    assert len(expected) == 15
    assert expected <= _find_buckets(api.get("/metrics").body.decode())


def _find_buckets(page: str) -> set[str]:
    return set(re.findall(r'^gpu_analysis_duration_seconds_bucket\{le="([^"]+)"\}', page, re.MULTILINE))


def test_a_created_series_has_the_time_since_which_is_counted_in_both_formats(api: Api):
    created_at = round(api.dependencies.cycles.stats.created_at, 3)
    text = api.get("/metrics").body.decode()
    openmetrics = api.get("/metrics", Accept="application/openmetrics-text; version=1.0.0").body.decode()
    for parse, page in ((parse_text, text), (parse_openmetrics, openmetrics)):
        samples = [sample for family in parse(page) for sample in family.samples]
        created = {sample.name: sample.value for sample in samples if sample.name.endswith("_created")}
        expected = sorted(name for name in UNDOCUMENTED if name.endswith("_created"))
        assert created == dict.fromkeys(expected, created_at)
    assert "# TYPE gpu_analysis_created gauge\n" in text
    assert "# TYPE gpu_analysis_created" not in openmetrics, "there it is a sample of the counter"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/config/update?threshold=20.5"),
        ("POST", "/config/update?threshold=nan"),
        ("POST", "/config/update?threshold=many&interval=1e3&ai_enabled=perhaps"),
        ("GET", "/analyze?use_ai=perhaps"),
        ("GET", "/config/update"),
    ],
)
def test_an_error_has_the_detail_that_fastapi_writes(api: Api, fastapi: TestClient, method: str, path: str):
    ours, theirs = api.get(path, method=method), fastapi.request(method, path)
    assert ours.status == theirs.status_code >= 400
    assert ours.json["detail"] == theirs.json()["detail"]
    assert set(ours.json) == {"type", "title", "status", "detail", "message"}, "the problem object is there, too"
    assert ours.json["status"] == ours.status


def test_our_text_of_an_error_is_beside_that_of_fastapi(api: Api):
    invalid = api.post("/config/update?threshold=20.5", Accept_Language="zh").json
    assert invalid["message"] == "threshold：必须是整数"
    method = api.get("/config/update").json
    assert (method["detail"], method["message"]) == ("Method Not Allowed", "this endpoint does not support GET")


def test_an_error_of_our_own_api_stays_a_problem_object(api: Api):
    response = api.get("/api/v1/gpus?limit=x")
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json["detail"] == "limit: must be an integer"
    assert "message" not in response.json
    assert api.get("/nowhere").json["detail"] == api_errors.UNKNOWN_PATH.en


def test_a_threshold_with_a_fraction_changes_nothing():
    settings = FakeSettings(Settings())
    with running_api(small_result(), settings=settings) as api:
        assert api.post("/config/update?threshold=20.5").status == 422
    assert (settings.changed, api.cycles.requested) == ([], [])


def test_an_analysis_with_a_model_that_is_not_configured_is_triggered_without_it():
    with running_api(small_result(), settings=Settings()) as api:
        response: dict[str, Any] = api.get("/analyze?use_ai=true").json
    assert "ai.api_url" in response.pop("note")
    assert response == {"status": "triggered", "message": "GPU analysis started in background", "use_ai": True}
    assert api.cycles.requested == [True]


def test_what_is_added_where_clusters_are_known_is_in_the_guide():
    """A row and a series differ from those of gpu-oour in nothing else."""
    table = table_of(resting(), working())
    clusters = [
        replace(one, container=replace(one.container, cluster=f"c{number}"))
        for number, one in enumerate(table.allocations)
    ]

    def read(table: UsageTable) -> tuple[set[str], list[set[str]]]:
        with running_api(make_result(table)) as api:
            rows, page = api.get("/results").json, api.get("/metrics").body.decode()
        samples = [sample for family in parse_text(page) for sample in family.samples]
        counts = [set(sample.labels) for sample in samples if sample.name == "gpu_total_count"]
        return set(rows[0]), counts

    (row, (labels,)), (named_row, named_labels) = read(table), read(replace(table, allocations=clusters))
    assert named_row - row == {"cluster"}
    assert (labels, named_labels) == (set(), [{"cluster"}] * 2)
    assert "counts and means are one series per cluster" in GUIDE.read_text()


def test_the_three_rows_of_the_guide_have_these_scores_and_states():
    """docs/switching.md, "Three rows side by side"."""

    def measured(copy: float, memory_mb: float, watts: float) -> dict[Any, float]:
        limits = signal(Measure.MEMORY_TOTAL, 80 * GIB) | signal(Measure.POWER_LIMIT, 700)
        used = signal(Measure.MEMORY_COPY, copy) | signal(Measure.MEMORY_USED, memory_mb * 2**20)
        return limits | used | signal(Measure.POWER, watts)

    result = make_result(
        table_of(
            resting() | measured(0.1, 16_000, 210) | signal(Measure.CORE, 0.3),
            resting() | measured(0.0, 40_960, 110),
            measured(0.05, 16_000, 90),
        )
    )
    with running_api(result) as api:
        results = api.get("/results")
        low = api.get("/results/low").json["gpus"]
    rows = [(row["score"], row["status"]) for row in results.json]
    assert rows == [(11.6, "idle"), (23.9, "normal")]
    assert results.headers["X-Unknown-Count"] == "1"
    assert [row["score"] for row in low] == [11.6]
    guide = GUIDE.read_text()
    assert "15 + 2 + 3.9 + 3 = 23.9, `normal`" in guide
    assert "0 + 0 + 10 + 1.6 = 11.6, which is in the band of `low`, but `idle`" in guide
