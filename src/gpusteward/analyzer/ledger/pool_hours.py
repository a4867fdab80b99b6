"""What the replicas of pools did in each minute: one row per pool and hour.

The pool rule reads them a week back, and replay as far as they are kept.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from msgspec.json import decode, encode
from sqlalchemy import Connection, Engine, Row, select

from gpusteward.analyzer.ledger.database.schema import pool_hours
from gpusteward.analyzer.ledger.database.upsert import REPLACE, upsert
from gpusteward.analyzer.ledger.snoozes import clean_workload
from gpusteward.analyzer.pool_minutes import UNKNOWN, Counts, PoolMinutes
from gpusteward.core.node.containers import WorkloadKey

HOUR_MINUTES = 60
_MINUTE_MS = 60_000
_COUNTS = ("active", "ready", "wanted")
_RULES = {column.name: REPLACE for column in pool_hours.columns}


class _Hour(NamedTuple):
    """The key of a row."""

    minute: int
    workload: WorkloadKey


def write_minutes(
    connection: Connection, pools: Mapping[WorkloadKey, PoolMinutes], *, since: int, is_backfill: bool = False
) -> None:
    """From the minute `since` on. What is known of a minute replaces what is recorded; in a back-fill what is recorded
    stays. Raises SQLAlchemyError."""
    first = since // HOUR_MINUTES * HOUR_MINUTES
    hours = {
        _Hour(minute, clean_workload(key)): minutes.slice(minute, minute + HOUR_MINUTES)
        for key, minutes in pools.items()
        for minute in range(max(first, minutes.first // HOUR_MINUTES * HOUR_MINUTES), minutes.end, HOUR_MINUTES)
    }
    if not hours:
        return
    times = [each.minute * _MINUTE_MS for each in hours]
    is_within = pool_hours.c.hour_ms.between(min(times), max(times))
    recorded = {_read_key(row): _read_row(row) for row in connection.execute(select(pool_hours).where(is_within))}
    rows = []
    for hour, minutes in hours.items():
        old = recorded.get(hour)
        joined = _merge(old, minutes) if is_backfill else _merge(minutes, old)
        rows.append(_make_row(hour, joined, minutes))
    upsert(connection, pool_hours, {name: [row[name] for row in rows] for name in rows[0]}, _RULES)


def read_minutes(engine: Engine, *, since: float, until: float | None = None) -> dict[WorkloadKey, PoolMinutes]:
    """Of every pool, from the hour of a time (unix seconds) on. Raises SQLAlchemyError."""
    query = select(pool_hours).where(pool_hours.c.hour_ms >= int(since // 3600) * 3_600_000)
    if until is not None:
        query = query.where(pool_hours.c.hour_ms < until * 1000)
    parts: dict[WorkloadKey, list[PoolMinutes]] = {}
    with engine.connect() as connection:
        for row in connection.execute(query.order_by(pool_hours.c.hour_ms)):
            parts.setdefault(_read_key(row).workload, []).append(_read_row(row))
    return {key: _join(own) for key, own in parts.items()}


def _join(hours: list[PoolMinutes]) -> PoolMinutes:
    first, end = hours[0].first, hours[-1].end
    columns = {name: np.full(end - first, UNKNOWN, np.int16) for name in _COUNTS}
    for hour in hours:
        for name, column in columns.items():
            column[hour.first - first : hour.end - first] = getattr(hour, name)
    known = np.flatnonzero(columns["wanted"] >= 0)  # the last hour is not over, and the first one began within it
    joined = PoolMinutes(
        first, columns["active"], columns["ready"], columns["wanted"], hours[-1].gpus, hours[-1].start_seconds
    )
    return joined.slice(first + int(known[0]), first + int(known[-1]) + 1) if len(known) else joined.slice(end, end)


def _merge(newer: PoolMinutes | None, older: PoolMinutes | None) -> dict[str, Counts]:
    """Of one hour, whole."""
    found = {name: np.full(HOUR_MINUTES, UNKNOWN, np.int16) for name in _COUNTS}
    for part in (older, newer):
        for name, column in found.items():
            if part is not None and len(part):
                begin = part.first % HOUR_MINUTES
                values: Counts = getattr(part, name)
                place = column[begin : begin + len(part)]
                column[begin : begin + len(part)] = np.where(part.wanted >= 0, values, place)
    return found


def _make_row(hour: _Hour, counts: Mapping[str, Counts], minutes: PoolMinutes) -> dict[str, object]:
    key = hour.workload
    texts = {name: encode(column.tolist()).decode() for name, column in counts.items()}
    return {
        "hour_ms": hour.minute * _MINUTE_MS,
        "cluster": key.cluster,
        "namespace": key.namespace,
        "owner_kind": key.kind,
        "owner_name": key.name,
        **texts,
        "gpus": minutes.gpus,
        "start_seconds": minutes.start_seconds,
    }


def _read_key(row: Row[tuple[object, ...]]) -> _Hour:
    return _Hour(row.hour_ms // _MINUTE_MS, WorkloadKey(row.owner_kind, row.namespace, row.owner_name, row.cluster))


def _read_row(row: Row[tuple[object, ...]]) -> PoolMinutes:
    active, ready, wanted = (np.array(decode(getattr(row, name)), np.int16) for name in _COUNTS)
    return PoolMinutes(row.hour_ms // _MINUTE_MS, active, ready, wanted, row.gpus, row.start_seconds)
