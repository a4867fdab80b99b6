"""Notices of reclaim in both languages, with buttons where the channel has some."""

import json
from dataclasses import replace

import pytest

from gpusteward.analyzer.notify.links import LinkSigner
from gpusteward.analyzer.notify.notices.messages import MessageOptions
from gpusteward.analyzer.notify.notices.reclaim_notices import ReclaimNotice, write_reclaim
from gpusteward.analyzer.notify.outbox.records import NoticeKind
from gpusteward.analyzer.settings.notify import is_slack
from gpusteward.core.messages import LANGUAGES, Language, Message
from gpusteward.core.node.containers import WorkloadKey
from tests.analyzer.notify.notifier_setup import empty_result, running_notifier, settings_of
from tests.analyzer.usage_tables import AT
from tests.fakes.receivers import Receiver

FEISHU, SLACK = "/open-apis/bot/v2/hook/0a1b-2c3d", "/services/T0123/B0456/abcDEF789"
PUBLIC = "https://gpu.example.com"
WARNING = ReclaimNotice(
    kind=NoticeKind.WARNING,
    workload=WorkloadKey("Deployment", "nlp", "chat"),
    pod="chat-0",
    gpus=2.0,
    idle_since=AT - 7200,
    action_id="a1",
    action="suspend",
    policy="interactive",
    text=Message("spec.replicas: 3 -> 0", "spec.replicas: 3 -> 0"),
    at=AT,
    due_at=AT + 1800,
    number=1,
)
ACTED = replace(WARNING, kind=NoticeKind.ACTION, by="gpusteward")


def options(language: Language) -> MessageOptions:
    return MessageOptions(language, "UTC", "USD", 24.0, 600.0)


def test_a_warning_says_what_will_change_when_and_how_to_prevent_it():
    lines = write_reclaim(WARNING, options("en")).splitlines()
    assert lines[0] == "Idle GPUs will be given back: nlp/Deployment/chat"
    assert lines[1] == "As of 2026-09-21 14:13 UTC"
    assert "holds 2 GPUs and has not used any of them since" in lines[2]
    assert lines[3].startswith("Not before ")
    assert "policy interactive: spec[.]replicas: 3 -" in lines[3]
    assert "gpusteward.io/keep" in lines[4]
    assert "restored with one command" in lines[5]


def test_what_was_done_says_how_to_undo_it():
    text = write_reclaim(ACTED, options("en"))
    assert "Undo it with: gpusteward restore nlp/Deployment/chat" in text
    assert "By: gpusteward" in text


def test_an_evicted_pod_is_never_said_to_be_restorable():
    for kind in (NoticeKind.WARNING, NoticeKind.ACTION):
        text = write_reclaim(replace(WARNING, kind=kind, action="evict"), options("en"))
        assert "restore" not in text


@pytest.mark.parametrize("kind", [NoticeKind.WARNING, NoticeKind.ACTION, NoticeKind.RESTORED, NoticeKind.REFUSED])
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_kind_has_a_text_in_both_languages(kind: NoticeKind, language: Language):
    text = write_reclaim(replace(WARNING, kind=kind), options(language))
    assert "nlp/Deployment/chat" in text
    assert any("\u4e00" <= letter <= "\u9fff" for letter in text) is (language == "zh")


def test_names_of_tenants_cannot_forge_a_message():
    forged = replace(WARNING, workload=WorkloadKey("Deployment", "nlp", "@all\nhttp://evil"))
    title, *rest = write_reclaim(forged, options("en")).splitlines()
    assert "@" not in title
    assert len(rest) == 5


def send(receiver: Receiver, path: str, notice: ReclaimNotice, *, public_url: str = PUBLIC) -> dict:
    settings = settings_of(
        notify={"channels": {"ops": receiver.url + path}, "digest": "", "language": "en"},
        server={"public_url": public_url},
    )
    with running_notifier(settings, links=LinkSigner(b"key")) as notifier:
        notifier.notify(empty_result(AT, settings))
        assert notifier.send_reclaim_notice(notice)
        receiver.wait_for(lambda it: len(it.accepted) == 1)
    return receiver.accepted[0].json


def test_feishu_gets_a_card_with_buttons():
    with Receiver() as receiver:
        message = send(receiver, FEISHU, WARNING)
    assert message["msg_type"] == "interactive"
    card = message["card"]
    assert card["header"]["title"]["content"].startswith("Idle GPUs will be given back")
    buttons = card["elements"][1]["actions"]
    assert [each["text"]["content"] for each in buttons] == [
        *("Snooze for 4 h", "Snooze for 8 h", "Snooze for 24 h", "Show details")
    ]
    assert all(each["url"].startswith(PUBLIC) for each in buttons)


def test_slack_gets_blocks_with_buttons():
    with Receiver() as receiver:
        message = send(receiver, SLACK, WARNING)
    kinds = [each["type"] for each in message["blocks"]]
    assert kinds == ["header", "section", "actions"]
    elements = message["blocks"][2]["elements"]
    assert [each["url"].rpartition("&")[2] for each in elements[:3]] == ["hours=4", "hours=8", "hours=24"]
    assert message["text"].startswith("Idle GPUs will be given back")


def test_what_was_done_has_no_snooze_button():
    with Receiver() as receiver:
        message = send(receiver, SLACK, ACTED)
    assert [each["text"]["text"] for each in message["blocks"][2]["elements"]] == ["Show details"]


def test_other_channels_get_the_links_as_lines():
    with Receiver() as receiver:
        settings_url = receiver.url.replace("http://", "json://")
        message = send_apprise(settings_url, receiver)
    assert "Snooze for 4 h: https://gpu.example.com/snooze?link=" in message["message"]


def send_apprise(url: str, receiver: Receiver) -> dict:
    settings = settings_of(
        notify={"channels": {"ops": url}, "digest": "", "language": "en"}, server={"public_url": PUBLIC}
    )
    with running_notifier(settings) as notifier:
        notifier.notify(empty_result(AT, settings))
        notifier.send_reclaim_notice(WARNING)
        receiver.wait_for(lambda it: len(it.accepted) == 1)
    return receiver.accepted[0].json


@pytest.mark.parametrize("path", [FEISHU, SLACK])
def test_without_a_public_address_there_are_no_links_and_the_log_says_so_once(
    path: str, caplog: pytest.LogCaptureFixture
):
    settings = settings_of(notify={"channels": {"ops": f"http://127.0.0.1:9{path}"}, "digest": ""})
    with Receiver() as receiver:
        message = send(receiver, path, WARNING, public_url="")
    assert "http" not in json.dumps(message)
    caplog.clear()
    with running_notifier(settings) as notifier:
        for number in range(3):
            notifier.send_reclaim_notice(replace(WARNING, number=number))
    assert sum("notices_without_links" in each.getMessage() for each in caplog.records) == 1


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://hooks.slack.com/services/T01/B02/xyz", True),
        ("https://hooks.slack.com/services/T01/B02", False),
        ("slack://a/b/c", False),
        ("https://open.feishu.cn/open-apis/bot/v2/hook/x", False),
    ],
)
def test_webhooks_of_slack_are_recognised(url: str, expected: bool):
    assert is_slack(url) is expected
