"""History, snoozes and notices on request, on a real ledger of both kinds and a real outbox."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.notify.notifier import Notifier
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.settings import Settings
from tests.analyzer.api.server import Api, FakeLedger, running_api
from tests.analyzer.notify.notifier_setup import BUSY, IDLE, gpu_of, result_of, running_notifier, settings_of
from tests.fakes.receivers import Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

NOW = time.time()
PATH = "/api/v1/workloads/Deployment/ml/web"
VIEWER, OPERATOR = "viewer-" + "v" * 20, "operator-" + "o" * 20
GPUS = [gpu_of("ml", "web"), gpu_of("ml", "busy")]


@dataclass
class Running:
    """The API over a ledger with a few cycles, and a notifier with one channel."""

    api: Api
    ledger: LedgerAccess
    notifier: Notifier
    receiver: Receiver
    settings: Settings

    def cycle(self, at: float) -> Result:
        result = idle_result(self.settings, at=at)
        self.notifier.notify(result)
        return result


def idle_result(settings: Settings, *, at: float) -> Result:
    """Idle since the same time in every cycle."""
    result = result_of(GPUS, [IDLE, BUSY], settings=settings, at=at)
    begins = result.workloads.idle_since - (at - NOW)
    return replace(result, workloads=replace(result.workloads, idle_since=begins))


@contextmanager
def run_analyzer(database_url: str) -> Iterator[Running]:
    with Receiver() as receiver:
        settings = settings_of(
            notify={"channels": {"ops": f"json://{receiver.url.removeprefix('http://')}/"}, "idle_minutes": 60},
            prices={"per_gpu_hour": {"*": 2.0}},
            server={"tokens": f"viewer: {VIEWER}\noperator: {OPERATOR}\n"},
        )
        ledger = LedgerAccess(LedgerSettings(url=database_url), lambda: settings.prices)
        ledger.record(result_of(GPUS, [BUSY, BUSY], settings=settings, at=NOW - 900))
        for minute in (10, 5, 0):
            ledger.record(idle_result(settings, at=NOW - 60 * minute))
        result = idle_result(settings, at=NOW)
        with (
            running_notifier(settings, ledger.engine) as notifier,
            running_api(result, settings=settings, ledger=ledger, deliveries=notifier) as api,
        ):
            yield Running(api, ledger, notifier, receiver, settings)
        ledger.close()


@pytest.fixture
def running(database_url: str) -> Iterator[Running]:
    with run_analyzer(database_url) as analyzer:
        yield analyzer


@pytest.fixture(scope="module")
def unchanged(kept_database_url: str) -> Iterator[Running]:
    """For tests that only read, or whose requests are refused."""
    with run_analyzer(kept_database_url) as analyzer:
        yield analyzer


def test_the_history_has_changes_of_the_verdict_costs_and_spells(unchanged: Running):
    history = unchanged.api.get(f"{PATH}/history").json
    assert [each["activity"] for each in history["verdicts"]] == ["idle", "active"]
    assert history["cost"]["total"]["gpu_hours"] > 0
    assert history["cost"]["last_7_days"] == history["cost"]["total"]
    assert history["cost"]["total"]["idle_cost_micros"] > 0
    assert history["cost"]["spell_idle_cost_micros"] == pytest.approx(4_000_000, rel=0.1)  # two hours
    assert [(each["ended_at"], each["pod"]) for each in history["spells"]] == [(None, "web-pod")]
    assert (history["notices"], history["snoozes"], history["advice"]) == ([], [], [])


def test_a_workload_without_a_history_does_not_exist(unchanged: Running):
    assert unchanged.api.get("/api/v1/workloads/Deployment/ml/absent/history").status == 404


def test_an_operator_sends_a_notice_now_and_the_history_shows_its_delivery(running: Running):
    response = running.api.post(f"{PATH}/notify", token=OPERATOR)
    assert (response.status, response.json) == (200, {"channels": ["ops"]})
    assert running.api.post(f"{PATH}/notify", token=OPERATOR).status == 200  # twice within a minute: the same message
    running.receiver.wait_for(lambda it: len(it.accepted) >= 1)
    assert "ml/Deployment/web" in str(running.receiver.accepted[0].json)

    def is_done() -> bool:
        (notice, *_) = running.api.get(f"{PATH}/history").json["notices"]
        (delivery,) = notice["deliveries"]
        return (notice["kind"], notice["channel"], delivery["state"]) == ("idle-found", "ops", "done")

    wait_until(is_done)


@pytest.mark.parametrize(("token", "status"), [("", 401), (VIEWER, 403)])
@pytest.mark.parametrize(("method", "end"), [("POST", "notify"), ("POST", "snooze"), ("DELETE", "snooze")])
def test_never_for_others_than_operators(unchanged: Running, token: str, status: int, method: str, end: str):
    body = {"hours": 1, "reason": "mine"} if (method, end) == ("POST", "snooze") else None
    assert unchanged.api.get(f"{PATH}/{end}", method=method, token=token, body=body).status == status


def test_no_notice_about_a_workload_that_works(unchanged: Running):
    response = unchanged.api.post("/api/v1/workloads/Deployment/ml/busy/notify", token=OPERATOR)
    assert (response.status, response.json["type"]) == (409, "urn:gpusteward:problem:not-idle")


def test_a_snooze_is_shown_everywhere_and_stops_notices_until_it_ends(running: Running):
    api = running.api
    before = api.get("/api/v1/workloads/table")
    added = api.post(f"{PATH}/snooze", token=OPERATOR, body={"hours": 8, "reason": "a demo at noon"})
    assert (added.status, added.json["reason"], added.json["who"]) == (200, "a demo at noon", "token operator")
    until = added.json["until"]
    assert api.get(PATH).json["workload"]["snoozed_until"] == until
    rows = {row["name"]: row["snoozed_until"] for row in api.get("/api/v1/workloads").json["items"]}
    assert rows == {"web": until, "busy": None}
    assert [row["snoozed_until"] for row in api.get("/api/v1/overview").json["top"]] == [until]
    table = api.get("/api/v1/workloads/table", If_None_Match=before.headers["etag"])
    assert (table.status, len([each for each in table.json["columns"]["snoozed_until"] if each])) == (200, 1)
    assert [row["name"] for row in api.get("/api/v1/snoozes").json["items"]] == ["web"]
    running.cycle(NOW)
    assert running.notifier.read_deliveries(None, 10) == []

    ended = api.get(f"{PATH}/snooze", method="DELETE", token=OPERATOR)
    assert (ended.status, api.get("/api/v1/snoozes").json) == (200, {"items": []})
    assert api.get(PATH).json["workload"]["snoozed_until"] is None
    assert api.get(f"{PATH}/snooze", method="DELETE", token=OPERATOR).status == 404
    (snooze,) = api.get(f"{PATH}/history").json["snoozes"]
    assert (snooze["reason"], snooze["ended_by"]) == ("a demo at noon", "token operator")
    running.cycle(NOW)
    running.receiver.wait_for(lambda it: len(it.accepted) == 1)


@pytest.mark.parametrize(
    "body",
    [
        {"reason": "no time"},
        {"hours": 1, "until": "2999-01-01T00:00:00Z", "reason": "both"},
        {"hours": 0, "reason": "now"},
        {"hours": 721, "reason": "more than thirty days"},
        {"until": "2020-01-01T00:00:00Z", "reason": "past"},
        {"until": "2999-01-01T00:00:00Z", "reason": "far"},
        {"hours": 1, "reason": ""},
        {"hours": 1},
        {"hours": 1, "reason": "x" * 501},
    ],
)
def test_a_snooze_needs_a_reason_and_an_end_within_thirty_days(unchanged: Running, body: dict[str, object]):
    assert unchanged.api.post(f"{PATH}/snooze", token=OPERATOR, body=body).status == 422
    assert unchanged.ledger.read_snoozes(NOW, visible=None) == {}


def test_a_workload_that_does_not_exist_cannot_be_snoozed(unchanged: Running):
    body = {"hours": 1, "reason": "?"}
    assert unchanged.api.post("/api/v1/workloads/Job/ml/none/snooze", token=OPERATOR, body=body).status == 404


def test_a_snoozed_workload_is_not_reported_to_the_control_webhook_and_its_alert_is_resolved(unchanged: Running):
    from gpusteward.analyzer.notify.alertmanager import ActiveAlerts, is_resolved
    from gpusteward.analyzer.notify.control_webhook import control_events
    from gpusteward.analyzer.notify.notices.messages import MessageOptions
    from gpusteward.analyzer.settings.notify import AlertmanagerSettings

    result = idle_result(unchanged.settings, at=NOW)
    snoozed = {result.workloads.keys[0]}
    assert len(list(control_events(result))) == 1
    assert list(control_events(result, snoozed=snoozed)) == []
    alerts, settings = ActiveAlerts(), AlertmanagerSettings()
    options = MessageOptions(
        language="en", time_zone="UTC", currency="EUR", repeat_hours=24, window_seconds=600, with_cluster=False
    )
    assert [is_resolved(each) for each in alerts.update(result, settings, options)] == [False]
    assert [is_resolved(each) for each in alerts.update(result, settings, options, snoozed=snoozed)] == [True]


def test_without_a_channel_the_answer_says_so():
    with running_notifier(settings_of()) as notifier:
        result = idle_result(settings_of(), at=NOW)
        with running_api(result, deliveries=notifier, ledger=FakeLedger()) as api:
            response = api.post(f"{PATH}/notify")
            assert (response.status, response.json["type"]) == (409, "urn:gpusteward:problem:no-channel")
