"""Idle spells of allocations, followed from cycle to cycle and written with them.

A spell is opened by the first idle verdict, at the time since which it says the allocation is idle, and lasts until the
last cycle that found it idle. Its row is written when it is opened, when it ends and when its proof or signature
changes, not in every cycle. While the activity is unknown, or the ledger has a gap, `idle_until_ms` says up to when it
was known to be idle; NULL means up to the last recorded cycle.

What ended it: work, if it was seen in a window that begins before the spell's end; lost, if time in between was not
measured; released, if the allocation disappeared. An allocation that appears again was not released after all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, select, update

from gpusteward.analyzer.ledger.accrual import BLOCK_ROWS, Mask
from gpusteward.analyzer.ledger.cycle_record import CycleRecord, IntColumn, find_positions
from gpusteward.analyzer.ledger.database.schema import idle_spells
from gpusteward.analyzer.ledger.database.upsert import REPLACE, Columns, upsert
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, SIGNATURES, Codes, Column
from gpusteward.core.idle_spells import SpellEnd
from gpusteward.core.verdicts import Activity, Proof, Signature

_RULES = {column.name: REPLACE for column in idle_spells.columns}
_IDLE, _ACTIVE = ACTIVITIES.index(Activity.IDLE), ACTIVITIES.index(Activity.ACTIVE)
_PROOFS, _SIGNATURES = [each.value for each in PROOFS], [each.value for each in SIGNATURES]
_INTERRUPT = (
    update(idle_spells)
    .where(idle_spells.c.ended_ms.is_(None), idle_spells.c.idle_until_ms.is_(None))
    .values(idle_until_ms=bindparam("recorded_ms"))
)
_RELEASED = (
    select(idle_spells)
    .where(idle_spells.c.allocation_id.in_(bindparam("ids", expanding=True)))
    .where(idle_spells.c.ended_by == SpellEnd.RELEASED.value)
    .order_by(idle_spells.c.allocation_id, idle_spells.c.started_ms)
)
_GONE = -1
_Positions = NDArray[np.intp]


@dataclass(frozen=True)
class OpenSpells:
    """The spells that have not ended, at most one per allocation, by ascending id."""

    ids: IntColumn
    started_ms: IntColumn
    idle_until_ms: IntColumn
    is_interrupted: Mask  # the activity is unknown since `idle_until_ms`, and its row says so
    proof: Codes
    signature: Codes
    gpu_fractions: Column

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, chosen: Mask | _Positions) -> "OpenSpells":
        return OpenSpells(*(getattr(self, each.name)[chosen] for each in fields(self)))

    def join(self, other: "OpenSpells") -> "OpenSpells":
        """Both, by ascending id."""
        if not len(other):
            return self
        pairs = ((getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        joined = OpenSpells(*(np.concatenate(pair) for pair in pairs))
        return joined.take(np.argsort(joined.ids, kind="stable"))


NO_SPELLS = OpenSpells(
    ids=np.empty(0, np.int64),
    started_ms=np.empty(0, np.int64),
    idle_until_ms=np.empty(0, np.int64),
    is_interrupted=np.empty(0, np.bool_),
    proof=np.empty(0, np.int8),
    signature=np.empty(0, np.int8),
    gpu_fractions=np.empty(0),
)


@dataclass(frozen=True)
class SpellChanges:
    """What one cycle changes. The parts share no row."""

    ended: Sequence[tuple[SpellEnd, OpenSpells]]
    written: OpenSpells  # opened or changed
    open: OpenSpells  # after the cycle, including the written ones


def follow_spells(spells: OpenSpells, record: CycleRecord) -> SpellChanges:
    """Continue, end and open spells with the verdicts of a cycle (pure)."""
    rows = find_positions(spells.ids, record.ids)
    is_gone = rows == _GONE
    activity, since = np.full(len(rows), _GONE, np.int8), np.zeros(len(rows), np.int64)
    activity[~is_gone], since[~is_gone] = record.activity[rows[~is_gone]], record.idle_since_ms[rows[~is_gone]]
    has_overlap = spells.idle_until_ms >= record.at_ms - record.window_ms
    is_idle, is_active = activity == _IDLE, activity == _ACTIVE
    is_continued = is_idle & (since <= spells.idle_until_ms)
    is_waiting = ~is_gone & ~is_idle & ~is_active & has_overlap
    has_worked = is_active & has_overlap
    is_lost = ~is_gone & ~is_continued & ~is_waiting & ~has_worked
    continued, is_changed = _continue(spells.take(is_continued), record, rows[is_continued])
    waiting = spells.take(is_waiting)
    opened = _open(record, without=continued.ids)
    interrupted = replace(waiting, is_interrupted=np.ones(len(waiting), np.bool_))
    ends = ((SpellEnd.WORK, has_worked), (SpellEnd.RELEASED, is_gone), (SpellEnd.LOST, is_lost))
    return SpellChanges(
        ended=[(reason, spells.take(chosen)) for reason, chosen in ends if chosen.any()],
        written=opened.join(continued.take(is_changed)).join(interrupted.take(~waiting.is_interrupted)),
        open=opened.join(continued).join(interrupted),
    )


def _continue(spells: OpenSpells, record: CycleRecord, rows: _Positions) -> tuple[OpenSpells, Mask]:
    """Idle in this cycle too; and which of their rows have changed."""
    proof, signature = record.proof[rows], record.signature[rows]
    is_changed = spells.is_interrupted | (spells.proof != proof) | (spells.signature != signature)
    continued = replace(
        spells,
        idle_until_ms=np.full(len(spells), record.at_ms, np.int64),
        is_interrupted=np.zeros(len(spells), np.bool_),
        proof=proof,
        signature=signature,
    )
    return continued, is_changed


def _open(record: CycleRecord, *, without: IntColumn) -> OpenSpells:
    """Spells of idle rows, except those of these allocations."""
    is_new = (record.activity == _IDLE) & (record.idle_since_ms >= 0)
    is_new &= find_positions(record.ids, without) < 0
    return OpenSpells(
        ids=record.ids[is_new],
        started_ms=record.idle_since_ms[is_new],
        idle_until_ms=np.full(int(is_new.sum()), record.at_ms, np.int64),
        is_interrupted=np.zeros(int(is_new.sum()), np.bool_),
        proof=record.proof[is_new],
        signature=record.signature[is_new],
        gpu_fractions=record.gpu_fractions[is_new],
    )


def write_spells(connection: Connection, record: CycleRecord, spells: OpenSpells, *, absent: IntColumn) -> OpenSpells:
    """Write what a cycle changes; returns the spells that are open after it.

    `absent`: allocations of the record that the ledger does not hold, because they are new or had disappeared.
    """
    returned = _read_released(connection, absent)
    write_rows(connection, returned)  # they have not ended after all
    changes = follow_spells(spells.join(returned), record)
    for reason, ended in changes.ended:
        write_rows(connection, ended, ended_by=reason)
    write_rows(connection, changes.written)
    return changes.open


def interrupt_spells(connection: Connection, spells: OpenSpells, recorded_ms: int) -> OpenSpells:
    """A gap begins at `recorded_ms`: what follows is not known to be idle."""
    connection.execute(_INTERRUPT, {"recorded_ms": recorded_ms})
    return replace(spells, is_interrupted=np.ones(len(spells), np.bool_))


def mark_reclaimed(connection: Connection, allocation_ids: Sequence[int], *, since_ms: int) -> None:
    """These allocations were not released by their owners, but taken back."""
    is_released = (idle_spells.c.ended_by == SpellEnd.RELEASED.value, idle_spells.c.ended_ms >= since_ms)
    for first in range(0, len(allocation_ids), BLOCK_ROWS):
        is_chosen = idle_spells.c.allocation_id.in_(list(allocation_ids[first : first + BLOCK_ROWS]))
        connection.execute(update(idle_spells).where(is_chosen, *is_released).values(ended_by=SpellEnd.RECLAIMED.value))


def read_open_spells(connection: Connection, recorded_ms: int | None) -> OpenSpells:
    columns = idle_spells.c
    rows = connection.execute(select(idle_spells).where(columns.ended_ms.is_(None)).order_by(columns.allocation_id))
    return _make_spells([row._asdict() for row in rows], idle_until_ms=recorded_ms or 0)


def read_last_lost(connection: Connection, at_ms: int, window_ms: int) -> OpenSpells:
    """The last spells of allocations whose data ended in the window before `at_ms`, as spells that have not ended."""
    columns = idle_spells.c
    is_near = (columns.ended_ms > at_ms - window_ms, columns.ended_ms <= at_ms)
    rows = connection.execute(select(idle_spells).where(*is_near).order_by(columns.allocation_id, columns.started_ms))
    last = {row.allocation_id: {**row._asdict(), "idle_until_ms": row.ended_ms} for row in rows}
    lost = [row for row in last.values() if row["ended_by"] == SpellEnd.LOST.value]
    return _make_spells(lost, idle_until_ms=0)


def _read_released(connection: Connection, ids: IntColumn) -> OpenSpells:
    """The last spell of these allocations, where it ended because they disappeared."""
    last = {}
    for first in range(0, len(ids), BLOCK_ROWS):
        rows = connection.execute(_RELEASED, {"ids": ids[first : first + BLOCK_ROWS].tolist()})
        last.update({row.allocation_id: {**row._asdict(), "idle_until_ms": row.ended_ms} for row in rows})
    return _make_spells(list(last.values()), idle_until_ms=0)


def _make_spells(rows: Sequence[dict[str, int | str | None]], *, idle_until_ms: int) -> OpenSpells:
    if not rows:
        return NO_SPELLS
    return OpenSpells(
        ids=np.array([row["allocation_id"] for row in rows], np.int64),
        started_ms=np.array([row["started_ms"] for row in rows], np.int64),
        idle_until_ms=np.array([row["idle_until_ms"] or idle_until_ms for row in rows], np.int64),
        is_interrupted=np.array([row["idle_until_ms"] is not None for row in rows], np.bool_),
        proof=np.array([PROOFS.index(Proof(str(row["proof"]))) for row in rows], np.int8),
        signature=np.array([SIGNATURES.index(Signature(row["signature"])) for row in rows], np.int8),  # type: ignore[call-arg, arg-type]
        gpu_fractions=np.array([row["gpu_fraction"] for row in rows], np.float64),
    )


def write_rows(connection: Connection, spells: OpenSpells, *, ended_by: SpellEnd | None = None) -> None:
    """`ended_by`: they ended when they were last idle."""
    for first in range(0, len(spells), BLOCK_ROWS):
        block = spells.take(np.arange(first, min(first + BLOCK_ROWS, len(spells))))
        upsert(connection, idle_spells, _make_columns(block, ended_by), _RULES)


def _make_columns(spells: OpenSpells, ended_by: SpellEnd | None) -> Columns:
    until_ms, nulls = spells.idle_until_ms.tolist(), [None] * len(spells)
    interrupted = zip(until_ms, spells.is_interrupted.tolist(), strict=True)
    return {
        "allocation_id": spells.ids.tolist(),
        "started_ms": spells.started_ms.tolist(),
        "idle_until_ms": nulls if ended_by else [at if chosen else None for at, chosen in interrupted],
        "ended_ms": until_ms if ended_by else nulls,
        "ended_by": [ended_by.value] * len(spells) if ended_by else nulls,
        "proof": [_PROOFS[code] for code in spells.proof.tolist()],
        "signature": [_SIGNATURES[code] for code in spells.signature.tolist()],
        "gpu_fraction": spells.gpu_fractions.tolist(),
    }
