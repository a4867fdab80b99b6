"""Errors of the API in the language of the request."""

from collections.abc import Iterator

import pytest
from starlette.datastructures import Headers

from gpusteward.analyzer.api.http.problems import find_language
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.messages.errors import api_errors
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, FakeDeliveries, FakeSource, running_api


class ChineseFailure(FakeDeliveries):
    """Fails with a message that has a field called like an argument of ProblemError."""

    def read_deliveries(self, state: str | None, limit: int) -> list[object]:
        raise SourceError(Message("the outbox returned {status}", "发件箱返回 {status}"), status=7)


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with running_api(small_result(), deliveries=ChineseFailure()) as running:
        yield running


@pytest.mark.parametrize(
    ("accept_language", "language"),
    [
        ("", "en"),
        ("*", "en"),
        ("en", "en"),
        ("de, fr", "en"),
        ("zh", "zh"),
        ("zh-CN", "zh"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-US,en;q=0.9,zh;q=0.8", "en"),
        ("en;q=0.5, zh", "zh"),
        ("en, zh", "en"),
        ("zh, en", "zh"),
        ("de, zh;q=0.5", "zh"),
        ("zh;q=0", "en"),
        ("zh;q=much", "en"),
    ],
)
def test_the_language_follows_accept_language_and_is_english_otherwise(accept_language: str, language: str):
    assert find_language(Headers({"Accept-Language": accept_language})) == language


@pytest.mark.parametrize(
    ("path", "english", "chinese"),
    [
        ("/nowhere", api_errors.UNKNOWN_PATH.en, api_errors.UNKNOWN_PATH.zh),
        ("/api/v1/reclaim/off", "this endpoint does not support GET", "该端点不支持 GET"),
        ("/api/v1/workloads/Job/no/such", api_errors.WORKLOAD_NOT_FOUND.en, api_errors.WORKLOAD_NOT_FOUND.zh),
        ("/api/v1/gpus?limit=5000", "limit: must be at most 1000", "limit：不能大于 1000"),
        ("/api/v1/gpus?limit=x", "limit: must be an integer", "limit：必须是整数"),
        ("/api/v1/gpus?nodes=x", "nodes: unknown parameter", "nodes：未知参数"),
        (
            "/api/v1/deliveries?state=x",
            "state: must be one of 'pending', 'done' or 'dead'",
            "state：只能是 'pending'、'done'、'dead'",
        ),
        ("/api/v1/deliveries", "the outbox returned 7", "发件箱返回 7"),
    ],
)
def test_an_error_has_the_same_type_and_its_text_in_either_language(api: Api, path: str, english: str, chinese: str):
    plain, translated = api.get(path), api.get(path, Accept_Language="zh-CN,zh;q=0.9,en;q=0.5")
    assert (plain.status, plain.json["type"]) == (translated.status, translated.json["type"])
    assert (plain.json["detail"], translated.json["detail"]) == (english, chinese)
    assert translated.json["title"] == api_errors.TITLES[plain.status].zh


def test_an_internal_error_is_translated_too():
    class BrokenSource(FakeSource):
        def describe(self) -> dict[str, object]:
            raise RuntimeError("oops")

    with running_api(small_result(), source=BrokenSource()) as api:
        problem = api.get("/api/v1/sources", Accept_Language="zh").json
    assert (problem["title"], problem["detail"]) == (api_errors.TITLES[500].zh, api_errors.INTERNAL.zh)


def test_every_other_invalid_value_is_described_by_the_validator(api: Api):
    detail = api.get("/api/v1/workloads?q=" + "&q=".join("x" * 51)).json["detail"]
    assert detail == "q: must have at most 50 values"
