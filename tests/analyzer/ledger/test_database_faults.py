"""A full disk or an unavailable database: the error is logged once, cycles are buffered, and written later."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import event, text

from gpusteward.analyzer.ledger import ledger as ledger_module
from gpusteward.analyzer.ledger.database import db_engine
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.core.errors import ConfigurationError
from tests.analyzer.ledger.cycles import (
    RESTING,
    START,
    WORKING,
    cycle,
    cycles,
    hour,
    hourly,
    minutes_of,
    open_ledger,
    random_cycles,
    read_ledger,
    read_table,
    record_all,
)
from tests.analyzer.usage_tables import allocation
from tests.constants import make_settings

pytestmark = pytest.mark.slow

MANY = [(allocation(number), WORKING) for number in range(1000)]


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage() != "ledger_created"]


def rows_of(ledger: Ledger) -> dict[str, list[object]]:
    tables = read_ledger(ledger.engine)
    for row in tables["verdict_changes"]:
        row["id"] = 0
    return {name: rows for name, rows in tables.items() if name not in ("usage_daily", "fleet_daily", "progress")}


@contextmanager
def small_disk(folder: Path) -> Iterator[tuple[str, Callable[[Ledger], None], Callable[[Ledger], None]]]:
    """A disk that can be filled and freed: a real one where this process may mount it, else a limit of SQLite's own."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    url = f"sqlite:///{folder / 'ledger.db'}"
    if mounted.returncode:
        yield url, lambda ledger: _limit_pages(ledger, 60), lambda ledger: _limit_pages(ledger, 1_000_000)
        return
    try:
        yield url, lambda _: _fill(folder), lambda _: (folder / "filler").unlink()
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return


def _limit_pages(ledger: Ledger, pages: int) -> None:
    event.listen(
        ledger.engine, "begin", lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    )


def test_a_full_disk_is_logged_once_and_buffered_cycles_are_written_when_space_is_free(tmp_path, caplog):
    results = cycles(MANY, range(0, 60, 5))
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder) as (url, fill, free):
        ledger = open_ledger(url)
        ledger.record(results[0])
        fill(ledger)
        for number, result in enumerate(results[1:6]):
            ledger.record(result)
            assert ledger.describe()["buffered_cycles"] == number + 1
        assert "full" in ledger.describe()["error"]
        assert ledger.describe()["booked_at"] == START
        assert events(caplog) == ["ledger_unavailable"]
        free(ledger)
        for result in results[6:]:
            ledger.record(result)
        assert (ledger.describe()["error"], ledger.describe()["buffered_cycles"]) == ("", 0)
        assert minutes_of(hourly(ledger.engine)[0]) == (55, 55, 0, 0)
        ledger.close()


def test_a_stopped_postgresql_is_logged_once_and_buffered_cycles_are_written_in_order(tmp_path, postgres, caplog):
    caplog.set_level("INFO", logger="gpusteward")
    results = random_cycles(12, seed=5)
    record_all(f"sqlite:///{tmp_path / 'reference.db'}", results)
    ledger = open_ledger(postgres.url)
    for result in results[:4]:
        ledger.record(result)
    postgres.stop()
    try:
        for result in results[4:8]:
            ledger.record(result)
        assert ledger.describe()["buffered_cycles"] == 4
        assert ledger.describe()["is_ready"] is False
    finally:
        postgres.start()
    for result in results[8:]:
        ledger.record(result)
    assert events(caplog) == ["ledger_unavailable", "ledger_recovered"]
    assert "s3cret" not in caplog.text + str(ledger.describe())
    reference = open_ledger(f"sqlite:///{tmp_path / 'reference.db'}")
    assert rows_of(ledger) == rows_of(reference)
    reference.close()
    ledger.close()


def test_a_ledger_that_could_not_be_created_is_created_later(tmp_path, caplog):
    folder = tmp_path / "data"
    folder.write_text("a file where the folder should be")
    ledger = Ledger(LedgerSettings(directory=folder))
    for result in cycles([(allocation(0), WORKING)], [0, 5]):
        ledger.record(result)
    assert ledger.describe()["buffered_cycles"] == 2
    folder.unlink()
    ledger.record(cycle([(allocation(0), RESTING)], START + 600))
    assert minutes_of(hourly(ledger.engine)[0]) == (10, 5, 5, 0)
    assert events(caplog) == ["ledger_unavailable"]
    ledger.close()


def test_cycles_that_do_not_fit_into_the_buffer_become_unknown_time(tmp_path, caplog):
    folder = tmp_path / "data"
    folder.write_text("in the way")
    ledger = Ledger(make_settings(LedgerSettings, directory=folder, buffer_megabytes=1))
    for result in cycles(MANY, range(0, 125, 5)):
        ledger.record(result)
    state = ledger.describe()
    assert state["lost_cycles"] > 0
    assert state["buffered_cycles"] + state["lost_cycles"] == 25
    assert state["buffered_bytes"] <= 1_000_000
    assert events(caplog) == ["ledger_unavailable", "ledger_buffer_full"]
    folder.unlink()
    ledger.record(cycle(MANY, START + 125 * 60))
    rows = [minutes_of(row) for row in hourly(ledger.engine)]
    assert sum(allocated for allocated, *_ in rows) == 125
    assert sum(unknown for *_, unknown in rows) == 125 - 15 - 5 * (state["buffered_cycles"] - 1)
    ledger.close()


def test_a_removed_file_is_detected_and_created_again(tmp_path):
    path = tmp_path / "ledger.db"
    ledger = open_ledger(f"sqlite:///{path}")
    results = cycles([(allocation(0), WORKING)], [0, 5, 10, 15])
    for result in results[:2]:
        ledger.record(result)
    for each in tmp_path.glob("ledger.db*"):
        each.unlink()
    for result in results[2:]:
        ledger.record(result)
    assert [row["pod"] for row in read_table(ledger.engine, "allocations")] == ["pod-0"]
    assert minutes_of(hourly(ledger.engine)[0]) == (5, 5, 0, 0)
    ledger.close()


def test_a_database_that_was_emptied_while_running_is_filled_again(postgres):
    ledger = open_ledger(postgres.url)
    results = cycles([(allocation(0), WORKING)], [0, 5, 10, 15, 20])
    for result in results[:2]:
        ledger.record(result)
    postgres.empty()
    for result in results[2:]:
        ledger.record(result)
    assert [row["pod"] for row in read_table(ledger.engine, "allocations")] == ["pod-0"]
    assert ledger.describe()["error"] == ""
    ledger.close()


def test_a_cycle_that_the_database_always_rejects_is_the_only_one_lost(tmp_path, caplog):
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    with ledger.engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TRIGGER refuse BEFORE INSERT ON allocations WHEN NEW.pod = 'pod-1' "
                "BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        )
    for numbers, minute in (((0,), 0), ((0, 1), 5), ((0,), 10)):
        ledger.record(cycle([(allocation(number), WORKING) for number in numbers], START + 60 * minute))
    assert ledger.describe()["lost_cycles"] == 1
    assert minutes_of(hourly(ledger.engine)[0]) == (10, 10, 0, 0)
    assert events(caplog) == ["ledger_cycle_rejected"]
    ledger.close()


def test_a_long_gap_is_filled_in_portions_over_several_cycles(tmp_path, monkeypatch):
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.record(cycle([(allocation(0), WORKING)], START))
    monkeypatch.setattr(ledger_module, "CATCH_UP_SECONDS", 0.05)
    for count in range(400):
        (result,) = cycles([(allocation(0), WORKING)], [60 * 24 * 20 + 5 * count])
        ledger.record(result)
        if not ledger.describe()["buffered_cycles"]:
            break
    rows = hourly(ledger.engine)
    assert sum(minutes_of(row)[0] for row in rows) == 60 * 24 * 20 + 5 * count
    assert count > 0
    ledger.close()


def test_a_reader_does_not_block_the_writer(tmp_path):
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    results = cycles([(allocation(0), WORKING)], [0, 5, 10])
    ledger.record(results[0])
    with ledger.engine.connect() as reader:
        before = reader.execute(text("SELECT count(*) FROM usage_hourly")).scalar()
        ledger.record(results[1])
        assert ledger.describe()["booked_at"] == START + 300
        assert reader.execute(text("SELECT count(*) FROM usage_hourly")).scalar() == before
    ledger.close()


def test_two_analyzers_at_the_same_time_count_once(postgres):
    results = random_cycles(15, seed=9)
    ledgers = [open_ledger(postgres.url) for _ in range(2)]

    def work(ledger: Ledger) -> None:
        for result in results:
            ledger.record(result)

    threads = [threading.Thread(target=work, args=[ledger]) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    both = rows_of(ledgers[0])
    assert [ledger.describe()["error"] for ledger in ledgers] == ["", ""]
    for ledger in ledgers:
        ledger.close()
    postgres.empty()
    alone = open_ledger(postgres.url)
    work(alone)
    assert rows_of(alone) == both
    alone.close()


@pytest.mark.parametrize("url", ["mysql://x/y", "nonsense", "postgresql://u:s3cret@host:port/x"])
def test_an_invalid_url_is_rejected_without_repeating_it(url):
    with pytest.raises((ConfigurationError, ValueError)) as refused:
        Ledger(LedgerSettings(url=url))
    assert "s3cret" not in str(refused.value)
    assert "postgresql://USER:PASSWORD@HOST" in str(refused.value)


def test_an_unreachable_postgresql_does_not_prevent_a_start(caplog):
    ledger = open_ledger("postgresql://u:s3cret@127.0.0.1:1/x")
    assert ledger.describe()["url"] == "postgresql+psycopg://u:***@127.0.0.1:1/x"
    assert "s3cret" not in caplog.text + str(ledger.describe())
    ledger.close()


def test_a_ledger_ahead_of_the_clock_records_nothing_and_reports_it(tmp_path, caplog):
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    for result in cycles([(allocation(0), WORKING)], [0, 60, 5, 10]):
        ledger.record(result)
    assert ledger.describe()["booked_at"] == hour(1) / 1000
    assert ledger.describe()["error"] == "the ledger is 3000 s ahead of the clock"
    assert events(caplog) == ["ledger_ahead_of_clock"]
    ledger.record(*cycles([(allocation(0), WORKING)], [65]))
    assert ledger.describe()["error"] == ""
    ledger.close()


def test_a_frozen_postgresql_blocks_a_cycle_only_for_a_limited_time(postgres, monkeypatch):
    monkeypatch.setattr(db_engine, "MAX_WAIT_SECONDS", 0.5)
    monkeypatch.setitem(db_engine.POSTGRES_OPTIONS, "connect_timeout", 2)
    ledger = open_ledger(postgres.url)
    results = cycles([(allocation(0), WORKING)], [0, 5, 10])
    ledger.record(results[0])
    with postgres.frozen():
        began = time.monotonic()
        ledger.record(results[1])  # without a limit of our own it would never return
        assert time.monotonic() - began < 10
        assert ledger.describe()["buffered_cycles"] == 1
    ledger.record(results[2])
    assert minutes_of(hourly(ledger.engine)[0]) == (10, 10, 0, 0)
    ledger.close()


def test_an_allocation_first_seen_in_a_rejected_cycle_is_described_by_the_next(tmp_path):
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.record(cycle([(allocation(0), WORKING)], START))
    with ledger.engine.begin() as connection:
        refusal = "BEFORE INSERT ON allocations BEGIN SELECT RAISE(ABORT, 'no'); END"
        connection.execute(text(f"CREATE TRIGGER refuse {refusal}"))
    ledger.record(cycle([(allocation(0), WORKING), (allocation(1), WORKING)], START + 300))
    with ledger.engine.begin() as connection:
        connection.execute(text("DROP TRIGGER refuse"))
    for minute in (10, 15):
        ledger.record(cycle([(allocation(0), WORKING), (allocation(1), WORKING)], START + 60 * minute))
    assert ledger.describe()["lost_cycles"] == 1
    assert sorted(row["pod"] for row in read_table(ledger.engine, "allocations")) == ["pod-0", "pod-1"]
    ledger.close()


def test_a_value_that_no_database_can_store_loses_only_its_cycle(database_url, caplog):
    """SQLite's driver raises a Python error for it, not a database error."""
    ledger = open_ledger(database_url)
    results = cycles([(allocation(0), WORKING)], [0, 5, 10, 15, 20])
    ledger.record(results[0])
    for result in results[1:3]:
        workloads = replace(result.workloads, activity=result.workloads.activity + 1, idle_since=np.array([1e300]))
        ledger.record(replace(result, workloads=workloads))
    state = ledger.describe()
    assert (state["refused_cycles"], state["lost_cycles"], state["buffered_cycles"], state["is_ready"]) == (
        2,
        2,
        0,
        True,
    )
    assert state["error"].startswith("the database rejected the last cycle: ")
    for result in results[3:]:
        ledger.record(result)
    assert (ledger.describe()["error"], ledger.describe()["refused_cycles"]) == ("", 2)
    assert minutes_of(hourly(ledger.engine)[0]) == (20, 20, 0, 0)
    assert events(caplog) == ["ledger_cycle_rejected"]
    ledger.close()


def test_an_implausible_number_of_gpus_is_not_recorded(database_url):
    ledger = open_ledger(database_url)
    for result in cycles([(allocation(0), WORKING)], [0, 5], fleet={("node-0", "H100"): 10**19, ("node-1", "H100"): 8}):
        ledger.record(result)
    assert [row["node"] for row in read_table(ledger.engine, "fleet_hourly")] == ["node-1"]
    assert (ledger.describe()["error"], ledger.describe()["refused_cycles"]) == ("", 0)
    ledger.close()


def test_the_error_of_a_rejected_cycle_does_not_contain_its_values(postgres):
    ledger = open_ledger(postgres.url)
    with ledger.engine.begin() as connection:
        connection.execute(text("ALTER TABLE allocations ADD CONSTRAINT no CHECK (pod <> 'pod-0')"))
    ledger.record(*cycles([(allocation(0), WORKING)], [0]))
    assert ledger.describe()["refused_cycles"] == 1
    assert "pod-0" not in ledger.describe()["error"]
    ledger.close()


def test_a_password_among_the_parameters_of_the_url_is_not_shown(caplog):
    ledger = open_ledger("postgresql://u@127.0.0.1:1/x?password=s3cret")
    assert ledger.describe()["url"] == "postgresql+psycopg://u@127.0.0.1:1/x"
    assert "s3cret" not in caplog.text + str(ledger.describe())
    ledger.close()
