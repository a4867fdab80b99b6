"""Responses match the OpenAPI document, nothing blocks the event loop, and /docs needs no other host."""

import asyncio
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from http import HTTPStatus
from typing import Any

import httpx2
import pytest
import schemathesis
from blockbuster import BlockingError, blockbuster_ctx
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import negative_data_rejection, positive_data_acceptance
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.specs.openapi.schemas import OpenApiSchema

from gpusteward.analyzer.api.build import build_api
from gpusteward.analyzer.server.http_server import ConnectionLimits
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.core.node.containers import Workload
from gpusteward.core.usages import AllocationKey
from tests.analyzer.api.fake_reclaim import FakeReclaim
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, FakeSource, make_dependencies, running_api

WORKLOAD = "/api/v1/workloads/Job/vision/trainer"
OPERATIONS = [
    f"{method} {route.path}"
    for route in build_api(make_dependencies(small_result())).routes
    if isinstance(route, APIRoute) and route.include_in_schema
    for method in sorted(route.methods)
]
EVENTS = "/api/v1/events"
"""Its response does not end."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return build_api(make_dependencies(small_result())).openapi()


@pytest.fixture(scope="module")
def schema(document: dict[str, Any]) -> OpenApiSchema:
    return schemathesis.openapi.from_dict(document)


@pytest.fixture(scope="module")
def paths(document: dict[str, Any]) -> list[str]:
    """What can be read without naming a thing."""
    return sorted(
        f"{path}?name=trainer" if path.endswith("/ended") else path
        for path, item in document["paths"].items()
        if "get" in item and "{" not in path and path != EVENTS
    )


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with running_api(small_result(), reclaim=FakeReclaim([Workload("Job", "vision", "trainer")])) as running:
        yield running


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if not each.endswith(EVENTS)])
def test_every_response_matches_the_openapi_document(api: Api, schema: OpenApiSchema, operation: str):
    """Its cases are computed here; `schema.parametrize` would compute all in every process that collects tests."""
    method, path = operation.split()
    run_cases = build_operation_test(
        config=schema.config,
        operation=schema[path][method],
        test_func=check_response,
        given_kwargs={},
        feedback=FeedbackSources(),
    )
    run_cases(api=api)


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def check_response(api: Api, case: schemathesis.Case) -> None:
    # No schema can express which cursors and policies are valid, nor which of two times is the earlier one.
    body = set(case.body) if isinstance(case.body, dict) else set()
    unsaid = {"cursor", "policy", "since", "until"} & (set(case.query or {}) | body)
    response = case.call(base_url=api.url)
    if response.status_code == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:  # by the server, before any endpoint
        assert len(response.request.url or "") > ConnectionLimits().head_bytes - 1000
        return
    excluded = [positive_data_acceptance] if unsaid else []
    if response.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:  # a refusal that the check does not know
        excluded.append(negative_data_rejection)
    case.validate_response(response, excluded_checks=excluded)


def test_every_operation_of_the_document_is_tested(document: dict[str, Any]):
    assert {f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item} == {*OPERATIONS}


def test_every_operation_is_described_and_lists_problem_objects(document: dict[str, Any]):
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert operation["summary"], (method, path)
            assert operation["description"], (method, path)
            assert "application/problem+json" in operation["responses"]["4XX"]["content"]


OF_SETTINGS = {"/config/update": {"threshold", "interval"}}
"""Their limits are those of the settings: `tests/attacks/test_numbers.py`."""


def test_every_number_that_a_client_sends_has_an_upper_limit(document: dict[str, Any]):
    def list_unlimited(schema: dict[str, Any], name: str) -> set[str]:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        is_limited = not {"maximum", "exclusiveMaximum", "enum"}.isdisjoint(schema)
        found = {name} if schema.get("type") in ("integer", "number") and not is_limited else set()
        parts = [(each, name) for key in ("anyOf", "oneOf", "allOf") for each in schema.get(key, ())]
        parts += [(each, key) for key, each in schema.get("properties", {}).items()]
        parts += [(schema["items"], name)] if "items" in schema else []
        return found.union(*(list_unlimited(*part) for part in parts))

    found: dict[str, set[str]] = {}
    for path, item in document["paths"].items():
        for operation in item.values():
            sent = [(each["schema"], each["name"]) for each in operation.get("parameters", ())]
            sent += [(each["schema"], "") for each in operation.get("requestBody", {}).get("content", {}).values()]
            if unlimited := set[str]().union(*(list_unlimited(*each) for each in sent)):
                found[path] = unlimited
    assert found == OF_SETTINGS


def test_nothing_blocks_the_event_loop(paths: list[str]):
    """Every endpoint on a loop on which a blocking call is an error, with an engine that blocks."""

    class SlowSource(FakeSource):
        def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
            time.sleep(0.01)
            return super().read_series(allocation, at, seconds=seconds)

    app = build_api(make_dependencies(small_result(), source=SlowSource()))
    app.openapi()

    async def call_every_operation() -> None:
        transport = httpx2.ASGITransport(app=app, client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for path in [*paths, WORKLOAD, f"{WORKLOAD}/series", "/docs", "/docs/docs.js", "/openapi.json"]:
                response = await client.get(path)
                assert response.status_code == 200, (path, response.text)
            assert (await client.post("/config/update?threshold=30")).status_code == 200

    with blockbuster_ctx() as guard:
        asyncio.run(call_every_operation())
        with pytest.raises(BlockingError):
            asyncio.run(_block())
        assert guard is not None


async def _block() -> None:
    time.sleep(0.001)


class Links(HTMLParser):
    """Everything a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href")]


def test_docs_load_nothing_from_other_hosts(api: Api):
    page = api.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    links = Links()
    links.feed(page.body.decode())
    fetched = [link for link in links.found if not link.startswith("#")]
    assert fetched == ["docs/docs.css", "openapi.json", "docs/docs.js"]
    for link in fetched:
        response = api.get(f"/{link}")
        assert response.status == 200
        assert not re.search(rb"https?://", response.body)


def test_docs_list_every_endpoint_and_every_schema(api: Api, document: dict[str, Any]):
    page = api.get("/docs").body.decode()
    for path, item in document["paths"].items():
        assert f"<code>{path}</code>" in page
        assert all(operation["summary"] in page for operation in item.values())
    assert all(f'id="{name}"' in page for name in document["components"]["schemas"])
