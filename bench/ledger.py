"""`python -m bench.ledger`: measures recording a cycle of 50,000 allocations, and a report over 30 days of 5,000.

Writes bench/results/ledger.md. Exits with 0 whether the limits hold or not.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from sqlite3 import sqlite_version
from statistics import median

from sqlalchemy import text

from bench.measure import About, describe_run, name_command, print_progress
from bench.report import publish, render_head, render_table
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.ledger.database.db_engine import with_write_lock
from gpusteward.analyzer.ledger.database.periods import DAY_MS, HOUR_MS
from gpusteward.analyzer.ledger.database.retention import roll_up
from gpusteward.analyzer.ledger.database.schema import usage_daily
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.make_report import make_report
from gpusteward.analyzer.reports.report_query import ReportQuery
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.settings import SchedulerSettings, Settings
from tests.analyzer.ledger.postgres_server import running_postgres
from tests.analyzer.usage_tables import AT, large_table

ROWS = 50_000
CYCLES = 15  # five minutes apart: at least one of them is the first after a full hour, and rolls it up
REPORT_ROWS = 5_000
DAYS = 30
ROUNDS = 5
BEGIN = int(AT // 3600 * 3600)
SETTINGS = Settings(prices=PriceSettings(per_gpu_hour={"*": 2.0}, electricity_per_kwh=0.2))
BY: tuple[str, ...] = ("namespace", "workload", "model", "node", "user")


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of CPU and of wall-clock time."""

    cpu: float
    wall: float


@dataclass(frozen=True, slots=True)
class RecordingCosts:
    """Costs of cycles on one database."""

    database: str
    first: Cost  # all allocations are new
    steady: Cost  # median of the others
    slowest: Cost  # of the others


@dataclass(frozen=True, slots=True)
class ReportCosts:
    """Costs of a report."""

    by: str
    rows: int
    cost: Cost  # median


@dataclass(frozen=True, slots=True)
class Found:
    """All results of one run."""

    about: About
    recordings: list[RecordingCosts]
    kilobytes_buffered: int  # by one cycle while the database is unavailable
    hourly_rows: int
    daily_rows: int
    megabytes: float
    reports: list[ReportCosts]
    load: float  # of the machine, at the end


@contextmanager
def clocked(costs: list[Cost]) -> Iterator[None]:
    cpu, wall = time.process_time(), time.perf_counter()
    yield
    costs.append(Cost(time.process_time() - cpu, time.perf_counter() - wall))


def middle(costs: list[Cost]) -> Cost:
    return Cost(median(cost.cpu for cost in costs), median(cost.wall for cost in costs))


def make_results(rows: int, count: int) -> Iterator[Result]:
    """Cycles five minutes apart; in each, a third of all rows changes its activity."""
    memory = VerdictHistory()
    for number in range(count):
        table = large_table(rows, at=AT + 300 * number, seed=number)
        verdicts, memory = judge(table, SETTINGS.rules, memory, now=table.at)
        yield Result(number + 1, table.at, 0.0, SETTINGS, verdicts, judge_workloads(verdicts, SETTINGS.rules))


def measure_recording(name: str, url: str) -> RecordingCosts:
    print_progress(f"  {name}")
    ledger = Ledger(LedgerSettings(url=url))
    costs: list[Cost] = []
    for result in make_results(ROWS, CYCLES):
        with clocked(costs):
            ledger.record(result)
        assert not ledger.describe()["error"]
    ledger.close()
    slowest = max(costs[1:], key=lambda cost: cost.wall)
    return RecordingCosts(name, costs[0], middle(costs[1:]), slowest)


def measure_buffer() -> int:
    """Kilobytes of one cycle while the database is unavailable."""
    ledger = Ledger(LedgerSettings(directory=Path("/dev/null/nowhere")))
    sizes = []
    for result in make_results(ROWS, 2):
        ledger.record(result)
        sizes.append(ledger.describe()["buffered_bytes"])
    return round((sizes[1] - sizes[0]) / 1000)


def fill_month(ledger: Ledger) -> int:
    """One cycle per hour, and the month before as days only; returns the end."""
    hourly = SETTINGS.model_copy(update={"scheduler": SchedulerSettings(interval=3600)})
    (result,) = make_results(REPORT_ROWS, 1)
    for hour in range(DAYS * 24 + 1):
        ledger.record(replace(result, at=BEGIN + 3600 * hour, settings=hourly))
        if hour % 120 == 0:
            print_progress(f"    day {hour // 24} of {DAYS}")
    while roll_up(ledger.engine):
        pass
    names = [column.name for column in usage_daily.columns][1:]
    copy = f"INSERT INTO usage_daily SELECT day_ms - {(DAYS + 2) * DAY_MS}, {', '.join(names)} FROM usage_daily"
    with with_write_lock(ledger.engine).begin() as connection:
        connection.execute(text(copy))
    return BEGIN * 1000 + DAYS * DAY_MS


def measure_reports(ledger: Ledger, end_ms: int) -> list[ReportCosts]:
    found = []
    for by in BY:
        query = ReportQuery(since_ms=end_ms - DAYS * DAY_MS, until_ms=end_ms, by=by)
        costs: list[Cost] = []
        for _ in range(ROUNDS):
            with clocked(costs):
                report = make_report(ledger.engine, query, prices=SETTINGS.prices, now_ms=end_ms)
        assert report.total.allocated_gpu_ms == REPORT_ROWS * DAYS * 24 * HOUR_MS, report.total
        found.append(ReportCosts(by, len(report.groups), middle(costs)))
    return found


def run(folder: Path) -> Found:
    print_progress("cycles")
    recordings = [measure_recording("SQLite", f"sqlite:///{folder / 'cycles.db'}")]
    if shutil.which("initdb") or any(Path("/usr/lib/postgresql").glob("*/bin/initdb")):  # the limits are for SQLite
        with running_postgres() as server:
            recordings.append(measure_recording("PostgreSQL", server.url))
    print_progress("  30 days")
    ledger = Ledger(LedgerSettings(url=f"sqlite:///{folder / 'month.db'}"))
    end_ms = fill_month(ledger)
    print_progress("reports")
    reports = measure_reports(ledger, end_ms)
    counts = [_count(ledger, name) for name in ("usage_hourly", "usage_daily")]
    ledger.close()
    size = (folder / "month.db").stat().st_size / 1e6
    versions = {"sqlalchemy": version("sqlalchemy"), "SQLite": sqlite_version, "psycopg": version("psycopg")}
    return Found(
        describe_run(name_command("ledger"), {"ledger": versions}),
        recordings,
        measure_buffer(),
        *counts,
        size,
        reports,
        os.getloadavg()[1],
    )


def _count(ledger: Ledger, table: str) -> int:
    with ledger.engine.connect() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one())


def check_limits(sqlite: RecordingCosts, reports: list[ReportCosts]) -> list[tuple[str, ...]]:
    """A row each: the measurement, its limit, the wall-clock time that it is for, the CPU, the result."""
    slowest = max(reports, key=lambda report: report.cost.wall)
    limits = (
        (f"first cycle of {ROWS:,} allocations, SQLite", 2, sqlite.first),
        ("every later cycle, median", 2, sqlite.steady),
        ("every later cycle, slowest", 2, sqlite.slowest),
        (f"report over {DAYS} days of {REPORT_ROWS:,} allocations, by {slowest.by}", 1, slowest.cost),
    )
    return [
        (name, f"{limit} s", f"{cost.wall:.2f} s", f"{cost.cpu:.2f} s", "PASS" if cost.wall <= limit else "MISSED")
        for name, limit, cost in limits
    ]


def render_page(found: Found) -> str:
    limits = check_limits(found.recordings[0], found.reports)
    recordings = [
        (one.database, *(f"{cost.cpu:.2f} / {cost.wall:.2f}" for cost in (one.first, one.steady, one.slowest)))
        for one in found.recordings
    ]
    reports = [(one.by, f"{one.rows:,}", f"{one.cost.cpu:.2f} / {one.cost.wall:.2f}") for one in found.reports]
    return "\n".join(
        [
            render_head("Cost of the ledger", found.about),
            "## Limits\n\n"
            + render_table(("measurement", "limit", "wall-clock time", "CPU", "result"), limits)
            + f"\nWall-clock time includes other load: on average {found.load:.1f} programs competed for the "
            f"{found.about.cores} cores.\n",
            f"## A cycle of {ROWS:,} allocations\n\nSeconds of CPU / wall-clock time, over {CYCLES} cycles "
            "five minutes apart. In the first one all allocations are new; one of the others includes the rollup of an "
            "hour. In every cycle about a third of the verdicts change.\n\n"
            + render_table(("database", "first", "later (median)", "slowest"), recordings),
            f"A cycle that is buffered while the database is unavailable takes {found.kilobytes_buffered:,} kB.\n",
            f"## A report over {DAYS} days\n\n{REPORT_ROWS:,} allocations: {found.hourly_rows:,} hourly and "
            f"{found.daily_rows:,} daily rows, {found.megabytes:,.0f} MB. The daily rows reach back far enough for "
            f"the trend. Seconds of CPU / wall-clock time, median of {ROUNDS}.\n\n"
            + render_table(("by", "rows", "seconds"), reports),
        ]
    )


def measure() -> str:
    with tempfile.TemporaryDirectory(prefix="gpusteward-ledger-") as folder:
        return render_page(run(Path(folder)))


if __name__ == "__main__":
    sys.exit(publish("ledger", measure))
