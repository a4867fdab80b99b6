"""The control webhook: gpu-oour's JSON, signed, one call per GPU below the threshold and cycle."""

import hashlib
import hmac
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpusteward.analyzer.explain.opinions import Opinion
from gpusteward.analyzer.notify.control_webhook import control_events
from gpusteward.analyzer.setting_values import SecretFile
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.usages import Measure
from tests.analyzer.notify.notifier_setup import (
    BUSY,
    IDLE,
    NO_SAMPLES,
    gpu_of,
    open_ledger,
    result_of,
    running_notifier,
    settings_of,
)
from tests.analyzer.reclaim.spell_tables import spell
from tests.analyzer.reclaim.spell_tables import table_of as spells_of
from tests.analyzer.spells import make_history
from tests.analyzer.usage_tables import AT, GIB, signal
from tests.fakes.receivers import Call, Receiver

SECRET = "must never be shown"
GUIDES = [Path(__file__).parents[3] / "docs" / name for name in ("how-to/notices.md", "zh-CN/how-to/notices.md")]
GPU_OOUR_FIELDS = ["gpu_id", "pod", "namespace", "hostname", "score", "status", "timestamp"]


def control(url: str, **more: object) -> dict:
    return {"enabled": True, "api_url": f"{url}/api/optimize", "timeout": 0.5, **more}


def is_genuine(call: Call, secret: str, *, now: float) -> bool:
    """As the docstring of control_webhook.py describes it to receivers."""
    parts = dict(part.split("=", 1) for part in call.headers["x-gpusteward-signature"].split(","))
    signed = f"{parts['t']}.{call.headers['idempotency-key']}.".encode() + call.body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, parts["v1"]) and abs(now - int(parts["t"])) <= 300


def test_the_body_has_exactly_the_fields_of_gpu_oour():
    with Receiver() as receiver:
        settings = settings_of(control=control(receiver.url))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            receiver.wait_for(lambda it: len(it.accepted) == 1)
    call = receiver.accepted[0]
    assert call.path == "/api/optimize"
    assert call.headers["content-type"] == "application/json"
    assert list(call.json) == GPU_OOUR_FIELDS
    assert call.json == {
        "gpu_id": "GPU-ml-web-0",
        "pod": "web-pod",
        "namespace": "ml",
        "hostname": "node-1",
        "score": 1.9,
        "status": "idle",
        "timestamp": "2026-09-21T14:13:20",
    }


def test_an_opinion_is_added_as_gpu_oour_sent_it():
    settings = settings_of(control=control("http://nowhere"))
    result = result_of([gpu_of("ml", "web")], settings=settings)
    opinion = Opinion("idle", 0.91234, "没有计算", "ask", 1.9, 2.0, "gpt-4", AT)
    (event,) = control_events(replace(result, opinions={0: opinion}))
    assert '"ai_analysis":{"status":"idle","confidence":0.912,"reason":"没有计算","recommendation":"ask"}' in event.body


def test_every_field_of_a_call_is_documented():
    settings = settings_of(control=control("http://nowhere"))
    held = gpu_of("ml", "web")
    result = result_of([replace(held, container=replace(held.container, cluster="east"))], settings=settings)
    opinion = Opinion("idle", 0.9, "no work", "ask", 1.9, 2.0, "gpt-4", AT)
    history = make_history(spells_of([spell(0, 30)], at=100.0), at=AT)
    (event,) = control_events(replace(result, opinions={0: opinion}, spells=history))
    body = json.loads(event.body)
    assert list(body) == [*GPU_OOUR_FIELDS, "cluster", "lendable", "ai_analysis"]
    assert list(body["lendable"]) == ["1h", "4h", "morning"]
    names = [*body, *(f'"{name}": ' for name in body["lendable"]), *body["ai_analysis"]]
    for guide in GUIDES:
        text = guide.read_text()
        assert not [name for name in names if (name if name.startswith('"') else f"`{name}`") not in text], guide


def test_gpus_without_a_known_low_score_are_not_sent():
    settings = settings_of(control=control("http://nowhere"))
    allocations = [gpu_of("ml", name) for name in ("idle", "busy", "no-samples")]
    events = list(control_events(result_of(allocations, [IDLE, BUSY, NO_SAMPLES], settings=settings)))
    assert [event.stream for event in events] == ["control/Deployment/ml/idle"]


def test_an_idle_gpu_is_sent_however_much_memory_it_holds():
    """A loaded model without requests: gpu-oour's score alone would call it normal."""
    settings = settings_of(control=control("http://nowhere"))
    parked = IDLE | signal(Measure.MEMORY_USED, 80 * GIB) | signal(Measure.POWER, 250)
    result = result_of([gpu_of("ml", "parked")], [parked], settings=settings)
    assert result.verdicts.score[0] > settings.thresholds.low_utilization
    (event,) = control_events(result)
    assert '"status":"idle"' in event.body


def test_a_receiver_can_verify_the_signature_and_a_changed_call_fails(tmp_path: Path):
    (tmp_path / "secret").write_text(SECRET + "\n")
    for source in ({"secret": SECRET}, {"secret": SecretFile(tmp_path / "secret")}):
        with Receiver() as receiver:
            settings = settings_of(control=control(receiver.url, **source))
            with running_notifier(settings) as notifier:
                notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
                receiver.wait_for(lambda it: len(it.accepted) == 1)
        call, now = receiver.accepted[0], time.time()
        assert is_genuine(call, SECRET, now=now)
        assert not is_genuine(call, "another secret", now=now)
        assert not is_genuine(replace(call, body=call.body + b" "), SECRET, now=now)
        assert not is_genuine(replace(call, headers={**call.headers, "idempotency-key": "x"}), SECRET, now=now)
        assert not is_genuine(call, SECRET, now=now + 3600)


def test_every_attempt_has_the_same_key_and_a_new_timestamp():
    with Receiver() as receiver:
        receiver.fault = "500"
        settings = settings_of(control=control(receiver.url, secret=SECRET))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            receiver.wait_for(lambda it: len(it.calls) >= 3)
            receiver.fault = ""
            receiver.wait_for(lambda it: len(it.accepted) == 1)
    assert len({call.headers["idempotency-key"] for call in receiver.calls}) == 1
    assert all(is_genuine(call, SECRET, now=time.time()) for call in receiver.calls)


def test_a_cycle_notified_twice_is_delivered_once_even_after_a_restart(tmp_path: Path):
    engine = open_ledger(tmp_path)
    with Receiver() as receiver:
        settings = settings_of(control=control(receiver.url))
        result = result_of([gpu_of("ml", "web"), gpu_of("ml", "web", gpu=1)], settings=settings)
        later = result_of([gpu_of("ml", "web")], settings=settings, at=AT + 300)
        with running_notifier(settings, engine) as notifier:
            notifier.notify(result)
            notifier.notify(result)
            receiver.wait_for(lambda it: len(it.accepted) == 2)
        with running_notifier(settings, engine) as notifier:
            notifier.notify(result)
            notifier.notify(later)
            receiver.wait_for(lambda it: len(it.accepted) == 3)
    engine.dispose()
    timestamps = [call.json["timestamp"] for call in receiver.accepted]
    assert timestamps == ["2026-09-21T14:13:20"] * 2 + ["2026-09-21T14:18:20"]


def test_a_redirect_is_not_followed():
    with Receiver() as receiver:
        receiver.fault = "redirect"
        settings = settings_of(control=control(receiver.url, secret=SECRET))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            receiver.wait_for(lambda _: notifier.counters.dead["control"] == 1)
            assert "redirect" in notifier.describe()["failures"]["control"]
    assert {call.path for call in receiver.calls} == {"/api/optimize"}


def test_without_a_readable_secret_file_no_call_is_made(tmp_path: Path):
    with Receiver() as receiver:
        settings = settings_of(control=control(receiver.url, secret=SecretFile(tmp_path / "missing")))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            receiver.wait_for(lambda _: notifier.counters.failed["control"] > 0)
            assert notifier.describe()["failures"] == {"control": "control.secret_file cannot be read"}
    assert receiver.calls == []


def test_no_address_or_secret_is_shown_or_stored(tmp_path: Path):
    engine = open_ledger(tmp_path)
    with Receiver() as receiver:
        receiver.fault = "500"
        url = f"http://user:hunter2@127.0.0.1:{receiver.port}"
        settings = settings_of(control=control(url, secret=SECRET))
        with running_notifier(settings, engine) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            receiver.wait_for(lambda it: len(it.calls) >= 2)
            shown = str(notifier.describe())
    engine.dispose()
    assert receiver.calls[0].headers["authorization"] == "Basic dXNlcjpodW50ZXIy"
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for secret in ("hunter2", SECRET, "127.0.0.1"):
        assert secret not in shown.replace("'left_alone': ['127.0.0.1:", "")
        assert secret.encode() not in stored


def test_an_unusable_channel_is_an_error_at_the_start_without_its_address():
    settings = settings_of(notify={"channels": {"ops": "nosuchservice://token-xyz"}})
    with pytest.raises(ConfigurationError, match=r"notify\.channels\.ops") as refused, running_notifier(settings):
        pass
    assert "token-xyz" not in str(refused.value)
