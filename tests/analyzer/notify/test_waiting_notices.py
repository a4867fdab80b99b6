"""Notices that wait for a receiver that is down: what arrives when it is back is true, and says when it was.

Each test runs on SQLite and on PostgreSQL; the receiver is stopped and started on its port.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from gpusteward.analyzer.ledger.database.db_engine import open_engine, with_write_lock
from gpusteward.analyzer.ledger.database.schema import METADATA
from gpusteward.analyzer.ledger.snoozes import add_snooze
from gpusteward.analyzer.notify.notices.reclaim_notices import ReclaimNotice
from gpusteward.analyzer.notify.notifier import Notifier
from gpusteward.analyzer.notify.outbox.records import NoticeKind
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.messages import Message
from gpusteward.core.node.containers import WorkloadKey
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
from tests.fakes.receivers import Receiver
from tests.waiting import wait_until

HOOK = "/open-apis/bot/v2/hook/x"
HELD = [gpu_of("ml", "web"), gpu_of("ml", "ocr")]
LATER = AT + 2 * 3600
FIRST_TIME, LATER_TIME = "As of 2026-09-21 14:13 UTC", "As of 2026-09-21 16:13 UTC"
WARNING = ReclaimNotice(
    NoticeKind.WARNING,
    WorkloadKey("Deployment", "ml", "web"),
    pod="",
    gpus=1,
    idle_since=AT - 7200,
    action_id="a1",
    action="suspend",
    policy="default",
    text=Message("replicas: 1 -> 0", "replicas：1 -> 0"),
    at=AT,
    due_at=AT + 1800,
)


@pytest.fixture
def ledger(empty_database_url: str) -> Iterator[Engine]:
    engine = open_engine(empty_database_url.replace("postgresql:", "postgresql+psycopg:"))
    METADATA.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """It is down until a test starts it."""
    found = Receiver()
    yield found
    found.stop()


def clock_from(at: float) -> Callable[[], float]:
    """It runs: retries become due."""
    started = time.monotonic()
    return lambda: at + time.monotonic() - started


def settings_for(*receivers: Receiver, **notify: object) -> Settings:
    urls = " ".join(each.url + HOOK for each in receivers)
    return settings_of(notify={"channels": {"ops": urls}, "language": "en", "digest": "", **notify})


def judge(
    settings: Settings, rows: Sequence[dict] = (IDLE, IDLE), *, at: float = AT, held: Sequence = HELD, hours: float = 2
) -> Result:
    return result_of(held, rows, settings=settings, at=at, idle_hours=hours)


def wait_in_vain(notifier: Notifier) -> None:
    """Until the receiver was called without success since now."""
    before = notifier.counters.failed["notice"]
    wait_until(lambda: notifier.counters.failed["notice"] > before)


def receive_all(notifier: Notifier, receiver: Receiver) -> list[str]:
    """The receiver is back: what arrives. Calls that were under way during the last cycle have ended before."""
    for _ in range(2):
        wait_in_vain(notifier)
    receiver.start()
    wait_until(lambda: not notifier.counters.pending.get("notice") and not any(notifier.describe()["failures"]))
    return receiver.texts


def test_a_notice_that_waited_arrives_once_with_the_time_and_the_figures_of_the_last_cycle(
    ledger: Engine, receiver: Receiver
):
    settings = settings_for(receiver)
    with running_notifier(settings, ledger) as notifier:
        notifier.notify(judge(settings))
        wait_in_vain(notifier)
        notifier.notify(judge(settings, at=LATER, hours=4))
        (text,) = receive_all(notifier, receiver)
    assert text.splitlines()[:3] == ["Idle GPUs: ml", LATER_TIME, "2 workloads hold 2 GPUs without using any of them."]
    assert text.count("idle for 4 h since 2026-09-21 12:03 UTC") == 2


@pytest.mark.parametrize("change", ["in use", "gone", "snoozed"])
def test_a_workload_that_is_not_idle_any_more_is_not_in_a_notice_that_waited(
    ledger: Engine, receiver: Receiver, change: str
):
    settings = settings_for(receiver)
    with running_notifier(settings, ledger, clock=clock_from(AT)) as notifier:
        notifier.notify(judge(settings))
        wait_in_vain(notifier)
        if change == "snoozed":
            snooze(ledger, "web")
            later = judge(settings, at=LATER)
        else:
            later = judge(settings, [BUSY, IDLE], at=LATER)
            later = judge(settings, [IDLE], at=LATER, held=HELD[1:]) if change == "gone" else later
        notifier.notify(later)
        (text,) = receive_all(notifier, receiver)
    assert text.splitlines()[1] == LATER_TIME
    assert text.splitlines()[2].startswith("ml/Deployment/ocr holds 1 GPU")
    assert "web" not in text


@pytest.mark.parametrize("change", ["in use", "gone", "snoozed"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_notice_that_waited_is_dropped_when_nothing_in_it_is_true_any_more(
    ledger: Engine, receiver: Receiver, change: str, is_restarted: bool
):
    settings = settings_for(receiver)
    notifier = Notifier(settings, ledger, clock=clock_from(AT), poll_seconds=0.01)
    notifier.start()
    notifier.notify(judge(settings))
    wait_in_vain(notifier)
    if is_restarted:
        notifier.stop(5)
        notifier = Notifier(settings, ledger, clock=clock_from(AT), poll_seconds=0.01)
        notifier.start()
        receiver.start()  # before the first cycle: it is not known yet what is true
    if change == "snoozed":
        snooze(ledger, "web", "ocr")
    rows = [BUSY, BUSY] if change == "in use" else [IDLE, IDLE]
    notifier.notify(empty_result(LATER, settings) if change == "gone" else judge(settings, rows, at=LATER))
    assert notifier.counters.pending.get("notice", 0) == 0
    notifier.notify(judge(settings, [IDLE], at=LATER + 300, held=[gpu_of("other", "x")]))
    if not is_restarted:
        receive_all(notifier, receiver)
    receiver.wait_for(lambda it: any("other/Deployment/x" in text for text in it.texts))
    notifier.stop(5)
    assert len(receiver.texts) == 1
    assert "other/Deployment/x" in receiver.texts[0]
    assert notifier.counters.counts()["superseded"] == {"notice": 1}


def snooze(ledger: Engine, *names: str) -> None:
    with with_write_lock(ledger).begin() as connection:
        for name in names:
            key = WorkloadKey("Deployment", "ml", name)
            add_snooze(connection, key, until=AT + 86_400, reason="a talk", who="an owner", at=AT)


def test_a_notice_about_unknown_use_stays_as_it_was_with_its_time(ledger: Engine, receiver: Receiver):
    settings = settings_for(receiver)
    with running_notifier(settings, ledger) as notifier:
        notifier.notify(judge(settings))
        wait_in_vain(notifier)
        notifier.notify(judge(settings, [NO_SAMPLES, NO_SAMPLES], at=LATER))
        (text,) = receive_all(notifier, receiver)
    assert text.splitlines()[1] == FIRST_TIME


@pytest.mark.parametrize("is_restarted", [False, True])
def test_who_never_got_a_notice_is_notified_when_the_workload_is_idle_again(
    ledger: Engine, receiver: Receiver, is_restarted: bool
):
    settings = settings_for(receiver, owner_minutes=0)
    with running_notifier(settings, ledger) as notifier:
        notifier.notify(judge(settings))
        wait_in_vain(notifier)
        notifier.notify(judge(settings, [BUSY, BUSY], at=LATER))
        again = judge(settings, at=LATER + 7200)
        if not is_restarted:
            notifier.notify(again)
            (text,) = receive_all(notifier, receiver)
    if is_restarted:
        with running_notifier(settings, ledger) as notifier:
            notifier.notify(again)
            (text,) = receive_all(notifier, receiver)
    assert text.splitlines()[1] == "As of 2026-09-21 18:13 UTC"


def test_of_two_addresses_the_one_that_was_down_gets_what_is_true_and_the_other_nothing_more(
    ledger: Engine, receiver: Receiver
):
    with Receiver() as working:
        settings = settings_for(working, receiver)
        with running_notifier(settings, ledger) as notifier:
            notifier.notify(judge(settings))
            working.wait_for(lambda it: len(it.accepted) == 1)
            wait_in_vain(notifier)
            notifier.notify(judge(settings, [IDLE, BUSY], at=LATER))
            (text,) = receive_all(notifier, receiver)
    assert (len(working.accepted), text.splitlines()[1]) == (1, LATER_TIME)
    assert "ocr" not in text


def test_an_outage_that_nobody_was_told_of_is_not_announced_after_its_end(ledger: Engine, receiver: Receiver):
    settings = settings_for(receiver, owner_minutes=0)
    with running_notifier(settings, ledger, clock=clock_from(LATER)) as notifier:
        notifier.notify(empty_result(AT, settings))
        for minutes in (0, 20):
            notifier.announce_outage("the engine is down", at=AT + 60 * minutes)
        wait_in_vain(notifier)
        notifier.notify(empty_result(LATER, settings))
        wait_in_vain(notifier)
        (text,) = receive_all(notifier, receiver)
    assert text.splitlines()[:2] == ["gpusteward can read GPU usage again", LATER_TIME]


def test_the_end_of_an_outage_is_not_announced_in_the_next_one(ledger: Engine, receiver: Receiver):
    settings, now = settings_for(receiver, owner_minutes=0), [AT]
    running = clock_from(0)
    with running_notifier(settings, ledger, clock=lambda: now[0] + running()) as notifier:
        for minutes in (0, 20, 30, 50):
            now[0] = AT + 60 * minutes
            if minutes == 30:
                notifier.notify(empty_result(now[0], settings))
            notifier.announce_outage("the engine is down", at=now[0])
        wait_in_vain(notifier)
        (text,) = receive_all(notifier, receiver)
    assert text.splitlines()[:2] == ["gpusteward cannot read GPU usage", "As of 2026-09-21 15:03 UTC"]


def test_a_digest_that_waited_says_of_when_it_is(ledger: Engine, receiver: Receiver):
    settings = settings_for(receiver, idle_minutes=100_000, digest="monday 09:00")
    with running_notifier(settings, ledger, clock=clock_from(AT)) as notifier:
        notifier.notify(judge(settings))
        wait_in_vain(notifier)
        notifier.notify(judge(settings, [BUSY, BUSY], at=LATER))
        (text,) = receive_all(notifier, receiver)
    title, as_of, *_, last = text.splitlines()
    assert (title, as_of) == ("GPU digest for the week ending 2026-09-21", FIRST_TIME)
    assert last.startswith("At that time 2 workloads with 2 GPUs were completely idle")


def test_a_warning_that_waited_is_sent_with_its_present_text_if_the_cycle_renews_it(ledger: Engine, receiver: Receiver):
    settings = settings_for(receiver, idle_minutes=100_000)
    with running_notifier(settings, ledger) as notifier:
        notifier.notify(judge(settings))
        (key,) = notifier.send_reclaim_notice(WARNING)
        wait_in_vain(notifier)
        notifier.notify(judge(settings, at=LATER))
        notifier.renew_reclaim_notice(replace(WARNING, at=LATER, due_at=LATER + 1800))
        (text,) = receive_all(notifier, receiver)
        assert list(notifier.read_delivered([key])) == [key]
        notifier.renew_reclaim_notice(replace(WARNING, at=LATER + 300, due_at=LATER + 2100))
        send_other_warning(notifier)
        receiver.wait_for(lambda it: len(it.texts) > 1)
    assert text.splitlines()[1] == LATER_TIME
    assert "Not before 2026-09-21 16:43 UTC" in text
    assert len(receiver.texts) == 2, "a delivered warning is not sent again"


def test_a_warning_that_waited_is_dropped_if_no_cycle_renews_it(ledger: Engine, receiver: Receiver):
    settings = settings_for(receiver, idle_minutes=100_000)
    with running_notifier(settings, ledger) as notifier:
        notifier.notify(judge(settings))
        (key,) = notifier.send_reclaim_notice(WARNING)
        wait_in_vain(notifier)
        notifier.notify(judge(settings, [BUSY, IDLE], at=LATER))
        send_other_warning(notifier)
        receive_all(notifier, receiver)
        assert notifier.read_delivered([key]) == {}
    assert len(receiver.texts) == 1


def send_other_warning(notifier: Notifier) -> None:
    """What is delivered after it: the dispatcher has looked at all that was there before."""
    other = WorkloadKey("Deployment", "other", "x")
    notifier.send_reclaim_notice(replace(WARNING, workload=other, action_id="a2"))


def test_what_was_done_is_told_however_late_with_its_time(ledger: Engine, receiver: Receiver):
    settings = settings_for(receiver, idle_minutes=100_000)
    with running_notifier(settings, ledger) as notifier:
        notifier.notify(judge(settings))
        notifier.send_reclaim_notice(replace(WARNING, kind=NoticeKind.ACTION))
        wait_in_vain(notifier)
        notifier.notify(empty_result(LATER, settings))
        (text,) = receive_all(notifier, receiver)
    assert text.splitlines()[:2] == ["Idle GPUs were given back: ml/Deployment/web", FIRST_TIME]


def test_an_alertmanager_that_was_down_gets_no_alert_of_the_past(receiver: Receiver):
    settings = settings_of(alertmanager={"url": [receiver.url], "idle_minutes": 0})
    with running_notifier(settings) as notifier:
        notifier.notify(judge(settings))
        wait_until(lambda: notifier.counters.failed["alert"] > 0)
        notifier.notify(judge(settings, [BUSY, IDLE], at=AT + 600))
        receiver.start()
        receiver.wait_for(lambda it: len(it.accepted) > 0)
    alerts = [alert for call in receiver.accepted for alert in call.json]
    firing, resolved = (
        [alert["labels"]["workload"] for alert in alerts if bool(alert["annotations"]) is is_firing]
        for is_firing in (True, False)
    )
    assert (firing, resolved) == (["ocr"], ["web"])
