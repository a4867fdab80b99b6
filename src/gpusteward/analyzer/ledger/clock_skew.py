"""Rolls the ledger back after a forward clock jump.

While the ledger is ahead of the clock nothing is recorded. Rows of hours in the future were not measured: they are the
gap up to the wrong time, and at most a day at its end. They are deleted, and recording continues at the end of the
current hour. The current hour stays as it is, so that no hour is counted twice. A ledger with more than a day of
measured time in the future is left alone: then the current clock is wrong, as on a machine that has lost its date.
"""

from collections.abc import Callable

from sqlalchemy import Connection, Engine, delete, func, or_, select, update

from gpusteward.analyzer.ledger.db_engine import with_write_lock
from gpusteward.analyzer.ledger.periods import (
    BEGAN,
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
from gpusteward.analyzer.ledger.schema import (
    allocations,
    currencies,
    fleet_daily,
    fleet_hourly,
    idle_spells,
    usage_daily,
    usage_hourly,
    verdict_changes,
)
from gpusteward.core.idle_spells import SpellEnd
from gpusteward.logs import Log

log = Log(__name__)

MAX_WAIT_MS = DAY_MS
"""A ledger that is ahead by less than this waits until the clock has caught up."""
CONFIRM_MS = HOUR_MS
"""The clock must have been behind for this long: after a start it may still have to be synchronized."""
MAX_MEASURED_HOURS = 24


class ClockSkewMonitor:
    """For the thread that records cycles only."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._behind_since_ms: int | None = None  # when the clock was first seen far behind the ledger
        self._end_ms: int | None = None  # where the ledger is rolled back to
        self._is_refused = False
        self.error = ""

    def check(self, newest_ms: int | None, *, now_ms: int, tolerated_ms: int) -> None:
        """Compare the last record with the clock; a ledger that is ahead is logged once."""
        ahead_ms = 0 if newest_ms is None else newest_ms - now_ms
        if ahead_ms > tolerated_ms and not self.error:
            log.warning("ledger_ahead_of_clock", seconds=ahead_ms // 1000, consequence="nothing is recorded until then")
        self.error = f"the ledger is {ahead_ms // 1000} s ahead of the clock" if ahead_ms > tolerated_ms else ""
        is_rolling_back = self._end_ms is not None and newest_ms is not None and newest_ms > self._end_ms
        if ahead_ms <= MAX_WAIT_MS and not is_rolling_back:
            self._behind_since_ms = self._end_ms = None
            self._is_refused = False
        elif self._behind_since_ms is None or now_ms < self._behind_since_ms:
            self._behind_since_ms = now_ms

    def roll_back(self, now_ms: int, may_continue: Callable[[], bool]) -> bool:
        """Whether the ledger has changed; what is left follows with the next call. Raises SQLAlchemyError."""
        if self._behind_since_ms is None or now_ms - self._behind_since_ms < CONFIRM_MS or self._is_refused:
            return False
        self._end_ms = self._end_ms if self._end_ms is not None else find_end(self._engine, now_ms)
        if self._end_ms is None:
            self._is_refused = True
            log.warning("ledger_not_rolled_back", reason="more than a day of measured time is ahead of the clock")
            return False
        has_changed = False
        while may_continue() and delete_last_day(self._engine, self._end_ms):
            has_changed = True
        if has_changed:
            log.warning("ledger_rolled_back", until_ms=self._end_ms, consequence="later records are deleted")
        return has_changed


def find_end(engine: Engine, now_ms: int) -> int | None:
    """Where a ledger that is ahead of the clock can be cut; None: the ledger is right and the clock is wrong."""
    hour = usage_hourly.c.hour_ms
    is_measured = or_(usage_hourly.c.active_ms > 0, usage_hourly.c.idle_ms > 0)
    measured = select(hour).where(hour > now_ms, is_measured).distinct().limit(MAX_MEASURED_HOURS + 1).subquery()
    with engine.connect() as connection:
        if connection.execute(select(func.count()).select_from(measured)).scalar_one() > MAX_MEASURED_HOURS:
            return None
        has_hours = (read_progress(connection, PRUNED) or 0) <= floor_day(now_ms)
    return floor_hour(now_ms) + HOUR_MS if has_hours else floor_day(now_ms) + DAY_MS


def delete_last_day(engine: Engine, end_ms: int) -> bool:
    """Delete the last recorded day after `end_ms`; False: nothing was left. Raises SQLAlchemyError."""
    with with_write_lock(engine).begin() as connection:
        lock_progress(connection)
        progress = read_all_progress(connection)
        recorded_ms = progress.get(RECORDED, 0)
        if recorded_ms <= end_ms:
            return False
        begin_ms = max(end_ms, floor_day(recorded_ms - 1))
        _delete_from(connection, begin_ms)
        set_progress(connection, RECORDED, begin_ms)
        if progress.get(BEGAN, 0) > begin_ms:
            set_progress(connection, BEGAN, begin_ms)
        for name in (ROLLED, PRUNED):  # the day that is cut is rolled up again from its remaining hours
            if progress.get(name, 0) > floor_day(begin_ms):
                set_progress(connection, name, floor_day(begin_ms))
    return True


def _delete_from(connection: Connection, begin_ms: int) -> None:
    for table in (usage_hourly, fleet_hourly):
        connection.execute(delete(table).where(table.c.hour_ms >= begin_ms))
    for table in (usage_daily, fleet_daily):
        connection.execute(delete(table).where(table.c.day_ms >= floor_day(begin_ms)))
    connection.execute(delete(verdict_changes).where(verdict_changes.c.at_ms > begin_ms))
    connection.execute(delete(currencies).where(currencies.c.since_ms >= begin_ms))
    _cut_spells(connection, begin_ms)
    for name in ("first_ms", "last_ms", "ended_ms"):
        connection.execute(update(allocations).where(allocations.c[name] > begin_ms).values({name: begin_ms}))


def _cut_spells(connection: Connection, begin_ms: int) -> None:
    """What follows is not known any more: neither that they lasted, nor what ended them."""
    spells = idle_spells.c
    connection.execute(delete(idle_spells).where(spells.started_ms >= begin_ms))
    lost = {"ended_ms": begin_ms, "ended_by": SpellEnd.LOST.value}
    connection.execute(update(idle_spells).where(spells.ended_ms > begin_ms).values(lost))
    connection.execute(update(idle_spells).where(spells.ended_ms.is_(None)).values(idle_until_ms=begin_ms))
