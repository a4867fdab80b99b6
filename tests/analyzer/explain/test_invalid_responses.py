"""Responses of a faulty or hostile model: invalid bytes, invalid shapes, too much data."""

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.explain.failures import ModelFailure
from tests.analyzer.explain.cases import NOW, ai, parked
from tests.fakes.model_server import ANSWER, FakeModel

CHAT = "/v1/chat/completions"


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with FakeModel() as fake:
        yield fake


BAD_BODIES = {
    "nothing": b"",
    "html": b"<html>welcome</html>",
    "half": b'{"choices": [{"message": {"content": ',
    "number": b"7",
    "list": b"[]",
    "empty object": b"{}",
    "no choices": json.dumps({"id": "x", "object": "chat.completion", "created": 1, "choices": []}).encode(),
    "null choices": json.dumps({"id": "x", "choices": None}).encode(),
    "strange choices": json.dumps({"id": 3, "choices": [{"message": {"tool_calls": "yes"}}]}).encode(),
    "deep": b"[" * 100_000,
    "not text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_an_invalid_response_costs_only_the_opinion(model: FakeModel, body: bytes) -> None:
    model.body = body
    explainer = Explainer(ai(model.url + CHAT, retry_times=1))
    assert explainer.explain([parked()], now=NOW) == {}
    assert explainer.counters.failures.total() == explainer.counters.calls > 0


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_an_invalid_anthropic_response_costs_only_the_opinion(model: FakeModel, body: bytes) -> None:
    model.body = body
    explainer = Explainer(ai(model.url + "/v1/messages", retry_times=1))
    assert explainer.explain([parked()], now=NOW) == {}
    assert explainer.counters.failures.total() == 1


def test_an_endless_or_compressed_response_is_not_read(model: FakeModel) -> None:
    model.is_endless = True
    explainer = Explainer(ai(model.url + CHAT, retry_times=1, output="tool"))
    assert explainer.explain([parked()], now=NOW) == {}
    model.is_endless = False
    model.body, model.headers = gzip.compress(b" " * 10_000_000), {"content-encoding": "gzip"}
    assert explainer.explain([parked()], now=NOW) == {}
    assert explainer.counters.failures == {ModelFailure.INVALID_RESPONSE: 2}


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "delete"},
        {"status": None},
        {"confidence": "very"},
        {"confidence": None},
        {"adjusted_score": "NaN"},
        {"reason": 5},
        {"reason": ["a"]},
    ],
    ids=str,
)
def test_a_response_of_another_shape_is_refused(model: FakeModel, wrong: dict[str, Any]) -> None:
    model.answer = ANSWER | wrong
    explainer = Explainer(ai(model.url + CHAT, retry_times=1))
    assert explainer.explain([parked()], now=NOW) == {}
    assert explainer.counters.failures == {ModelFailure.INVALID_RESPONSE: 2}


def test_numbers_are_clamped_and_text_is_cleaned_and_cut(model: FakeModel) -> None:
    model.answer = ANSWER | {"confidence": 7, "adjusted_score": -3, "reason": "a\x1b[31m\n\u202eb" + "x" * 9999}
    opinion = Explainer(ai(model.url + CHAT)).explain([parked()], now=NOW)["ml/trainer"]
    assert (opinion.confidence, opinion.adjusted_score) == (1.0, 0.0)
    assert opinion.reason.startswith("a[31m bxxx")
    assert len(opinion.reason) == 600
