"""Time that was recorded as active and turns out to be idle.

A verdict is idle only when no work was seen for a whole window, and then says since when. Until that cycle the time was
recorded as active: it is moved to idle in the same transaction as the cycle. What of it was counted as ineffective is
not any more, because that is a part of active time. What is moved follows from the record and the tables alone, so that
a restart changes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, select

from gpusteward.analyzer.ledger.accrual import BLOCK_ROWS, floor_gpu_ms
from gpusteward.analyzer.ledger.cycle_record import CycleRecord
from gpusteward.analyzer.ledger.database.periods import HOUR_MS, TimeSpan, floor_hour
from gpusteward.analyzer.ledger.database.schema import usage_hourly
from gpusteward.analyzer.ledger.ineffective_time import HourChange, add_to_hours, read_counted, sum_overlap


def correct_idle_time(connection: Connection, record: CycleRecord, recorded_ms: int) -> None:
    """Move what was recorded as active since each allocation became idle.

    Only for allocations that were not recorded as idle yet, so that nothing is moved twice: at the last recorded cycle
    their work was less than a window ago.
    """
    starts = record.idle_starts
    turned = np.flatnonzero(starts.worked_ms > recorded_ms - record.window_ms).tolist()
    for first in range(0, len(turned), BLOCK_ROWS):
        since = {int(record.ids[starts.rows[each]]): each for each in turned[first : first + BLOCK_ROWS]}
        add_to_hours(connection, list(_find_moves(connection, record, since, recorded_ms=recorded_ms)))


def _find_moves(
    connection: Connection, record: CycleRecord, numbers: Mapping[int, int], *, recorded_ms: int
) -> Iterator[HourChange]:
    """`numbers`: the number among `idle_starts` of each allocation."""
    usage, starts = usage_hourly.c, record.idle_starts
    earliest_ms = int(starts.since_ms[list(numbers.values())].min())
    counted = read_counted(connection, list(numbers), since_ms=earliest_ms, recorded_ms=recorded_ms)
    columns = (
        *(usage.hour_ms, usage.allocation_id, usage.active_ms, usage.active_cost, usage.unknown_ms),
        *(usage.ineffective_ms, usage.ineffective_cost),
    )
    hours = (usage.hour_ms >= floor_hour(earliest_ms), usage.active_ms > 0)
    for row in connection.execute(select(*columns).where(usage.allocation_id.in_(list(numbers)), *hours)):
        number = numbers[row.allocation_id]
        since_ms, fraction = int(starts.since_ms[number]), float(record.gpu_fractions[starts.rows[number]])
        gpu_ms = _count_idle(row, since_ms, fraction, recorded_ms)
        if gpu_ms > 0:
            cost = row.active_cost * gpu_ms // row.active_ms
            less = _count_ineffective(row, since_ms, counted.get(row.allocation_id, ()), fraction, gpu_ms)
            less_cost = row.ineffective_cost * less // row.ineffective_ms if less else 0
            less_cost = max(less_cost, row.ineffective_cost - (row.active_cost - cost))
            idle = {"idle_ms": gpu_ms, "idle_cost": cost, "active_ms": -gpu_ms, "active_cost": -cost}
            ineffective = {"ineffective_ms": -less, "ineffective_cost": -less_cost}
            yield HourChange(row.hour_ms, row.allocation_id, idle | ineffective)


def _count_idle(row: Row[*tuple[Any, ...]], since_ms: int, fraction: float, recorded_ms: int) -> int:
    """The active time of an hour after `since_ms`. After it only active and unknown time was recorded; it is not known
    which part of the unknown time of the hour lies before it, so all of it counts as after it."""
    if row.hour_ms >= since_ms:
        return int(row.active_ms)
    after_ms = min(row.hour_ms + HOUR_MS, recorded_ms) - since_ms
    return min(int(row.active_ms), int(floor_gpu_ms(after_ms, fraction)) - int(row.unknown_ms))


def _count_ineffective(
    row: Row[*tuple[Any, ...]], since_ms: int, counted: Sequence[TimeSpan], fraction: float, gpu_ms: int
) -> int:
    """How much of the time that is moved was counted as ineffective."""
    overlap_ms = sum_overlap(counted, max(row.hour_ms, since_ms), row.hour_ms + HOUR_MS)
    most = min(int(row.ineffective_ms), gpu_ms, int(floor_gpu_ms(overlap_ms, fraction)))
    return max(most, int(row.ineffective_ms) - (int(row.active_ms) - gpu_ms))
