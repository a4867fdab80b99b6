"""Makes cycles to record, and reads ledgers to compare."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine, select

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.ledger.database.periods import HOUR_MS
from gpusteward.analyzer.ledger.database.schema import METADATA, usage_hourly
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.settings import SchedulerSettings, Settings
from gpusteward.analyzer.tables import EndedHolder, NodeModel
from gpusteward.core.usages import AllocationKey
from tests.analyzer.usage_tables import allocation, resting, table_of, working

START = 1_790_002_800.0  # a full hour
INTERVAL = 300
MINUTE_MS = 60_000
WORKING, RESTING, UNREAD = working(), resting(), {}
SETTINGS = Settings(prices=PriceSettings(per_gpu_hour={"*": 2.0}), scheduler=SchedulerSettings(interval=INTERVAL))

PARTS = ("allocated", "active", "idle", "unknown")

Rows = Sequence[tuple[AllocationKey, Mapping[Any, float]]]


def cycle(
    rows: Rows,
    at: float,
    *,
    settings: Settings = SETTINGS,
    fleet: Mapping[Any, int] | None = None,
    coverage: float | Sequence[float] = 1.0,
    ended: Sequence[EndedHolder] = (),
    ineffective_since: Sequence[float] = (),
) -> Result:
    """The result that the analyzer would make of these rows at this time. `ineffective_since`: unix seconds by row."""
    table = table_of(*(stats for _, stats in rows), allocations=[held for held, _ in rows], coverage=coverage, at=at)
    if not rows:
        table = replace(table, allocations=[])
    table = replace(table, ended=ended, fleet={NodeModel(*key): gpus for key, gpus in (fleet or {}).items()})
    verdicts, _ = judge(table, settings.rules, VerdictHistory(), now=at)
    if ineffective_since:
        verdicts = replace(verdicts, ineffective_since=np.array(ineffective_since, np.float64))
    return Result(1, at, 0.1, settings, verdicts, judge_workloads(verdicts, settings.rules))


def cycles(rows: Rows, minutes: Iterable[float], **options: Any) -> list[Result]:
    """The same rows at these minutes after the start."""
    return [cycle(rows, START + 60 * minute, **options) for minute in minutes]


def remember(results: Iterable[Result]) -> list[Result]:
    """The same cycles of one analyzer, which remembers since when its workloads are idle."""
    history, found = VerdictHistory(), []
    for result in results:
        verdicts, history = judge(result.verdicts.usage, result.settings.rules, history, now=result.at)
        workloads = judge_workloads(verdicts, result.settings.rules)
        found.append(replace(result, verdicts=verdicts, workloads=workloads))
    return found


def open_ledger(url: str, **options: Any) -> Ledger:
    return Ledger(LedgerSettings(url=url, **options))


def record_all(url: str, results: Iterable[Result], **options: Any) -> None:
    ledger = open_ledger(url, **options)
    for result in results:
        ledger.record(result)
    assert ledger.describe()["error"] == ""
    ledger.close()


def read_table(engine: Engine, name: str) -> list[dict[str, Any]]:
    table = METADATA.tables[name]
    with engine.connect() as connection:
        rows = connection.execute(select(table).order_by(*table.primary_key.columns)).mappings()
        return [dict(row) for row in rows]


def read_ledger(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    """All rows by table, in the order of the primary keys."""
    return {name: read_table(engine, name) for name in METADATA.tables}


def hourly(engine: Engine, *, pod: str = "pod-0") -> list[dict[str, Any]]:
    """The hours of the allocations of one pod."""
    ids = {row["id"] for row in read_table(engine, "allocations") if row["pod"] == pod}
    return [row for row in read_table(engine, usage_hourly.name) if row["allocation_id"] in ids]


def minutes_of(row: Mapping[str, Any]) -> tuple[float, float, float, float]:
    """Allocated, active, idle, unknown."""
    allocated, active, idle, unknown = (row[f"{name}_ms"] / MINUTE_MS for name in PARTS)
    return allocated, active, idle, unknown


def hour(number: int = 0) -> int:
    return int(START * 1000) + number * HOUR_MS


def random_cycles(count: int, *, seed: int, most: int = 12, step: float = INTERVAL) -> list[Result]:
    """Pods that start, end, work, some of it ineffective, and are idle, with gaps; the same for the same seed."""
    chance, shown = np.random.default_rng(seed), np.random.default_rng(seed)
    at, results = START, []
    for _ in range(count):
        at += step * float(chance.choice([1, 1, 1, 2, 30]))
        there = np.flatnonzero(chance.random(most) < 0.8)
        rows = [
            (allocation(int(number), started_at=START), (WORKING, RESTING, UNREAD)[int(chance.integers(3))])
            for number in there
        ]
        since = np.where(shown.random(len(rows)) < 0.4, at - shown.integers(1, 9000, len(rows)), np.nan)
        results.append(cycle(rows, at, fleet={("node-0", "H100"): 8}, ineffective_since=since.tolist()))
    return results


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'ledger.db'}"
