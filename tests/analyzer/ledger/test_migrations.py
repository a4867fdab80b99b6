"""Ledgers of every schema version are upgraded, from any working directory; alembic is loaded only if needed."""

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.db_engine import open_engine, with_write_lock
from gpusteward.analyzer.ledger.migrations.upgrade import HEAD, read_version, run_migrations, upgrade
from gpusteward.analyzer.ledger.schema import METADATA
from gpusteward.analyzer.reports.make_report import make_report
from gpusteward.analyzer.reports.report_query import ReportQuery
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.core.errors import SourceError
from tests.analyzer.ledger.cycles import WORKING, cycles, hour, hourly, minutes_of, open_ledger, read_table
from tests.analyzer.usage_tables import allocation

pytestmark = pytest.mark.slow

DUMPS = sorted((Path(__file__).parent / "dumps").glob("*.sql"))
"""Tables of every released schema version with a few rows, as `sqlite3 .dump` writes them. Never changed."""


@pytest.fixture
def engine(empty_database_url):
    engine = open_engine(LedgerSettings(url=empty_database_url).locate())
    yield engine
    engine.dispose()


def shape(engine) -> dict[str, object]:
    seen = inspect(engine)
    return {
        name: (
            [(column["name"], str(column["type"]), column["nullable"]) for column in seen.get_columns(name)],
            seen.get_pk_constraint(name)["constrained_columns"],
            sorted((index["name"], tuple(index["column_names"])) for index in seen.get_indexes(name) if index["name"]),
            sorted(tuple(each["column_names"]) for each in seen.get_unique_constraints(name)),
            sorted(str(each["name"]) for each in seen.get_check_constraints(name)),
        )
        for name in ("alembic_version", *METADATA.tables)
    }


def _migrate_from_scratch(engine) -> None:
    with with_write_lock(engine).begin() as connection:
        run_migrations(connection, None)


def test_the_migrations_make_the_tables_of_the_schema(engine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no alembic.ini there
    _migrate_from_scratch(engine)
    with engine.connect() as connection:
        assert read_version(connection) == HEAD
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    migrated = shape(engine)
    with engine.begin() as connection:
        METADATA.drop_all(connection)
        connection.execute(text("DROP TABLE alembic_version"))
    upgrade(engine)  # creates the tables without running migrations
    assert migrated == shape(engine)


def test_upgrading_a_current_ledger_changes_nothing(engine):
    upgrade(engine)
    upgrade(engine)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM alembic_version")).scalar() == 1


def test_there_is_a_dump_of_every_version():
    versions = Path("src/gpusteward/analyzer/ledger/migrations/versions")
    migrations = {path.name[1:5] for path in (Path(__file__).parents[3] / versions).glob("v*.py")}
    assert {path.stem for path in DUMPS} == migrations


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: path.stem)
def test_a_ledger_of_an_older_version_is_upgraded_and_continued(tmp_path, dump):
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    engine = open_engine(url)
    raw = engine.raw_connection()
    raw.driver_connection.executescript(dump.read_text())
    raw.close()
    engine.dispose()
    ledger = open_ledger(url)
    assert ledger.describe()["error"] == ""
    assert ledger.describe()["booked_at"] == hour() / 1000 + 600
    assert minutes_of(hourly(ledger.engine)[0]) == (10, 10, 0, 0)
    for result in cycles([(allocation(0), WORKING)], [15]):
        ledger.record(result)
    assert minutes_of(hourly(ledger.engine)[0]) == (15, 15, 0, 0)
    assert read_table(ledger.engine, "currencies") == [{"since_ms": 0, "currency": "USD"}]
    with ledger.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    ledger.close()


def test_unallocated_time_of_the_first_version_is_still_reported(tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    engine = open_engine(url)
    raw = engine.raw_connection()
    raw.driver_connection.executescript(DUMPS[0].read_text())
    raw.close()
    query = ReportQuery(hour(), hour(1))
    with pytest.raises(SourceError, match="it has schema version 0001"):
        make_report(engine, query, now_ms=hour(1))
    upgrade(engine)
    assert make_report(engine, query, now_ms=hour(1)).total.unallocated_gpu_ms == 6 * 600_000
    engine.dispose()
    ledger = open_ledger(url)
    for result in cycles([(allocation(0), WORKING), (allocation(1), WORKING)], [15], fleet={("node-0", "H100"): 8}):
        ledger.record(result)
    report = make_report(ledger.engine, query, now_ms=hour(1))
    assert report.total.unallocated_gpu_ms == 6 * 900_000  # an hour with rows of both versions
    ledger.close()


def test_a_ledger_of_a_newer_program_is_not_changed(engine):
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SourceError, match="newer gpusteward that wrote it"):
        upgrade(engine)


@pytest.mark.parametrize("runs_migrations", [True, False])
def test_a_failed_upgrade_leaves_nothing_behind(engine, runs_migrations):
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE verdict_changes (x INTEGER)"))  # in the way
    with pytest.raises(SQLAlchemyError, match="verdict_changes"):
        _migrate_from_scratch(engine) if runs_migrations else upgrade(engine)
    assert set(inspect(engine).get_table_names()) == {"verdict_changes"}


def test_alembic_and_psycopg_are_loaded_only_when_they_are_needed(tmp_path):
    code = (
        "import sys; from gpusteward.analyzer.ledger.ledger import Ledger; "
        "from gpusteward.analyzer.settings.ledger import LedgerSettings; "
        f"Ledger(LedgerSettings(directory={str(tmp_path)!r})).close(); "
        "print('alembic' in sys.modules, 'psycopg' in sys.modules)"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
        ).stdout.strip()
        for _ in range(2)
    ]
    assert outputs == ["False False"] * 2
