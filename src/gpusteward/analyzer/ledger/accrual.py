"""Computes the rows that a cycle adds to `usage_hourly` and `fleet_hourly`, hour by hour. Pure: no database.

The idea. A cycle does not measure time, it says what allocations do now. So the time since the last recorded cycle gets
the verdict of this one, for each allocation as far as it existed then. That time is cut at full hours, and each piece
(`HourSlice`) is added to the rows of its hour. Two cycles that follow each other never cover the same moment, so adding
is all that the database has to do, and a report only sums up.

A long time without a cycle has two parts. What the cycle covers, at most three intervals before it, is observed. What
lies before is a gap: who held GPUs before and still does has held them, but what for is unknown. Who is new in this
cycle was not there in the gap, as far as anybody knows, and accrues nothing in it. Holders that ended before the cycle
have rows of their own, for the time that `ended_record.py` has found for them.

What always holds:
- active + idle + unknown = allocated, to the millisecond; the table has it as a constraint. The time of one row has one
  activity per slice, so nothing is divided between them.
- Ineffective time is a part of active time, and so is its cost. It begins where the verdict says, within a slice too.
- The allocations of a GPU never add up to more than the GPU: fractions are rounded down, never up.
- A moment is added once. A slice begins where the progress of the ledger ends, and both are written in one transaction.
- Everything is a whole number (milliseconds, millionths of the currency, millijoules): sums are exact in any order, and
  both databases have the same.
- What is not known stays apart from zero: NULL where there was no power, peak, score or count of tokens, with the time
  for which they were known beside their sums.
- Held time and the time of the fleet come from the same slice, so free GPUs, their difference, cannot be negative
  through rounding.

Without this, a restart or a slow database would count time twice or lose it; a cycle after an outage of a night would
record the night as idle for whoever is idle in the morning; and the parts of a shared GPU would cost more than the GPU.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.ledger.cycle_record import NOT_IN_FLEET, UNKNOWN_START, CycleRecord, IntColumn
from gpusteward.analyzer.ledger.database.periods import HOUR_MS, floor_hour
from gpusteward.analyzer.ledger.database.upsert import Columns
from gpusteward.analyzer.ledger.ended_record import EndedRecord
from gpusteward.analyzer.prices import costs_of
from gpusteward.analyzer.tables import ACTIVITIES, Column
from gpusteward.core.verdicts import Activity

BLOCK_ROWS = 2048
"""Rows that exist as Python objects at a time: all of 50,000 would take 60 MB for a moment."""
Mask = NDArray[np.bool_]
_ROUNDING = 1e-6
"""A third of 300,000 ms is 100,000 ms, not 99,999: products of floats end just below."""


@dataclass(frozen=True, slots=True)
class HourSlice:
    """A time span within one hour; `is_observed`: the cycle covers it."""

    begin_ms: int
    end_ms: int
    is_observed: bool

    @property
    def hour_ms(self) -> int:
        return floor_hour(self.begin_ms)


def split_gap(record: CycleRecord, recorded_ms: int) -> Iterator[HourSlice]:
    """The time after the last recorded cycle that this cycle does not cover: it is recorded as unknown."""
    return split_by_hour(recorded_ms, record.at_ms - record.covered_ms, is_observed=False)


def split_observed(record: CycleRecord, recorded_ms: int) -> Iterator[HourSlice]:
    """The time that this cycle covers and that is not recorded yet."""
    return split_by_hour(max(recorded_ms, record.at_ms - record.covered_ms), record.at_ms, is_observed=True)


def split_by_hour(begin_ms: int, end_ms: int, *, is_observed: bool) -> Iterator[HourSlice]:
    while begin_ms < end_ms:
        slice_end = min(floor_hour(begin_ms) + HOUR_MS, end_ms)
        yield HourSlice(begin_ms, slice_end, is_observed)
        begin_ms = slice_end


@dataclass(frozen=True, slots=True)
class AccruedTime:
    """The time of one slice, by the rows of a cycle record."""

    durations: IntColumn  # milliseconds for which the allocation existed
    allocated: IntColumn  # GPU-milliseconds


def accrue_time(record: CycleRecord, hour_slice: HourSlice, was_held: Mask) -> AccruedTime:
    """`was_held`: allocations that are in the ledger already.

    Others accrue time from the start of their pod, or of their samples where that is not known, as far as it is
    covered; otherwise from now on.
    """
    durations = np.maximum(hour_slice.end_ms - _begin_times(record, hour_slice, was_held), 0)
    return AccruedTime(durations, floor_gpu_ms(durations, record.gpu_fractions))


def accrue_ended_time(record: EndedRecord, hour_slice: HourSlice) -> AccruedTime:
    """The time of holders that ended before the cycle, as far as it is in the slice."""
    begins, ends = np.maximum(record.began_ms, hour_slice.begin_ms), np.minimum(record.ended_ms, hour_slice.end_ms)
    durations = np.maximum(ends - begins, 0)
    return AccruedTime(durations, floor_gpu_ms(durations, record.gpu_fractions))


def floor_gpu_ms(durations: IntColumn | int, fractions: Column | float) -> IntColumn:
    """Rounded down, so that the parts of a GPU never add up to more than the GPU."""
    return np.floor(durations * fractions + _ROUNDING).astype(np.int64)


def _begin_times(record: CycleRecord, hour_slice: HourSlice, was_held: Mask) -> IntColumn:
    if not hour_slice.is_observed:
        return np.where(was_held, hour_slice.begin_ms, hour_slice.end_ms)
    if record.has_returned is not None:
        was_held = was_held & ~record.has_returned  # from the last record until then it was another pod, or nobody
    is_unknown = record.started_ms == UNKNOWN_START
    started = np.where(is_unknown, record.at_ms, np.maximum(record.started_ms, hour_slice.begin_ms))
    return np.where(was_held, hour_slice.begin_ms, started)


def make_usage_rows(record: CycleRecord, hour_slice: HourSlice, time: AccruedTime) -> Iterator[Columns]:
    """Rows of `usage_hourly` for one slice, a block at a time."""
    with_time = np.flatnonzero(time.allocated)
    for first in range(0, len(with_time), BLOCK_ROWS):
        rows = with_time[first : first + BLOCK_ROWS]
        keys = {"hour_ms": [hour_slice.hour_ms] * len(rows), "allocation_id": record.ids[rows].tolist()}
        allocated = time.allocated[rows]
        if hour_slice.is_observed:
            durations = time.durations[rows]
            since_ms = record.ineffective_since_ms[rows]
            shown_ms = np.where(since_ms == UNKNOWN_START, 0, hour_slice.end_ms - since_ms)
            yield keys | _observed_amounts(
                record, rows, allocated=allocated, durations=durations, ineffective=np.clip(shown_ms, 0, durations)
            )
        else:
            yield keys | _unknown_amounts(record, rows, allocated=allocated)


def make_ended_rows(record: EndedRecord, hour_slice: HourSlice, time: AccruedTime) -> Columns:
    """Rows of `usage_hourly` of holders that ended. Where work was seen, the time is active, as for others; that a GPU
    was idle nobody knows without a whole window."""
    rows = np.flatnonzero(time.allocated)
    ids, first, of_id = np.unique(record.ids[rows], return_index=True, return_inverse=True)

    def add_up(amounts: IntColumn) -> IntColumn:
        """Of holders with the same id: the database changes a row only once per statement."""
        sums = np.zeros(len(ids), np.int64)
        np.add.at(sums, of_id, amounts)
        return sums

    allocated, worked = time.allocated[rows], record.has_worked[rows]
    cost = costs_of(allocated, record.prices[rows])
    by_activity = {
        "active_ms": add_up(allocated * worked).tolist(),
        "unknown_ms": add_up(allocated * ~worked).tolist(),
        "active_cost": add_up(cost * worked).tolist(),
        "unknown_cost": add_up(cost * ~worked).tolist(),
    }
    keys = {"hour_ms": [hour_slice.hour_ms] * len(ids), "allocation_id": ids.tolist()}
    return keys | _unknown_amounts(record, rows[first], allocated=add_up(allocated)) | by_activity


def make_fleet_rows(
    record: CycleRecord, hour_slice: HourSlice, time: AccruedTime, ended: AccruedTime | None = None
) -> Columns:
    """Rows of `fleet_hourly`. In a gap, nodes are assumed to exist, since allocations on them accrue time too."""
    duration_ms, count = hour_slice.end_ms - hour_slice.begin_ms, len(record.fleet)
    # Sums of floats, but exact: a slice of a million GPUs is far below 53 bits.
    held = np.bincount(record.fleet_rows - NOT_IN_FLEET, weights=time.allocated, minlength=count + 1)[1:]
    if ended is not None:
        rows = record.ended.fleet_rows - NOT_IN_FLEET
        held = held + np.bincount(rows, weights=ended.allocated, minlength=count + 1)[1:]  # of ints where none is held
    return {
        "hour_ms": [hour_slice.hour_ms] * count,
        "cluster": [key.cluster for key in record.fleet],
        "node": [key.node for key in record.fleet],
        "model": [key.model for key in record.fleet],
        "gpu_ms": [gpus * duration_ms for gpus in record.fleet.values()],
        "known_ms": [duration_ms] * count,
        "held_ms": held.astype(np.int64).tolist(),
    }


def _unknown_amounts(
    record: CycleRecord | EndedRecord, rows: NDArray[np.intp], *, allocated: IntColumn
) -> dict[str, list[Any]]:
    zeros, nulls = [0] * len(rows), [None] * len(rows)
    allocated_ms = allocated.tolist()
    return {
        "allocated_ms": allocated_ms,
        "active_ms": zeros,
        "idle_ms": zeros,
        "unknown_ms": allocated_ms,
        "active_cost": zeros,
        "idle_cost": zeros,
        "unknown_cost": costs_of(allocated, record.prices[rows]).tolist(),
        "ineffective_ms": zeros,
        "ineffective_cost": zeros,
        "energy_mj": nulls,
        "energy_ms": zeros,
        "score_ms_sum": zeros,
        "scored_ms": zeros,
        "tokens": nulls,
        "served_ms": zeros,
        "served_cost": zeros,
        "core_peak": nulls,
        "memory_peak_bytes": nulls,
        "memory_total_bytes": nulls,
    }


def _observed_amounts(
    record: CycleRecord,
    rows: NDArray[np.intp],
    *,
    allocated: IntColumn,
    durations: IntColumn,
    ineffective: IntColumn,
) -> dict[str, list[Any]]:
    """`ineffective`: of the durations, in milliseconds."""
    cost, activity = costs_of(allocated, record.prices[rows]), record.activity[rows]
    masks = {each.value: activity == ACTIVITIES.index(each) for each in Activity}  # active, idle, unknown
    watts, score = record.watts[rows].astype(np.float64), record.score[rows].astype(np.float64)
    has_watts, has_score = np.isfinite(watts), np.isfinite(score)
    tokens = record.tokens_per_second[rows] * durations / 1000
    is_served = np.isfinite(tokens)
    ineffective_ms = floor_gpu_ms(ineffective, record.gpu_fractions[rows])
    return {
        "allocated_ms": allocated.tolist(),
        **{f"{name}_ms": (allocated * mask).tolist() for name, mask in masks.items()},
        **{f"{name}_cost": (cost * mask).tolist() for name, mask in masks.items()},
        "ineffective_ms": ineffective_ms.tolist(),
        "ineffective_cost": costs_of(ineffective_ms, record.prices[rows]).tolist(),
        "energy_mj": _to_integers(watts * durations),  # watts x milliseconds = millijoules
        "energy_ms": (allocated * has_watts).tolist(),
        "score_ms_sum": np.rint(np.where(has_score, score, 0) * allocated).astype(np.int64).tolist(),
        "scored_ms": (allocated * has_score).tolist(),
        "tokens": _to_integers(tokens),
        "served_ms": (allocated * is_served).tolist(),
        "served_cost": (cost * is_served).tolist(),
        "core_peak": _with_nulls(record.core_peak[rows], np.isfinite(record.core_peak[rows])),
        "memory_peak_bytes": _to_integers(record.memory_peak[rows]),
        "memory_total_bytes": _to_integers(record.memory_total[rows]),
    }


def _to_integers(column: Column) -> list[int | None]:
    """Rounded; None where the value is unknown."""
    is_known = np.isfinite(column)
    return _with_nulls(np.rint(np.where(is_known, column, 0)).astype(np.int64), is_known)


def _with_nulls(column: NDArray[Any], is_known: Mask) -> list[Any]:
    values: list[Any] = column.tolist()
    if is_known.all():
        return values
    return [value if known else None for value, known in zip(values, is_known, strict=True)]
