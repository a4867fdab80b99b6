"""Time that was recorded as active and turns out to be ineffective.

A verdict says that the work of an allocation is ineffective, and since when. Until that cycle the time was recorded as
active only: from the moment it began, the active time of the hours is now counted as ineffective too, in the same
transaction as the cycle. Later cycles count their own time (`accrual.py`). When work is no longer ineffective, the past
stays as it is.

`ineffective_spells` has the time whose active part is counted already, without overlaps, so that nothing is counted
twice: not by a verdict that comes again after a break, and not after a restart. The row of a spell that has not ended
stands for all time up to the last recorded cycle. It is written when the spell begins and when it ends.

In the hour in which it begins, ineffective is the share of the time after that moment, without the unknown time of the
hour, of which it is not known on which side it lies. So ineffective time is rather too small, never above active time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, Row, bindparam, delete, insert, or_, select, update

from gpusteward.analyzer.ledger.accrual import BLOCK_ROWS, floor_gpu_ms
from gpusteward.analyzer.ledger.cycle_record import UNKNOWN_START, CycleRecord, IntColumn, find_positions
from gpusteward.analyzer.ledger.database.periods import (
    HOUR_MS,
    ROLLED,
    TimeSpan,
    floor_day,
    floor_hour,
    read_oldest_hour,
    read_progress,
)
from gpusteward.analyzer.ledger.database.schema import ineffective_spells, usage_daily, usage_hourly
from gpusteward.analyzer.ledger.database.upsert import add_to_rows

_SPELLS, _USAGE = ineffective_spells.c, usage_hourly.c
_IS_CHOSEN = _SPELLS.allocation_id.in_(bindparam("ids", expanding=True))
_READ = select(ineffective_spells).where(
    _IS_CHOSEN, or_(_SPELLS.ended_ms.is_(None), _SPELLS.ended_ms >= bindparam("since_ms"))
)
_END = update(ineffective_spells).where(_IS_CHOSEN, _SPELLS.ended_ms.is_(None)).values(ended_ms=bindparam("at_ms"))
_DELETE = delete(ineffective_spells).where(
    _SPELLS.allocation_id == bindparam("id"), _SPELLS.started_ms == bindparam("spell_ms")
)
_ACTIVE = select(
    _USAGE.allocation_id,
    _USAGE.active_ms,
    _USAGE.unknown_ms,
    _USAGE.ineffective_ms,
    _USAGE.active_cost,
    _USAGE.ineffective_cost,
).where(
    _USAGE.hour_ms == bindparam("at_ms"),
    _USAGE.allocation_id.in_(bindparam("ids", expanding=True)),
    _USAGE.active_ms > _USAGE.ineffective_ms,
)


class OpenIneffective(NamedTuple):
    """Which allocations were ineffective at the last recorded cycle, by ascending id, and since when."""

    ids: IntColumn
    started_ms: IntColumn


NONE_OPEN = OpenIneffective(np.empty(0, np.int64), np.empty(0, np.int64))


class HourChange(NamedTuple):
    """What is added to one hour of one allocation, by column."""

    hour_ms: int
    allocation_id: int
    amounts: Mapping[str, int]


class _Begin(NamedTuple):
    """From when on the active time of an allocation is ineffective."""

    started_ms: int  # with the spells that this one continues
    first_ms: int  # since then it is not counted yet
    counted_ms: int  # of the hour of `started_ms`, after it
    fraction: float


def write_ineffective(
    connection: Connection, record: CycleRecord, spells: OpenIneffective, recorded_ms: int
) -> OpenIneffective:
    """Count what was recorded before the time that a cycle adds; returns the spells that are open after it."""
    rows = np.flatnonzero(record.ineffective_since_ms != UNKNOWN_START)
    ids, since_ms = record.ids[rows], record.ineffective_since_ms[rows]
    positions = find_positions(ids, spells.ids)
    is_continued = positions >= 0
    is_continued[is_continued] = since_ms[is_continued] <= recorded_ms
    ended = spells.ids[find_positions(spells.ids, ids[is_continued]) < 0]
    for first in range(0, len(ended), BLOCK_ROWS):
        connection.execute(_END, {"ids": ended[first : first + BLOCK_ROWS].tolist(), "at_ms": recorded_ms})
    started_ms = since_ms.copy()
    started_ms[is_continued] = spells.started_ms[positions[is_continued]]
    began = np.flatnonzero(~is_continued | (since_ms < started_ms))
    for first in range(0, len(began), BLOCK_ROWS):
        block = began[first : first + BLOCK_ROWS]
        fractions = record.gpu_fractions[rows[block]].tolist()
        wanted = zip(ids[block].tolist(), since_ms[block].tolist(), fractions, strict=True)
        begins = _write_begins(connection, list(wanted), recorded_ms)
        started_ms[block] = [begins[each].started_ms for each in ids[block].tolist()]
        _write_changes(connection, begins, recorded_ms)
    return OpenIneffective(ids, started_ms)


def read_ineffective(connection: Connection) -> OpenIneffective:
    """The spells that are open."""
    query = select(_SPELLS.allocation_id, _SPELLS.started_ms).where(_SPELLS.ended_ms.is_(None))
    rows = [tuple(row) for row in connection.execute(query.order_by(_SPELLS.allocation_id))]
    return OpenIneffective(*np.array(rows, np.int64).T) if rows else NONE_OPEN


def read_counted(
    connection: Connection, ids: Sequence[int], *, since_ms: int, recorded_ms: int
) -> dict[int, list[TimeSpan]]:
    """The spells of these allocations that reach beyond `since_ms`, in order of time."""
    found: dict[int, list[TimeSpan]] = {}
    for row in connection.execute(_READ.order_by(_SPELLS.started_ms), {"ids": ids, "since_ms": since_ms}):
        ended_ms = recorded_ms if row.ended_ms is None else row.ended_ms
        found.setdefault(row.allocation_id, []).append(TimeSpan(row.started_ms, ended_ms))
    return found


def sum_overlap(spans: Iterable[TimeSpan], begin_ms: int, end_ms: int) -> int:
    """How much of this time is in the spans."""
    return sum(max(0, min(span.end_ms, end_ms) - max(span.begin_ms, begin_ms)) for span in spans)


def add_to_hours(connection: Connection, changes: Sequence[HourChange]) -> None:
    """An hour that is part of its day already is corrected in both tables."""
    rolled_ms = read_progress(connection, ROLLED) or 0
    for table, time in ((usage_hourly, "hour_ms"), (usage_daily, "day_ms")):
        sums: dict[tuple[int, int], dict[str, int]] = {}
        for hour_ms, allocation_id, amounts in changes:
            if table is usage_hourly or hour_ms < rolled_ms:
                key = hour_ms if table is usage_hourly else floor_day(hour_ms), allocation_id
                before = sums.get(key, {})
                sums[key] = {name: before.get(name, 0) + amount for name, amount in amounts.items()}
        columns = {name: [each[name] for each in sums.values()] for name in (changes[0].amounts if sums else ())}
        keys = {time: [at_ms for at_ms, _ in sums], "allocation_id": [each for _, each in sums]}
        add_to_rows(connection, table, {**columns, **keys})


def _write_begins(
    connection: Connection, wanted: Sequence[tuple[int, int, float]], recorded_ms: int
) -> dict[int, _Begin]:
    """Write the spells that begin, each as one with those that it overlaps. `wanted`: id, since when, GPU fraction."""
    earliest_ms = min(since_ms for _, since_ms, _ in wanted)
    counted = read_counted(connection, [each for each, *_ in wanted], since_ms=earliest_ms, recorded_ms=recorded_ms)
    begins, replaced = {}, []
    for allocation_id, since_ms, fraction in wanted:
        spans = [span for span in counted.get(allocation_id, ()) if span.end_ms >= since_ms]
        replaced += [{"id": allocation_id, "spell_ms": span.begin_ms} for span in spans]
        started_ms = first_ms = min([since_ms, *(span.begin_ms for span in spans)])
        for span in spans:
            first_ms = max(first_ms, span.end_ms) if span.begin_ms <= first_ms else first_ms
        in_hour_ms = sum_overlap(spans, started_ms, floor_hour(started_ms) + HOUR_MS)
        begins[allocation_id] = _Begin(started_ms, first_ms, in_hour_ms, fraction)
    if replaced:
        connection.execute(_DELETE, replaced)
    rows = [{"allocation_id": each, "started_ms": begin.started_ms} for each, begin in begins.items()]
    connection.execute(insert(ineffective_spells), rows)
    return begins


def _write_changes(connection: Connection, begins: Mapping[int, _Begin], recorded_ms: int) -> None:
    """One hour after the other: an hour is a contiguous part of the table."""
    oldest_ms = read_oldest_hour(connection)
    first_hour = floor_hour(min(begin.first_ms for begin in begins.values()))
    hours = range(recorded_ms if oldest_ms is None else max(first_hour, oldest_ms), recorded_ms, HOUR_MS)
    for hour_ms in hours:
        concerned = [each for each, begin in begins.items() if begin.first_ms < hour_ms + HOUR_MS]
        rows = connection.execute(_ACTIVE, {"at_ms": hour_ms, "ids": concerned}).all()
        add_to_hours(connection, list(_find_changes(rows, begins, hour_ms=hour_ms, recorded_ms=recorded_ms)))


def _find_changes(
    rows: Iterable[Row[*tuple[Any, ...]]], begins: Mapping[int, _Begin], *, hour_ms: int, recorded_ms: int
) -> Iterator[HourChange]:
    for row in rows:
        begin = begins[row.allocation_id]
        gpu_ms, cost = row.active_ms - row.ineffective_ms, row.active_cost - row.ineffective_cost
        if begin.started_ms > hour_ms:
            after_ms = min(hour_ms + HOUR_MS, recorded_ms) - begin.started_ms - begin.counted_ms
            share_ms = int(floor_gpu_ms(after_ms, begin.fraction)) - row.unknown_ms
            if share_ms < gpu_ms:
                gpu_ms, cost = share_ms, min(cost, row.active_cost * share_ms // row.active_ms)
        if gpu_ms > 0:
            yield HourChange(hour_ms, row.allocation_id, {"ineffective_ms": gpu_ms, "ineffective_cost": cost})
