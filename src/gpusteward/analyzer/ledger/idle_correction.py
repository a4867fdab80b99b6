"""Time that was recorded as active and turns out to be idle.

A verdict is idle only when no work was seen for a whole window, and then says since when. Until that cycle the time was
recorded as active: it is moved to idle in the same transaction as the cycle. What is moved follows from the record and
the tables alone, so that a restart changes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, Row, Table, select

from gpusteward.analyzer.ledger.accrual import BLOCK_ROWS, floor_gpu_ms
from gpusteward.analyzer.ledger.cycle_record import CycleRecord
from gpusteward.analyzer.ledger.periods import HOUR_MS, ROLLED, floor_day, floor_hour, read_progress
from gpusteward.analyzer.ledger.schema import time_column, usage_daily, usage_hourly
from gpusteward.analyzer.ledger.upsert import USAGE_RULES, upsert


class _Move(NamedTuple):
    """From active to idle, in one hour of one allocation."""

    hour_ms: int
    allocation_id: int
    gpu_ms: int
    cost: int


def correct_idle_time(connection: Connection, record: CycleRecord, recorded_ms: int) -> None:
    """Move what was recorded as active since each allocation became idle.

    Only for allocations that were not recorded as idle yet, so that nothing is moved twice: at the last recorded cycle
    their work was less than a window ago.
    """
    starts = record.idle_starts
    turned = np.flatnonzero(starts.worked_ms > recorded_ms - record.window_ms).tolist()
    for first in range(0, len(turned), BLOCK_ROWS):
        since = {int(record.ids[starts.rows[each]]): each for each in turned[first : first + BLOCK_ROWS]}
        _write_moves(connection, list(_find_moves(connection, record, since, recorded_ms=recorded_ms)))


def _find_moves(
    connection: Connection, record: CycleRecord, numbers: Mapping[int, int], *, recorded_ms: int
) -> Iterator[_Move]:
    """`numbers`: the number among `idle_starts` of each allocation."""
    usage, starts = usage_hourly.c, record.idle_starts
    first_hour = floor_hour(int(starts.since_ms[list(numbers.values())].min()))
    columns = (usage.hour_ms, usage.allocation_id, usage.active_ms, usage.active_cost, usage.unknown_ms)
    is_concerned = (usage.allocation_id.in_(list(numbers)), usage.hour_ms >= first_hour, usage.active_ms > 0)
    for row in connection.execute(select(*columns).where(*is_concerned)):
        number = numbers[row.allocation_id]
        fraction = float(record.gpu_fractions[starts.rows[number]])
        gpu_ms = _count_idle(row, int(starts.since_ms[number]), fraction, recorded_ms)
        if gpu_ms > 0:
            yield _Move(row.hour_ms, row.allocation_id, gpu_ms, row.active_cost * gpu_ms // row.active_ms)


def _count_idle(row: Row[Any, Any, Any, Any, Any], since_ms: int, fraction: float, recorded_ms: int) -> int:
    """The active time of an hour after `since_ms`. After it only active and unknown time was recorded; it is not known
    which part of the unknown time of the hour lies before it, so all of it counts as after it."""
    if row.hour_ms >= since_ms:
        return int(row.active_ms)
    after_ms = min(row.hour_ms + HOUR_MS, recorded_ms) - since_ms
    return min(int(row.active_ms), int(floor_gpu_ms(after_ms, fraction)) - int(row.unknown_ms))


def _write_moves(connection: Connection, moves: Sequence[_Move]) -> None:
    """An hour that is part of its day already is corrected in both tables."""
    rolled_ms = read_progress(connection, ROLLED) or 0
    _add(connection, usage_hourly, moves)
    _add(connection, usage_daily, [move for move in moves if move.hour_ms < rolled_ms])


def _add(connection: Connection, table: Table, moves: Sequence[_Move]) -> None:
    """PostgreSQL changes a row only once per statement, so the moves of one row are summed first."""
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for move in moves:
        key = (move.hour_ms if table is usage_hourly else floor_day(move.hour_ms), move.allocation_id)
        gpu_ms, cost = sums.get(key, (0, 0))
        sums[key] = gpu_ms + move.gpu_ms, cost + move.cost
    unchanged = {column.name: [None if column.nullable else 0] * len(sums) for column in table.columns}
    keys = {time_column(table).name: [at for at, _ in sums], "allocation_id": [each for _, each in sums]}
    idle = {"idle_ms": [gpu_ms for gpu_ms, _ in sums.values()], "idle_cost": [cost for _, cost in sums.values()]}
    active = {name.replace("idle", "active"): [-each for each in column] for name, column in idle.items()}
    upsert(connection, table, {**unchanged, **keys, **idle, **active}, USAGE_RULES)
