"""Alerts, pushed to a real Alertmanager."""

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

from gpusteward.analyzer.notify.alertmanager import ActiveAlerts, Alert, AlertPusher
from gpusteward.analyzer.notify.notices.messages import MessageOptions
from gpusteward.analyzer.notify.outbox.records import DeliveryCounters
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.notify import AlertmanagerSettings
from gpusteward.analyzer.settings.settings import Settings
from tests.analyzer.engines import RunningEngine, running_alertmanager
from tests.analyzer.notify.notifier_setup import (
    BUSY,
    IDLE,
    NO_SAMPLES,
    empty_result,
    gpu_of,
    result_of,
    running_notifier,
    settings_of,
)
from tests.analyzer.usage_tables import AT
from tests.constants import make_settings
from tests.fakes.receivers import Receiver
from tests.waiting import wait_until

OPTIONS = MessageOptions("en", "UTC", "USD", repeat_hours=24, window_seconds=600)
PUSH = AlertmanagerSettings(labels={"cluster": "east"})


def push_settings(url: str, **more: Any) -> Settings:
    return settings_of(alertmanager={"url": url, "labels": {"cluster": "east"}, **more}, notify={"language": "en"})


def active(engine: RunningEngine) -> dict[str, Any]:
    with urllib.request.urlopen(f"{engine.url}/api/v2/alerts?active=true", timeout=10) as response:
        alerts = json.load(response)
    return {alert["labels"].get("workload", alert["labels"]["alertname"]): alert for alert in alerts}


def update(alerts: ActiveAlerts, result: Result, settings: AlertmanagerSettings = PUSH) -> list[Alert]:
    return list(alerts.update(result, settings, OPTIONS))


def names(alerts: list[Alert]) -> list[str]:
    return [alert["labels"]["workload"] for alert in alerts]


def test_the_alert_of_an_idle_workload_is_resolved_when_it_works_again(tmp_path: Path):
    with Receiver() as hook, running_alertmanager(tmp_path, webhook=hook.url) as engine:
        settings, now = push_settings(engine.url), time.time()
        allocations = [gpu_of("ml", "web"), gpu_of("ml", "train")]
        with running_notifier(settings) as notifier:
            notifier.notify(result_of(allocations, [IDLE, BUSY], settings=settings, at=now))
            wait_until(lambda: list(active(engine)) == ["web"])
            alert = active(engine)["web"]
            hook.wait_for(lambda it: any(call.json["status"] == "firing" for call in it.accepted))
            notifier.notify(result_of(allocations, [BUSY, BUSY], settings=settings, at=time.time()))
            wait_until(lambda: not active(engine))
            hook.wait_for(lambda it: any(call.json["status"] == "resolved" for call in it.accepted))
            assert notifier.counters.sent["alert"] == 2
    assert alert["labels"] == {
        "alertname": "GpuWorkloadIdle",
        "severity": "info",
        "cluster": "east",
        "namespace": "ml",
        "workload_kind": "Deployment",
        "workload": "web",
    }
    assert alert["annotations"]["summary"].startswith("ml/Deployment/web holds 1 GPU and has not used it since")
    assert "GPU memory in use: 4.0 GiB" in alert["annotations"]["description"]
    assert alert["annotations"]["signature"] == "parked"


def test_a_thousand_alerts_are_sent_in_batches_and_a_member_that_was_down_gets_them_later(tmp_path: Path):
    with running_alertmanager(tmp_path) as engine:
        late = Receiver()
        settings = push_settings(f"{engine.url},{late.url}")
        with running_notifier(settings) as notifier:
            allocations = [gpu_of("ml", f"web-{number}") for number in range(1000)]
            notifier.notify(result_of(allocations, settings=settings, at=time.time(), idle_hours=1))
            wait_until(lambda: len(active(engine)) == 1000)
            wait_until(lambda: notifier.counters.failed["alert"] >= 1)
            with late:
                late.wait_for(lambda it: sum(len(call.json) for call in it.accepted) == 1000)
                assert max(len(call.json) for call in late.accepted) <= 200


def test_an_outage_has_its_own_alert(tmp_path: Path):
    with running_alertmanager(tmp_path) as engine:
        settings, now = push_settings(engine.url), time.time()
        with running_notifier(settings) as notifier:
            notifier.announce_outage("HTTP 503", at=now - 1200)
            notifier.announce_outage("HTTP 503", at=now)
            wait_until(lambda: list(active(engine)) == ["GpustewardSourceLost"])
            notifier.notify(empty_result(time.time(), settings))
            wait_until(lambda: not active(engine))


def test_an_alert_that_is_not_renewed_expires():
    settings = settings_of(scheduler={"interval": 300})
    (alert,) = update(ActiveAlerts(), result_of([gpu_of("ml", "web")], settings=settings))
    assert alert["startsAt"] == "2026-09-21T12:03:20.000Z"
    assert alert["endsAt"] == "2026-09-21T14:33:20.000Z"


def test_unknown_activity_neither_renews_nor_resolves_an_alert():
    settings, alerts = settings_of(), ActiveAlerts()
    assert len(update(alerts, result_of([gpu_of("ml", "web")], settings=settings))) == 1
    assert update(alerts, result_of([gpu_of("ml", "web")], [NO_SAMPLES], settings=settings, at=AT + 300)) == []
    (ended,) = update(alerts, result_of([gpu_of("ml", "web")], [BUSY], settings=settings, at=AT + 600))
    assert ended["annotations"] == {}
    assert update(alerts, result_of([gpu_of("ml", "web")], [BUSY], settings=settings, at=AT + 900)) == []


def test_the_alert_of_a_deleted_workload_is_resolved():
    settings, alerts = settings_of(), ActiveAlerts()
    update(alerts, result_of([gpu_of("ml", "web")], settings=settings))
    (ended,) = update(alerts, empty_result(AT + 300, settings))
    assert ended["endsAt"] == "2026-09-21T14:18:20.000Z"


def test_beyond_max_alerts_only_the_largest_workloads_are_sent_and_the_others_counted():
    settings, alerts = settings_of(), ActiveAlerts()
    allocations = [gpu_of("ml", f"w{number}", gpu=gpu) for number in range(4) for gpu in range(number + 1)]
    push = make_settings(AlertmanagerSettings, max_alerts=2)
    assert names(update(alerts, result_of(allocations, settings=settings), push)) == ["w3", "w2"]
    assert alerts.left_out == 2


def test_names_in_labels_are_bounded_and_harmless():
    settings = settings_of()
    (alert,) = update(ActiveAlerts(), result_of([gpu_of("ml", "<at>\n" * 500)], settings=settings))
    assert len(alert["labels"]["workload"]) == 253
    assert set("<>\n").isdisjoint(str(alert["labels"]["workload"]))


def test_a_resolved_alert_that_was_not_received_is_sent_with_the_next_state():
    receiver, counters = Receiver(), DeliveryCounters()
    pusher = AlertPusher(receiver.url, AlertmanagerSettings(timeout=1), counters)
    settings, alerts = settings_of(), ActiveAlerts()
    pusher.start()
    pusher.push(update(alerts, result_of([gpu_of("ml", "a"), gpu_of("ml", "b")], settings=settings)))
    wait_until(lambda: counters.failed["alert"] >= 1)
    pusher.push(update(alerts, result_of([gpu_of("ml", "a"), gpu_of("ml", "b")], [BUSY, IDLE], settings=settings)))
    pusher.push(update(alerts, result_of([gpu_of("ml", "a"), gpu_of("ml", "b")], [BUSY, IDLE], settings=settings)))
    with receiver:
        receiver.wait_for(lambda it: len(it.accepted) == 1)
    pusher.stop(5)
    has_annotations = {alert["labels"]["workload"]: bool(alert["annotations"]) for alert in receiver.accepted[0].json}
    assert has_annotations == {"a": False, "b": True}


def test_credentials_are_sent_and_never_shown():
    with Receiver() as receiver:
        settings = push_settings(receiver.url, bearer_token="s3cret")
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings, at=time.time()))
            receiver.wait_for(lambda it: len(it.accepted) == 1)
            assert "s3cret" not in str(notifier.describe())
        settings = push_settings(receiver.url, username="u", password="p")
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings, at=time.time()))
            receiver.wait_for(lambda it: len(it.accepted) == 2)
    assert [call.headers["authorization"] for call in receiver.accepted] == ["Bearer s3cret", "Basic dTpw"]
    assert {call.path for call in receiver.accepted} == {"/api/v2/alerts"}
