"""gpu-oour's endpoints return its exact JSON, checked against golden files."""

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from gpusteward import __version__
from gpusteward.analyzer.api.compat.results import GpuResult
from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.explain.settings import AiSettings
from gpusteward.analyzer.setting_values import SecretFile
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.usages import Measure
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, FakeSettings, make_result, running_api
from tests.analyzer.usage_tables import GIB, resting, signal, table_of, working

GOLDEN = Path(__file__).parent / "golden"
GPU_OOUR_SETTINGS = Settings.model_validate({"prometheus": {"url": "http://prometheus:9090"}})
WITH_MODEL = Settings(ai=AiSettings(api_url="http://127.0.0.1:9/v1"))
"""gpu-oour always has an engine."""
THRESHOLDS = {"low_utilization": 100, "high": 100}
"""With these every GPU is low."""
TEXTS = {"gpu_id", "pod", "namespace", "hostname", "model_name", "status", "timestamp", "ai_analysis", "unmeasured"}


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with running_api(small_result(), settings=GPU_OOUR_SETTINGS) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", "service"),
        ("/config", "config"),
        ("/results", "results"),
        ("/results/low", "results_low"),
        ("/results/stats", "results_stats"),
    ],
)
def test_the_json_is_that_of_gpu_oour(api: Api, path: str, name: str):
    response = api.get(path)
    assert (response.status, response.headers["content-type"]) == (200, "application/json")
    golden = GOLDEN / f"{name}.json"
    text = json.dumps(response.json, indent=1, ensure_ascii=False).replace(f'"{__version__}"', '"VERSION"') + "\n"
    if os.environ.get("GPUSTEWARD_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_results_have_one_of_four_states_and_a_score_in_every_row(api: Api):
    rows = api.get("/results").json
    assert {row["status"] for row in rows} <= {"idle", "low", "normal", "high"}
    assert all(isinstance(row["score"], float) for row in rows)
    assert set(rows[0]) == set(GpuResult.__slots__)


def test_rows_without_a_score_are_left_out_and_counted(api: Api):
    response = api.get("/results")
    assert "unread" not in {row["pod"] for row in response.json}
    assert response.headers["X-Unknown-Count"] == "1"
    assert api.get("/results/stats").json["unknown_count"] == 1
    assert "unread" in {row["pod"] for row in api.get("/api/v1/allocations").json["items"]}


def test_an_idle_gpu_is_low_however_much_memory_it_holds():
    """A loaded model without requests: by gpu-oour's score alone it is normal and missing from the low ones."""
    total = signal(Measure.MEMORY_TOTAL, 80 * GIB) | signal(Measure.POWER_LIMIT, 700)
    result = make_result(table_of(resting(80, watts=300) | total, working() | total, {}))
    with running_api(result, settings=GPU_OOUR_SETTINGS) as api:
        low, stats = api.get("/results/low").json, api.get("/results/stats").json
        (namespace,) = api.get("/api/v1/namespaces").json["items"]
        page = api.get("/metrics").body.decode()
    assert [(row["gpu_id"], row["status"], row["score"] > 20) for row in low["gpus"]] == [("GPU-0", "idle", True)]
    assert (low["count"], stats["low_utilization_count"], namespace["low"]) == (1, 1, 1)
    assert stats["by_namespace"]["team"]["low_util_count"] == 1
    assert "gpu_low_utilization_count 1\n" in page


def test_what_was_not_measured_is_zero_as_in_gpu_oour_and_is_named(api: Api):
    (instance,) = [row for row in api.get("/results").json if row["gpu_id"] == "GPU-d/7"]
    assert (instance["gpu_util"], instance["power_usage"], instance["mem_copy"]) == (25.0, 0, 0)
    assert instance["unmeasured"] == ["mem_copy", "mem_total_mb", "mem_usage_percent", "power_usage", "sm_clock"]


@pytest.mark.parametrize("path", ["/results", "/results/low"])
def test_no_number_is_null_whatever_was_not_measured(path: str):
    """Only the core is needed for a score. Clients of gpu-oour compute with all other numbers."""
    core_only = {key: value for key, value in working().items() if key[0] is Measure.CORE}
    blank = signal(Measure.MEMORY_COPY, 1.4e14) | signal(Measure.MEMORY_TOTAL, 0) | signal(Measure.POWER, np.inf)
    result = make_result(
        table_of(core_only, core_only | blank, {}), settings=Settings.model_validate({"thresholds": THRESHOLDS})
    )
    with running_api(result, settings=GPU_OOUR_SETTINGS) as api:
        body = api.get(path).json
    rows = body if path == "/results" else body["gpus"]
    assert len(rows) == 2, "the row without a core stays out"
    for row in rows:
        numbers = {name: value for name, value in row.items() if name not in TEXTS}
        assert all(isinstance(value, float | int) for value in numbers.values()), numbers
        assert row["mem_total_mb"] > 0, "gpu-oour has its default where it cannot read the total"
        measured = {"score", "gpu_util"}
        assert set(row["unmeasured"]) == set(numbers) - measured


@pytest.mark.parametrize("path", ["/results", "/results/low"])
def test_rows_ascend_by_score(path: str):
    busy = (working(core) for core in (0.9, 0.2, 0.5, 0.1))
    settings = Settings.model_validate({"thresholds": THRESHOLDS})
    with running_api(make_result(table_of(*busy), settings=settings), settings=GPU_OOUR_SETTINGS) as api:
        body = api.get(path).json
    scores = [row["score"] for row in (body if path == "/results" else body["gpus"])]
    assert len(set(scores)) == 4
    assert scores == sorted(scores)


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/results/", "../results"),
        ("/results/low/", "../low"),
        ("/health/", "../health"),
        ("/metrics/", "../metrics"),
        ("/analyze/?use_ai=true", "../analyze?use_ai=true"),
        ("/api/v1/workloads/", "../workloads"),
    ],
)
def test_a_last_slash_is_redirected_below_any_prefix_of_a_proxy(api: Api, path: str, location: str):
    for method in ("GET", "POST"):
        assert request_once(api, method, path) == (307, location)


def test_a_last_slash_of_an_unknown_path_is_not_redirected(api: Api):
    for path in ("/nowhere/", "//elsewhere.example/", "/results//"):
        assert request_once(api, "GET", path) == (404, None)


def request_once(api: Api, method: str, path: str) -> tuple[int, str | None]:
    """Status and location, without following the location."""
    connection = HTTPConnection(urlsplit(api.url).netloc, timeout=20)
    with closing(connection):
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.headers["location"]


def test_an_opinion_has_the_keys_of_gpu_oour(api: Api):
    (row,) = [row for row in api.get("/results").json if row["ai_analysis"]]
    assert row["ai_analysis"] == {
        "gpu_id": "GPU-c",
        "status": "suspicious",
        "confidence": 0.912,
        "reason": "显存占用但没有计算",
        "recommendation": "ask the owner",
        "raw_score": 5.6,
        "ai_adjusted_score": 5.6,  # the model's own 4.2 would be lower than the rule's
    }


def test_results_are_compressed_on_request(api: Api):
    packed = api.get("/results", Accept_Encoding="gzip")
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == api.get("/results").body


def test_before_the_first_cycle_everything_is_empty_and_nothing_fails():
    with running_api(None) as api:
        assert api.get("/results").json == []
        low = api.get("/results/low").json
        assert datetime.fromisoformat(low.pop("timestamp")), "as in gpu-oour"
        assert low == {"count": 0, "threshold": 20, "gpus": []}
        assert api.get("/results/stats").json == {
            "total_gpus": 0,
            "avg_score": 0,
            "min_score": 0,
            "max_score": 0,
            "low_utilization_count": 0,
            "idle_count": 0,
            "by_status": {},
            "by_namespace": {},
            "unknown_count": 0,
        }
        health = api.get("/health").json
        assert (health["status"], health["prometheus_connected"], health["last_analysis"]) == ("degraded", False, None)


def test_health_has_the_keys_of_gpu_oour_and_warns_of_an_old_result():
    result = small_result()
    with running_api(result, settings=GPU_OOUR_SETTINGS, clock=lambda: result.at + 901) as api:
        health = api.get("/health").json
    assert health.pop("result_age_seconds") == 901
    assert health == {
        "status": "warning",
        "prometheus_connected": True,
        "last_analysis": "2026-09-21T14:13:20",
        "analysis_timeout": True,
        "ai_enabled": False,
        "interval": 300,
        "unknown_ratio": 0.2,
        "targets": None,
        "targets_up": None,
        "reasons": ["The last result is old.", "Many allocations could not be judged."],
        "suspended": None,  # without reclaim nobody counts
    }


def test_health_without_credentials_says_nothing_of_the_cluster():
    tokens = f"viewer: {'v' * 32}"
    settings = Settings.model_validate({"server": {"anonymous_reads": "never", "tokens": tokens}})
    with running_api(small_result(), settings=settings) as api:
        anonymous, wrong, viewer = (api.get("/health", token=token) for token in ("", "w" * 32, "v" * 32))
    own = ["status", "prometheus_connected", "last_analysis", "analysis_timeout", "ai_enabled", "interval"]
    assert list(anonymous.json) == list(wrong.json) == [*own, "result_age_seconds"]
    assert {"unknown_ratio", "targets", "targets_up", "reasons", "suspended"} < set(viewer.json)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(("query", "requested", "shown"), [("", None, False), ("?use_ai=true", True, True)])
def test_a_cycle_can_be_requested(method: str, query: str, requested: bool | None, shown: bool):
    with running_api(small_result(), settings=WITH_MODEL) as api:
        response = api.get(f"/analyze{query}", method=method)
    message = "GPU analysis started in background"
    assert response.json == {"status": "triggered", "message": message, "use_ai": shown}
    assert api.cycles.requested == [requested]


@pytest.mark.parametrize("path", ["/config/update?ai_enabled=true", "/config/update?interval=60&ai_enabled=true"])
def test_a_model_that_the_settings_do_not_name_cannot_be_switched_on(path: str):
    settings = FakeSettings(Settings(ai=AiSettings(api_url="", model="gpt-4")))
    with running_api(small_result(), settings=settings) as api:
        english, chinese = api.post(path), api.post(path, Accept_Language="zh-CN")
    assert (english.status, list(english.json)) == (200, ["error"])
    assert "ai.api_url" in english.json["error"]
    assert "语言模型" in chinese.json["error"]
    assert (api.cycles.requested, settings.changed) == ([], [])


@pytest.mark.parametrize(
    ("ai", "expected"),
    [
        (AiSettings(), False),
        (AiSettings(enabled=True, model="claude-3", provider="anthropic"), False),
        (AiSettings(api_url="http://127.0.0.1:9/v1"), True),
        (AiSettings(api_key="k"), True),
        (AiSettings(api_key=SecretFile(Path("/run/key"))), True),
    ],
)
def test_a_model_is_configured_by_its_address_or_a_key(ai: AiSettings, expected: bool):
    assert (ai.is_configured, Explainer(ai).may_request) == (expected, expected)


def test_settings_are_changed_under_the_names_of_gpu_oour():
    settings = FakeSettings(WITH_MODEL)
    with running_api(small_result(), settings=settings) as api:
        response = api.post("/config/update?threshold=25&interval=60&ai_enabled=true").json
    assert response.pop("note")
    assert response == {"status": "updated", "updates": {"threshold": 25, "interval": 60, "ai_enabled": True}}
    assert api.cycles.requested == [None], "the change takes effect in a cycle of its own"
    assert settings.changed == [{"thresholds.low_utilization": 25, "scheduler.interval": 60, "ai.enabled": True}]


def test_a_value_out_of_range_is_an_error_as_in_gpu_oour():
    class RefusingSettings(FakeSettings):
        def change(self, values: Mapping[str, object]) -> Settings:
            raise ConfigurationError("thresholds.low_utilization: 500 (a request): write a number from 0 to 100")

    with running_api(small_result(), settings=RefusingSettings()) as api:
        response = api.post("/config/update?threshold=500")
        assert (response.status, list(response.json)) == (200, ["error"])
        assert "0 to 100" in response.json["error"]
        assert api.post("/config/update?threshold=nan").status == 422
        assert api.get("/config/update").status == 405


def test_no_response_contains_a_secret():
    secrets = {"key": "sk-very-secret", "word": "hunter2-hunter2", "token": "tok" * 10}
    settings = Settings.model_validate(
        {
            "prometheus": {"url": f"http://reader:{secrets['word']}@engine:9090", "bearer_token": secrets["token"]},
            "ai": {"enabled": True, "api_key": secrets["key"]},
            "control": {"enabled": True, "api_url": f"http://u:{secrets['word']}@hook/x"},
            "server": {"tokens": f"admin: {secrets['token']}"},
        }
    )
    with running_api(small_result(settings=settings), settings=settings) as api:
        for path in ("/", "/config", "/health", "/metrics", "/openapi.json", "/docs", "/api/v1/health", "/nowhere"):
            body = api.get(path).body.decode()
            assert not [name for name, secret in secrets.items() if secret in body], path
