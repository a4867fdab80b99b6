"""Selection of cases, their fingerprints and cache, and texts without a model."""

import json
import subprocess
import sys

import numpy as np
import pytest

from gpusteward.analyzer.explain.model_client import Endpoint, locate
from gpusteward.analyzer.explain.opinions import Opinion, OpinionCache, clean_text
from gpusteward.analyzer.explain.prompt_cases import choose_rows, make_case, make_fingerprint
from gpusteward.analyzer.explain.prompts import write_prompt
from gpusteward.analyzer.explain.settings import AiSettings
from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES, UsageTable, VerdictTable
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.usages import AllocationKey, Measure, Stat, Usage
from gpusteward.core.verdicts import Activity, Signature, State, Step, Verdict
from tests.analyzer.explain.cases import NOW, parked


@pytest.mark.parametrize(
    ("url", "model", "found"),
    [
        ("", "gpt-4", Endpoint("openai", "", "gpt-4")),
        ("", "claude-3-opus", Endpoint("anthropic", "", "claude-3-opus")),
        ("https://api.openai.com/v1/chat/completions", "m", Endpoint("openai", "https://api.openai.com/v1", "m")),
        ("https://api.anthropic.com/v1/messages", "m", Endpoint("anthropic", "https://api.anthropic.com", "m")),
        ("https://api.anthropic.com", "m", Endpoint("anthropic", "https://api.anthropic.com", "m")),
        ("http://vllm:8000/v1", "claude-like", Endpoint("openai", "http://vllm:8000/v1", "claude-like")),
        ("https://a.openai.azure.com", "d", Endpoint("azure", "https://a.openai.azure.com", "d", "2024-10-21")),
        (
            "https://a.openai.azure.com/openai/deployments/dep/chat/completions?api-version=2025-01-01",
            "gpt-4",
            Endpoint("azure", "https://a.openai.azure.com", "dep", "2025-01-01"),
        ),
        (
            "https://a.openai.azure.com/openai/v1/chat/completions",
            "dep",
            Endpoint("openai", "https://a.openai.azure.com/openai/v1", "dep"),
        ),
    ],
)
def test_the_provider_is_detected_from_the_address(url: str, model: str, found: Endpoint) -> None:
    assert locate(AiSettings(api_url=url, model=model)) == found


def table(*rows: tuple[Activity, Signature, float]) -> VerdictTable:
    count = len(rows)
    allocation = AllocationKey("GPU-1", "", Container("ml", "p"))
    return VerdictTable(
        usage=UsageTable(NOW, 600.0, [allocation] * count),
        score=np.zeros(count),
        state=np.zeros(count, np.int8),
        activity=np.array([ACTIVITIES.index(row[0]) for row in rows], np.int8),
        signature=np.array([SIGNATURES.index(row[1]) for row in rows], np.int8),
        idle_since=np.array([row[2] for row in rows]),
        doubt=np.zeros(count, np.int8),
        worked_at=np.full(count, np.nan),
        step=np.zeros(count, np.int8),
        proof=np.zeros(count, np.int8),
        requested_at=np.full(count, np.nan),
        silent_since=np.full(count, np.nan),
        unused_work_at=np.full(count, np.nan),
        step_by_silence=np.zeros(count, np.int8),
    )


def test_suspicious_rows_come_first_then_the_longest_idle_and_active_ones_never() -> None:
    verdicts = table(
        (Activity.ACTIVE, Signature.STEADY, np.nan),
        (Activity.IDLE, Signature.PARKED, 200.0),
        (Activity.IDLE, Signature.EMPTY, 100.0),
        (Activity.ACTIVE, Signature.KEEP_ALIVE, np.nan),
        (Activity.UNKNOWN, Signature.UNKNOWN, np.nan),
    )
    assert choose_rows(verdicts, limit=10) == [3, 2, 1]
    assert choose_rows(verdicts, limit=2) == [3, 2]
    assert choose_rows(table(), limit=2) == []


def test_a_verdict_becomes_a_case_with_names_labels_and_evidence() -> None:
    container = Container("ml", "p-0", "u", "main", Workload("Job", "ml", "p"), (("team", "vision"),))
    stats = {(Measure.CORE, Stat.MEAN): 0.5, (Measure.CORE, Stat.COUNT): 19.0}
    usage = Usage(AllocationKey("GPU-1", "", container, model="H100"), 600.0, 0.95, stats)
    verdict = Verdict(
        usage, 30.0, State.IDLE, Activity.IDLE, Signature.EMPTY, Step.RECLAIM, idle_since=NOW - 60, reasons=("r",)
    )
    case = make_case("k", verdict, now=NOW)
    assert case.names == {
        "namespace": "ml", "pod": "p-0", "container": "main", "model": "H100", "workload": "Job/p",
    }  # fmt: skip
    assert case.labels == {"team": "vision"}
    assert case.evidence == {"core_ratio_mean": 0.5}
    assert (case.idle_seconds, case.reasons, case.coverage) == (60.0, ("r",), 0.95)


@pytest.mark.parametrize(
    ("changes", "is_news"),
    [
        ({"evidence": {"core_ratio_mean": 0.001}}, True),
        ({"evidence": {"core_ratio_mean": 0.0}, "score": 11.0}, False),
        ({"evidence": {"core_ratio_mean": 0.0}, "idle_seconds": 3700.0}, False),
        ({"evidence": {"core_ratio_mean": 0.0}, "idle_seconds": 90000.0}, True),
        ({"evidence": {"core_ratio_mean": 0.0}, "signature": Signature.HUNG}, True),
        ({"evidence": {"core_ratio_mean": 0.0}, "names": {"pod": "other"}}, True),
        ({"evidence": {"core_ratio_mean": float("nan")}}, True),
    ],
    ids=str,
)
def test_only_relevant_changes_change_the_fingerprint(changes: dict[str, object], is_news: bool) -> None:
    before = make_fingerprint(parked(evidence={"core_ratio_mean": 0.0}), model_key="m")
    assert (make_fingerprint(parked(**changes), model_key="m") != before) is is_news


def test_values_that_are_not_numbers_are_left_out_of_the_request() -> None:
    data = json.loads(write_prompt(parked(evidence={"core_ratio_mean": float("nan"), "power_watts_mean": 71.23456789})))
    assert data["evidence"] == {"power_watts_mean": 71.2346}


def test_another_model_has_another_fingerprint() -> None:
    assert make_fingerprint(parked(), model_key="a") != make_fingerprint(parked(), model_key="b")


def test_the_cache_evicts_the_least_recently_used_entry() -> None:
    memory = OpinionCache(2)
    opinion = Opinion("idle", 1, "", "", 0, 0, "m", NOW)
    for name in ("a", "b"):
        memory.add(name, opinion)
    assert memory.find("a") is opinion
    memory.add("c", opinion)
    assert (memory.find("a"), memory.find("b"), len(memory)) == (opinion, None, 2)
    nothing = OpinionCache(0)
    nothing.add("a", opinion)
    assert len(nothing) == 0


def test_text_is_one_clean_line() -> None:
    assert clean_text(" a\r\n\tb\x00\x9b\u202e\u2066\ud800c\u3000显存 ") == "a bc 显存"


def test_no_model_sdk_is_imported_before_the_first_request() -> None:
    program = (
        "import sys\n"
        "from gpusteward.analyzer.explain.explainer import Explainer\n"
        "from gpusteward.analyzer.explain.settings import AiSettings\n"
        "Explainer(AiSettings()).explain([], now=0.0)\n"
        "heavy = {'pydantic_ai', 'openai', 'anthropic', 'httpx2'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
