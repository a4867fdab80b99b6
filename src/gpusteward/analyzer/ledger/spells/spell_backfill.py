"""Writes idle spells, and minutes of pools, of the time before the first recorded cycle, made of past cycles.

Spells are followed as those of live cycles are, and written in chunks. Rows of back-filled spells always have an end,
since the analyzer takes those without one for its own: a spell that goes on is written as lost at the end of the chunk,
and the next chunk replaces the row. So a run can stop at any time; the next one continues the spells that were lost
when it stopped.

Recorded rows do not change, except that an allocation was first observed earlier. A back-filled spell ends at the
latest where the first recorded spell of its allocation begins.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, Engine, delete, func, or_, select, update

from gpusteward.analyzer.ledger.accrual import BLOCK_ROWS
from gpusteward.analyzer.ledger.cycle_record import (
    NO_ALLOCATIONS,
    IntColumn,
    find_positions,
    make_cycle_record,
)
from gpusteward.analyzer.ledger.database.db_engine import with_write_lock
from gpusteward.analyzer.ledger.database.periods import (
    BEGAN,
    FILLED_FROM,
    FILLED_TO,
    lock_progress,
    read_began,
    read_progress,
    set_progress,
)
from gpusteward.analyzer.ledger.database.schema import allocations, idle_spells
from gpusteward.analyzer.ledger.database.upsert import KEEP, upsert
from gpusteward.analyzer.ledger.identities import NewAllocations, PodLabels
from gpusteward.analyzer.ledger.pool_hours import write_minutes
from gpusteward.analyzer.ledger.spells.idle_spells import (
    NO_SPELLS,
    OpenSpells,
    follow_spells,
    read_last_lost,
    write_rows,
)
from gpusteward.analyzer.ledger.verdict_changes import VerdictChanges
from gpusteward.analyzer.pool_minutes import PoolMinutes
from gpusteward.analyzer.results import Result
from gpusteward.core.errors import SourceError
from gpusteward.core.idle_spells import SpellEnd
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.messages.errors import ledger_errors

_NO_LATER = 1 << 62
_EARLIER = "CASE WHEN excluded.{name} < {table}.{name} THEN excluded.{name} ELSE {table}.{name} END"
_LATER = "CASE WHEN excluded.{name} > {table}.{name} THEN excluded.{name} ELSE {table}.{name} END"
_RULES = {column.name: KEEP for column in allocations.columns} | {
    "first_ms": _EARLIER,
    "last_ms": _LATER,
    "ended_ms": _LATER,  # NULL stays: it is held now
}


class FilledTime(NamedTuple):
    """The time whose spells are back-filled; None: none is."""

    from_ms: int | None
    to_ms: int | None


class UnfilledTime(NamedTuple):
    """Time to fill. Where the filled time is continued, its last spells may go on."""

    begin_ms: int
    end_ms: int
    continues: bool = False


def find_unfilled(engine: Engine, *, since_ms: int, now_ms: int, window_ms: int) -> list[UnfilledTime]:
    """The time since then that is neither recorded nor back-filled, up to the first recorded window. What an earlier
    run has begun is continued. Raises SQLAlchemyError."""
    with engine.connect() as connection:
        began_ms, filled = read_began(connection), _read_filled(connection)
    until_ms = _floor_second((now_ms if began_ms is None else began_ms) - window_ms)
    since_ms = _floor_second(since_ms)
    spans = [UnfilledTime(since_ms, until_ms)]
    if filled.from_ms is not None and filled.to_ms is not None:
        spans = [UnfilledTime(since_ms, filled.from_ms), UnfilledTime(filled.to_ms, until_ms, continues=True)]
    return [span for span in spans if span.begin_ms < span.end_ms]


def count_spells(engine: Engine, *, begin_ms: int, end_ms: int) -> int:
    """The spells that ended in this time. Raises SQLAlchemyError."""
    is_within = (idle_spells.c.ended_ms > begin_ms, idle_spells.c.ended_ms <= end_ms)
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(idle_spells).where(*is_within)).scalar_one()


class SpellBackfill:
    """Fills one span. For one thread; other programs may write to the ledger, except another back-fill."""

    def __init__(self, engine: Engine, span: UnfilledTime, *, window_ms: int, pod_labels: PodLabels) -> None:
        """Raises SQLAlchemyError."""
        self._engine = with_write_lock(engine)
        self._span, self._pod_labels = span, pod_labels
        with engine.connect() as connection:
            self._filled = _read_filled(connection)
            self._open = read_last_lost(connection, span.begin_ms, window_ms) if span.continues else NO_SPELLS
        self._is_earlier = self._filled.from_ms is not None and not span.continues
        self._is_cleared = False
        self._released = NO_SPELLS
        self._ended: list[tuple[SpellEnd, OpenSpells]] = []
        self._held = NO_ALLOCATIONS
        self._new: list[tuple[int, NewAllocations]] = []
        self._gone: list[tuple[int, IntColumn]] = []  # last seen, ids
        self._at_ms = span.begin_ms
        self._pools: Mapping[WorkloadKey, PoolMinutes] = {}
        self._pools_since = span.begin_ms // 60_000  # minutes from then on are not written yet

    def add(self, result: Result) -> None:
        """Follow the spells through the next cycle; nothing is written."""
        record, held = make_cycle_record(
            result, self._held, pod_labels=self._pod_labels, price_of=lambda *_: 0, changes=VerdictChanges()
        )
        if len(record.new):
            self._new.append((record.at_ms, record.new))
        gone = self._held.ids[find_positions(self._held.ids, held.ids) < 0]
        if len(gone):
            self._gone.append((self._at_ms, gone))
        is_back = find_positions(self._released.ids, record.ids) >= 0
        changes = follow_spells(self._open.join(self._released.take(is_back)), record)
        self._released = self._released.take(~is_back)
        for reason, ended in changes.ended:
            self._ended.append((reason, ended))
            if reason is SpellEnd.RELEASED:
                self._released = self._released.join(ended)
        self._held, self._open, self._at_ms = held, changes.open, record.at_ms
        self._pools = {**self._pools, **result.pools}

    def write(self, *, is_complete: bool = False) -> None:
        """Write what was added, in one transaction. `is_complete`: the span ends here.

        Raises SQLAlchemyError, and SourceError if another back-fill has written since.
        """
        with self._engine.begin() as connection:
            lock_progress(connection)
            if _read_filled(connection) != self._filled:
                raise SourceError(ledger_errors.FILLED_BY_ANOTHER)
            if self._is_earlier and not self._is_cleared:
                # Time before the filled one counts as filled only when all of it is: what an unfinished run has
                # written is written again.
                connection.execute(delete(idle_spells).where(idle_spells.c.ended_ms <= self._span.end_ms))
            began_ms = read_began(connection)
            if began_ms is not None:
                set_progress(connection, BEGAN, began_ms)
            self._write_allocations(connection)
            self._write_spells(connection)
            write_minutes(connection, self._pools, since=self._pools_since, is_backfill=True)
            filled = self._advance(connection, self._span.end_ms if is_complete else self._at_ms)
        self._filled, self._is_cleared = filled, True
        self._ended, self._new, self._gone = [], [], []
        self._pools_since, self._pools = max([self._pools_since, *(each.end for each in self._pools.values())]), {}

    def _advance(self, connection: Connection, at_ms: int) -> FilledTime:
        filled = FilledTime(self._span.begin_ms, at_ms)
        if self._span.continues:
            filled = FilledTime(self._filled.from_ms, at_ms)
        elif self._is_earlier:
            is_whole = at_ms == self._span.end_ms
            filled = self._filled._replace(from_ms=self._span.begin_ms) if is_whole else self._filled
        for name, value in zip((FILLED_FROM, FILLED_TO), filled, strict=True):
            set_progress(connection, name, int(value or 0))
        return filled

    def _write_allocations(self, connection: Connection) -> None:
        for at_ms, new in self._new:
            for rows, columns in new.in_blocks(BLOCK_ROWS):
                times = dict.fromkeys(("first_ms", "last_ms", "ended_ms"), [at_ms] * len(rows))
                upsert(connection, allocations, {**columns, **times}, _RULES)
        for last_ms, ids in (*self._gone, (self._at_ms, self._held.ids)):
            _set_last_seen(connection, ids, last_ms)

    def _write_spells(self, connection: Connection) -> None:
        for reason, spells in (*self._ended, (SpellEnd.LOST, self._open)):
            untouched, cut = self._cut(connection, spells)
            write_rows(connection, untouched, ended_by=reason)
            write_rows(connection, cut, ended_by=SpellEnd.LOST)

    def _cut(self, connection: Connection, spells: OpenSpells) -> tuple[OpenSpells, OpenSpells]:
        """Those that end before later ones of their allocations begin, and the others, cut off there."""
        limits = _read_later_starts(connection, spells.ids, self._span.end_ms)
        is_cut = spells.idle_until_ms > limits
        cut = replace(spells, idle_until_ms=np.minimum(spells.idle_until_ms, limits)).take(is_cut)
        return spells.take(~is_cut), cut.take(cut.idle_until_ms > cut.started_ms)


def _floor_second(at_ms: int) -> int:
    """Times of cycles are seconds: a float has them exactly."""
    return at_ms - at_ms % 1000


def _read_filled(connection: Connection) -> FilledTime:
    return FilledTime(read_progress(connection, FILLED_FROM), read_progress(connection, FILLED_TO))


def _read_later_starts(connection: Connection, ids: IntColumn, end_ms: int) -> IntColumn:
    """When the first spell of each allocation begins that lasts beyond `end_ms`."""
    spells, found = idle_spells.c, dict[int, int]()
    is_later = or_(spells.ended_ms.is_(None), spells.ended_ms > end_ms)
    for first in range(0, len(ids), BLOCK_ROWS):
        is_chosen = spells.allocation_id.in_(ids[first : first + BLOCK_ROWS].tolist())
        starts = select(spells.allocation_id, func.min(spells.started_ms)).where(is_chosen, is_later)
        found.update((row[0], row[1]) for row in connection.execute(starts.group_by(spells.allocation_id)))
    return np.array([found.get(id_, _NO_LATER) for id_ in ids.tolist()], np.int64)


def _set_last_seen(connection: Connection, ids: IntColumn, last_ms: int) -> None:
    """Of allocations whose row ends earlier; not of those that the ledger has recorded."""
    for first in range(0, len(ids), BLOCK_ROWS):
        is_chosen = allocations.c.id.in_(ids[first : first + BLOCK_ROWS].tolist())
        is_earlier = allocations.c.ended_ms < last_ms
        connection.execute(update(allocations).where(is_chosen, is_earlier).values(last_ms=last_ms, ended_ms=last_ms))
