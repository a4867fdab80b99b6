"""Plan, journal, suspending, restoring and the switch over HTTP."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpusteward.analyzer.api.v1.reclaim.actions import make_action_row
from gpusteward.analyzer.reclaim.execution.journal import ActionState
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.analyzer.reclaim.policies.example import EXAMPLE
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.node.containers import Workload
from gpusteward.messages import reclaim as messages
from tests.analyzer.api.fake_reclaim import FakeReclaim, make_action
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, running_api

VIEWER, OPERATOR, ADMIN = "viewer-0123456789", "operator-0123456789", "admin-0123456789"
TOKENS = f"viewer: {VIEWER}\noperator: {OPERATOR}\nadmin: {ADMIN}\n"
TRAINER, CHAT = Workload("Job", "vision", "trainer"), Workload("Deployment", "nlp", "chat", uid="uid-chat")
CHAT_PATH = "/api/v1/workloads/Deployment/nlp/chat"


@pytest.fixture
def reclaim() -> FakeReclaim:
    return FakeReclaim([TRAINER, CHAT])


@pytest.fixture
def api(reclaim: FakeReclaim) -> Iterator[Api]:
    settings = Settings.model_validate({"server": {"tokens": TOKENS}})
    with running_api(small_result(), settings=settings, reclaim=reclaim) as api:
        yield api


@pytest.fixture
def off() -> Iterator[Api]:
    with running_api(small_result()) as api:
        yield api


def test_the_plan_has_every_guard_and_its_answer(api: Api):
    plan = api.get("/api/v1/plan").json
    assert (plan["mode"], plan["total"], plan["counts"]) == ("enforce", 2, {"wait": 2})
    first = plan["items"][0]
    assert first["answers"] == [
        {"guard": "idle", "passed": True, "reason": "all 2 GPUs are idle"},
        {"guard": "warned", "passed": False, "reason": "the grace period is not over"},
    ]
    assert first["changes"][0]["text"] == "spec.replicas: 3 -> 0"
    assert first["due_at"].endswith("Z")
    assert api.get("/api/v1/plan?language=zh").json["items"][0]["answers"][0]["reason"] == "全部 2 张 GPU 均空闲"


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("namespace=nlp", ["chat"]),
        ("name=trainer&kind=Job", ["trainer"]),
        ("outcome=act", []),
        ("limit=1", ["trainer"]),
        ("cluster=other", []),
    ],
)
def test_the_plan_can_be_filtered(api: Api, query: str, names: list[str]):
    assert [each["name"] for each in api.get(f"/api/v1/plan?{query}").json["items"]] == names


def test_the_journal_marks_dry_runs(api: Api, reclaim: FakeReclaim):
    (trainer, chat) = api.get("/api/v1/actions").json["items"]
    assert (trainer["is_dry_run"], trainer["is_restorable"], trainer["original"]) == (
        False,
        True,
        {"/spec/replicas": 3},
    )
    assert chat["warnings"][0]["delivered_at"] is not None
    only = api.get("/api/v1/actions?kind=Deployment&namespace=nlp&name=chat&state=verified").json["items"]
    assert [each["id"] for each in only] == ["a2"]
    assert api.get("/api/v1/actions?state=restored").json["items"] == []
    assert api.get("/api/v1/actions/a2").json["name"] == "chat"
    assert api.get("/api/v1/actions/none").status == 404


@pytest.mark.parametrize("path", ["/api/v1/actions", "/api/v1/actions/a1", "/api/v1/actions/a1/restore"])
def test_the_journal_follows_the_language_of_the_request(api: Api, path: str):
    method, token = ("POST", OPERATOR) if path.endswith("restore") else ("GET", "")
    for language, note, reason in (
        ("en", "warning sent", "all 2 GPUs are idle"),
        ("zh", "警告已发送", "全部 2 张 GPU 均空闲"),
    ):
        found = api.get(f"{path}?language={language}", method=method, token=token).json
        action = found["items"][0] if "items" in found else found
        assert action["steps"][0]["note"] == note
        assert action["evidence"]["guards"][0] == {"guard": "idle", "passed": True, "reason": reason}
        assert ("GPUs" in action["evidence"]["reasons"][0]) is (language == "en")


def test_a_failure_and_its_evidence_follow_the_language():
    failed = make_action("x", FakeReclaim([CHAT]).actions[0].workload, ActionState.FAILED)
    assert make_action_row(failed, "zh").error == messages.NO_EFFECT.text("zh", minutes=10)
    assert make_action_row(failed, "en").error == failed.error
    known = replace(failed, evidence={"reasons": [["no work", "没有工作"]], "guards": [{"reason": ["idle", "空闲"]}]})
    assert make_action_row(known, "zh").evidence == {"reasons": ["没有工作"], "guards": [{"reason": "空闲"}]}


def test_an_action_of_observe_mode_is_a_dry_run_and_cannot_be_restored():
    planned = make_action("x", FakeReclaim([CHAT]).actions[0].workload, ActionState.PLANNED, Mode.OBSERVE)
    row = make_action_row(planned, "en")
    assert (row.is_dry_run, row.is_restorable) == (True, False)


def test_an_interrupted_action_can_be_restored_by_its_id_and_by_its_workload(api: Api, reclaim: FakeReclaim):
    reclaim.state = ActionState.ACTING
    assert api.get("/api/v1/actions/a2").json["is_restorable"]
    assert api.post(f"{CHAT_PATH}/restore", token=OPERATOR).json["state"] == "restored"
    assert reclaim.asked == [("restore", "a2", "token operator")]


def test_suspending_is_a_preview_unless_said_otherwise(api: Api, reclaim: FakeReclaim):
    shown = api.post(f"{CHAT_PATH}/suspend", token=OPERATOR)
    assert shown.json["preview"]["changes"][0]["after"] == {"/spec/replicas": 0}
    assert reclaim.asked == [("preview", "chat")]
    done = api.post(f"{CHAT_PATH}/suspend?preview=false", token=OPERATOR)
    assert done.json["action"]["state"] == "acted"
    assert reclaim.asked[-1] == ("suspend", "chat", "token operator")


def test_a_workload_or_an_action_can_be_restored(api: Api, reclaim: FakeReclaim):
    assert api.post(f"{CHAT_PATH}/restore", token=OPERATOR).json["state"] == "restored"
    assert api.post("/api/v1/actions/a1/restore", token=OPERATOR).json["state"] == "restored"
    assert reclaim.asked == [("restore", "a2", "token operator"), ("restore", "a1", "token operator")]
    missing = api.post("/api/v1/workloads/Job/vision/other/restore", token=OPERATOR)
    assert (missing.status, missing.json["type"]) == (404, "urn:gpusteward:problem:not-found")


def test_a_refusal_is_a_conflict_with_its_reason(api: Api, reclaim: FakeReclaim):
    reclaim.refusal = "somebody works on it"
    refused = api.post(f"{CHAT_PATH}/suspend?preview=false", token=OPERATOR)
    assert (refused.status, refused.json["detail"]) == (409, "somebody works on it")


def test_a_journal_that_cannot_be_read_is_a_503(api: Api, reclaim: FakeReclaim):
    reclaim.failure = "the database is gone"
    assert api.get("/api/v1/actions").status == 503


@pytest.mark.parametrize("path", [f"{CHAT_PATH}/suspend", f"{CHAT_PATH}/restore", "/api/v1/actions/a1/restore"])
def test_a_viewer_can_never_suspend_or_restore(api: Api, reclaim: FakeReclaim, path: str):
    assert api.post(path).status == 401
    assert api.post(path, token=VIEWER).status == 403
    assert reclaim.asked == []


@pytest.mark.parametrize("path", ["/api/v1/reclaim/off", "/api/v1/reclaim/on"])
def test_only_an_admin_switches_reclaim_off_and_on(api: Api, reclaim: FakeReclaim, path: str):
    assert [api.post(path, token=token).status for token in ("", VIEWER, OPERATOR)] == [401, 403, 403]
    assert reclaim.asked == []
    assert api.post(path, token=ADMIN).status == 200


def test_the_switch_says_who_stopped_everything_and_why(api: Api, reclaim: FakeReclaim):
    stopped = api.post("/api/v1/reclaim/off?reason=maintenance", token=ADMIN).json
    assert (stopped["switch"]["is_off"], stopped["switch"]["by"], stopped["switch"]["reason"]) == (
        True,
        "token admin",
        "maintenance",
    )
    assert api.get("/api/v1/reclaim").json["switch"]["is_off"]
    assert not api.post("/api/v1/reclaim/on", token=ADMIN).json["switch"]["is_off"]


def test_a_local_request_may_switch_it_off_where_no_tokens_are_configured(reclaim: FakeReclaim):
    with running_api(small_result(), reclaim=reclaim) as api:
        assert api.post("/api/v1/reclaim/off").json["switch"]["is_off"]


def test_savings_add_up_what_the_actions_gave_back(api: Api):
    savings = api.get("/api/v1/savings?days=1").json
    assert (savings["actions"], savings["gpus"], savings["currency"]) == (2, 4, "USD")
    assert [each["id"] for each in savings["items"]] == ["a1", "a2"]
    assert savings["gpu_hours"] == pytest.approx(sum(each["gpu_hours"] for each in savings["items"]), abs=0.001)
    assert savings["cost_micros"] is None, "the models are not in the evidence"
    assert api.get("/api/v1/savings?days=0").status == 422
    assert api.get("/api/v1/session", token=ADMIN).json["may_administer"]
    assert api.get("/api/v1/session", token=ADMIN).json["features"]["reclaim"]


def test_in_mode_off_there_is_no_plan_and_nothing_can_be_done(off: Api):
    assert off.get("/api/v1/plan").json == {
        "at": None,
        "mode": "off",
        "stopped_by": "",
        "total": 0,
        "counts": {},
        "items": [],
    }
    assert off.get("/api/v1/actions").json == {"items": []}
    savings = off.get("/api/v1/savings").json
    assert (savings["actions"], savings["gpu_hours"], savings["cost_micros"], savings["items"]) == (0, 0, None, [])
    assert off.get("/api/v1/reclaim").json == {"mode": "off", "switch": None, "details": {}}
    for path in (f"{CHAT_PATH}/suspend", f"{CHAT_PATH}/restore", "/api/v1/reclaim/off"):
        refused = off.post(path)
        assert (refused.status, refused.json["type"]) == (409, "urn:gpusteward:problem:reclaim-off")


def test_in_mode_off_what_is_suspended_is_listed_counted_and_restored():
    control = FakeReclaim([TRAINER, CHAT], mode=Mode.OFF)
    with running_api(small_result(), reclaim=control) as api:
        assert api.get("/health").json["suspended"] == 2
        health = api.get("/api/v1/health").json
        assert (health["suspended"], health["suspended_gpus"]) == (2, 4.0)
        page = api.get("/metrics").body.decode()
        assert "gpusteward_analyzer_reclaim_suspended 2" in page
        assert "gpusteward_analyzer_reclaim_suspended_gpus 4" in page
        assert "reclaim_decisions" not in page
        [first, *_] = api.get("/api/v1/actions").json["items"]
        assert first["is_restorable"]
        assert api.post(f"/api/v1/actions/{first['id']}/restore").status == 200
        assert not api.get("/api/v1/session").json["features"]["reclaim"]


def test_policies_show_the_file_or_why_it_cannot_be_used(tmp_path: Path):
    path = tmp_path / "policies.yaml"
    path.write_text("policies:\n- name: night\n  match: {namespaces: 'vision-*'}\n  window: 2h\n  action: suspend\n")
    policies = WatchedPolicies(path)
    settings = Settings.model_validate({"reclaim": {"policy_file": path}})
    with running_api(small_result(), settings=settings, policies=policies) as api:
        page = api.get("/api/v1/policies").json
        assert page["policies"] == [
            {"name": "night", "match": {"namespaces": ["vision-*"]}, "fields": {"window": 7200, "action": "suspend"}}
        ]
        assert (page["is_valid"], page["error"]) == (True, "")
        assert {each["workload_class"] for each in page["built_in"]} == {"interactive", "batch", "serving"}
        assert not any("action" in each["fields"] for each in page["built_in"]), "no action without a policy"
        assert page["example"] == EXAMPLE
        assert (api.get("/health").json["status"], api.get("/api/v1/health").json["policy_error"]) == ("healthy", "")
        path.write_text("policies:\n- name: night\n  windw: 2h\n# longer than before, so that the change is seen\n")
        policies.poll()
        broken = api.get("/api/v1/policies?language=zh").json
        assert not broken["is_valid"]
        assert "windw" in broken["error"]
        assert "line 3" in api.get("/api/v1/policies").json["error"]
        assert broken["policies"] == [], "nothing new is warned of or done"
        health = api.get("/api/v1/health").json
        assert (health["status"], api.get("/health").json["status"]) == ("warning", "warning")
        assert "line 3" in health["policy_error"]
        problems = {each["code"]: each for each in api.get("/api/v1/overview").json["data"]["problems"]}
        assert "line 3" in problems["policies-refused"]["text"]
        assert "gpusteward_analyzer_reclaim_policies_valid 0" in api.get("/metrics").body.decode()


def test_metrics_have_every_outcome_and_in_mode_off_only_the_mode(api: Api, off: Api):
    page = api.get("/metrics", token=VIEWER).body.decode()
    assert 'gpusteward_analyzer_reclaim_info{mode="enforce"} 1' in page
    assert 'gpusteward_analyzer_reclaim_decisions{outcome="wait"} 2' in page
    assert 'gpusteward_analyzer_reclaim_decisions{outcome="act"} 0' in page
    assert 'gpusteward_analyzer_reclaim_actions_total{kind="Deployment",outcome="acted"} 3' in page
    assert "gpusteward_analyzer_reclaim_stopped 0" in page
    assert 'gpusteward_analyzer_reclaim_policy_reloads_total{result="refused"} 0' in page
    quiet = off.get("/metrics").body.decode()
    assert "reclaim_policies_valid" not in quiet
    assert 'gpusteward_analyzer_reclaim_info{mode="off"} 1' in quiet
    assert "reclaim_actions_total" not in quiet
