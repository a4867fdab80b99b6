"""The outbox: one row per key, ordered, bounded; its behaviour without a ledger and with a failing database."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy import event as engine_event

from gpusteward.analyzer.ledger.database.db_engine import open_engine, with_write_lock
from gpusteward.analyzer.ledger.database.schema import METADATA, notices, outbox
from gpusteward.analyzer.notify.outbox.records import (
    SUPERSEDED,
    AttemptOutcome,
    DeliveryCounters,
    NoticeRecord,
    OutboxEvent,
)
from gpusteward.analyzer.notify.outbox.store import MAX_BUFFERED, Outbox
from gpusteward.analyzer.settings.notify import OutboxSettings
from tests.analyzer.notify.notifier_setup import gpu_of, open_ledger, result_of, running_notifier, settings_of
from tests.constants import make_settings
from tests.fakes.receivers import Receiver
from tests.waiting import wait_until

NOW = 1_790_000_000_000


def event(stream: str, key: str, *, target: str = "control", kind: str = "control") -> OutboxEvent:
    return OutboxEvent(stream, key, kind, target, f'{{"key":"{key}"}}')


def record(key: str) -> NoticeRecord:
    return NoticeRecord(key, "idle-found", "", "ml", "Deployment", "web", "ops", "")


@pytest.fixture
def ledger(empty_database_url: str) -> Iterator[Engine]:
    """Each test runs on SQLite and on PostgreSQL."""
    engine = open_engine(empty_database_url.replace("postgresql:", "postgresql+psycopg:"))
    METADATA.create_all(engine)
    yield engine
    engine.dispose()


def opened(engine: Engine | None, **settings: float) -> tuple[Outbox, DeliveryCounters]:
    counters = DeliveryCounters()
    return Outbox(engine, make_settings(OutboxSettings, **settings), counters), counters


def keys(box: Outbox, *, now_ms: int = NOW) -> list[str]:
    return [row.key for row in box.read_due(["control"], now_ms=now_ms, limit=100)]


def test_only_the_first_pending_row_of_a_stream_is_due(ledger: Engine):
    box, _ = opened(ledger)
    box.add([event("a", "a1"), event("a", "a2"), event("b", "b1")], at_ms=NOW)
    assert keys(box) == ["a1", "b1"]
    (first, _) = box.read_due(["control"], now_ms=NOW, limit=100)
    box.save_outcomes([AttemptOutcome(first.id, "pending", 1, NOW + 5000, "HTTP 500")])
    assert keys(box) == ["b1"]  # a2 waits behind a1
    assert keys(box, now_ms=NOW + 5000) == ["a1", "b1"]
    box.save_outcomes([AttemptOutcome(first.id, "dead", 2, NOW, "HTTP 500")])
    assert keys(box) == ["a2", "b1"]


def test_a_key_is_stored_once_even_after_it_was_delivered(ledger: Engine):
    box, _ = opened(ledger)
    for _ in range(2):
        box.add([event("a", "a1")], [record("n1")], at_ms=NOW)
    (row,) = box.read_due(["control"], now_ms=NOW, limit=100)
    box.save_outcomes([AttemptOutcome(row.id, "done", 1, NOW)])
    box.add([event("a", "a1")], [record("n1")], at_ms=NOW)
    assert keys(box) == []
    assert len(box.read_notices(0)) == 1


def test_events_and_notice_records_of_a_cycle_are_stored_in_one_transaction(ledger: Engine):
    box, _ = opened(ledger)
    notices.drop(ledger)
    box.add([event("a", "a1")], [record("n1")], at_ms=NOW)
    with ledger.connect() as connection:
        assert connection.execute(select(outbox)).all() == []
    METADATA.create_all(ledger)
    assert box.flush()
    assert keys(box) == ["a1"]


def test_events_beyond_max_pending_are_refused_counted_and_logged_once(
    ledger: Engine, caplog: pytest.LogCaptureFixture
):
    box, counters = opened(ledger, max_pending=10)
    for begin in (0, 100):
        box.add([event(f"s{number}", f"k{begin + number}") for number in range(8)], at_ms=NOW)
    box.add([event("s", "k")], at_ms=NOW)
    assert counters.refused == {"control": 7}
    assert counters.pending == {"control": 10}
    assert [record.message for record in caplog.records] == ["outbox_full"]


def test_finished_rows_are_deleted_after_their_retention(ledger: Engine):
    box, _ = opened(ledger, keep_done_hours=1, keep_dead_hours=2)
    box.add([event("a", "a1"), event("b", "b1"), event("c", "c1")], at_ms=NOW)
    done, dead, _ = box.read_due(["control"], now_ms=NOW, limit=100)
    box.save_outcomes([AttemptOutcome(done.id, "done", 1, NOW), AttemptOutcome(dead.id, "dead", 1, NOW, "no")])
    box.expire(NOW + 3_600_001)
    with ledger.connect() as connection:
        assert sorted(connection.scalars(select(outbox.c.key))) == ["b1", "c1"]
    box.expire(NOW + 7_200_001)
    with ledger.connect() as connection:
        assert sorted(connection.scalars(select(outbox.c.key))) == ["c1"]


@pytest.mark.parametrize("kind", ["control", "notice"])
def test_a_row_whose_target_left_the_settings_is_dead_after_max_age_hours(ledger: Engine, kind: str):
    box, counters = opened(ledger, max_age_hours=1)
    box.add([OutboxEvent("s", "k", kind, "channel/gone/0", "{}")], at_ms=NOW)
    assert keys(box) == []
    box.expire(NOW + 3_600_000)
    assert counters.dead[kind] == 0
    box.expire(NOW + 3_600_001)
    assert counters.dead[kind] == 1
    assert box.read_deliveries("dead", limit=20)[0].error.startswith("too old; last error:")


def test_without_a_ledger_rows_are_kept_in_memory_with_a_lower_limit(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "gpusteward")
    box, counters = opened(None)
    box.add([event(f"s{number}", f"k{number}") for number in range(MAX_BUFFERED + 5)], at_ms=NOW)
    assert counters.refused == {"control": 5}
    assert box.describe()["in_memory"]
    assert [record.message for record in caplog.records] == ["outbox_in_memory", "outbox_full"]
    box.close()


def test_events_are_held_in_memory_while_the_database_is_unavailable(ledger: Engine, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "gpusteward")
    box, counters = opened(ledger, max_pending=100_000)
    box.add([event("a", "a0")], at_ms=NOW)
    METADATA.drop_all(ledger)
    for number in range(1, 4):
        box.add([event("a", f"a{number}")], at_ms=NOW)
    box.add([event(f"s{number}", f"k{number}") for number in range(MAX_BUFFERED)], at_ms=NOW)
    assert box.describe()["held"] == MAX_BUFFERED
    assert box.describe()["trouble"]
    assert counters.refused == {"control": 3}
    METADATA.create_all(ledger)
    assert box.flush()
    assert keys(box)[0] == "a1"
    assert box.describe() == {"in_memory": False, "held": 0, "trouble": "", "refusal": ""}
    logged = [record.message for record in caplog.records]
    assert logged == ["outbox_unwritable", "outbox_full", "outbox_writable_again"]


def test_a_notifier_continues_when_the_database_is_back(tmp_path: Path):
    engine = open_ledger(tmp_path)
    with Receiver() as receiver:
        settings = settings_of(control={"enabled": True, "api_url": receiver.url})
        METADATA.drop_all(engine)
        with running_notifier(settings, engine) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.describe()["outbox"]["held"] == 1)
            assert receiver.calls == []
            METADATA.create_all(with_write_lock(engine))
            receiver.wait_for(lambda it: len(it.accepted) == 1)
    engine.dispose()


def states(box: Outbox) -> list[tuple[str, str]]:
    return [(row.stream, row.error or row.state) for row in reversed(box.read_deliveries(limit=100))]


def test_a_cycle_replaces_the_control_calls_of_earlier_ones_and_no_notice(ledger: Engine):
    box, counters = opened(ledger)
    box.add([event("a", "a1"), event("b", "b1"), event("n", "n1", kind="notice")], at_ms=NOW, replaces_states=True)
    in_flight, _, _ = box.read_due(["control"], now_ms=NOW, limit=100)
    changes = box.state_changes
    box.add([event("b", "b2")], at_ms=NOW + 300_000, replaces_states=True)
    assert box.state_changes > changes, "rows that were read before are not sent"
    assert states(box) == [("a", SUPERSEDED), ("b", SUPERSEDED), ("n", "pending"), ("b", "pending")]
    assert counters.counts()["superseded"] == {"control": 2}
    box.save_outcomes([AttemptOutcome(in_flight.id, "pending", 1, NOW, "HTTP 500")])
    assert keys(box, now_ms=NOW + 400_000) == ["n1", "b2"], "a failed call does not make it pending again"


def test_all_control_calls_of_a_large_cycle_are_stored(ledger: Engine):
    box, counters = opened(ledger, max_pending=100_000)
    calls = [event(f"s{number}", f"k{number}") for number in range(MAX_BUFFERED + 5)]
    box.add([*calls, event("n", "n1", kind="notice")], at_ms=NOW, replaces_states=True)
    assert (counters.pending, counters.refused) == ({"control": MAX_BUFFERED + 5, "notice": 1}, {})


def test_a_cycle_that_is_stored_twice_keeps_its_control_calls(ledger: Engine):
    box, _ = opened(ledger)
    for _ in range(2):
        box.add([event("a", "a1")], at_ms=NOW, replaces_states=True)
    assert keys(box) == ["a1"]
    box.save_outcomes([AttemptOutcome(box.read_due(["control"], now_ms=NOW, limit=1)[0].id, "done", 1, NOW)])
    box.add([event("a", "a1")], at_ms=NOW, replaces_states=True)
    assert keys(box) == []


def test_control_calls_of_several_cycles_without_a_database_are_those_of_the_last_one(ledger: Engine):
    METADATA.drop_all(ledger)
    box, counters = opened(ledger)
    for number in range(3):
        cycle = [event("a", f"a{number}"), event("n", f"n{number}", kind="notice")]
        box.add(cycle, at_ms=NOW + number, replaces_states=True)
    assert not box.has_current_states
    METADATA.create_all(ledger)
    assert box.flush()
    assert [row.key for row in box.read_due(["control"], now_ms=NOW + 9, limit=9)] == ["n0", "a2"]
    assert (box.has_current_states, counters.counts()["superseded"]) == (True, {"control": 2})


def test_control_calls_that_are_stored_after_a_later_cycle_has_failed_are_not_sent(ledger: Engine):
    METADATA.drop_all(ledger)
    box, _ = opened(ledger)
    box.add([event("a", "a1")], at_ms=NOW, replaces_states=True)
    box.hold_states()
    METADATA.create_all(ledger)
    assert box.flush()
    assert not box.has_current_states
    box.add([event("a", "a2")], at_ms=NOW + 1, replaces_states=True)
    assert (box.has_current_states, states(box)) == (True, [("a", SUPERSEDED), ("a", "pending")])


def test_a_dead_control_call_can_be_retried_only_while_it_is_true(ledger: Engine):
    box, _ = opened(ledger)
    box.add([event("a", "a1")], at_ms=NOW, replaces_states=True)
    (row,) = box.read_due(["control"], now_ms=NOW, limit=1)
    for at_ms, is_true in ((NOW, True), (NOW + 1, False)):
        box.save_outcomes([AttemptOutcome(row.id, "dead", 5, NOW, "HTTP 400")])
        if not is_true:
            box.add([], at_ms=at_ms, replaces_states=True)
        assert box.retry(row.id, now_ms=at_ms)[1] is is_true


def test_names_that_no_database_can_store_are_cleaned(ledger: Engine):
    with Receiver() as receiver:
        settings = settings_of(control={"enabled": True, "api_url": receiver.url})
        with running_notifier(settings, ledger) as notifier:
            notifier.notify(result_of([gpu_of("ml\0", "web\ud800"), gpu_of("x" * 9000, "y" * 9000)], settings=settings))
            receiver.wait_for(lambda it: len(it.accepted) == 2)
            assert notifier.describe()["fault"] == ""


def test_the_limit_of_one_kind_does_not_affect_the_other(ledger: Engine):
    box, counters = opened(ledger, max_pending=10)
    notice = OutboxEvent("ops", "n1", "notice", "channel/ops/0", "text")
    box.add([event("a", f"a{number}") for number in range(12)], at_ms=NOW)
    box.add([event("a", "late"), notice], at_ms=NOW)
    assert (counters.refused["control"], counters.refused["notice"]) == (3, 0)
    assert counters.pending == {"control": 10, "notice": 1}


def refuse_key(ledger: Engine, key: str = "bad") -> None:
    """From now on the database refuses keys with this prefix, as if they violated a constraint."""
    with ledger.begin() as connection:
        if ledger.dialect.name == "sqlite":
            refusal = f"BEFORE INSERT ON outbox WHEN NEW.key LIKE '{key}%' BEGIN SELECT RAISE(ABORT, 'no'); END"
            connection.execute(text(f"CREATE TRIGGER refuse_key {refusal}"))
        else:
            connection.execute(text(f"ALTER TABLE outbox ADD CONSTRAINT refuse_key CHECK (key NOT LIKE '{key}%%')"))


@pytest.mark.parametrize("position", [0, 5, 10])
def test_an_event_that_the_database_refuses_does_not_stop_the_others(
    ledger: Engine, caplog: pytest.LogCaptureFixture, position: int
):
    box, counters = opened(ledger)
    refuse_key(ledger)
    events = [event(f"s{number:02}", f"k{number}") for number in range(10)]
    events.insert(position, event("s", "bad"))
    box.add(events, [record("n1")], at_ms=NOW)
    box.add([event("later", "later")], at_ms=NOW)
    assert sorted(keys(box)) == sorted([*(f"k{number}" for number in range(10)), "later"])
    assert len(box.read_notices(0)) == 1
    assert (counters.refused["control"], box.describe()["held"], box.describe()["trouble"]) == (1, 0, "")
    assert box.describe()["refusal"]
    box.add([event("s", "bad again")], at_ms=NOW)
    assert counters.refused["control"] == 2
    logged = [record.message for record in caplog.records if record.name.startswith("gpusteward")]
    assert logged == ["outbox_refused"]


@pytest.mark.parametrize("body", ["half a character \ud800", "a \0 in it"])
def test_only_the_event_with_a_text_that_cannot_be_stored_is_dropped(ledger: Engine, body: str):
    box, counters = opened(ledger)
    box.add([event("a", "a1"), OutboxEvent("s", "bad", "notice", "channel/ops/0", body)], at_ms=NOW)
    box.add([event("b", "b1")], at_ms=NOW)
    assert keys(box) == ["a1", "b1"]
    is_stored = ledger.dialect.name == "sqlite" and "\0" in body  # SQLite stores a NUL
    assert counters.refused["notice"] == (0 if is_stored else 1)


def test_when_every_event_is_refused_the_number_of_transactions_is_bounded(ledger: Engine):
    box, counters = opened(ledger)
    refuse_key(ledger)
    transactions = []
    engine_event.listen(ledger, "begin", lambda _: transactions.append(1))
    box.add([event("s", f"bad{number}") for number in range(2000)], at_ms=NOW)
    assert counters.refused["control"] == 2000
    assert len(transactions) < 300
    box.add([event("a", "a1")], at_ms=NOW)
    assert keys(box) == ["a1"]


def test_a_dead_delivery_is_listed_and_can_be_retried_like_a_new_one(ledger: Engine):
    box, _ = opened(ledger, max_age_hours=1)
    box.add([event(name, f"{name}1", kind="notice") for name in ("a", "b", "c")], at_ms=NOW)
    first, second, _ = box.read_due(["control"], now_ms=NOW, limit=100)
    box.save_outcomes([AttemptOutcome(first.id, "dead", 5, NOW, "HTTP 400"), AttemptOutcome(second.id, "done", 1, NOW)])
    states = [(row.stream, row.state) for row in box.read_deliveries(limit=10)]
    assert states == [("c", "pending"), ("b", "done"), ("a", "dead")]
    (dead,) = box.read_deliveries("dead", limit=10)
    assert (dead.attempts, dead.error, dead.target) == (5, "HTTP 400", "control")
    assert len(box.read_deliveries(limit=2)) == 2
    later = NOW + 7_200_000
    found, is_retried = box.retry(dead.id, now_ms=later)
    assert is_retried
    assert found is not None
    assert (found.state, found.attempts) == ("pending", 0)
    box.expire(later)
    assert keys(box, now_ms=later) == ["a1"]  # a1 is as old as its retry; c1 is dead by age
    assert box.retry(dead.id, now_ms=later)[1] is False
    assert box.retry(10**12, now_ms=later) == (None, False)
