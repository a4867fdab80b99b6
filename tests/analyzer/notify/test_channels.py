"""Channels: Feishu by nothing but its webhook, everything else through Apprise, and only where it is needed."""

import json
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import text

from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.notify.channels import FeishuSender
from gpusteward.analyzer.notify.errors import DeliveryError
from gpusteward.analyzer.notify.notices.digest import read_week, write_digest
from gpusteward.analyzer.notify.notices.messages import MessageOptions
from gpusteward.analyzer.notify.outbox.records import PendingDelivery
from gpusteward.analyzer.notify.signing import sign_feishu
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.notify import is_feishu
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners
from gpusteward.kubernetes.api import ApiServer
from tests.analyzer.notify.notifier_setup import BUSY, IDLE, gpu_of, result_of, running_notifier, settings_of
from tests.analyzer.test_read_owners import POD, REPLICA_SET, FakeObjects, cluster, table
from tests.analyzer.usage_tables import AT
from tests.fakes.receivers import Receiver, wait_until

HOOK = "/open-apis/bot/v2/hook/0a1b-2c3d"

__all__ = ["cluster"]


def notify(**channels: str) -> dict:
    return {"channels": channels, "digest": "", "language": "en"}


def test_a_feishu_webhook_works_as_it_is():
    with Receiver() as receiver:
        settings = settings_of(notify={"channels": {"feishu": receiver.url + HOOK}, "digest": ""})
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            receiver.wait_for(lambda it: len(it.accepted) == 1)
    call = receiver.accepted[0]
    assert call.path == HOOK
    assert call.json == {"msg_type": "text", "content": {"text": call.json["content"]["text"]}}
    assert call.json["content"]["text"].startswith("GPU 空闲通知：ml\n")


def test_a_feishu_bot_that_checks_signatures_takes_what_its_secret_signed():
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
def test_a_feishu_bot_that_misses_its_signature_is_said_to_and_what_to_look_at(secrets: dict[str, str]):
    with Receiver() as receiver:
        receiver.feishu_secret = "right-secret"
        settings = settings_of(notify=notify(ops=receiver.url + HOOK) | {"secrets": secrets})
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.counters.dead["notice"] == 1)
            told = str(notifier.describe())
    assert not receiver.accepted
    assert "code 19021: it checks signatures; see notify.secrets" in told
    assert "-secret" not in told


def test_every_attempt_at_a_message_is_signed_anew():
    moments = iter([time.time() - 7200, time.time()])
    waiting = PendingDelivery(1, "stream", "key", "notice", "channel/ops/0", {}, "GPUs idle", 0, 0)
    with Receiver() as receiver:
        receiver.feishu_secret = "right-secret"
        sender = FeishuSender(receiver.url + HOOK, "right-secret", clock=lambda: next(moments))
        with pytest.raises(DeliveryError, match="19021"):
            sender.send(waiting)
        sender.send(waiting)
    assert len(receiver.accepted) == 1
    assert "right-secret" not in repr(sender)


def test_feishus_signature_is_the_one_that_openssl_makes():
    signature = sign_feishu("rHx9kQ2mTz", at=1599360473.9)  # printf '' | openssl dgst -sha256 -hmac "TIME\nSECRET"
    assert signature == {"timestamp": "1599360473", "sign": "Za5W7mQLxyTCdxhxTD5eGWoekIim1m21oS8ibtk9Xvw="}


def test_the_real_addresses_of_feishu_and_lark_are_known():
    assert is_feishu("https://open.feishu.cn/open-apis/bot/v2/hook/x")
    assert is_feishu("https://open.larksuite.com/open-apis/bot/v2/hook/x")
    assert not is_feishu("https://hooks.slack.com/services/T/B/x")


@pytest.mark.parametrize("answer", [b'{"code":19024,"msg":"Key Words Not Found"}', b'{"StatusCode":1}', b"<html>"])
def test_feishus_refusal_with_status_200_is_no_delivery(answer: bytes):
    with Receiver() as receiver:
        receiver.answer = answer
        settings = settings_of(notify=notify(feishu=receiver.url + HOOK))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.counters.dead["notice"] == 1)
            assert notifier.counters.sent["notice"] == 0
            assert "0a1b" not in str(notifier.describe())


def test_other_services_are_reached_through_apprise():
    with Receiver() as receiver:
        settings = settings_of(notify=notify(hook=f"json://127.0.0.1:{receiver.port}/notices"))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "@all")], settings=settings))
            receiver.wait_for(lambda it: len(it.accepted) == 1)
    said = receiver.accepted[0].json
    assert said["title"] == "GPUs idle: ml"
    assert said["message"].startswith("ml / Deployment ?all holds 1 GPU and has not used it since")


def test_apprise_follows_no_redirect_even_if_its_address_asks_for_it():
    with Receiver() as receiver:
        receiver.misfortune = "redirect"
        settings = settings_of(notify=notify(hook=f"json://127.0.0.1:{receiver.port}/notices?redirect=yes"))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.counters.failed["notice"] > 0)
    assert {call.path for call in receiver.calls} == {"/notices"}


def test_of_several_addresses_only_the_one_that_failed_is_tried_again():
    with Receiver() as well, Receiver() as ill:
        ill.misfortune = "500"
        settings = settings_of(notify=notify(ops=f"{well.url}{HOOK} {ill.url}{HOOK}"))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            ill.wait_for(lambda it: len(it.calls) >= 3)
            ill.misfortune = ""
            ill.wait_for(lambda it: len(it.accepted) == 1)
            assert len(well.accepted) == 1
            wait_until(lambda: notifier.counters.sent["notice"] == 2)


def test_changed_channels_are_used_from_the_next_cycle_on_and_bad_ones_change_nothing():
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


def test_a_bad_channel_does_not_keep_other_settings_from_changing():
    with Receiver() as receiver:
        control = {"enabled": True, "api_url": receiver.url}
        before = settings_of(control=control, notify=notify(ops=receiver.url + HOOK))
        after = settings_of(control={"enabled": False}, notify=notify(ops="nosuchservice://x"))
        with running_notifier(before) as notifier:
            notifier.notify(result_of([gpu_of("ml", "a")], settings=after))
            receiver.wait_for(lambda it: len(it.accepted) == 1)
            assert notifier.describe()["targets"] == ["channel/ops/0"]
    assert receiver.accepted[0].path == HOOK


def test_a_fault_in_telling_never_reaches_the_cycle():
    def fail(_namespace: str, _pod: str) -> str:
        raise RuntimeError("nobody foresaw this")

    settings = settings_of(notify=notify(ops="http://127.0.0.1:9" + HOOK))
    with running_notifier(settings, read_wish=fail) as notifier:
        notifier.notify(result_of([gpu_of("ml", "a")], settings=settings))
        assert notifier.describe()["fault"] == "RuntimeError: nobody foresaw this"


def test_apprise_is_not_even_imported_where_nobody_needs_it():
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


def test_the_annotation_of_a_pod_or_else_of_its_owner_is_read(cluster: FakeObjects):
    cluster.add(POD, "apps/v1", "ReplicaSet", "web-5d")
    cluster.add(REPLICA_SET)
    owners = ClusterOwners(ApiServer(cluster.url))
    cluster.objects[REPLICA_SET]["metadata"]["annotations"] = {"gpusteward.io/notify": "team"}
    assert owners.read_wish("ml", "web-1") == "team"
    assert owners.read_wish("ml", "web-1") == "team"
    assert cluster.asked == [POD, REPLICA_SET]
    cluster.objects[POD]["metadata"]["annotations"] = {"gpusteward.io/notify": " mine "}
    fresh = ClusterOwners(ApiServer(cluster.url))
    fresh.name(table("web-1"))
    assert fresh.read_wish("ml", "web-1") == "mine"


def test_without_an_api_server_or_rights_there_is_no_annotation(cluster: FakeObjects):
    assert ClusterOwners(None).read_wish("ml", "web-1") == ""
    cluster.forbidden.add(POD)
    assert ClusterOwners(ApiServer(cluster.url)).read_wish("ml", "web-1") == ""


def test_an_annotated_pod_is_told_of_on_the_channel_it_names_and_on_no_address_of_its_own(cluster: FakeObjects):
    with Receiver() as team, Receiver() as ops:
        settings = settings_of(notify=notify(team=team.url + HOOK, ops=ops.url + HOOK) | {"default": ["ops"]})
        owners = ClusterOwners(ApiServer(cluster.url))
        for name, wish in (("a", "team"), ("b", "http://127.0.0.1:9/hook"), ("c", "")):
            path = f"/api/v1/namespaces/{name}/pods/web-pod"
            cluster.add(path)
            cluster.objects[path]["metadata"]["annotations"] = {"gpusteward.io/notify": wish}
        with running_notifier(settings, read_wish=owners.read_wish) as notifier:
            notifier.notify(result_of([gpu_of(name, "web") for name in "abc"], settings=settings))
            team.wait_for(lambda it: len(it.accepted) == 1)
            ops.wait_for(lambda it: len(it.accepted) == 2)
            assert notifier.counters.failed["notice"] == 0
    assert "GPUs idle: a" in team.texts[0]


def test_the_digest_tells_the_week_of_the_books_once(tmp_path: Path):
    ledger = Ledger(LedgerSettings(directory=tmp_path))
    prices = {"prices": PriceSettings(per_gpu_hour={"H100": 3.0}).model_dump()}
    now = [AT]
    with Receiver() as receiver:
        channel = {"channels": {"ops": receiver.url + HOOK}, "language": "en", "idle_minutes": 100_000}
        settings = settings_of(notify=channel | {"digest": "monday 09:00"}, **prices)
        allocations, rows = (
            [gpu_of("ml", "web"), gpu_of("ml", "train"), gpu_of("ml", "train", gpu=1)],
            [IDLE, BUSY, BUSY],
        )
        for back in range(12, -1, -1):
            result = result_of(allocations, rows, settings=settings, at=AT - back * 300)
            ledger.record(result)
        with running_notifier(settings, ledger.engine, clock=lambda: now[0]) as notifier:
            for after in (0, 300):
                now[0] = AT + after
                notifier.notify(result_of(allocations, rows, settings=settings, at=AT))
            receiver.wait_for(lambda it: len(it.accepted) == 1)
            wait_until(lambda: not notifier.counters.pending.get("notice"))
    ledger.close()
    assert len(receiver.accepted) == 1
    assert receiver.texts[0].splitlines() == [
        "GPU digest of the week to 2026-09-21",
        "3.0 GPU-hours held: 2.0 used, 1.0 idle, 0.0 unknown.",
        "Idle GPU-hours cost 3.00 USD.",
        "Most idle time:",
        "- ml / Deployment web: 1.0 of 1.0 GPU-hours idle, 3.00 USD",
        "Now: 1 workload with 1 GPU is idle as a whole; 0 more have unused GPUs.",
    ]


def test_a_digest_without_books_says_so_and_what_is_idle_now(tmp_path: Path):
    settings = settings_of()
    result = result_of([gpu_of("ml", "web"), gpu_of("chat", "x")], settings=settings)
    options = MessageOptions("en", "UTC", "USD", 24, 600)
    said = write_digest(None, result, day=date(2026, 9, 21), namespaces=("ml",), options=options)
    assert "the ledger is off" in said
    assert "Now: 1 workload with 1 GPU is idle" in said
    ledger = Ledger(LedgerSettings(directory=tmp_path))
    empty = read_week(ledger.engine, result, namespaces=(), now=AT)
    assert "no books" in write_digest(empty, result, day=date(2026, 9, 21), namespaces=(), options=options)
    ledger.close()


def test_a_digest_that_cannot_be_read_costs_nothing_else_that_is_told(tmp_path: Path):
    ledger = Ledger(LedgerSettings(directory=tmp_path))
    with ledger.engine.begin() as connection:
        connection.execute(text("DROP TABLE usage_hourly"))
    with Receiver() as receiver:
        channel = {"channels": {"ops": receiver.url + HOOK}, "language": "en", "digest": "monday 09:00"}
        settings = settings_of(notify=channel)
        with running_notifier(settings, ledger.engine, clock=lambda: AT) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            receiver.wait_for(lambda it: len(it.accepted) == 1)
            assert notifier.describe()["fault"] == ""
    ledger.close()
    assert receiver.texts[0].startswith("GPUs idle: ml")
