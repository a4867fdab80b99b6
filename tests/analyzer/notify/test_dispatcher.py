"""The dispatcher: no notice is lost, each stream arrives in order, no untrue control call arrives."""

from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

import pytest

from gpusteward.analyzer.notify.notifier import Notifier
from gpusteward.analyzer.notify.outbox.retry import CircuitBreakers
from tests.analyzer.notify.notifier_setup import (
    BUSY,
    IDLE,
    NO_SAMPLES,
    QUICK,
    gpu_of,
    open_ledger,
    result_of,
    running_notifier,
    settings_of,
    timestamps_by_pod,
)
from tests.analyzer.usage_tables import AT
from tests.fakes.receivers import Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

CYCLES = 12
RESTARTS_PER_CYCLE = 5
PODS = 15
HOOK = "/open-apis/bot/v2/hook/x"


def control(url: str, timeout: float = 0.3) -> dict:
    return {"enabled": True, "api_url": url, "timeout": timeout}


def channel(receiver: Receiver) -> dict:
    return {"channels": {"ops": receiver.url + HOOK}, "idle_minutes": 0, "digest": "", "language": "en"}


def deliver_other_notices(notifier: Notifier, receiver: Receiver, settings, *, count: int) -> None:
    """Deliver notices to a working channel one after the other: the dispatcher has polled that often afterwards."""
    before = len(receiver.accepted)
    for number in range(1, count + 1):
        result = result_of([gpu_of(f"other-{before + number}", "web")], settings=settings, at=AT + 1)
        notifier.notify(result)
        receiver.wait_for(lambda it, expected=before + number: len(it.accepted) == expected)


def test_a_receiver_restarted_sixty_times_gets_control_calls_in_order_and_those_of_the_last_cycle(tmp_path: Path):
    engine = open_ledger(tmp_path)
    allocations = [gpu_of("ml", f"web-{number}") for number in range(PODS)]
    faults = cycle(["500", "", "hang", "drop", "503", "drip", ""])
    with Receiver() as receiver:
        settings = settings_of(control=control(receiver.url, 0.1))
        for number in range(CYCLES):
            with running_notifier(settings, engine) as notifier:  # the notifier is restarted as well
                notifier.notify(result_of(allocations, settings=settings, at=AT + 300 * number))
                for _ in range(RESTARTS_PER_CYCLE):
                    calls, receiver.fault = len(receiver.calls), next(faults)
                    receiver.wait_for(lambda it, calls=calls: len(it.calls) > calls or not pending(notifier))
                    receiver.restart()
        receiver.fault = ""
        with running_notifier(settings, engine) as notifier:
            notifier.notify(result_of(allocations, settings=settings, at=AT + 300 * CYCLES))
            wait_until(lambda: not pending(notifier), 60)
            assert notifier.counters.dead["control"] == 0
    engine.dispose()
    timestamps = timestamps_by_pod(receiver)
    assert len(timestamps) == PODS
    last = datetime.fromtimestamp(AT + 300 * CYCLES, UTC).replace(tzinfo=None).isoformat()
    for seen in timestamps.values():
        assert seen == sorted(seen)
        assert seen[-1] == last


def test_after_an_outage_of_the_receiver_only_what_is_still_true_arrives(tmp_path: Path):
    """GPUs that became busy meanwhile, and those that nobody holds any more, are not called low."""
    engine = open_ledger(tmp_path)
    allocations = [gpu_of("ml", f"web-{number}") for number in range(6)]
    with Receiver() as receiver:
        receiver.fault = "503"
        settings = settings_of(control=control(receiver.url))
        with running_notifier(settings, engine) as notifier:
            for number in range(3):
                notifier.notify(result_of(allocations, settings=settings, at=AT + 300 * number))
                wait_until(lambda seen=notifier.counters.failed["control"]: notifier.counters.failed["control"] > seen)
            rows = [BUSY, BUSY, IDLE, NO_SAMPLES, BUSY]
            notifier.notify(result_of(allocations[:5], rows, settings=settings, at=AT + 900))
            receiver.wait_for(
                lambda it: any(b"2026-09-21T14:28:20" in call.body for call in it.calls)
            )  # no older one left
            receiver.fault = ""
            wait_until(lambda: not pending(notifier))
            (low,) = receiver.accepted
            superseded = notifier.counters.counts()["superseded"]
    engine.dispose()
    assert (low.json["pod"], low.json["timestamp"]) == ("web-2-pod", "2026-09-21T14:28:20")
    assert superseded == {"control": 3 * 6}


@pytest.mark.parametrize("is_restarted", [True, False])
def test_control_calls_wait_while_it_is_not_known_what_is_true(tmp_path: Path, is_restarted: bool):
    """After a start and after a failed cycle, notices about idle workloads and control calls wait for the next
    successful cycle; the notice of an outage does not."""
    engine = open_ledger(tmp_path)
    held = [gpu_of("ml", "web"), gpu_of("ml", "other")]
    with Receiver() as receiver, Receiver() as working, ExitStack() as running:
        settings = settings_of(control=control(receiver.url), notify=channel(working))
        receiver.fault = working.fault = "500"
        notifier = running.enter_context(running_notifier(settings, engine))
        notifier.notify(result_of(held, settings=settings))
        wait_until(lambda: notifier.counters.failed["control"] > 0 and notifier.counters.failed["notice"] > 0)
        if is_restarted:
            running.close()
            receiver.fault = ""
            notifier = running.enter_context(running_notifier(settings, engine))
        for minutes in (0, 15):
            notifier.announce_outage("the engine is down", at=AT + 300 + 60 * minutes)
        working.wait_for(lambda it: sum(b"cannot read" in call.body for call in it.calls) > 1)  # no older call is left
        receiver.fault = working.fault = ""
        working.wait_for(lambda it: len(it.accepted) > 0)
        assert [text.splitlines()[0] for text in working.texts] == ["gpusteward cannot read GPU usage"]
        assert receiver.accepted == []
        notifier.notify(result_of(held, [BUSY, IDLE], settings=settings, at=AT + 600))
        wait_until(lambda: not pending(notifier))
    engine.dispose()
    assert {call.json["pod"] for call in receiver.accepted} == {"other-pod"}


def pending(notifier: Notifier) -> int:
    return notifier.counters.pending.get("control", 0)


def test_pending_notices_survive_a_restart(tmp_path: Path):
    engine = open_ledger(tmp_path)
    receiver = Receiver()
    settings = settings_of(notify=channel(receiver))
    with running_notifier(settings, engine) as notifier:
        notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
        wait_until(lambda: notifier.counters.failed["notice"] > 0)
    engine.dispose()
    engine = open_ledger(tmp_path)
    with receiver, running_notifier(settings, engine) as notifier:
        notifier.notify(result_of([gpu_of("ml", "web")], settings=settings, at=AT + 300))
        receiver.wait_for(lambda it: len(it.accepted) == 1)
    engine.dispose()
    assert receiver.texts[0].splitlines()[1] == "As of 2026-09-21 14:18 UTC"


def test_a_host_that_hangs_does_not_delay_another():
    with Receiver() as hanging, Receiver() as working:
        hanging.fault = "hang"
        settings = settings_of(control=control(hanging.url, 30), notify=channel(working))
        with running_notifier(settings) as notifier:
            allocations = [gpu_of("ml", f"web-{number}") for number in range(20)]
            notifier.notify(result_of(allocations, settings=settings))
            working.wait_for(lambda it: len(it.accepted) == 1, 5)
            hanging.stop()


def test_a_response_that_never_ends_is_aborted_after_the_timeout():
    with Receiver() as receiver:
        receiver.fault = "drip"
        settings = settings_of(control=control(receiver.url, 0.3))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.counters.failed["control"] >= 2, 10)


def test_after_max_attempts_a_delivery_is_dead_and_that_of_the_next_cycle_is_sent():
    with Receiver() as receiver:
        receiver.fault = "500"
        settings = settings_of(control=control(receiver.url), outbox={**QUICK, "max_attempts": 3})
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.counters.dead["control"] == 1)
            receiver.fault = ""
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings, at=AT + 300))
            receiver.wait_for(lambda it: len(it.accepted) == 1)
            assert receiver.accepted[0].json["timestamp"] == "2026-09-21T14:18:20"
            assert notifier.counters.counts()["failed"]["control"] == 3


def test_a_rejected_message_is_given_up_after_five_attempts():
    with Receiver() as receiver:
        receiver.fault = "422"
        settings = settings_of(control=control(receiver.url))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.counters.dead["control"] == 1)
    assert len(receiver.calls) == 5


@pytest.mark.parametrize("status", ["401", "403", "404"])
def test_a_gateway_whose_backend_is_being_replaced_loses_no_event(status: str):
    with Receiver() as receiver:
        receiver.fault = status
        settings = settings_of(control=control(receiver.url))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            receiver.wait_for(lambda it: len(it.calls) > 5)
            receiver.fault = ""
            receiver.wait_for(lambda it: len(it.accepted) == 1)


def test_retry_after_is_respected():
    now = [AT]
    with Receiver() as receiver:
        receiver.fault, receiver.retry_after = "429", "600"
        settings = settings_of(control=control(receiver.url))
        with running_notifier(settings, clock=lambda: now[0]) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.read_deliveries("pending", 1)[0].attempts == 1)
            assert notifier.read_deliveries("pending", 1)[0].next_ms == round((AT + 600) * 1000)
            receiver.fault = ""
            now[0] = AT + 600
            receiver.wait_for(lambda it: len(it.accepted) == 1)
    assert len(receiver.calls) == 2


def test_an_open_circuit_breaker_allows_one_probe_after_its_time():
    breakers = CircuitBreakers(failures=2, seconds=30)
    for _ in range(2):
        assert breakers.allows("a", 0)
        breakers.end("a", has_failed=True, now=0)
    assert not breakers.allows("a", 29)
    assert breakers.open_hosts(29) == ["a"]
    assert breakers.allows("b", 29)
    assert breakers.allows("a", 30)
    breakers.begin("a")
    assert not breakers.allows("a", 31)
    breakers.end("a", has_failed=True, now=31)
    assert not breakers.allows("a", 60)
    breakers.end("a", has_failed=False, now=61)
    assert breakers.allows("a", 61)


def test_an_open_circuit_breaker_costs_no_attempts():
    unreachable = Receiver()
    outbox = {**QUICK, "breaker_failures": 1, "breaker_seconds": 600, "max_attempts": 5}
    with Receiver() as working:
        settings = settings_of(control=control(unreachable.url), notify=channel(working), outbox=outbox)
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", f"web-{number}") for number in range(3)], settings=settings))
            working.wait_for(lambda it: len(it.accepted) == 1)
            wait_until(lambda: bool(notifier.describe()["left_alone"]))
            deliver_other_notices(notifier, working, settings, count=5)
            assert notifier.counters.failed["control"] <= 3  # calls that were in flight together
            assert notifier.counters.dead["control"] == 0


def test_a_webhook_that_returns_to_the_settings_gets_no_call_of_before(tmp_path: Path):
    engine = open_ledger(tmp_path)
    with Receiver() as receiver, Receiver() as working:
        enabled = settings_of(control=control(receiver.url), notify=channel(working))
        disabled = settings_of(control={"enabled": False}, notify=channel(working))
        receiver.fault = "500"
        with running_notifier(enabled, engine) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=enabled))
            wait_until(lambda: notifier.counters.failed["control"] > 0)
            working.wait_for(lambda it: len(it.accepted) == 1)
            deliver_other_notices(notifier, working, disabled, count=3)  # a last call may still be in flight before
            receiver.fault = ""
            deliver_other_notices(notifier, working, disabled, count=3)
            assert receiver.accepted == []
            notifier.notify(result_of([gpu_of("ml", "now")], settings=enabled, at=AT + 600))
            receiver.wait_for(lambda it: len(it.accepted) == 1)
    engine.dispose()
    assert receiver.accepted[0].json["pod"] == "now-pod"
