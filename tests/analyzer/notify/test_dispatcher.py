"""Deliveries: nothing is lost, in order for each workload, whatever receivers and restarts do."""

import threading
import time
from itertools import cycle
from pathlib import Path

import pytest

from gpusteward.analyzer.notify.notifier import Notifier
from gpusteward.analyzer.notify.outbox.circuit_breaker import CircuitBreakers
from tests.analyzer.notify.notifier_setup import (
    QUICK,
    gpu_of,
    open_ledger,
    result_of,
    running_notifier,
    settings_of,
    stamps_by_pod,
)
from tests.analyzer.usage_tables import AT
from tests.fakes.receivers import Receiver, wait_until

LIVES = 50
CYCLES = 12


def control(url: str, timeout: float = 0.3) -> dict:
    return {"enabled": True, "api_url": url, "timeout": timeout}


def live_badly(receiver: Receiver) -> None:
    """Fifty lives, each ending in another way; most of them useless."""
    for _, misfortune in zip(range(LIVES), cycle(["500", "", "hang", "drop", "503", "drip", ""]), strict=False):
        receiver.misfortune = misfortune
        time.sleep(0.06)  # a life is short; how short does not matter
        receiver.restart()
    receiver.misfortune = ""


def test_a_receiver_restarted_fifty_times_gets_every_event_in_order_for_each_workload(tmp_path: Path):
    engine = open_ledger(tmp_path)
    allocations = [gpu_of("ml", f"web-{number}") for number in range(15)]
    with Receiver() as receiver:
        settings = settings_of(control=control(receiver.url, 0.1))
        fate = threading.Thread(target=live_badly, args=(receiver,))
        fate.start()
        for number in range(CYCLES):
            with running_notifier(settings, engine) as notifier:  # our own process is restarted as well
                notifier.notify(result_of(allocations, settings=settings, at=AT + 300 * number))
                time.sleep(0.1)
        with running_notifier(settings, engine) as notifier:
            fate.join()
            receiver.wait_for(lambda it: len({call.headers["idempotency-key"] for call in it.accepted}) == 180, 60)
            wait_until(lambda: not notifier.counters.pending.get("control"))
            assert notifier.counters.dead["control"] == 0
    engine.dispose()
    stamps = stamps_by_pod(receiver)
    assert len(stamps) == 15
    for seen in stamps.values():
        assert seen == sorted(seen)
        assert len(seen) == CYCLES


def test_what_waits_survives_the_process(tmp_path: Path):
    engine = open_ledger(tmp_path)
    receiver = Receiver()
    settings = settings_of(control=control(receiver.url))
    with running_notifier(settings, engine) as notifier:
        notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
        wait_until(lambda: notifier.counters.failed["control"] > 0)
    engine.dispose()
    engine = open_ledger(tmp_path)
    with receiver, running_notifier(settings, engine):
        receiver.wait_for(lambda it: len(it.accepted) == 1)
    engine.dispose()


def test_one_host_that_hangs_does_not_hold_up_another():
    with Receiver() as hanging, Receiver() as well:
        hanging.misfortune = "hang"
        notify = {"channels": {"ops": f"{well.url}/open-apis/bot/v2/hook/x"}, "idle_minutes": 0}
        settings = settings_of(control=control(hanging.url, 30), notify=notify)
        with running_notifier(settings) as notifier:
            allocations = [gpu_of("ml", f"web-{number}") for number in range(20)]
            notifier.notify(result_of(allocations, settings=settings))
            well.wait_for(lambda it: len(it.accepted) == 1, 5)
            hanging.stop()


def test_an_answer_that_drips_is_hung_up_on():
    with Receiver() as receiver:
        receiver.misfortune = "drip"
        settings = settings_of(control=control(receiver.url, 0.3))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.counters.failed["control"] >= 2, 10)


def test_a_delivery_is_given_up_after_its_attempts_and_the_next_one_has_its_turn():
    with Receiver() as receiver:
        receiver.misfortune = "500"
        settings = settings_of(control=control(receiver.url), outbox={**QUICK, "max_attempts": 3})
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings, at=AT + 300))
            wait_until(lambda: notifier.counters.dead["control"] == 1)
            receiver.misfortune = ""
            receiver.wait_for(lambda it: len(it.accepted) == 1)
            assert receiver.accepted[0].json["timestamp"] == "2026-09-21T14:18:20"
            assert notifier.counters.counts()["failed"]["control"] == 3


def test_a_message_that_is_refused_does_not_block_its_stream_for_long():
    with Receiver() as receiver:
        receiver.misfortune = "422"
        settings = settings_of(control=control(receiver.url))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.counters.dead["control"] == 1)
    assert len(receiver.calls) == 5


@pytest.mark.parametrize("status", ["401", "403", "404"])
def test_a_gateway_whose_receiver_is_being_replaced_costs_no_event(status: str):
    with Receiver() as receiver:
        receiver.misfortune = status
        settings = settings_of(control=control(receiver.url))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            receiver.wait_for(lambda it: len(it.calls) > 5)
            receiver.misfortune = ""
            receiver.wait_for(lambda it: len(it.accepted) == 1)


def test_a_receiver_that_asks_for_time_gets_it():
    with Receiver() as receiver:
        receiver.misfortune, receiver.retry_after = "429", "600"
        settings = settings_of(control=control(receiver.url))
        with running_notifier(settings) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.counters.failed["control"] == 1)
            receiver.misfortune = ""
            time.sleep(0.2)  # many times the wait that would follow otherwise
    assert len(receiver.calls) == 1


def test_a_host_that_fails_in_a_row_is_left_alone_and_then_tried_with_one_call():
    breakers = CircuitBreakers(failures=2, seconds=30)
    for _ in range(2):
        assert breakers.allows("a", 0)
        breakers.note("a", has_failed=True, now=0)
    assert not breakers.allows("a", 29)
    assert breakers.open_hosts(29) == ["a"]
    assert breakers.allows("b", 29)
    assert breakers.allows("a", 30)
    breakers.begin("a")
    assert not breakers.allows("a", 31)
    breakers.note("a", has_failed=True, now=31)
    assert not breakers.allows("a", 60)
    breakers.note("a", has_failed=False, now=61)
    assert breakers.allows("a", 61)


def test_while_a_host_is_left_alone_its_rows_lose_no_attempts():
    receiver = Receiver()
    outbox = {**QUICK, "breaker_failures": 1, "breaker_seconds": 600, "max_attempts": 5}
    settings = settings_of(control=control(receiver.url), outbox=outbox)
    with running_notifier(settings) as notifier:
        notifier.notify(result_of([gpu_of("ml", f"web-{number}") for number in range(3)], settings=settings))
        wait_until(lambda: bool(notifier.describe()["left_alone"]))
        time.sleep(0.2)
        assert notifier.counters.failed["control"] <= 3  # those that were under way together
        assert notifier.counters.dead["control"] == 0


def test_a_target_that_comes_back_gets_what_waited(tmp_path: Path):
    engine = open_ledger(tmp_path)
    with Receiver() as receiver:
        on, off = settings_of(control=control(receiver.url)), settings_of(control={"enabled": False})
        receiver.misfortune = "500"
        notifier = Notifier(on, engine, poll_seconds=0.01)
        notifier.start()
        notifier.notify(result_of([gpu_of("ml", "web")], settings=on))
        wait_until(lambda: notifier.counters.failed["control"] > 0)
        notifier.adopt(off)
        receiver.misfortune = ""
        notifier.notify(result_of([gpu_of("ml", "web")], settings=off, at=AT + 300))
        time.sleep(0.1)
        assert receiver.accepted == []
        notifier.adopt(on)
        receiver.wait_for(lambda it: len(it.accepted) == 1)
        notifier.stop(5)
    engine.dispose()
