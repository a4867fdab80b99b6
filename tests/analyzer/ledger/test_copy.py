"""`gpusteward ledger copy`: everything arrives in PostgreSQL, also after an interruption, and the analyzer goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from gpusteward.analyzer.ledger.database import copy
from gpusteward.analyzer.ledger.database.copy import copy_ledger
from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.cli.main import main
from tests.analyzer.ledger.cycles import random_cycles, read_ledger, record_all, sqlite_url
from tests.analyzer.ledger.postgres_server import RunningPostgres

pytestmark = pytest.mark.slow
CYCLES = random_cycles(60, seed=3)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Engine]:
    record_all(sqlite_url(tmp_path), CYCLES[:50])
    engine = open_engine(sqlite_url(tmp_path))
    yield engine
    engine.dispose()


@pytest.fixture
def target(postgres: RunningPostgres) -> Iterator[Engine]:
    engine = open_engine(postgres.url)
    yield engine
    engine.dispose()


def test_the_command_copies_every_row_and_the_analyzer_goes_on_there(
    source: Engine,
    target: Engine,
    postgres: RunningPostgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setenv("GPUSTEWARD_LEDGER__URL", postgres.url.replace("+psycopg", ""))
    for _ in range(2):  # a second run finds everything there
        assert main(["ledger", "copy", "--from", str(tmp_path / "ledger.db")]) == 0
        assert "the sums are equal" in capsys.readouterr().out
    assert read_ledger(target) == read_ledger(source)
    for url in (postgres.url, sqlite_url(tmp_path)):
        record_all(url, CYCLES[50:])
    assert read_ledger(target) == read_ledger(source)
    assert main(["ledger", "copy", "--from", str(tmp_path / "nothing.db")]) == 2
    assert "there is no SQLite ledger" in capsys.readouterr().err


def test_an_interrupted_copy_continues_where_it_stopped(
    source: Engine, target: Engine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(copy, "BATCH_ROWS", 7)
    seen: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_ledger(source, target, stop)
    assert read_ledger(target)["progress"] == []
    again: list[int] = []
    copy_ledger(source, target, lambda done, _: again.append(done))
    assert again[-1] < seen[-1][1], "not everything is read again"
    assert read_ledger(target) == read_ledger(source)


def stop_in_the_last_step(source: Engine, target: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(copy, "_set_sequences", stop)
        with pytest.raises(KeyboardInterrupt):
            copy_ledger(source, target, lambda _done, _total: None)


def test_a_copy_that_stops_in_its_last_step_is_not_taken_for_a_whole_one(
    source: Engine, target: Engine, postgres: RunningPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stop_in_the_last_step(source, target, monkeypatch)
    assert read_ledger(target)["progress"] == []
    copy_ledger(source, target, lambda _done, _total: None)
    for url in (postgres.url, sqlite_url(tmp_path)):
        record_all(url, CYCLES[50:])
    assert read_ledger(target) == read_ledger(source)


def test_a_copy_that_differs_is_never_taken_for_a_ledger(
    source: Engine, target: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The analyzer went on with the SQLite file after an interruption, and changed rows that had been copied."""

    def stop(done: int, total: int) -> None:
        if done > total * 0.9:
            raise KeyboardInterrupt

    monkeypatch.setattr(copy, "BATCH_ROWS", 7)
    with pytest.raises(KeyboardInterrupt):
        copy_ledger(source, target, stop)
    record_all(sqlite_url(tmp_path), CYCLES[50:])
    for _ in range(2):
        with pytest.raises(copy.SourceError, match="the sums of the copy differ"):
            copy_ledger(source, target, lambda _done, _total: None)
        assert read_ledger(target)["progress"] == []


CHANGES = (
    "UPDATE allocations SET last_ms = last_ms + 1000 WHERE id = (SELECT min(id) FROM allocations)",
    "UPDATE idle_spells SET ended_ms = started_ms + 1000 WHERE ended_ms IS NULL",
)


@pytest.mark.parametrize("change", CHANGES)
def test_rows_without_amounts_that_changed_before_a_copy_was_continued_are_noticed(
    change: str, source: Engine, target: Engine, monkeypatch: pytest.MonkeyPatch
):
    stop_in_the_last_step(source, target, monkeypatch)
    with source.begin() as writing:
        assert writing.execute(text(change)).rowcount > 0
    with pytest.raises(copy.SourceError, match="the sums of the copy differ"):
        copy_ledger(source, target, lambda _done, _total: None)


def test_a_database_with_another_ledger_is_not_mixed_with_this_one(
    source: Engine, target: Engine, postgres: RunningPostgres
):
    record_all(postgres.url, CYCLES[:3])
    before = read_ledger(target)
    with pytest.raises(copy.SourceError, match="already has another ledger"):
        copy_ledger(source, target, lambda _done, _total: None)
    assert read_ledger(target) == before
