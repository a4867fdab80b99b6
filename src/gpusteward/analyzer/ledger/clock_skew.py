"""A clock that was once far ahead: the books are brought back to the time that has really passed.

What they say of hours that have not come yet was never measured: the gap up to the wrong moment, and at most a day at
its end. It is taken out, and the books go on from the end of the hour under way. That hour stays as it is, so that none
is counted twice. Books with more than a day of measured time ahead are left alone: then it is the clock of now that is
wrong, as on a machine that has lost its date.
"""

from collections.abc import Callable

from sqlalchemy import Connection, Engine, delete, func, or_, select, update

from gpusteward.analyzer.ledger.db_engine import with_write_lock
from gpusteward.analyzer.ledger.ledger_writer import lock_progress, set_progress
from gpusteward.analyzer.ledger.periods import (
    BOOKED,
    DAY_MS,
    HOUR_MS,
    PRUNED,
    ROLLED,
    floor_day,
    floor_hour,
    read_progress,
)
from gpusteward.analyzer.ledger.schema import (
    allocations,
    currencies,
    fleet_daily,
    fleet_hourly,
    usage_daily,
    usage_hourly,
    verdict_changes,
)
from gpusteward.logs import Log

log = Log(__name__)

FAR_AHEAD_MS = DAY_MS
"""Less than that passes by itself sooner than anybody would notice."""
BELIEVED_AFTER_MS = HOUR_MS
"""For so long a clock must have gone on as it is: after a start it may still have to be set."""
MOST_SEEN_HOURS = 24


class ClockWatch:
    """Only for the thread that books."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._since_ms: int | None = None  # when the clock was first seen to be far behind
        self._end_ms: int | None = None  # where the books are brought back to
        self._is_refused = False
        self.complaint = ""

    def compare(self, newest_ms: int | None, *, now_ms: int, tolerated_ms: int) -> None:
        """Say once that the books are ahead."""
        ahead_ms = 0 if newest_ms is None else newest_ms - now_ms
        if ahead_ms > tolerated_ms and not self.complaint:
            log.warning("ledger_ahead_of_clock", seconds=ahead_ms // 1000, consequence="nothing is booked until then")
        self.complaint = f"the books are {ahead_ms // 1000} s ahead of the clock" if ahead_ms > tolerated_ms else ""
        is_under_way = self._end_ms is not None and newest_ms is not None and newest_ms > self._end_ms
        if ahead_ms <= FAR_AHEAD_MS and not is_under_way:
            self._since_ms = self._end_ms = None
            self._is_refused = False
        elif self._since_ms is None or now_ms < self._since_ms:
            self._since_ms = now_ms

    def bring_back(self, now_ms: int, may_go_on: Callable[[], bool]) -> bool:
        """Whether the books have changed; the rest of it follows at the next call. Raises SQLAlchemyError."""
        if self._since_ms is None or now_ms - self._since_ms < BELIEVED_AFTER_MS or self._is_refused:
            return False
        self._end_ms = self._end_ms if self._end_ms is not None else find_end(self._engine, now_ms)
        if self._end_ms is None:
            self._is_refused = True
            log.warning("ledger_not_brought_back", reason="more than a day of measured time is ahead of the clock")
            return False
        has_changed = False
        while may_go_on() and take_back(self._engine, self._end_ms):
            has_changed = True
        if has_changed:
            log.warning("ledger_brought_back", until_ms=self._end_ms, lost="what was booked of the time after that")
        return has_changed


def find_end(engine: Engine, now_ms: int) -> int | None:
    """Where books that are ahead of the clock can be cut; None: they are right, and the clock is wrong."""
    hour = usage_hourly.c.hour_ms
    was_seen = or_(usage_hourly.c.active_ms > 0, usage_hourly.c.idle_ms > 0)
    seen = select(hour).where(hour > now_ms, was_seen).distinct().limit(MOST_SEEN_HOURS + 1).subquery()
    with engine.connect() as connection:
        if connection.execute(select(func.count()).select_from(seen)).scalar_one() > MOST_SEEN_HOURS:
            return None
        keeps_hours = (read_progress(connection, PRUNED) or 0) <= floor_day(now_ms)
    return floor_hour(now_ms) + HOUR_MS if keeps_hours else floor_day(now_ms) + DAY_MS


def take_back(engine: Engine, end_ms: int) -> bool:
    """The last day of what lies behind this moment; False: there was nothing left. Raises SQLAlchemyError."""
    with with_write_lock(engine).begin() as connection:
        lock_progress(connection)
        booked_ms = read_progress(connection, BOOKED) or 0
        if booked_ms <= end_ms:
            return False
        begin_ms = max(end_ms, floor_day(booked_ms - 1))
        _forget_from(connection, begin_ms)
        set_progress(connection, BOOKED, begin_ms)
        for name in (ROLLED, PRUNED):  # the day that is cut is added up again from the hours that stay
            if (read_progress(connection, name) or 0) > floor_day(begin_ms):
                set_progress(connection, name, floor_day(begin_ms))
    return True


def _forget_from(connection: Connection, begin_ms: int) -> None:
    for table in (usage_hourly, fleet_hourly):
        connection.execute(delete(table).where(table.c.hour_ms >= begin_ms))
    for table in (usage_daily, fleet_daily):
        connection.execute(delete(table).where(table.c.day_ms >= floor_day(begin_ms)))
    connection.execute(delete(verdict_changes).where(verdict_changes.c.at_ms > begin_ms))
    connection.execute(delete(currencies).where(currencies.c.since_ms >= begin_ms))
    for name in ("first_ms", "last_ms", "ended_ms"):
        connection.execute(update(allocations).where(allocations.c[name] > begin_ms).values({name: begin_ms}))
