"""The databases the ledger can be kept in."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

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
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server: RunningPostgres = request.getfixturevalue("postgres")
    return server.url


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def kept_database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A database of each kind in turn, for tests of one file that only read what a fixture has written."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('kept') / 'ledger.db'}"
        return
    server: RunningPostgres = request.getfixturevalue("postgres_server")
    with server.another_database(f"kept_{next(_numbers)}") as url:
        yield url
