"""Channels: Feishu webhooks directly, all others through Apprise, which is imported only if needed."""

import json
import subprocess
import sys
import time

import pytest

from gpusteward.analyzer.notify.channels import FeishuSender, sign_feishu
from gpusteward.analyzer.notify.outbox.records import DeliveryError, PendingDelivery
from gpusteward.analyzer.settings.notify import is_feishu
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners
from gpusteward.kubernetes.api import ApiServer
from tests.analyzer.notify.notifier_setup import gpu_of, result_of, running_notifier, settings_of
from tests.analyzer.sources.owners.test_owners import POD, REPLICA_SET, cluster, table
from tests.fakes.kubernetes_objects import FakeObjects
from tests.fakes.receivers import Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

HOOK = "/open-apis/bot/v2/hook/0a1b-2c3d"

__all__ = ["cluster"]


def notify(**channels: str) -> dict:
    return {"channels": channels, "digest": "", "language": "en"}


def test_a_feishu_webhook_needs_nothing_but_its_address():
    with Receiver() as receiver:
        settings = settings_of(notify={"channels": {"feishu": receiver.url + HOOK}, "digest": ""})
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            receiver.wait_for(lambda it: len(it.accepted) == 1)
    call = receiver.accepted[0]
    assert call.path == HOOK
    assert call.json == {"msg_type": "text", "content": {"text": call.json["content"]["text"]}}
    assert call.json["content"]["text"].startswith("GPU 空闲通知：ml\n")


def test_a_feishu_bot_with_signature_check_accepts_signed_messages():
    with Receiver() as signed, Receiver() as other, Receiver() as unsigned:
        signed.feishu_secret, other.feishu_secret = "first-secret", "second-secret"
        channels = {"ops": f"{signed.url}{HOOK} {other.url}{HOOK}", "plain": unsigned.url + HOOK}
        secrets = {"ops": "first-secret second-secret"}
        settings = settings_of(notify=notify(**channels) | {"secrets": secrets})
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            for receiver in (signed, other, unsigned):
                receiver.wait_for(lambda it: len(it.accepted) == 1)
    assert signed.accepted[0].json.keys() == {"timestamp", "sign", "msg_type", "content"}
    assert unsigned.accepted[0].json.keys() == {"msg_type", "content"}
    assert b"secret" not in signed.accepted[0].body


@pytest.mark.parametrize("secrets", [{}, {"ops": "wrong-secret"}])
def test_a_failed_feishu_signature_check_is_reported_with_what_to_check(secrets: dict[str, str]):
    with Receiver() as receiver:
        receiver.feishu_secret = "right-secret"
        settings = settings_of(notify=notify(ops=receiver.url + HOOK) | {"secrets": secrets})
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.counters.dead["notice"] == 1)
            shown = str(notifier.describe())
    assert not receiver.accepted
    assert "code 19021: signature check failed; check notify.secrets" in shown
    assert "-secret" not in shown


def test_every_attempt_has_a_new_signature():
    times = iter([time.time() - 7200, time.time()])
    delivery = PendingDelivery(1, "stream", "key", "notice", "channel/ops/0", {}, "Idle GPUs", 0, 0)
    with Receiver() as receiver:
        receiver.feishu_secret = "right-secret"
        sender = FeishuSender(receiver.url + HOOK, "right-secret", clock=lambda: next(times))
        with pytest.raises(DeliveryError, match="19021"):
            sender.send(delivery)
        sender.send(delivery)
    assert len(receiver.accepted) == 1
    assert "right-secret" not in repr(sender)


def test_the_feishu_signature_equals_that_of_openssl():
    signature = sign_feishu("rHx9kQ2mTz", at=1599360473.9)  # printf '' | openssl dgst -sha256 -hmac "TIME\nSECRET"
    assert signature == {"timestamp": "1599360473", "sign": "Za5W7mQLxyTCdxhxTD5eGWoekIim1m21oS8ibtk9Xvw="}


def test_addresses_of_feishu_and_lark_are_recognized():
    assert is_feishu("https://open.feishu.cn/open-apis/bot/v2/hook/x")
    assert is_feishu("https://open.larksuite.com/open-apis/bot/v2/hook/x")
    assert not is_feishu("https://hooks.slack.com/services/T/B/x")


@pytest.mark.parametrize("response", [b'{"code":19024,"msg":"Key Words Not Found"}', b'{"StatusCode":1}', b"<html>"])
def test_an_error_code_of_feishu_with_status_200_is_a_failed_delivery(response: bytes):
    with Receiver() as receiver:
        receiver.response_body = response
        settings = settings_of(notify=notify(feishu=receiver.url + HOOK))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.counters.dead["notice"] == 1)
            assert notifier.counters.sent["notice"] == 0
            assert "0a1b" not in str(notifier.describe())


def test_other_services_are_called_through_apprise():
    with Receiver() as receiver:
        settings = settings_of(notify=notify(hook=f"json://127.0.0.1:{receiver.port}/notices"))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "@all")], settings=settings))
            receiver.wait_for(lambda it: len(it.accepted) == 1)
    message = receiver.accepted[0].json
    assert message["title"] == "Idle GPUs: ml"
    assert message["message"].startswith(
        "As of 2026-09-21 14:13 UTC\nml/Deployment/?all holds 1 GPU and has not used it since"
    )


def test_apprise_follows_no_redirect_even_if_its_url_requests_it():
    with Receiver() as receiver:
        receiver.fault = "redirect"
        settings = settings_of(notify=notify(hook=f"json://127.0.0.1:{receiver.port}/notices?redirect=yes"))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.counters.failed["notice"] > 0)
    assert {call.path for call in receiver.calls} == {"/notices"}


def test_of_several_addresses_only_the_failed_one_is_retried():
    with Receiver() as working, Receiver() as failing:
        failing.fault = "500"
        settings = settings_of(notify=notify(ops=f"{working.url}{HOOK} {failing.url}{HOOK}"))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            failing.wait_for(lambda it: len(it.calls) >= 3)
            failing.fault = ""
            failing.wait_for(lambda it: len(it.accepted) == 1)
            assert len(working.accepted) == 1
            wait_until(lambda: notifier.counters.sent["notice"] == 2)


def test_changed_channels_apply_from_the_next_cycle_and_unusable_ones_change_nothing():
    with Receiver() as first, Receiver() as second:
        settings = settings_of(notify=notify(ops=first.url + HOOK))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "a")], settings=settings))
            first.wait_for(lambda it: len(it.accepted) == 1)
            bad = settings_of(notify=notify(ops="nosuchservice://x"))
            notifier.notify(result_of([gpu_of("chat", "b")], settings=bad))
            first.wait_for(lambda it: len(it.accepted) == 2)
            good = settings_of(notify=notify(ops=second.url + HOOK))
            notifier.notify(result_of([gpu_of("vision", "c")], settings=good))
            second.wait_for(lambda it: len(it.accepted) == 1)
    assert len(first.accepted) == 2


def test_an_unusable_channel_does_not_block_other_settings():
    with Receiver() as receiver:
        control = {"enabled": True, "api_url": receiver.url}
        before = settings_of(control=control, notify=notify(ops=receiver.url + HOOK))
        after = settings_of(control={"enabled": False}, notify=notify(ops="nosuchservice://x"))
        with running_notifier(before) as notifier:
            notifier.notify(result_of([gpu_of("ml", "a")], settings=after))
            receiver.wait_for(lambda it: len(it.accepted) == 1)
            assert notifier.describe()["targets"] == ["channel/ops/0"]
    assert receiver.accepted[0].path == HOOK


def test_an_unexpected_error_never_reaches_the_cycle():
    def fail(_cluster: str, _namespace: str, _pod: str) -> str:
        raise RuntimeError("unexpected")

    settings = settings_of(notify=notify(ops="http://127.0.0.1:9" + HOOK))
    with running_notifier(settings, read_notify_annotation=fail) as notifier:
        notifier.notify(result_of([gpu_of("ml", "a")], settings=settings))
        assert notifier.describe()["fault"] == "RuntimeError: unexpected"


def test_apprise_is_imported_only_if_a_channel_needs_it():
    script = (
        "import sys, json\n"
        "from gpusteward.analyzer.settings.settings import Settings\n"
        "from gpusteward.analyzer.notify.notifier import Notifier\n"
        "hook = 'https://open.feishu.cn/open-apis/bot/v2/hook/x'\n"
        "for notify in ({}, {'channels': {'feishu': hook}}):\n"
        "    Notifier(Settings.model_validate({'notify': notify}), None)\n"
        "print(json.dumps([name for name in ('apprise', 'requests', 'httpx2') if name in sys.modules]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == []


def test_the_annotation_of_a_pod_takes_precedence_over_that_of_its_owner(cluster: FakeObjects):
    cluster.add(POD, "apps/v1", "ReplicaSet", "web-5d")
    cluster.add(REPLICA_SET)
    owners = ClusterOwners(ApiServer(cluster.url))
    cluster.objects[REPLICA_SET]["metadata"]["annotations"] = {"gpusteward.io/notify": "team"}
    assert owners.read_notify_annotation("ml", "web-1") == "team"
    assert owners.read_notify_annotation("ml", "web-1") == "team"
    assert cluster.requests == [POD, REPLICA_SET]
    cluster.objects[POD]["metadata"]["annotations"] = {"gpusteward.io/notify": " mine "}
    fresh = ClusterOwners(ApiServer(cluster.url))
    fresh.resolve_owners(table("web-1"))
    assert fresh.read_notify_annotation("ml", "web-1") == "mine"


def test_without_an_api_server_or_permission_there_is_no_annotation(cluster: FakeObjects):
    assert ClusterOwners(None).read_notify_annotation("ml", "web-1") == ""
    cluster.forbidden.add(POD)
    assert ClusterOwners(ApiServer(cluster.url)).read_notify_annotation("ml", "web-1") == ""


def test_an_annotation_selects_a_channel_and_never_an_address(cluster: FakeObjects):
    with Receiver() as team, Receiver() as ops:
        settings = settings_of(notify=notify(team=team.url + HOOK, ops=ops.url + HOOK) | {"namespaces": {"*": "ops"}})
        owners = ClusterOwners(ApiServer(cluster.url))
        for name, annotation in (("a", "team"), ("b", "http://127.0.0.1:9/hook"), ("c", "")):
            path = f"/api/v1/namespaces/{name}/pods/web-pod"
            cluster.add(path)
            cluster.objects[path]["metadata"]["annotations"] = {"gpusteward.io/notify": annotation}
        with running_notifier(settings, read_notify_annotation=owners.read_notify_annotation) as notifier:
            notifier.notify(result_of([gpu_of(name, "web") for name in "abc"], settings=settings))
            team.wait_for(lambda it: len(it.accepted) == 1)
            ops.wait_for(lambda it: len(it.accepted) == 2)
            assert notifier.counters.failed["notice"] == 0
    assert "Idle GPUs: a" in team.texts[0]
