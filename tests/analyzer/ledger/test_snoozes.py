"""Snoozes in the ledger, in both databases."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from gpusteward.analyzer.ledger.database.db_engine import open_engine, with_write_lock
from gpusteward.analyzer.ledger.database.retention import prune
from gpusteward.analyzer.ledger.database.schema_version import create_tables
from gpusteward.analyzer.ledger.snoozes import Snooze, active_snoozes, add_snooze, end_snooze, list_snoozes
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.core.node.containers import WorkloadKey

pytestmark = pytest.mark.slow

NOW = 1_800_000_000.0
SERVER = WorkloadKey("Deployment", "chat", "server", "prod")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(LedgerSettings(url=database_url).locate())
    create_tables(engine)
    yield engine
    engine.dispose()


def snooze(engine: Engine, *, hours: float = 8, at: float = NOW, key: WorkloadKey = SERVER) -> Snooze:
    with with_write_lock(engine).begin() as connection:
        return add_snooze(connection, key, until=at + hours * 3600, reason="a demo at noon", who="ada", at=at)


def read_active(engine: Engine, at: float) -> dict[WorkloadKey, Snooze]:
    with engine.connect() as connection:
        return dict(active_snoozes(connection, at))


def test_a_snooze_is_active_until_its_end(engine: Engine):
    added = snooze(engine)
    assert read_active(engine, NOW) == {SERVER: added}
    assert read_active(engine, NOW + 8 * 3600 - 1) == {SERVER: added}
    assert read_active(engine, NOW + 8 * 3600) == {}


def test_a_snooze_is_about_one_workload_of_one_cluster(engine: Engine):
    snooze(engine)
    other = snooze(engine, key=SERVER._replace(cluster="test"))
    assert set(read_active(engine, NOW)) == {SERVER, SERVER._replace(cluster="test")}
    with with_write_lock(engine).begin() as connection:
        assert end_snooze(connection, SERVER, who="bob", at=NOW + 60)
    assert read_active(engine, NOW + 60) == {other.workload: other}


def test_ending_says_whether_there_was_one(engine: Engine):
    snooze(engine, hours=1)
    with with_write_lock(engine).begin() as connection:
        assert not end_snooze(connection, SERVER._replace(name="other"), who="bob", at=NOW)
        assert not end_snooze(connection, SERVER, who="bob", at=NOW + 3600)
        assert end_snooze(connection, SERVER, who="bob", at=NOW + 60)
        assert not end_snooze(connection, SERVER, who="bob", at=NOW + 61)


def test_a_new_snooze_replaces_the_one_before_which_stays_as_history(engine: Engine):
    snooze(engine, hours=8)
    newer = snooze(engine, hours=1, at=NOW + 60)
    assert read_active(engine, NOW + 61) == {SERVER: newer}
    assert read_active(engine, NOW + 60 + 3600) == {}
    with engine.connect() as connection:
        history = list_snoozes(connection, SERVER, limit=10)
    assert [(each.created_at, each.ended_at, each.ended_by) for each in history] == [
        (NOW + 60, None, ""),
        (NOW, NOW + 60, "ada"),
    ]


def test_texts_that_a_database_cannot_store_are_cleaned(engine: Engine):
    key = SERVER._replace(name="a\x00b")
    added = snooze(engine, key=key)
    assert set(read_active(engine, NOW)) == {added.workload}
    with with_write_lock(engine).begin() as connection:
        assert end_snooze(connection, key, who="b\x00", at=NOW)


def test_old_snoozes_are_deleted_with_the_rest_of_the_ledger(engine: Engine):
    settings = LedgerSettings()
    snooze(engine, hours=1)
    prune(engine, settings, now_ms=round((NOW + (settings.daily_days + 2) * 86_400) * 1000))
    with engine.connect() as connection:
        assert list_snoozes(connection, SERVER, limit=10) == []
