"""Writes cycle records to the tables. A record and its progress are one transaction, so it is never written twice. A
long gap before it is written first, one transaction per hour."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
from sqlalchemy import Connection, Engine, Insert, Update, and_, bindparam, func, insert, select, update

from gpusteward.analyzer.ledger.accrual import (
    BLOCK_ROWS,
    HourSlice,
    Mask,
    accrue_ended_time,
    accrue_time,
    make_ended_rows,
    make_fleet_rows,
    make_usage_rows,
    split_gap,
    split_observed,
)
from gpusteward.analyzer.ledger.cycle_record import (
    NO_ALLOCATIONS,
    CycleRecord,
    HeldAllocations,
    find_positions,
)
from gpusteward.analyzer.ledger.database.db_engine import with_write_lock
from gpusteward.analyzer.ledger.database.periods import BEGAN, RECORDED, lock_progress, read_progress, set_progress
from gpusteward.analyzer.ledger.database.schema import (
    allocations,
    currencies,
    fleet_hourly,
    usage_hourly,
    verdict_changes,
)
from gpusteward.analyzer.ledger.database.upsert import FLEET_RULES, KEEP, REPLACE, USAGE_RULES, upsert
from gpusteward.analyzer.ledger.identities import Attributes
from gpusteward.analyzer.ledger.idle_correction import correct_idle_time
from gpusteward.analyzer.ledger.ineffective_time import OpenIneffective, read_ineffective, write_ineffective
from gpusteward.analyzer.ledger.spells.idle_spells import OpenSpells, interrupt_spells, read_open_spells, write_spells
from gpusteward.analyzer.ledger.verdict_changes import LastVerdict, LastVerdicts, share_verdict
from gpusteward.core.node.containers import WorkloadKey

_ALLOCATION_RULES = {column.name: REPLACE for column in allocations.columns} | {
    "first_ms": KEEP,
    "labels": "CASE WHEN excluded.labels = '{{}}' THEN {table}.labels ELSE excluded.labels END",
}
"""A pod without labels keeps the last ones: its exporter may have lost them."""

_IS_CHOSEN = allocations.c.id == bindparam("allocation_id")
_END = update(allocations).where(_IS_CHOSEN).values(last_ms=bindparam("at_ms"), ended_ms=bindparam("at_ms"))
_CONTINUE = update(allocations).where(_IS_CHOSEN).values(ended_ms=None)
_INSERT_CHANGES = insert(verdict_changes)
_LAST_CURRENCY = select(currencies.c.currency).order_by(currencies.c.since_ms.desc()).limit(1)
_STATEMENT_ROWS = 512
"""SQLAlchemy makes several objects of each row of a statement: 2 kB."""


@dataclass
class LedgerState:
    """What the tables hold, as far as the next record needs it."""

    recorded_ms: int | None
    held: HeldAllocations
    last_verdicts: LastVerdicts
    currency: str  # of the last costs; empty: there are none yet
    open_spells: OpenSpells
    ineffective: OpenIneffective


class LedgerWriter:
    """Writes one transaction after another. For one thread only."""

    def __init__(self, engine: Engine) -> None:
        self._engine = with_write_lock(engine)
        self._state: LedgerState | None = None

    @property
    def recorded_ms(self) -> int | None:
        state = self._state  # read once: other threads call this
        return state.recorded_ms if state else None

    def forget_state(self) -> None:
        """Another program writes from now on: what this one knew is no longer true."""
        self._state = None

    def read_state(self) -> LedgerState:
        """Read the tables again. Raises SQLAlchemyError when the database is unavailable."""
        with self._engine.begin() as connection:
            lock_progress(connection)
            self._state = _read_state(connection)
            return self._state

    def write(self, record: CycleRecord, may_continue: Callable[[], bool]) -> bool:
        """Whether the record is complete; False: part of a long gap is written, the next call continues.

        A record that is not newer than the ledger was already written, by this or another analyzer: it is complete.
        Raises SQLAlchemyError; nothing is written then, or everything exactly once.
        """
        while may_continue():
            with self._engine.begin() as connection:
                state = self._update_state(connection)
                if state.recorded_ms is not None and record.at_ms <= state.recorded_ms:
                    return True
                gap = None if state.recorded_ms is None else next(split_gap(record, state.recorded_ms), None)
                currency = _write_currency(connection, record, state)
                if gap is None:
                    spells, ineffective = _write_observed(connection, record, state)
                else:
                    _write_slice(connection, record, gap, was_held=_find_held(record, state))
                    spells = interrupt_spells(connection, state.open_spells, gap.begin_ms)
                    ineffective = state.ineffective
                recorded_ms = record.at_ms if gap is None else gap.end_ms
                if state.recorded_ms is None:
                    set_progress(connection, BEGAN, recorded_ms)
                set_progress(connection, RECORDED, recorded_ms)
            state.recorded_ms, state.currency = recorded_ms, currency  # only after the commit
            state.open_spells, state.ineffective = spells, ineffective
            if gap is None:
                state.held = HeldAllocations(record.ids, np.empty(0, np.int64))
                state.last_verdicts.apply(record.changes)
                return True
        return False

    def _update_state(self, connection: Connection) -> LedgerState:
        """From memory, unless another program has written since."""
        lock_progress(connection)
        recorded_ms = read_progress(connection, RECORDED)
        if self._state is None or self._state.recorded_ms != recorded_ms:
            self._state = _read_state(connection)
        return self._state


def _write_observed(
    connection: Connection, record: CycleRecord, state: LedgerState
) -> tuple[OpenSpells, OpenIneffective]:
    """Returns the idle and the ineffective spells that are open after it."""
    was_held = _find_held(record, state)
    ineffective = state.ineffective
    _write_allocations(connection, record, state, was_held=was_held)
    if state.recorded_ms is not None:
        correct_idle_time(connection, record, state.recorded_ms)
        ineffective = write_ineffective(connection, record, ineffective, state.recorded_ms)
        for hour_slice in split_observed(record, state.recorded_ms):
            _write_slice(connection, record, hour_slice, was_held=was_held)
        _write_ended(connection, record, recorded_ms=state.recorded_ms)
    changes = state.last_verdicts.select_unrecorded(record.changes)
    _execute(connection, _INSERT_CHANGES, ({"at_ms": record.at_ms, **change._asdict()} for change in changes))
    return write_spells(connection, record, state.open_spells, absent=record.ids[~was_held]), ineffective


def _write_slice(connection: Connection, record: CycleRecord, hour_slice: HourSlice, *, was_held: Mask) -> None:
    time = accrue_time(record, hour_slice, was_held)
    for columns in make_usage_rows(record, hour_slice, time):
        upsert(connection, usage_hourly, columns, USAGE_RULES)
    ended = accrue_ended_time(record.ended, hour_slice) if record.ended and hour_slice.is_observed else None
    if ended is not None:
        upsert(connection, usage_hourly, make_ended_rows(record.ended, hour_slice, ended), USAGE_RULES)
    upsert(connection, fleet_hourly, make_fleet_rows(record, hour_slice, time, ended), FLEET_RULES)


def _write_ended(connection: Connection, record: CycleRecord, *, recorded_ms: int) -> None:
    """The rows of holders that ended after the last recorded cycle. Those that it knew have a row already, and so have
    those whose id another one of the same name has now."""
    ended, at_ms = record.ended, record.at_ms
    began_ms: dict[int, int] = {}  # of each id, the first one
    last: dict[int, int] = {}  # the row of the last one
    is_held = find_positions(ended.ids, record.ids) >= 0
    for row in np.flatnonzero((ended.ended_ms > recorded_ms) & ~is_held).tolist():
        id_ = int(ended.ids[row])
        began_ms[id_] = min(int(ended.began_ms[row]), began_ms.get(id_, at_ms))
        last[id_] = max(row, last.get(id_, row), key=lambda each: int(ended.ended_ms[each]))
    for rows, columns in ended.identities.in_blocks(BLOCK_ROWS, list(last.values())):
        first_ms = [min(max(began_ms[id_], recorded_ms), at_ms) for id_ in columns["id"]]
        last_ms = np.minimum(ended.ended_ms[rows], at_ms).tolist()
        times = {"first_ms": first_ms, "last_ms": last_ms, "ended_ms": last_ms}
        upsert(connection, allocations, {**columns, **times}, _ALLOCATION_RULES)


def _write_currency(connection: Connection, record: CycleRecord, state: LedgerState) -> str:
    """A new currency is written with the first costs in it. The first currency also applies to all earlier costs."""
    if state.recorded_ms is None or record.currency == state.currency or not record.prices.any():
        return state.currency
    since_ms = state.recorded_ms if state.currency else 0
    upsert(connection, currencies, {"since_ms": [since_ms], "currency": [record.currency]}, {"currency": REPLACE})
    return record.currency


def _find_held(record: CycleRecord, state: LedgerState) -> Mask:
    return find_positions(record.ids, state.held.ids) >= 0


def _write_allocations(connection: Connection, record: CycleRecord, state: LedgerState, *, was_held: Mask) -> None:
    before = state.held.ids
    ended = before[find_positions(before, record.ids) < 0]
    if len(ended):
        last_ms = int(state.recorded_ms or record.at_ms)  # when they were last observed
        _execute(connection, _END, ({"allocation_id": each, "at_ms": last_ms} for each in ended.tolist()))
    # Allocations that this analyzer knows and that another one has marked as ended.
    absent = record.ids[~was_held]
    returned = absent[find_positions(absent, record.new.ids) < 0]
    _execute(connection, _CONTINUE, ({"allocation_id": each} for each in returned.tolist()))
    for rows, columns in record.new.in_blocks(BLOCK_ROWS):
        times = dict.fromkeys(("first_ms", "last_ms"), [record.at_ms] * len(rows))
        upsert(connection, allocations, {**columns, **times, "ended_ms": [None] * len(rows)}, _ALLOCATION_RULES)


def _execute(connection: Connection, statement: Insert | Update, rows: Iterable[Mapping[str, object]]) -> None:
    """For each of these rows, a block at a time."""
    remaining = iter(rows)
    while block := list(islice(remaining, _STATEMENT_ROWS)):
        connection.execute(statement, block)


def _read_state(connection: Connection) -> LedgerState:
    recorded_ms = read_progress(connection, RECORDED)
    return LedgerState(
        recorded_ms=recorded_ms,
        held=_read_held(connection),
        last_verdicts=_read_last_verdicts(connection),
        currency=connection.execute(_LAST_CURRENCY).scalar() or "",
        open_spells=read_open_spells(connection, recorded_ms),
        ineffective=read_ineffective(connection),
    )


def _read_held(connection: Connection) -> HeldAllocations:
    columns = [allocations.c[name] for name in ("id", *Attributes._fields)]
    rows = connection.execute(select(*columns).where(allocations.c.ended_ms.is_(None)).order_by(allocations.c.id))
    blocks = [
        np.array([(id_, hash(Attributes(*attributes))) for id_, *attributes in part], np.int64)
        for part in rows.partitions(BLOCK_ROWS)
    ]
    if not blocks:
        return NO_ALLOCATIONS
    ids, hashes = np.concatenate(blocks).T
    return HeldAllocations(ids, hashes)


def _read_last_verdicts(connection: Connection) -> LastVerdicts:
    """The last verdict of every workload that holds an allocation now."""
    changes, held = verdict_changes.c, allocations.c
    existing = (
        select(held.owner_kind, held.namespace, held.owner_name, held.cluster)
        .where(held.ended_ms.is_(None))
        .distinct()
        .subquery()
    )
    owner = (changes.owner_kind, changes.namespace, changes.owner_name, changes.cluster)
    is_same = and_(*(column == existing.c[column.name] for column in owner))
    last = select(func.max(changes.id)).select_from(verdict_changes.join(existing, is_same)).group_by(*owner)
    columns = [changes[name] for name in LastVerdict._fields]
    rows = connection.execute(select(*owner, *columns).where(changes.id.in_(last)))
    verdicts: dict[WorkloadKey, LastVerdict] = {}
    for row in rows:
        *words, since = row[len(owner) :]
        shared = share_verdict(*words)
        verdicts[WorkloadKey(*row[: len(owner)])] = shared if since is None else shared._replace(idle_since_ms=since)
    return LastVerdicts(verdicts)
