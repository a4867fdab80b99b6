"""A clock that is wrong: its cycles are not recorded, and rows that one has left are removed by a person only.

One cycle dated next year would stop recording for a year, and the money of that year would be missing in every report.
So the clock must agree with a second one: that of the engine or of the scraped targets, or that of PostgreSQL. While it
does not, nothing is recorded and nothing is buffered, because a buffer would write the wrong time later: the time of
these cycles is missing, which reports show as unknown.

A ledger that is ahead all the same records nothing until the clock has caught up. Whether the ledger or the clock is
wrong then no program can know, so nothing is deleted by itself; `gpusteward ledger delete-after TIME` does it.
"""

import time

from sqlalchemy import Connection, Engine, delete, text, update
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.database.db_engine import with_write_lock
from gpusteward.analyzer.ledger.database.periods import (
    BEGAN,
    PRUNED,
    RECORDED,
    ROLLED,
    floor_day,
    floor_hour,
    lock_progress,
    read_all_progress,
    read_progress,
    set_progress,
)
from gpusteward.analyzer.ledger.database.schema import (
    allocations,
    currencies,
    fleet_daily,
    fleet_hourly,
    idle_spells,
    ineffective_spells,
    pool_hours,
    usage_daily,
    usage_hourly,
    verdict_changes,
)
from gpusteward.analyzer.tables import MAX_CLOCK_SKEW_SECONDS
from gpusteward.core.errors import SourceError
from gpusteward.core.idle_spells import SpellEnd

IN_USE = "an analyzer uses this ledger; stop it first: it would go on with what it knows of the deleted rows"
_WRITER = text(
    "SELECT holder FROM leases WHERE name = 'writer' AND until_ms > EXTRACT(EPOCH FROM clock_timestamp()) * 1000"
)
_POSTGRES_NOW = text("SELECT EXTRACT(EPOCH FROM clock_timestamp())")


def find_clock_error(engine: Engine, source_skew: float | None) -> str:
    """Why the clock must not be trusted; empty: another one agrees with it, or there is no other one.

    `source_skew`: the clock of the source minus this one. An engine that sends no date, with a SQLite file, leaves no
    second clock: refusing would leave such a site without a ledger.
    """
    skews = {"source": source_skew}
    if source_skew is None or abs(source_skew) > MAX_CLOCK_SKEW_SECONDS:
        skews["PostgreSQL"] = _read_postgres_skew(engine)
    known = {name: skew for name, skew in skews.items() if skew is not None}
    if not known or any(abs(skew) <= MAX_CLOCK_SKEW_SECONDS for skew in known.values()):
        return ""
    others = ", ".join(f"that of the {name} by {skew:+.0f} s" for name, skew in known.items())
    return f"the clock of this machine differs from {others}: cycles are not recorded until it is right"


def _read_postgres_skew(engine: Engine) -> float | None:
    if engine.dialect.name != "postgresql":
        return None  # SQLite has the clock of this machine
    try:
        with engine.connect() as connection:
            return float(connection.execute(_POSTGRES_NOW).scalar_one()) - time.time()
    except SQLAlchemyError:
        return None


def delete_after(engine: Engine, after_ms: int) -> tuple[int, int]:
    """Delete what was recorded after the hour that contains this time, which stays as it is, so that no hour is counted
    twice. Returns from where on, and how many rows of usage. One day at a time, the last one first: an interrupted
    deletion is continued by the next one. Raises SourceError while an analyzer uses it, SQLAlchemyError."""
    end_ms, rows = -floor_hour(-after_ms), 0
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql" and connection.execute(_WRITER).first():
            raise SourceError(IN_USE)
        if (read_progress(connection, PRUNED) or 0) > floor_day(end_ms):  # without its hours a day cannot be cut
            end_ms = -floor_day(-end_ms)
    while True:
        with with_write_lock(engine).begin() as connection:
            lock_progress(connection)
            progress = read_all_progress(connection)
            recorded_ms = progress.get(RECORDED, 0)
            if recorded_ms <= end_ms:
                return end_ms, rows
            begin_ms = max(end_ms, floor_day(recorded_ms - 1))
            rows += _delete_from(connection, begin_ms)
            for name in (RECORDED, BEGAN):
                if progress.get(name, 0) > begin_ms:
                    set_progress(connection, name, begin_ms)
            for name in (ROLLED, PRUNED):  # the day that is cut is rolled up again from its remaining hours
                if progress.get(name, 0) > floor_day(begin_ms):
                    set_progress(connection, name, floor_day(begin_ms))


def _delete_from(connection: Connection, begin_ms: int) -> int:
    rows = 0
    for table in (usage_hourly, fleet_hourly):
        rows += connection.execute(delete(table).where(table.c.hour_ms >= begin_ms)).rowcount
    for table in (usage_daily, fleet_daily):
        rows += connection.execute(delete(table).where(table.c.day_ms >= floor_day(begin_ms))).rowcount
    connection.execute(delete(verdict_changes).where(verdict_changes.c.at_ms > begin_ms))
    connection.execute(delete(pool_hours).where(pool_hours.c.hour_ms >= begin_ms))
    connection.execute(delete(currencies).where(currencies.c.since_ms >= begin_ms))
    # Of spells, what follows is not known any more: neither that they lasted, nor what ended them.
    spells = idle_spells.c
    connection.execute(delete(idle_spells).where(spells.started_ms >= begin_ms))
    lost = {"ended_ms": begin_ms, "ended_by": SpellEnd.LOST.value}
    connection.execute(update(idle_spells).where(spells.ended_ms > begin_ms).values(lost))
    connection.execute(update(idle_spells).where(spells.ended_ms.is_(None)).values(idle_until_ms=begin_ms))
    ineffective = ineffective_spells.c
    connection.execute(delete(ineffective_spells).where(ineffective.started_ms >= begin_ms))
    connection.execute(update(ineffective_spells).where(ineffective.ended_ms > begin_ms).values(ended_ms=begin_ms))
    for name in ("first_ms", "last_ms", "ended_ms"):
        connection.execute(update(allocations).where(allocations.c[name] > begin_ms).values({name: begin_ms}))
    return rows
