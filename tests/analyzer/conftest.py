"""The databases the ledger can be kept in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.analyzer.ledger.postgres_server import RunningPostgres, running_postgres


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
