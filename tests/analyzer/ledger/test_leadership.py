"""Of several analyzers on one PostgreSQL, exactly one holds the lease."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from gpusteward.analyzer.ledger.database.db_engine import open_engine, with_write_lock
from gpusteward.analyzer.ledger.database.leadership import Leadership
from gpusteward.analyzer.ledger.database.schema_version import create_tables
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.core.errors import SourceError
from tests.analyzer.ledger.cycles import START, WORKING, allocation, cycle, hourly, minutes_of, open_ledger
from tests.analyzer.ledger.postgres_server import RunningPostgres
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

LEASE_SECONDS = 0.4


@pytest.fixture
def engine(postgres: RunningPostgres) -> Iterator[Engine]:
    engine = open_engine(LedgerSettings(url=postgres.url).locate())
    create_tables(engine)
    yield engine
    engine.dispose()


def make(engine: Engine | None, name: str, *, lease_seconds: float = LEASE_SECONDS) -> Leadership:
    return Leadership(engine, lease_seconds=lease_seconds, holder=name)


def wait_for_leader(*replicas: Leadership) -> Leadership:
    """Renew all in turn until one of them is the leader."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for each in replicas:
            if each.renew():
                return each
        time.sleep(0.02)
    raise AssertionError("nobody leads")


def test_the_first_one_leads_and_the_second_one_reads(engine: Engine):
    first, second = make(engine, "first"), make(engine, "second")
    assert first.renew()
    assert not second.renew()
    assert (first.role, second.role, second.leader) == ("leader", "reader", "first")
    assert first.holds_lease
    assert not second.holds_lease


def test_of_many_that_start_at_once_one_leads(engine: Engine):
    replicas = [make(engine, f"replica-{number}") for number in range(8)]
    threads = [threading.Thread(target=each.renew) for each in replicas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    leaders = [each for each in replicas if each.is_leader]
    assert len(leaders) == 1
    assert {each.leader for each in replicas} == {leaders[0].holder}


def test_a_leader_that_does_not_renew_loses_the_lease_and_notices_it(engine: Engine):
    first, second = make(engine, "first"), make(engine, "second")
    changes: list[str] = []
    first.on_change = lambda: changes.append(first.role)
    second.on_change = lambda: changes.append(second.role)
    first.renew()
    second.renew()
    assert wait_for_leader(second) is second
    assert not first.holds_lease  # by its own clock, without a question to the database
    assert not first.renew()
    assert changes == ["reader", "leader", "reader"]


def test_a_leader_that_renews_keeps_the_lease(engine: Engine):
    first, second = make(engine, "first"), make(engine, "second")
    end = time.monotonic() + 3 * LEASE_SECONDS
    while time.monotonic() < end:
        assert first.renew()
        assert not second.renew()
        time.sleep(LEASE_SECONDS / 8)


def test_a_leader_that_stops_gives_the_lease_up_at_once(engine: Engine):
    first, second = make(engine, "first", lease_seconds=60), make(engine, "second", lease_seconds=60)
    first.start()
    assert not second.renew()
    first.stop()
    assert second.renew()


def test_a_leader_that_can_no_longer_work_gives_the_lease_up(engine: Engine):
    first, second = make(engine, "first", lease_seconds=60), make(engine, "second", lease_seconds=60)
    first.renew()
    first.may_lead = lambda: False
    assert not first.renew()
    assert second.renew()
    assert not first.renew()


def test_roles_are_kept_while_the_database_is_down_and_the_leader_has_precedence_afterwards(
    engine: Engine, postgres: RunningPostgres
):
    first, second = make(engine, "first"), make(engine, "second")
    first.renew()
    second.renew()
    postgres.stop()
    assert first.renew()
    assert not second.renew()
    assert "OperationalError" in first.error
    assert not first.holds_lease or first.renew()
    time.sleep(2 * LEASE_SECONDS)  # the lease expires meanwhile
    assert not first.holds_lease
    postgres.start()
    assert not second.renew()  # first in time, but the leader has the buffered cycles
    assert first.renew()
    assert first.holds_lease
    assert first.error == second.error == ""


def test_an_analyzer_of_another_cluster_knows_that_its_own_is_not_recorded(engine: Engine):
    """Replicas in one cluster, and one whose cluster is not known, have nothing to say."""
    clusters = {"first": "uid-east", "replica": "uid-east", "other": "uid-west", "unknown": ""}
    replicas = {name: make(engine, name, lease_seconds=60) for name in clusters}

    def read_uid(name: str) -> str:
        if not clusters[name]:
            raise SourceError("no API server")
        return clusters[name]

    for name, each in replicas.items():
        each.read_cluster_uid = partial(read_uid, name)
        each.start()
    wait_until(lambda: replicas["first"].renew() and replicas["first"].leader_cluster)  # it is read in a thread
    for each in replicas.values():
        each.renew()
    wait_until(lambda: replicas["other"].foreign_cluster == "uid-east")
    assert {name: each.foreign_cluster for name, each in replicas.items()} == {
        **dict.fromkeys(clusters, ""),
        "other": "uid-east",
    }
    replicas["first"].stop()
    wait_until(replicas["unknown"].renew)
    assert not replicas["other"].renew()
    assert replicas["other"].leader == "unknown"
    assert replicas["other"].foreign_cluster == "", "what the leader before has written does not count for it"
    for each in replicas.values():
        each.stop()


def test_a_sqlite_file_and_no_ledger_have_no_lease(tmp_path: Path):
    sqlite = open_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
    for replica in (make(None, "only"), make(sqlite, "only")):
        replica.start()
        assert replica.renew()
        assert replica.holds_lease
        replica.stop()
    sqlite.dispose()


def test_a_ledger_continues_what_another_one_recorded(postgres: RunningPostgres):
    rows = [(allocation(0), WORKING)]
    first, second = open_ledger(postgres.url), open_ledger(postgres.url)
    for minute in (0, 5, 10):
        first.record(cycle(rows, START + 60 * minute))
    second.hand_over()
    assert second.describe()["booked_at"] is None
    for minute in (15, 20):
        second.record(cycle(rows, START + 60 * minute))
    first.record(cycle(rows, START + 60 * 17))  # a leader that does not know yet
    first.hand_over()
    first.record(cycle(rows, START + 60 * 25))
    assert minutes_of(hourly(first.engine)[0]) == (25, 25, 0, 0)
    assert first.describe()["booked_at"] == START + 60 * 25
    first.close()
    second.close()


def test_buffered_cycles_are_dropped_when_another_one_took_over(postgres: RunningPostgres):
    rows = [(allocation(0), WORKING)]
    ledger = open_ledger(postgres.url)
    ledger.record(cycle(rows, START))
    postgres.stop()
    ledger.record(cycle(rows, START + 300))
    assert ledger.describe()["buffered_cycles"] == 1
    ledger.hand_over()
    assert ledger.describe()["buffered_cycles"] == 0
    postgres.start()
    ledger.record(cycle(rows, START + 600))
    assert minutes_of(hourly(ledger.engine)[0]) == (10, 10, 0, 0)
    ledger.close()


def test_a_writer_that_stops_in_a_transaction_is_ended_by_the_server(engine: Engine):
    with with_write_lock(engine).begin() as connection:
        limit = connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar()
    assert limit == "30s"
    with engine.begin() as connection:
        assert connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar() == "0"
