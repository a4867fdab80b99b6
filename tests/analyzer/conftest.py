"""The databases the ledger can be kept in."""

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.schema import METADATA
from gpusteward.analyzer.ledger.database.schema_version import create_tables
from tests.analyzer.ledger.postgres_server import RunningPostgres, running_postgres

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[RunningPostgres]:
    """One for all tests of a run; use `postgres`, which is empty."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: RunningPostgres) -> RunningPostgres:
    """A running PostgreSQL with an empty database."""
    postgres_server.empty()
    return postgres_server


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server: RunningPostgres = request.getfixturevalue("postgres")
    return server.url


@pytest.fixture(scope="session")
def sqlite_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger without rows, to copy."""
    path = tmp_path_factory.mktemp("new") / "ledger.db"
    engine = open_engine(f"sqlite:///{path}")
    create_tables(engine)
    engine.dispose()
    return path


@pytest.fixture(scope="session")
def postgres_ledger(postgres_server: RunningPostgres) -> Iterator[Engine]:
    """A ledger with the rows of the last test."""
    with postgres_server.another_database("ledger") as url:
        engine = open_engine(url)
        create_tables(engine)
        yield engine
        engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A ledger without rows in each kind of database in turn, for tests that leave its tables as they are."""
    if request.param == "sqlite":
        shutil.copyfile(request.getfixturevalue("sqlite_ledger"), tmp_path / "ledger.db")
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    engine: Engine = request.getfixturevalue("postgres_ledger")
    with engine.begin() as connection:
        connection.execute(text(f"TRUNCATE {', '.join(METADATA.tables)} RESTART IDENTITY"))
    return engine.url.render_as_string(hide_password=False)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def kept_database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A database of each kind in turn, for tests of one file that only read what a fixture has written."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('kept') / 'ledger.db'}"
        return
    server: RunningPostgres = request.getfixturevalue("postgres_server")
    with server.another_database(f"kept_{next(_numbers)}") as url:
        yield url
