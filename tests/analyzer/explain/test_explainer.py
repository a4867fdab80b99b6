"""Requests to a model through the real SDKs; a failing model costs only its opinion."""

import logging
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.explain.failures import ModelFailure
from gpusteward.analyzer.setting_values import SecretFile
from tests.analyzer.explain.cases import KEY, NOW, ai, parked, several
from tests.fakes.model_server import ANSWER, FakeModel, unreachable_url

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with FakeModel() as fake:
        yield fake


@pytest.mark.parametrize(
    ("address", "changes", "path"),
    [
        (CHAT, {}, CHAT),
        ("/v1", {}, CHAT),
        ("/proxy/v1/chat/completions/", {"model": "claude-3-opus"}, "/proxy" + CHAT),
        (CHAT + "?tenant=a&route=x%2Fy&flag=", {}, CHAT + "?tenant=a&route=x%2Fy&flag="),
        ("/v1?tenant=a&tenant=b", {}, CHAT + "?tenant=a&tenant=b"),
        ("/v1/messages?tenant=a", {"model": "claude-3-opus"}, "/v1/messages?tenant=a"),
        ("/v1/messages", {"model": "claude-3-opus"}, "/v1/messages"),
        ("", {"model": "claude-3-opus", "provider": "anthropic"}, "/v1/messages"),
        (
            "/openai/deployments/judge/chat/completions?api-version=2024-02-01",
            {},
            "/openai/deployments/judge/chat/completions?api-version=2024-02-01",
        ),
        (
            "/openai/deployments/judge/chat/completions?api-version=2024-02-01&tenant=a",
            {},
            "/openai/deployments/judge/chat/completions?tenant=a&api-version=2024-02-01",
        ),
        ("", {"provider": "azure", "model": "j"}, "/openai/deployments/j/chat/completions?api-version=2024-10-21"),
    ],
)
def test_every_protocol_is_supported_at_the_configured_address(
    model: FakeModel, address: str, changes: dict[str, Any], path: str
) -> None:
    found = Explainer(ai(model.url + address, **changes)).explain([parked()], now=NOW)
    assert model.paths == [path]
    assert model.credentials == [KEY]
    opinion = found["ml/trainer"]
    assert (opinion.status, opinion.confidence, opinion.adjusted_score) == ("suspicious", 0.9, 12)
    assert (opinion.reason, opinion.rule_score, opinion.asked_at) == ("memory held, core at 0", 18.0, NOW)


@pytest.mark.parametrize("limits", [{"refuses_tools": True}, {"responds_with_text": True}])
def test_a_server_without_tools_is_sent_requests_for_json_text(model: FakeModel, limits: dict[str, bool]) -> None:
    vars(model).update(limits)
    explainer = Explainer(ai(model.url + CHAT, concurrency=1))
    assert len(explainer.explain(several(3), now=NOW)) == 3
    assert ["tools" in request for request in model.requests] == [True, False, False, False]


def test_the_request_has_the_language_and_the_maximum_length(model: FakeModel) -> None:
    Explainer(ai(model.url + CHAT, language="zh", max_tokens=321)).explain([parked()], now=NOW)
    assert "Chinese" in model.system
    assert model.requests[-1]["max_completion_tokens"] == 321


def test_the_same_evidence_is_sent_once_and_changed_evidence_again(model: FakeModel) -> None:
    explainer = Explainer(ai(model.url + CHAT, price_per_1k_tokens={"input": 0.01, "output": 0.03}))
    first = explainer.explain([parked()], now=NOW)
    assert explainer.explain([parked()], now=NOW + 300) == first
    noisy = parked(evidence={"core_ratio_mean": 0.0, "core_ratio_peak": 0.0, "memory_used_bytes_mean": 3.0e10 + 4096})
    assert explainer.explain([noisy], now=NOW + 600) == first
    explainer.explain([parked(evidence={"core_ratio_mean": 0.4})], now=NOW + 900)
    counters = explainer.counters
    assert (counters.calls, counters.opinions, counters.recalled) == (2, 2, 2)
    assert (counters.input_tokens, counters.output_tokens, counters.cost) == (2000, 200, pytest.approx(0.026))


def test_gpus_with_equal_cases_share_one_request(model: FakeModel) -> None:
    names = {"pod": "trainer", "namespace": "ml"}
    cases = [parked(f"gpu-{number}", names=names, score=float(number)) for number in range(8)]
    explainer = Explainer(ai(model.url + CHAT))
    for _ in range(2):
        found = explainer.explain(cases, now=NOW)
        assert [found[case.key].rule_score for case in cases] == [case.score for case in cases]
    assert len(model.requests) == 1


def test_changed_settings_apply_from_the_next_cycle(model: FakeModel) -> None:
    explainer = Explainer(ai(model.url + CHAT))
    explainer.explain([parked()], now=NOW)
    explainer.adopt(ai(model.url + CHAT, model="another"))
    assert explainer.explain([parked()], now=NOW)["ml/trainer"].model == "another"
    assert [request["model"] for request in model.requests] == ["gpt-4", "another"]


def test_a_missing_sdk_costs_only_the_opinion(model: FakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai.models.openai", None)
    explainer = Explainer(ai(model.url + CHAT))
    assert explainer.explain([parked()], now=NOW) == {}
    assert explainer.counters.failures == {ModelFailure.NOT_INSTALLED: 1}


def test_a_cycle_makes_no_more_calls_than_its_budget_and_later_cycles_continue(model: FakeModel) -> None:
    explainer = Explainer(ai(model.url + CHAT, budget=3))
    assert len(explainer.explain(several(5), now=NOW)) == 3
    assert explainer.counters.skipped == 2
    assert len(explainer.explain(several(5), now=NOW)) == 5
    assert len(model.requests) == 5


@pytest.mark.parametrize("concurrency", [1, 4])
def test_retries_count_towards_the_budget(model: FakeModel, concurrency: int) -> None:
    model.always = 500
    explainer = Explainer(ai(model.url + CHAT, budget=6, retry_times=10, concurrency=concurrency))
    assert explainer.explain(several(9), now=NOW) == {}
    assert explainer.counters.calls == len(model.requests) == 6


@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_a_transient_failure_is_retried(model: FakeModel, status: int) -> None:
    model.statuses = [status, status]
    explainer = Explainer(ai(model.url + CHAT))
    assert len(explainer.explain([parked()], now=NOW)) == 1
    kind = ModelFailure.RATE_LIMITED if status == 429 else ModelFailure.SERVER_ERROR
    assert explainer.counters.failures == {kind: 2}


@pytest.mark.parametrize("attempts", [0, 1, 3])
@pytest.mark.parametrize("output", ["tool", "prompted"])
def test_attempts_are_counted_like_those_of_gpu_oour(model: FakeModel, attempts: int, output: str) -> None:
    model.always = 500
    explainer = Explainer(ai(model.url + CHAT, retry_times=attempts, output=output))
    assert explainer.explain([parked()], now=NOW) == {}
    assert len(model.requests) == attempts


def test_the_change_to_json_text_is_no_retry(model: FakeModel) -> None:
    model.refuses_tools = True
    assert len(Explainer(ai(model.url + CHAT, retry_times=1)).explain([parked()], now=NOW)) == 1


@pytest.mark.parametrize(("asked", "least"), [(None, 0.1 + 0.2), ("1", 1 + 1)])
def test_retries_back_off_exponentially_or_follow_retry_after(
    model: FakeModel, asked: str | None, least: float
) -> None:
    model.statuses, model.retry_after = [500, 500], asked
    explainer = Explainer(ai(model.url + CHAT, retry_delay=0.1))
    started = time.monotonic()
    assert len(explainer.explain([parked()], now=NOW)) == 1
    assert time.monotonic() - started >= least


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, ModelFailure.UNAUTHORIZED), (403, ModelFailure.UNAUTHORIZED), (404, ModelFailure.REFUSED)],
)
def test_a_permanent_failure_is_not_retried(model: FakeModel, status: int, kind: ModelFailure) -> None:
    model.always = status
    explainer = Explainer(ai(model.url + CHAT, output="tool"))
    assert explainer.explain([parked()], now=NOW) == {}
    assert explainer.counters.failures == {kind: 1}


def test_a_redirect_is_not_followed(model: FakeModel) -> None:
    model.always, model.headers = 307, {"location": model.url + "/elsewhere"}
    assert Explainer(ai(model.url + CHAT, retry_times=1)).explain([parked()], now=NOW) == {}
    assert model.paths == [CHAT]


def test_an_unreachable_model_is_not_called_again_in_the_cycle() -> None:
    explainer = Explainer(ai(unreachable_url() + CHAT, concurrency=1, retry_times=2))
    assert explainer.explain(several(9), now=NOW) == {}
    assert explainer.counters.failures == {ModelFailure.CONNECTION: 2}
    assert explainer.counters.skipped == 8


def test_a_model_that_does_not_respond_costs_only_the_timeout(model: FakeModel) -> None:
    model.never_responds = True
    explainer = Explainer(ai(model.url + CHAT, timeout=0.3, retry_times=1, concurrency=1))
    assert explainer.explain(several(3), now=NOW) == {}
    assert explainer.counters.failures == {ModelFailure.TIMEOUT: 1}


def test_all_calls_of_a_cycle_together_take_no_longer_than_its_time_and_early_opinions_stay(model: FakeModel) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        model.never_responds = True  # from the second request on
        return ANSWER

    model.answer = answer
    explainer = Explainer(ai(model.url + CHAT, concurrency=1, cycle_timeout=3))
    started = time.monotonic()
    assert len(explainer.explain(several(3), now=NOW)) == 1
    assert time.monotonic() - started < 10


def test_an_interruption_stops_the_requests_at_once(model: FakeModel) -> None:
    model.never_responds = True
    explainer = Explainer(ai(model.url + CHAT))
    worker = threading.Thread(target=explainer.explain, args=([parked()],), kwargs={"now": NOW})
    worker.start()
    while not model.requests:
        time.sleep(0.01)
    explainer.interrupt()
    worker.join(5)
    assert not worker.is_alive()
    assert explainer.explain([parked()], now=NOW) == {}
    assert len(model.requests) == 1


def test_the_key_is_read_again_from_its_file_in_every_cycle(model: FakeModel, tmp_path: Path) -> None:
    file = tmp_path / "key"
    explainer = Explainer(ai(model.url + CHAT, api_key=SecretFile(file)))
    assert explainer.explain([parked()], now=NOW) == {}
    assert explainer.counters.failures == {ModelFailure.KEY_UNREADABLE: 1}
    for key in ("first-key", "second-key"):
        file.write_text(key + "\n")
        explainer.explain([parked(key)], now=NOW)
    assert model.credentials == ["first-key", "second-key"]


def test_the_key_is_in_no_log_line_even_when_the_provider_repeats_it(
    model: FakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    model.always = 401
    settings = ai(model.url + CHAT)
    Explainer(settings).explain([parked()], now=NOW)
    logged = "\n".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert "opinions_missing" in logged
    assert "unauthorized (HTTP 401)" in logged
    assert KEY not in logged + repr(settings)
