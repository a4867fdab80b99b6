"""Tables are created in an empty database, whole or not at all; a ledger of another version is not touched."""

import subprocess
import sys

import pytest
from sqlalchemy import inspect, text
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.schema import METADATA
from gpusteward.analyzer.ledger.database.schema_version import SCHEMA_VERSION, create_tables
from gpusteward.analyzer.reports.make_report import make_report
from gpusteward.analyzer.reports.report_query import ReportQuery
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.core.errors import SourceError
from tests.analyzer.ledger.cycles import WORKING, cycles, hour, open_ledger, read_table
from tests.analyzer.usage_tables import allocation

pytestmark = pytest.mark.slow


@pytest.fixture
def engine(empty_database_url):
    engine = open_engine(LedgerSettings(url=empty_database_url).locate())
    yield engine
    engine.dispose()


def test_tables_are_created_once(engine):
    create_tables(engine)
    create_tables(engine)
    assert set(inspect(engine).get_table_names()) == {"alembic_version", *METADATA.tables}
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == [SCHEMA_VERSION]


@pytest.mark.parametrize("version", ["0001", "0010", "9999"])
def test_a_ledger_of_another_version_is_refused_and_not_changed(empty_database_url, engine, version):
    create_tables(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :version"), {"version": version})
    expected = f"has schema version {version}, but this gpusteward uses version {SCHEMA_VERSION}"
    with pytest.raises(SourceError, match=expected):
        create_tables(engine)
    with pytest.raises(SourceError, match=expected):
        make_report(engine, ReportQuery(hour(), hour(1)), now_ms=hour(1))
    ledger = open_ledger(empty_database_url)
    for result in cycles([(allocation(0), WORKING)], [5]):
        ledger.record(result)
    assert version in ledger.describe()["error"]
    assert read_table(engine, "allocations") == []
    ledger.close()


def test_tables_that_cannot_be_created_leave_nothing_behind(engine):
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE verdict_changes (x INTEGER)"))  # in the way
    with pytest.raises(SQLAlchemyError, match="verdict_changes"):
        create_tables(engine)
    assert set(inspect(engine).get_table_names()) == {"verdict_changes"}


def test_psycopg_is_loaded_only_for_postgresql(tmp_path):
    code = (
        "import sys; from gpusteward.analyzer.ledger.ledger import Ledger; "
        "from gpusteward.analyzer.settings.ledger import LedgerSettings; "
        f"Ledger(LedgerSettings(directory={str(tmp_path)!r})).close(); print('psycopg' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
