"""Writes rows directly into the tables of a ledger, so that a test knows every number.

with open_ledger_rows(database_url) as ledger:
    ledger.hold(1, namespace="vision", model=A100)
    ledger.use(1, hour=0, active=HOUR_MS)
    ledger.record_until(1)
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import SecretStr
from sqlalchemy import Engine, delete, func, insert, select, update

from gpusteward.analyzer.ledger.database.db_engine import open_engine, with_write_lock
from gpusteward.analyzer.ledger.database.periods import HOUR_MS, RECORDED
from gpusteward.analyzer.ledger.database.retention import roll_up
from gpusteward.analyzer.ledger.database.schema import (
    METADATA,
    allocations,
    fleet_hourly,
    progress,
    usage_hourly,
    verdict_changes,
)
from gpusteward.analyzer.settings.ledger import LedgerSettings

BEGIN_MS = 1_762_905_600_000  # 2025-11-12 00:00 UTC
A100, H100, T4 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "Tesla T4"
GIB = 1 << 30
PRICES = {A100: 2_000_000, H100: 3_500_000, T4: 400_000}  # micros per GPU-hour


def at(hours: float) -> int:
    """This many hours after the ledger begins."""
    return BEGIN_MS + round(hours * HOUR_MS)


class LedgerRows:
    """A ledger."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._models: dict[int, str] = {}
        METADATA.create_all(with_write_lock(engine))

    def hold(self, number: int, **given: Any) -> None:
        """An allocation; columns that are not given are derived from its number."""
        row = {
            "id": number,
            "namespace": "team",
            "pod": f"pod-{number}",
            "pod_uid": f"uid-{number}",
            "container": "main",
            "owner_kind": "Job",
            "owner_name": f"job-{number}",
            "user_name": "",
            "node": "node-1",
            "gpu_uuid": f"GPU-{number}",
            "gpu_instance": "",
            "gpu_index": "0",
            "model": A100,
            "share": "",
            "first_ms": BEGIN_MS,
            "last_ms": BEGIN_MS,
            "ended_ms": None,
            **given,
        }
        self._models[number] = row["model"]
        self._insert(allocations, [row])

    def use(self, number: int, *, hour: int, **given: Any) -> None:
        """GPU-milliseconds of one hour; `active`, `idle`, `unknown`, and any column by its name."""
        self.use_all([make_usage(number, hour=hour, price=PRICES.get(self._models[number], 0), **given)])

    def use_all(self, rows: list[Mapping[str, Any]]) -> None:
        self._insert(usage_hourly, rows)

    def judge(self, at_ms: int, **given: Any) -> None:
        """A change of the verdict of a workload."""
        row = {
            "at_ms": at_ms,
            "owner_kind": "Job",
            "namespace": "team",
            "state": "normal",
            "score": None,
            "gpus": 1,
            "idle_gpus": 0,
            "idle_since_ms": None,
            **given,
        }
        self._insert(verdict_changes, [row])

    def add_fleet(self, *hours: int, gpu_ms: int, node: str = "node-1", model: str = A100) -> None:
        """The time of all GPUs of a node, of one model, in each of these hours. `record_until` adds what was held."""
        row = {"node": node, "model": model, "gpu_ms": gpu_ms, "known_ms": HOUR_MS, "held_ms": 0}
        self._insert(fleet_hourly, [{"hour_ms": at(hour), **row} for hour in hours])

    def record_until(self, hours: float) -> None:
        """The last cycle ended then; finished hours are rolled up as the ledger does it."""
        fleet, usage = fleet_hourly.c, usage_hourly.c
        held = (
            select(func.coalesce(func.sum(usage.allocated_ms), 0))
            .join(allocations, allocations.c.id == usage.allocation_id)
            .where(usage.hour_ms == fleet.hour_ms, allocations.c.node == fleet.node)
        )
        with with_write_lock(self.engine).begin() as connection:
            connection.execute(update(fleet_hourly).values(held_ms=held.scalar_subquery()))
            connection.execute(delete(progress).where(progress.c.name == RECORDED))
        self._insert(progress, [{"name": RECORDED, "at_ms": at(hours)}])
        while roll_up(self.engine):
            pass

    def delete_hours(self, *, before: int) -> None:
        """As retention does with whole days."""
        with with_write_lock(self.engine).begin() as connection:
            for table in (usage_hourly, fleet_hourly):
                connection.execute(table.delete().where(table.c.hour_ms < at(before)))

    def wipe(self) -> None:
        """Delete all rows, for the next example of a property."""
        with with_write_lock(self.engine).begin() as connection:
            for table in reversed(METADATA.sorted_tables):
                connection.execute(delete(table))

    def _insert(self, table: Any, rows: list[Mapping[str, Any]]) -> None:
        with with_write_lock(self.engine).begin() as connection:
            connection.execute(insert(table), rows)


def make_usage(
    number: int,
    *,
    hour: int,
    active: int = 0,
    idle: int = 0,
    unknown: int = 0,
    ineffective: int = 0,
    price: int = 0,
    **given: Any,
) -> dict[str, Any]:
    """One row of an hour. `ineffective`: of the active time."""
    return {
        "hour_ms": at(hour),
        "allocation_id": number,
        "allocated_ms": active + idle + unknown,
        "active_ms": active,
        "idle_ms": idle,
        "unknown_ms": unknown,
        "active_cost": active * price // HOUR_MS,
        "idle_cost": idle * price // HOUR_MS,
        "unknown_cost": unknown * price // HOUR_MS,
        "ineffective_ms": ineffective,
        "ineffective_cost": ineffective * price // HOUR_MS,
        "energy_mj": None,
        "energy_ms": 0,
        "score_ms_sum": 0,
        "scored_ms": 0,
        "tokens": None,
        "served_ms": 0,
        "served_cost": 0,
        "core_peak": None,
        "memory_peak_bytes": None,
        "memory_total_bytes": None,
        **given,
    }


@contextmanager
def open_ledger_rows(url: str) -> Iterator[LedgerRows]:
    engine = open_engine(LedgerSettings(url=SecretStr(url)).locate())
    try:
        yield LedgerRows(engine)
    finally:
        engine.dispose()
