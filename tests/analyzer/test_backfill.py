"""Idle spells of the past from a real Prometheus: the same as live cycles would have recorded, and nothing else."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, delete

from gpusteward.analyzer.backfill import MOST_FAILURES, Backfill, Filled
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.periods import BEGAN
from gpusteward.analyzer.ledger.database.schema import progress
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.ledger.spells.spell_memory import SpellMemory
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.settings import SchedulerSettings, Settings
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.cli.main import main
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.idle_spells import SpellEnd
from tests import constants
from tests.analyzer.engines import RunningEngine, Sample, running_prometheus
from tests.analyzer.ledger.cycles import read_ledger, read_table, sqlite_url
from tests.analyzer.scraped_history import steady
from tests.analyzer.sources.faulty_engine import FaultyEngine, faulty

pytestmark = pytest.mark.slow

HOUR, WINDOW, STEP, INTERVAL = 3600, 600, 30, 300
BEGIN = 1_790_002_800  # a full hour
END = BEGIN + 8 * HOUR
FIRST, MIDDLE = BEGIN + HOUR, BEGIN + 5 * HOUR
Rows = list[dict[str, Any]]


def times(begin: float, end: float) -> Iterable[float]:
    """Of scrapes, in hours after the beginning."""
    return range(BEGIN + int(begin * HOUR), BEGIN + int(end * HOUR), STEP)


def gpu(number: int, pod: str, core: float, when: Iterable[float]) -> Iterator[Sample]:
    own = {"UUID": f"GPU-{number}", "Hostname": f"n{number}", "gpu": "0", "modelName": "A100", "job": "dcgm"}
    own |= {"pod": pod, "namespace": "ml", "container": "main"} if pod else {}
    for name, value in (("GPU_UTIL", core), ("MEM_COPY_UTIL", 0.0), ("FB_USED", 30_000.0), ("POWER_USAGE", 70.0)):
        yield from steady(f"DCGM_FI_DEV_{name}", value, when, **own)


def life() -> Iterator[Sample]:
    """GPU 0 works every third hour, 1 is idle, 2 is released, 3 does not report for an hour, 4 works."""
    for hour in range(9):
        yield from gpu(0, "sometimes", 90.0 if hour % 3 == 2 else 0.0, times(hour, hour + 1))
    yield from gpu(1, "idle", 0.0, times(0, 9))
    yield from gpu(2, "ended", 0.0, times(0, 3.5))
    yield from gpu(2, "", 0.0, times(3.5, 9))
    yield from gpu(3, "silent", 0.0, [*times(0, 2), *times(3, 9)])
    yield from gpu(4, "works", 90.0, times(0, 9))
    for number in range(5):
        yield from steady("up", 1, times(0, 9), job="dcgm", instance=f"n{number}:9400")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    with running_prometheus(tmp_path_factory.mktemp("past"), life()) as one:
        yield one


def make_settings(url: str, database_url: str) -> Settings:
    return Settings(
        prometheus=constants.make_settings(PrometheusSettings, url=url, retries=0),
        scheduler=SchedulerSettings(interval=INTERVAL),
        ledger=LedgerSettings(url=database_url),
    )


def read_cycles(settings: Settings, at: Iterable[int]) -> Iterator[Result]:
    """As the analyzer runs them."""
    history = VerdictHistory()
    with closing(PrometheusSource(settings.prometheus)) as source:
        for each in at:
            verdicts, history = judge(source.read(float(each)), settings.rules, history, now=each)
            yield Result(1, each, 0.1, settings, verdicts, judge_workloads(verdicts, settings.rules))


def record(settings: Settings, at: Iterable[int]) -> Ledger:
    ledger = Ledger(settings.ledger)
    for result in read_cycles(settings, at):
        ledger.record(result)
    assert ledger.describe()["error"] == ""
    return ledger


def fill(settings: Settings, *, since: int = FIRST, now: int = END + WINDOW, **options: Any) -> Filled:
    with closing(Backfill(settings, since_ms=since * 1000, now_ms=now * 1000, **options)) as backfill:
        return backfill.fill(backfill.estimate())


def spells(database: Engine, *, until: int = END) -> list[tuple[Any, ...]]:
    """Pod, start and end in minutes after the beginning, what ended it, proof; one that has not ended is lost."""
    pods = {row["id"]: row["pod"] for row in read_table(database, "allocations")}
    return sorted(
        (
            pods[row["allocation_id"]],
            row["started_ms"] / 60_000 - BEGIN / 60,
            (row["ended_ms"] or row["idle_until_ms"] or until * 1000) / 60_000 - BEGIN / 60,
            row["ended_by"] or SpellEnd.LOST.value,
            row["proof"],
            row["signature"],
            row["gpu_fraction"],
        )
        for row in read_table(database, "idle_spells")
    )


@pytest.fixture(scope="module")
def live(engine: RunningEngine, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    """The spells that live cycles record."""
    settings = make_settings(engine.url, sqlite_url(tmp_path_factory.mktemp("live")))
    with closing(record(settings, range(FIRST + WINDOW, END + 1, INTERVAL))) as ledger:
        return spells(ledger.engine)


@pytest.fixture
def database(database_url: str) -> Iterator[Engine]:
    opened = open_engine(LedgerSettings(url=database_url).locate())
    yield opened
    opened.dispose()


def test_the_spells_are_those_that_live_cycles_record(
    engine: RunningEngine, live: list[tuple[Any, ...]], database_url: str, database: Engine
):
    settings = make_settings(engine.url, database_url)
    filled = fill(settings)
    assert spells(database) == live
    assert {by for *_, by, _, _, _ in live} == {"work", "released", "lost"}, "nothing was compared"
    assert (filled.failed, filled.spells) == (0, len(live))
    tables = read_ledger(database)
    assert not any(tables[name] for name in ("usage_hourly", "usage_daily", "fleet_hourly", "verdict_changes"))
    assert all(row["ended_ms"] is not None for name in ("idle_spells", "allocations") for row in tables[name])
    assert {row["pod"] for row in tables["allocations"]} == {"sometimes", "idle", "ended", "silent", "works"}


def test_a_second_run_changes_nothing(engine: RunningEngine, tmp_path: Path):
    settings = make_settings(engine.url, sqlite_url(tmp_path))
    fill(settings)
    with closing(open_engine(settings.ledger.locate()).connect()) as connection:
        before = read_ledger(connection.engine)
        assert fill(settings) == Filled()
        assert fill(settings, since=FIRST + 1234) == Filled()
        assert read_ledger(connection.engine) == before


def test_recorded_time_is_not_touched(engine: RunningEngine, database_url: str, database: Engine):
    settings = make_settings(engine.url, database_url)
    cycles = list(range(MIDDLE, END + 1, INTERVAL))
    with closing(record(settings, cycles[:-6])) as ledger:  # it goes on recording
        before = read_ledger(database)
        fill(settings)
        after = read_ledger(database)
        for name in before.keys() - {"progress", "allocations", "idle_spells"}:
            assert after[name] == before[name], name
        recorded = [row for row in after["idle_spells"] if row in before["idle_spells"]]
        assert recorded == before["idle_spells"]
        added = [row for row in after["idle_spells"] if row not in recorded]
        assert max(row["ended_ms"] for row in added) == (MIDDLE - WINDOW) * 1000
        assert_alike_but_first(before["allocations"], after["allocations"])
        for result in read_cycles(settings, cycles):
            ledger.record(result)
        assert ledger.describe()["error"] == ""
        assert_no_overlap(read_table(database, "idle_spells"))
    assert fill(settings) == Filled()


def assert_alike_but_first(before: Rows, after: Rows) -> None:
    now = {row["id"]: row for row in after}
    for row in before:
        assert {**now[row["id"]], "first_ms": 0} == {**row, "first_ms": 0}
        assert now[row["id"]]["first_ms"] <= row["first_ms"]


def assert_no_overlap(rows: Rows) -> None:
    ordered = sorted(rows, key=lambda row: (row["allocation_id"], row["started_ms"]))
    for one, other in pairwise(ordered):
        if one["allocation_id"] == other["allocation_id"]:
            assert one["ended_ms"] <= other["started_ms"]


def is_down(begin: float, end: float) -> Callable[[Any, str], bool]:
    """Queries at these hours after the beginning fail."""

    def refuse(handler: Any, _: str) -> bool:
        at = float((handler.form.get("time") or ["0"])[0])
        if not BEGIN + begin * HOUR < at <= BEGIN + end * HOUR:
            return False
        handler.respond(503, b"busy")
        return True

    return refuse


@pytest.fixture
def proxy(engine: RunningEngine) -> Iterator[FaultyEngine]:
    with faulty(engine.url) as server:
        yield server


def test_time_that_cannot_be_read_is_lost_neither_work_nor_idle(
    proxy: FaultyEngine, tmp_path: Path, live: list[tuple[Any, ...]]
):
    settings = make_settings(proxy.url, sqlite_url(tmp_path))
    proxy.fault = is_down(6, 6.5)
    assert fill(settings).failed == 6
    with closing(open_engine(settings.ledger.locate()).connect()) as connection:
        found = [each[:4] for each in spells(connection.engine) if each[0] == "idle"]
        others = [each for each in spells(connection.engine) if each[0] == "ended"]
    assert found == [("idle", 60, 360, "lost"), ("idle", 385, 480, "lost")]
    assert others == [each for each in live if each[0] == "ended"]


def test_it_stops_when_the_engine_is_down_and_continues_with_the_next_run(
    proxy: FaultyEngine, database_url: str, database: Engine, live: list[tuple[Any, ...]]
):
    settings = make_settings(proxy.url, database_url)
    with closing(Backfill(settings, since_ms=FIRST * 1000, now_ms=(END + WINDOW) * 1000)) as backfill:
        estimate = backfill.estimate()
        proxy.fault = is_down(4, 99)
        with pytest.raises(SourceError, match=f"after {MOST_FAILURES} failed cycles"):
            backfill.fill(estimate)
    assert max(row["ended_ms"] for row in read_table(database, "idle_spells")) == (BEGIN + 4 * HOUR) * 1000
    proxy.fault = is_down(99, 99)
    assert fill(settings).failed == 0
    assert [each[:4] for each in spells(database)] == [each[:4] for each in live]


def test_earlier_time_can_be_added_later(engine: RunningEngine, tmp_path: Path):
    settings = make_settings(engine.url, sqlite_url(tmp_path))
    fill(settings, since=MIDDLE)
    assert fill(settings).cycles == (MIDDLE - FIRST - WINDOW) // INTERVAL + 1
    with closing(open_engine(settings.ledger.locate()).connect()) as connection:
        rows = read_table(connection.engine, "idle_spells")
        assert_no_overlap(rows)
        found = [each[:4] for each in spells(connection.engine) if each[0] == "idle"]
    assert found == [("idle", 60, 300, "lost"), ("idle", 300, 480, "lost")]
    assert fill(settings) == Filled()


def test_two_back_fills_at_the_same_time_do_not_mix(engine: RunningEngine, tmp_path: Path):
    settings = make_settings(engine.url, sqlite_url(tmp_path))
    with closing(Backfill(settings, since_ms=MIDDLE * 1000, now_ms=(END + WINDOW) * 1000)) as backfill:
        estimate = backfill.estimate()
        with pytest.raises(SourceError, match="another back-fill"):
            backfill.fill(estimate, lambda done, _total: fill(settings, since=MIDDLE) if done == 1 else None)


def test_a_running_analyzer_uses_the_added_spells(engine: RunningEngine, tmp_path: Path):
    settings = make_settings(engine.url, sqlite_url(tmp_path))
    with closing(record(settings, range(MIDDLE, END + 1, INTERVAL))) as ledger:
        memory, (result,) = SpellMemory(ledger.engine), read_cycles(settings, [END])
        memory.update(result)
        before = len(memory.history.codes)
        fill(settings)
        memory.update(result)
        assert len(memory.history.codes) > before


def test_the_engine_has_no_data_of_a_time_before_its_own(engine: RunningEngine, tmp_path: Path):
    settings = make_settings(engine.url, sqlite_url(tmp_path))
    filled = fill(settings, since=BEGIN - 4 * 86_400, now=BEGIN + HOUR, step_seconds=WINDOW)
    assert filled.failed > MOST_FAILURES, "that is not a failure of the engine"
    with closing(open_engine(settings.ledger.locate()).connect()) as connection:
        assert min(each[1] for each in spells(connection.engine)) >= -WINDOW / 60


def test_a_ledger_that_does_not_know_its_beginning_begins_with_its_first_allocation(
    engine: RunningEngine, tmp_path: Path
):
    settings = make_settings(engine.url, sqlite_url(tmp_path))
    with closing(record(settings, range(MIDDLE, MIDDLE + HOUR, INTERVAL))) as ledger:
        with ledger.engine.begin() as connection:
            connection.execute(delete(progress).where(progress.c.name == BEGAN))
        fill(settings)
        assert {"name": BEGAN, "at_ms": MIDDLE * 1000} in read_table(ledger.engine, "progress")
        assert min(row["first_ms"] for row in read_table(ledger.engine, "allocations")) < MIDDLE * 1000
    assert fill(settings) == Filled()


@pytest.mark.parametrize("step", [0.5, WINDOW + 1])
def test_a_step_that_leaves_time_between_windows_is_refused(tmp_path: Path, step: float):
    with pytest.raises(ConfigurationError, match="--step"):
        Backfill(make_settings("http://127.0.0.1:9", sqlite_url(tmp_path)), since_ms=0, now_ms=1, step_seconds=step)


def test_without_an_engine_it_is_refused(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"prometheus\.url"):
        Backfill(make_settings("", sqlite_url(tmp_path)), since_ms=0, now_ms=1)


def test_the_command_shows_an_estimate_and_what_it_did(
    engine: RunningEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    url = sqlite_url(tmp_path)
    settings = make_settings(engine.url, url)
    record(settings, range(MIDDLE, MIDDLE + HOUR, INTERVAL)).close()
    words = ["backfill", "--prometheus-url", engine.url, "--set", f"ledger.url={url}", "--since", "2026-09-21T15:00Z"]
    assert main([*words, "--step", "10m", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "cycles: 29, one every 600 s" in printed
    assert main([*words, "--step", "10m"]) == 0
    assert "done; cycles: 29, without data: 0" in capsys.readouterr().out
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("nothing to add")
