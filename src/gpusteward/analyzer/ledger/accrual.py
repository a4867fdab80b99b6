"""Pure: what a sheet means for the books. Time becomes GPU-milliseconds, hour by hour, to the last one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.ledger.cycle_record import NOWHERE, UNKNOWN_START, Ids, Sheet
from gpusteward.analyzer.ledger.periods import HOUR_MS, floor_hour
from gpusteward.analyzer.prices import costs_of
from gpusteward.analyzer.tables import ACTIVITIES, Column
from gpusteward.core.verdicts import Activity

BLOCK = 2048
"""Rows that are Python objects at a time: all of 50,000 would be 60 MB for a moment."""
Mask = NDArray[np.bool_]
_ROUNDING = 1e-6
"""A third of 300,000 ms is 100,000 ms, not 99,999: products of floats end just below."""


@dataclass(frozen=True, slots=True)
class Step:
    """A stretch of time within one hour; `seen`: the sheet speaks of it."""

    begin_ms: int
    end_ms: int
    seen: bool

    @property
    def hour_ms(self) -> int:
        return floor_hour(self.begin_ms)


def split_gap(sheet: Sheet, booked_ms: int) -> Iterator[Step]:
    """What lies between the last booked cycle and what this one has seen."""
    return _split(booked_ms, sheet.at_ms - sheet.covered_ms, seen=False)


def split_seen(sheet: Sheet, booked_ms: int) -> Iterator[Step]:
    return _split(max(booked_ms, sheet.at_ms - sheet.covered_ms), sheet.at_ms, seen=True)


def _split(begin_ms: int, end_ms: int, *, seen: bool) -> Iterator[Step]:
    while begin_ms < end_ms:
        until = min(floor_hour(begin_ms) + HOUR_MS, end_ms)
        yield Step(begin_ms, until, seen)
        begin_ms = until


@dataclass(frozen=True, slots=True)
class Spent:
    """The time of one step, by the rows of a sheet: how long each was there, and its GPU-milliseconds."""

    durations: Ids
    allocated: Ids


def spend(sheet: Sheet, step: Step, held: Mask) -> Spent:
    """`held`: who was in the books already.

    Who was not is booked from the start of its pod, where that is known and the sheet speaks of it; else from now on.
    """
    durations = np.maximum(step.end_ms - _begins(sheet, step, held), 0)
    return Spent(durations, np.floor(durations * sheet.weights + _ROUNDING).astype(np.int64))


def book_usage(sheet: Sheet, step: Step, spent: Spent) -> Iterator[list[Sequence[object]]]:
    """The columns of `usage_hourly` for one step, a block at a time."""
    everybody = np.flatnonzero(spent.allocated)
    for first in range(0, len(everybody), BLOCK):
        rows = everybody[first : first + BLOCK]
        allocated = spent.allocated[rows]
        if step.seen:
            yield _book_seen(sheet, step, rows, allocated=allocated, durations=spent.durations[rows])
        else:
            yield _book_unseen(sheet, step, rows, allocated)


def book_fleet(sheet: Sheet, step: Step, spent: Spent) -> list[Sequence[object]]:
    """The columns of `fleet_hourly`. Of a gap as well: nodes are taken to have been there, for what is held on them is
    booked."""
    time, count = step.end_ms - step.begin_ms, len(sheet.fleet)
    nodes, models = [node for node, _ in sheet.fleet], [model for _, model in sheet.fleet]
    times = [gpus * time for gpus in sheet.fleet.values()]
    # Sums of floats, exact: a step of a million GPUs is far below 53 bits.
    held = np.bincount(sheet.places - NOWHERE, weights=spent.allocated, minlength=count + 1)[1:]
    return [[step.hour_ms] * count, nodes, models, times, [time] * count, held.astype(np.int64).tolist()]


def _begins(sheet: Sheet, step: Step, held: Mask) -> Ids:
    if not step.seen:
        return np.where(held, step.begin_ms, step.end_ms)
    started = np.where(sheet.started_ms == UNKNOWN_START, sheet.at_ms, np.maximum(sheet.started_ms, step.begin_ms))
    return np.where(held, step.begin_ms, started)


def _book_unseen(sheet: Sheet, step: Step, rows: NDArray[np.intp], allocated: Ids) -> list[Sequence[object]]:
    nothing, none = [0] * len(rows), [None] * len(rows)
    time, cost = allocated.tolist(), costs_of(allocated, sheet.prices[rows]).tolist()
    amounts = [time, nothing, nothing, time, nothing, nothing, cost]
    return [[step.hour_ms] * len(rows), sheet.ids[rows].tolist(), *amounts, none, *[nothing] * 3, *[none] * 3]


def _book_seen(
    sheet: Sheet, step: Step, rows: NDArray[np.intp], *, allocated: Ids, durations: Ids
) -> list[Sequence[object]]:
    cost = costs_of(allocated, sheet.prices[rows])
    by_activity = [sheet.activity[rows] == ACTIVITIES.index(each) for each in Activity]  # active, idle, unknown
    watts, score = sheet.watts[rows].astype(np.float64), sheet.score[rows].astype(np.float64)
    has_watts, has_score = np.isfinite(watts), np.isfinite(score)
    return [
        [step.hour_ms] * len(rows),
        sheet.ids[rows].tolist(),
        allocated.tolist(),
        *((allocated * mask).tolist() for mask in by_activity),
        *((cost * mask).tolist() for mask in by_activity),
        _whole_or_none(watts * durations),  # watts x milliseconds: millijoules
        (allocated * has_watts).tolist(),
        np.rint(np.where(has_score, score, 0) * allocated).astype(np.int64).tolist(),
        (allocated * has_score).tolist(),
        _or_none(sheet.core_peak[rows]),
        _whole_or_none(sheet.memory_peak[rows]),
        _whole_or_none(sheet.memory_total[rows]),
    ]


def _whole_or_none(column: Column) -> list[int | None]:
    known = np.isfinite(column)
    return _hide(np.rint(np.where(known, column, 0)).astype(np.int64), known)


def _or_none(column: Column) -> list[float | None]:
    return _hide(column, np.isfinite(column))


def _hide(column: NDArray[Any], known: Mask) -> list[Any]:
    values: list[Any] = column.tolist()
    return (
        values if known.all() else [value if is_known else None for value, is_known in zip(values, known, strict=True)]
    )
