"""Writes sheets into the tables, each in one transaction with the progress it means: never twice, never half."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, Engine, and_, bindparam, func, insert, select, text, update

from gpusteward.analyzer.ledger.accrual import BLOCK, Mask, Step, book_fleet, book_usage, spend, split_gap, split_seen
from gpusteward.analyzer.ledger.cycle_record import NOBODY, Ids, Roster, Sheet, find_places
from gpusteward.analyzer.ledger.db_engine import with_write_lock
from gpusteward.analyzer.ledger.periods import BOOKED, read_progress
from gpusteward.analyzer.ledger.schema import (
    allocations,
    currencies,
    fleet_hourly,
    progress,
    usage_hourly,
    verdict_changes,
)
from gpusteward.analyzer.ledger.upsert import KEEP, REPLACE, USAGE_RULES, add_rows
from gpusteward.analyzer.ledger.verdict_changes import Sayings

_ALLOCATION_RULES = {column.name: REPLACE for column in allocations.columns} | {"first_ms": KEEP}
_MARKED = ("owner_kind", "owner_name", "user_name", "node", "gpu_index", "model", "share")


@dataclass
class Standing:
    """What is in the tables, as far as the next sheet needs it."""

    booked_ms: int | None
    roster: Roster
    sayings: Sayings
    currency: str  # of the last money; empty: there is none yet


class Books:
    """One transaction after another. Only for one thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = with_write_lock(engine)
        self._standing: Standing | None = None

    @property
    def booked_ms(self) -> int | None:
        standing = self._standing  # read once: other threads ask
        return standing.booked_ms if standing else None

    def read_standing(self) -> Standing:
        """From the tables, whatever is remembered. Raises SQLAlchemyError when they are out of reach."""
        with self._engine.begin() as connection:
            lock_progress(connection)
            self._standing = _read_standing(connection)
            return self._standing

    def write(self, sheet: Sheet, may_go_on: Callable[[], bool]) -> bool:
        """Whether it is done; False: a long gap is half filled and goes on at the next call.

        A sheet that is not newer than the books is in them, or was another analyzer's: it counts as done. Raises
        SQLAlchemyError, and then nothing has happened, or it has happened once.
        """
        while may_go_on():
            with self._engine.begin() as connection:
                standing = self._stand(connection)
                if standing.booked_ms is not None and sheet.at_ms <= standing.booked_ms:
                    return True
                step = self._next_gap(sheet, standing)
                currency = _write_currency(connection, sheet, standing)
                if step is None:
                    self._write_seen(connection, sheet, standing)
                else:
                    self._write_step(connection, sheet, step, held=_find_held(sheet, standing))
                booked_ms = sheet.at_ms if step is None else step.end_ms
                set_progress(connection, BOOKED, booked_ms)
            standing.booked_ms, standing.currency = booked_ms, currency  # only once it is committed
            if step is None:
                standing.roster = Roster(sheet.ids, np.empty(0, np.int64))
                standing.sayings.adopt(sheet.changes)
                return True
        return False

    def _stand(self, connection: Connection) -> Standing:
        """From memory, unless somebody else has written since."""
        lock_progress(connection)
        booked_ms = read_progress(connection, BOOKED)
        if self._standing is None or self._standing.booked_ms != booked_ms:
            self._standing = _read_standing(connection)
        return self._standing

    def _next_gap(self, sheet: Sheet, standing: Standing) -> Step | None:
        return None if standing.booked_ms is None else next(split_gap(sheet, standing.booked_ms), None)

    def _write_seen(self, connection: Connection, sheet: Sheet, standing: Standing) -> None:
        held = _find_held(sheet, standing)
        _write_allocations(connection, sheet, standing, held=held)
        if standing.booked_ms is not None:
            for step in split_seen(sheet, standing.booked_ms):
                self._write_step(connection, sheet, step, held=held)
        rows = [{"at_ms": sheet.at_ms, **change._asdict()} for change in standing.sayings.news(sheet.changes)]
        if rows:
            connection.execute(insert(verdict_changes), rows)

    def _write_step(self, connection: Connection, sheet: Sheet, step: Step, *, held: Mask) -> None:
        spent = spend(sheet, step, held)
        for columns in book_usage(sheet, step, spent):
            add_rows(connection, usage_hourly, columns, USAGE_RULES)
        add_rows(connection, fleet_hourly, book_fleet(sheet, step, spent), {})


def lock_progress(connection: Connection) -> None:
    """Only one writes at a time: SQLite locked when the transaction began, PostgreSQL locks here. Readers go on."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE progress IN SHARE ROW EXCLUSIVE MODE"))


def set_progress(connection: Connection, name: str, at_ms: int) -> None:
    add_rows(connection, progress, [[name], [at_ms]], {"at_ms": REPLACE})


def _write_currency(connection: Connection, sheet: Sheet, standing: Standing) -> str:
    """With the first money in it. Money of a time before any currency was noted is taken to be in the same."""
    if standing.booked_ms is None or sheet.currency == standing.currency or not sheet.prices.any():
        return standing.currency
    since_ms = standing.booked_ms if standing.currency else 0
    add_rows(connection, currencies, [[since_ms], [sheet.currency]], {"currency": REPLACE})
    return sheet.currency


def _find_held(sheet: Sheet, standing: Standing) -> Mask:
    return find_places(sheet.ids, standing.roster.ids) >= 0


def _write_allocations(connection: Connection, sheet: Sheet, standing: Standing, *, held: Mask) -> None:
    before, at_ms = standing.roster.ids, sheet.at_ms
    gone = before[find_places(before, sheet.ids) < 0]
    if len(gone):
        last_ms = int(standing.booked_ms or at_ms)  # when all of them were last seen
        _update(connection, gone, last_ms=last_ms, ended_ms=last_ms)
    _update(connection, _find_returned(sheet, held), ended_ms=None)
    for fresh in sheet.fresh.in_blocks(BLOCK):
        moments = [[moment] * len(fresh) for moment in (at_ms, at_ms, None)]
        add_rows(connection, allocations, [*zip(*fresh, strict=True), *moments], _ALLOCATION_RULES)


def _update(connection: Connection, ids: Ids, **values: int | None) -> None:
    if len(ids):
        change = update(allocations).where(allocations.c.id == bindparam("number")).values(values)
        connection.execute(change, [{"number": each} for each in ids.tolist()])


def _find_returned(sheet: Sheet, held: Mask) -> Ids:
    """Known to the sheet before and ended since: by another analyzer that did not see them."""
    absent: Ids = sheet.ids[~held]
    return absent[find_places(absent, sheet.fresh.ids) < 0]


def _read_standing(connection: Connection) -> Standing:
    booked_ms, currency = read_progress(connection, BOOKED), _read_currency(connection)
    return Standing(booked_ms, _read_roster(connection), _read_sayings(connection), currency)


def _read_currency(connection: Connection) -> str:
    last = select(currencies.c.currency).order_by(currencies.c.since_ms.desc()).limit(1)
    return connection.execute(last).scalar() or ""


def _read_roster(connection: Connection) -> Roster:
    columns = [allocations.c.id, *(allocations.c[name] for name in _MARKED)]
    rows = connection.execute(select(*columns).where(allocations.c.ended_ms.is_(None)).order_by(allocations.c.id))
    blocks = [[(row[0], hash(tuple(row[1:]))) for row in part] for part in rows.partitions(BLOCK)]
    return Roster(*np.concatenate([np.array(block, np.int64) for block in blocks]).T) if blocks else NOBODY


def _read_sayings(connection: Connection) -> Sayings:
    """The last word on every workload that holds something now."""
    said, held = verdict_changes.c, allocations.c
    there = (
        select(held.owner_kind, held.namespace, held.owner_name).where(held.ended_ms.is_(None)).distinct().subquery()
    )
    same = and_(*(said[name] == there.c[name] for name in ("owner_kind", "namespace", "owner_name")))
    owner = (said.owner_kind, said.namespace, said.owner_name)
    last = select(func.max(said.id)).select_from(verdict_changes.join(there, same)).group_by(*owner)
    rows = connection.execute(select(*owner, said.activity, said.signature, said.state).where(said.id.in_(last)))
    return Sayings({(row[0], row[1], row[2]): (row[3], row[4], row[5]) for row in rows})
