"""Rolls hours up into days and deletes expired rows, in small batches that do not delay a cycle."""

from functools import cache

from sqlalchemy import (
    BindParameter,
    Connection,
    Delete,
    Engine,
    Select,
    Table,
    bindparam,
    delete,
    func,
    select,
    union_all,
)

from gpusteward.analyzer.ledger.database.db_engine import with_write_lock
from gpusteward.analyzer.ledger.database.periods import (
    DAY_MS,
    HOUR_MS,
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
    actions,
    allocations,
    fleet_daily,
    fleet_hourly,
    idle_spells,
    ineffective_spells,
    notices,
    outbox,
    pool_hours,
    snoozes,
    time_column,
    usage_daily,
    usage_hourly,
    verdict_changes,
)
from gpusteward.analyzer.ledger.database.upsert import add_hour_to_day
from gpusteward.analyzer.settings.ledger import LedgerSettings

BATCH_SIZE = 4
"""Hours that are rolled up, and hours and days that are deleted, in one round. With a cycle interval of more hours,
`Ledger.record` runs several rounds: more than the cycle adds, so that it catches up."""

_BEFORE: BindParameter[int] = bindparam("before_ms")
_HOURS = union_all(
    *(
        select(func.min(table.c.hour_ms).label("hour_ms")).where(
            table.c.hour_ms >= bindparam("since_ms"), table.c.hour_ms < _BEFORE
        )
        for table in (usage_hourly, fleet_hourly)
    )
).subquery()
_FIRST_HOUR = select(func.min(_HOURS.c.hour_ms))
_UNREFERENCED = (
    delete(allocations).where(allocations.c.ended_ms < _BEFORE),
    delete(idle_spells).where(idle_spells.c.ended_ms < _BEFORE),
    delete(ineffective_spells).where(ineffective_spells.c.ended_ms < _BEFORE),
    delete(verdict_changes).where(verdict_changes.c.at_ms < _BEFORE),
    delete(actions).where(actions.c.ended_ms < _BEFORE),  # an open one has no end
    delete(notices).where(notices.c.created_ms < _BEFORE),
    delete(snoozes).where(snoozes.c.until_ms < _BEFORE),
    delete(outbox).where(outbox.c.created_ms < _BEFORE, outbox.c.state != "pending"),
)
"""Rows that no usage refers to any more. Messages that are still to be sent are kept."""


def roll_up(engine: Engine) -> int:
    """Add hours that are over to their days, each once; returns how many. Raises SQLAlchemyError."""
    done = 0
    while done < BATCH_SIZE and _roll_up_next(engine):
        done += 1
    return done


def prune(engine: Engine, settings: LedgerSettings, *, now_ms: int) -> int:
    """Delete rows older than the settings allow; returns how many hours and days of them. Raises SQLAlchemyError.

    An hour is deleted only after its rollup. The hours of a day are deleted in several batches. The progress "pruned"
    is set with the first batch: from then on, reports read only the daily row.
    """
    daily_ms = floor_day(now_ms - settings.daily_days * DAY_MS)
    with with_write_lock(engine).begin() as connection:
        rolled_ms = read_progress(connection, ROLLED) or 0
        hourly_ms = min(floor_day(now_ms - settings.hourly_days * DAY_MS), floor_day(rolled_ms))
        done = _delete_oldest(connection, usage_hourly, hourly_ms) + _delete_oldest(connection, usage_daily, daily_ms)
        _delete_oldest(connection, fleet_hourly, hourly_ms)
        _delete_oldest(connection, pool_hours, floor_day(now_ms - settings.hourly_days * DAY_MS))
        if done:
            set_progress(connection, PRUNED, hourly_ms)
        _delete_oldest(connection, fleet_daily, daily_ms)
        if done == 0:
            for statement in _UNREFERENCED:
                connection.execute(statement, {"before_ms": daily_ms})
    return done


def _roll_up_next(engine: Engine) -> bool:
    with with_write_lock(engine).begin() as connection:
        lock_progress(connection)
        progress = read_all_progress(connection)
        limits = {"since_ms": progress.get(ROLLED, 0), "before_ms": floor_hour(progress.get(RECORDED, 0))}
        hour_ms = connection.execute(_FIRST_HOUR, limits).scalar()
        if hour_ms is None:
            return False
        for hourly, daily in ((usage_hourly, usage_daily), (fleet_hourly, fleet_daily)):
            add_hour_to_day(connection, hourly, daily, hour_ms=hour_ms, day_ms=floor_day(hour_ms))
        set_progress(connection, ROLLED, hour_ms + HOUR_MS)
        return True


def _delete_oldest(connection: Connection, table: Table, before_ms: int) -> int:
    for done in range(BATCH_SIZE):
        oldest = connection.execute(_oldest(table)).scalar()
        if oldest is None or oldest >= before_ms:
            return done
        connection.execute(_delete_at(table), {"at_ms": oldest})
    return BATCH_SIZE


@cache
def _oldest(table: Table) -> Select[int | None]:
    return select(func.min(time_column(table)))


@cache
def _delete_at(table: Table) -> Delete:
    return delete(table).where(time_column(table) == bindparam("at_ms"))
