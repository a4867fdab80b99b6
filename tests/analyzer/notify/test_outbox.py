"""The outbox: once for each key, in order, bounded, and honest when the ledger is off or lost."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy import event as engine_event

from gpusteward.analyzer.ledger.db_engine import open_engine, with_write_lock
from gpusteward.analyzer.ledger.schema import METADATA, notices, outbox
from gpusteward.analyzer.notify.outbox.delivery_counters import DeliveryCounters
from gpusteward.analyzer.notify.outbox.records import NoticeRecord, OutboxEvent, Outcome
from gpusteward.analyzer.notify.outbox.store import HELD_LIMIT, Outbox
from gpusteward.analyzer.settings.notify import OutboxSettings
from tests.analyzer.notify.notifier_setup import gpu_of, open_ledger, result_of, running_notifier, settings_of
from tests.fakes.receivers import Receiver, wait_until

NOW = 1_790_000_000_000


def event(stream: str, key: str, *, target: str = "control") -> OutboxEvent:
    return OutboxEvent(stream, key, "control", target, f'{{"key":"{key}"}}')


def note(key: str) -> NoticeRecord:
    return NoticeRecord(key, "idle-found", "ml", "Deployment", "web", "ops", "")


@pytest.fixture
def ledger(database_url: str) -> Iterator[Engine]:
    """Each test runs on SQLite and on PostgreSQL."""
    engine = open_engine(database_url.replace("postgresql:", "postgresql+psycopg:"))
    METADATA.create_all(engine)
    yield engine
    engine.dispose()


def opened(engine: Engine | None, **settings: float) -> tuple[Outbox, DeliveryCounters]:
    counters = DeliveryCounters()
    return Outbox(engine, OutboxSettings.model_validate(settings), counters), counters


def keys(box: Outbox, *, now_ms: int = NOW) -> list[str]:
    return [row.key for row in box.take(["control"], now_ms=now_ms, limit=100)]


def test_only_the_first_of_each_stream_is_due(ledger: Engine):
    box, _ = opened(ledger)
    box.put([event("a", "a1"), event("a", "a2"), event("b", "b1")], at_ms=NOW)
    assert keys(box) == ["a1", "b1"]
    (first, _) = box.take(["control"], now_ms=NOW, limit=100)
    box.settle([Outcome(first.id, "pending", 1, NOW + 5000, "HTTP 500")])
    assert keys(box) == ["b1"]  # a2 waits behind a1
    assert keys(box, now_ms=NOW + 5000) == ["a1", "b1"]
    box.settle([Outcome(first.id, "dead", 2, NOW, "HTTP 500")])
    assert keys(box) == ["a2", "b1"]


def test_a_key_is_taken_once_also_after_it_was_delivered(ledger: Engine):
    box, _ = opened(ledger)
    for _ in range(2):
        box.put([event("a", "a1")], [note("n1")], at_ms=NOW)
    (row,) = box.take(["control"], now_ms=NOW, limit=100)
    box.settle([Outcome(row.id, "done", 1, NOW)])
    box.put([event("a", "a1")], [note("n1")], at_ms=NOW)
    assert keys(box) == []
    assert len(box.read_notes(0)) == 1


def test_events_and_the_record_of_a_cycle_go_in_together_or_not_at_all(ledger: Engine):
    box, _ = opened(ledger)
    notices.drop(ledger)
    box.put([event("a", "a1")], [note("n1")], at_ms=NOW)
    with ledger.connect() as connection:
        assert connection.execute(select(outbox)).all() == []
    METADATA.create_all(ledger)
    assert box.flush()
    assert keys(box) == ["a1"]


def test_more_than_the_limit_is_refused_counted_and_said_once(ledger: Engine, caplog: pytest.LogCaptureFixture):
    box, counters = opened(ledger, max_pending=10)
    for begin in (0, 100):
        box.put([event(f"s{number}", f"k{begin + number}") for number in range(8)], at_ms=NOW)
    box.put([event("s", "k")], at_ms=NOW)
    assert counters.refused == {"control": 7}
    assert counters.pending == {"control": 10}
    assert [record.message for record in caplog.records] == ["outbox_full"]


def test_what_is_over_is_forgotten_after_its_time(ledger: Engine):
    box, _ = opened(ledger, keep_done_hours=1, keep_dead_hours=2)
    box.put([event("a", "a1"), event("b", "b1"), event("c", "c1")], at_ms=NOW)
    done, dead, _ = box.take(["control"], now_ms=NOW, limit=100)
    box.settle([Outcome(done.id, "done", 1, NOW), Outcome(dead.id, "dead", 1, NOW, "no")])
    box.sweep(NOW + 3_600_001)
    with ledger.connect() as connection:
        assert sorted(connection.scalars(select(outbox.c.key))) == ["b1", "c1"]
    box.sweep(NOW + 7_200_001)
    with ledger.connect() as connection:
        assert sorted(connection.scalars(select(outbox.c.key))) == ["c1"]


@pytest.mark.parametrize("kind", ["control", "notice"])
def test_a_row_for_a_target_that_is_gone_waits_and_dies_of_age(ledger: Engine, kind: str):
    box, counters = opened(ledger, max_age_hours=1)
    box.put([OutboxEvent("s", "k", kind, "channel/gone/0", "{}")], at_ms=NOW)
    assert keys(box) == []
    box.sweep(NOW + 3_600_000)
    assert counters.dead[kind] == 0
    box.sweep(NOW + 3_600_001)
    assert counters.dead[kind] == 1
    assert box.read("dead", limit=20)[0].error.startswith("too old")


def test_without_a_ledger_it_is_kept_in_memory_smaller_and_that_is_said(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "gpusteward")
    box, counters = opened(None)
    box.put([event(f"s{number}", f"k{number}") for number in range(HELD_LIMIT + 5)], at_ms=NOW)
    assert counters.refused == {"control": 5}
    assert box.describe()["in_memory"]
    assert [record.message for record in caplog.records] == ["outbox_in_memory", "outbox_full"]
    box.close()


def test_a_lost_database_holds_events_back_up_to_a_limit_and_is_caught_up(
    ledger: Engine, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "gpusteward")
    box, counters = opened(ledger, max_pending=100_000)
    box.put([event("a", "a0")], at_ms=NOW)
    METADATA.drop_all(ledger)
    for number in range(1, 4):
        box.put([event("a", f"a{number}")], at_ms=NOW)
    box.put([event(f"s{number}", f"k{number}") for number in range(HELD_LIMIT)], at_ms=NOW)
    assert box.describe()["held"] == HELD_LIMIT
    assert box.describe()["trouble"]
    assert counters.refused == {"control": 3}
    METADATA.create_all(ledger)
    assert box.flush()
    assert keys(box)[0] == "a1"
    assert box.describe() == {"in_memory": False, "held": 0, "trouble": "", "refusal": ""}
    said = [record.message for record in caplog.records]
    assert said == ["outbox_unwritable", "outbox_full", "outbox_writable_again"]


def test_a_teller_goes_on_when_the_database_is_back(tmp_path: Path):
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


def test_names_that_no_database_can_keep_do_no_harm(ledger: Engine):
    with Receiver() as receiver:
        settings = settings_of(control={"enabled": True, "api_url": receiver.url})
        with running_notifier(settings, ledger) as notifier:
            notifier.notify(result_of([gpu_of("ml\0", "web\ud800"), gpu_of("x" * 9000, "y" * 9000)], settings=settings))
            receiver.wait_for(lambda it: len(it.accepted) == 2)
            assert notifier.describe()["fault"] == ""


def test_a_full_house_of_one_kind_leaves_room_for_the_others(ledger: Engine):
    box, counters = opened(ledger, max_pending=10)
    notice = OutboxEvent("ops", "n1", "notice", "channel/ops/0", "text")
    box.put([event("a", f"a{number}") for number in range(12)], at_ms=NOW)
    box.put([event("a", "late"), notice], at_ms=NOW)
    assert (counters.refused["control"], counters.refused["notice"]) == (3, 0)
    assert counters.pending == {"control": 10, "notice": 1}


def unfit(ledger: Engine, key: str = "bad") -> None:
    """From now on the database refuses one key, as it refuses what breaks a rule of its own."""
    with ledger.begin() as connection:
        if ledger.dialect.name == "sqlite":
            refusal = f"BEFORE INSERT ON outbox WHEN NEW.key LIKE '{key}%' BEGIN SELECT RAISE(ABORT, 'no'); END"
            connection.execute(text(f"CREATE TRIGGER unfit {refusal}"))
        else:
            connection.execute(text(f"ALTER TABLE outbox ADD CONSTRAINT unfit CHECK (key NOT LIKE '{key}%%')"))


@pytest.mark.parametrize("place", [0, 5, 10])
def test_an_event_the_database_refuses_for_ever_does_not_stop_the_others(
    ledger: Engine, caplog: pytest.LogCaptureFixture, place: int
):
    box, counters = opened(ledger)
    unfit(ledger)
    events = [event(f"s{number:02}", f"k{number}") for number in range(10)]
    events.insert(place, event("s", "bad"))
    box.put(events, [note("n1")], at_ms=NOW)
    box.put([event("later", "later")], at_ms=NOW)
    assert sorted(keys(box)) == sorted([*(f"k{number}" for number in range(10)), "later"])
    assert len(box.read_notes(0)) == 1
    assert (counters.refused["control"], box.describe()["held"], box.describe()["trouble"]) == (1, 0, "")
    assert box.describe()["refusal"]
    box.put([event("s", "bad again")], at_ms=NOW)
    assert counters.refused["control"] == 2
    ours = [record.message for record in caplog.records if record.name.startswith("gpusteward")]
    assert ours == ["outbox_refused"]


@pytest.mark.parametrize("text_of", ["half a character \ud800", "a \0 in it"])
def test_a_text_that_cannot_be_stored_is_set_aside_alone(ledger: Engine, text_of: str):
    box, counters = opened(ledger)
    box.put([event("a", "a1"), OutboxEvent("s", "bad", "notice", "channel/ops/0", text_of)], at_ms=NOW)
    box.put([event("b", "b1")], at_ms=NOW)
    assert keys(box) == ["a1", "b1"]
    is_kept = ledger.dialect.name == "sqlite" and "\0" in text_of  # SQLite takes a NUL
    assert counters.refused["notice"] == (0 if is_kept else 1)


def test_when_all_is_refused_not_every_single_one_is_tried(ledger: Engine):
    box, counters = opened(ledger)
    unfit(ledger)
    begun = []
    engine_event.listen(ledger, "begin", lambda _: begun.append(1))
    box.put([event("s", f"bad{number}") for number in range(2000)], at_ms=NOW)
    assert counters.refused["control"] == 2000
    assert len(begun) < 300
    box.put([event("a", "a1")], at_ms=NOW)
    assert keys(box) == ["a1"]


def test_what_was_given_up_is_listed_and_tried_again_as_if_it_were_new(ledger: Engine):
    box, _ = opened(ledger, max_age_hours=1)
    box.put([event("a", "a1"), event("b", "b1"), event("c", "c1")], at_ms=NOW)
    first, second, _ = box.take(["control"], now_ms=NOW, limit=100)
    box.settle([Outcome(first.id, "dead", 5, NOW, "HTTP 400"), Outcome(second.id, "done", 1, NOW)])
    assert [(row.stream, row.state) for row in box.read(limit=10)] == [("c", "pending"), ("b", "done"), ("a", "dead")]
    (dead,) = box.read("dead", limit=10)
    assert (dead.attempts, dead.error, dead.target) == (5, "HTTP 400", "control")
    assert len(box.read(limit=2)) == 2
    later = NOW + 7_200_000
    found, is_tried = box.retry(dead.id, now_ms=later)
    assert is_tried
    assert found is not None
    assert (found.state, found.attempts) == ("pending", 0)
    box.sweep(later)
    assert keys(box, now_ms=later) == ["a1"]  # it is as old as its retry; c1 has died of age
    assert box.retry(dead.id, now_ms=later)[1] is False
    assert box.retry(10**12, now_ms=later) == (None, False)
