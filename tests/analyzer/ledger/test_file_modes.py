"""Only the owner may read the SQLite file of the ledger and those that SQLite puts beside it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from gpusteward.analyzer.ledger.database.db_engine import open_engine


@pytest.fixture(autouse=True)
def permissive_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def write_row(path: Path) -> dict[str, int]:
    """The mode of each file while a connection is open."""
    engine = open_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS t (x)"))
        connection.execute(text("INSERT INTO t VALUES (1)"))
        connection.commit()
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    engine.dispose()
    return modes


def test_new_files_are_readable_by_their_owner_only(tmp_path: Path):
    assert write_row(tmp_path / "ledger.db") == {"ledger.db": 0o600, "ledger.db-wal": 0o600, "ledger.db-shm": 0o600}


def test_the_mode_of_existing_files_is_corrected(tmp_path: Path):
    path = tmp_path / "ledger.db"
    write_row(path)
    path.chmod(0o666)
    assert write_row(path) == {"ledger.db": 0o600, "ledger.db-wal": 0o600, "ledger.db-shm": 0o600}


def test_a_read_only_file_does_not_become_writable(tmp_path: Path):
    path = tmp_path / "ledger.db"
    write_row(path)
    path.chmod(0o444)
    open_engine(f"sqlite:///{path}").connect().close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
