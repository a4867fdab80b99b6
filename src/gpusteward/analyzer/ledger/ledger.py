"""The door to the books. A full disk or a lost database stops them, not the verdicts: cycles wait and are caught up."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.clock_skew import ClockWatch
from gpusteward.analyzer.ledger.cycle_record import COVERED_INTERVALS, NOBODY, PriceOf, Sheet, make_sheet
from gpusteward.analyzer.ledger.db_engine import (
    describe_error,
    has_vanished,
    is_data_error,
    make_folder,
    open_engine,
    show_url,
)
from gpusteward.analyzer.ledger.identities import Users
from gpusteward.analyzer.ledger.ledger_writer import Books
from gpusteward.analyzer.ledger.migrations.upgrade import upgrade
from gpusteward.analyzer.ledger.periods import HOUR_MS, floor_hour
from gpusteward.analyzer.ledger.retention import MOMENTS_AT_ONCE, prune, roll_up
from gpusteward.analyzer.ledger.verdict_changes import Sayings
from gpusteward.analyzer.prices import PriceList, PriceSettings
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log

log = Log(__name__)

CATCH_UP_SECONDS = 10.0
"""A cycle writes what has waited for so long at most; the rest goes on with the next one."""
CLOSE_SECONDS = 1.0
REFUSALS = 3
"""A cycle that the database has refused so often, alone, is set aside: the others go on."""
_FAULTS = (SQLAlchemyError, SourceError, OSError)


class Ledger:
    """`book` is for the thread of the cycles; `engine` and `describe` are for everybody."""

    def __init__(self, settings: LedgerSettings) -> None:
        """Tries to open the books; where that fails it is said, and tried again. Raises ConfigurationError for a URL
        that cannot be used."""
        self.settings = settings
        self.engine: Engine = open_engine(settings.locate())
        self._books = Books(self.engine)
        self._users = Users(settings.user_labels)
        self._prices: tuple[PriceSettings, PriceList] | None = None
        self._desk = threading.Lock()
        self._waiting: deque[Sheet] = deque()
        self._waiting_bytes = 0
        self._roster = NOBODY  # of the last sheet
        self._sayings = Sayings()
        self._housekept_ms = 0
        self._rounds = 1  # of housekeeping, a cycle
        self._clock = ClockWatch(self.engine)
        self._is_ready = False
        self._error = ""
        self._refusal = ""  # of the last cycle
        self._lost = self._refused = 0
        self._is_full = False
        self._is_torn = False  # a cycle was refused: who was described in it alone is not in the tables
        self._try(self._open)

    def record(self, result: Result) -> None:
        """Write a cycle down. One that is booked already, or older, counts once."""
        with self._desk:
            self._try(self._open)
            if self._waiting:
                self._try(self._catch_up)  # first makes room
            self._rounds = 1 + result.settings.scheduler.interval * 1000 // (MOMENTS_AT_ONCE * HOUR_MS)
            self._add(result)
            self._try(self._catch_up)
            self._try(lambda: self._bring_back(int(result.at * 1000)))

    def prune(self, now: float) -> int:
        """Delete a portion of what is too old; 0: nothing is left to do. Raises SQLAlchemyError."""
        return prune(self.engine, self.settings, now_ms=int(now * 1000))

    def describe(self) -> Mapping[str, Any]:
        """How the books stand, for people; without the password."""
        booked_ms = self._books.booked_ms
        return {
            "url": show_url(self.engine),
            "is_ready": self._is_ready and not self._error,
            "booked_at": None if booked_ms is None else booked_ms / 1000,
            "buffered_cycles": len(self._waiting),
            "buffered_bytes": self._waiting_bytes,
            "lost_cycles": self._lost,
            "refused_cycles": self._refused,
            "error": self._error or self._clock.complaint or self._refusal,
        }

    def close(self) -> None:
        """Let go, after the cycle that is being written unless that takes too long: it is then as if never begun."""
        if self._desk.acquire(timeout=CLOSE_SECONDS):
            self._desk.release()
        self.engine.dispose()

    def _try(self, work: Callable[[], None]) -> None:
        """A fault of the database is said once, and is over when something could be written again."""
        try:
            work()
        except _FAULTS as error:
            if not self._error:
                log.warning("ledger_stopped", url=show_url(self.engine), reason=describe_error(error), verdicts="go on")
            self._error = describe_error(error)
            self._is_ready = False  # next time everything is looked at anew: it may be another database by then

    def _open(self) -> None:
        if self._is_ready and not has_vanished(self.engine):
            return
        if self._is_ready:
            self.engine.dispose()
        make_folder(self.engine)
        upgrade(self.engine)
        self._is_ready = True
        if not self._waiting:
            self._read_standing()

    def _read_standing(self) -> None:
        """While sheets wait they stand for what was known when they were made; after that the tables count."""
        standing = self._books.read_standing()
        self._roster, self._sayings = standing.roster, standing.sayings.copy()
        self._is_torn = False

    def _add(self, result: Result) -> None:
        if self._has_booked(result):
            return
        changes = self._sayings.compare(result.workloads)
        sheet, roster = make_sheet(
            result, self._roster, users=self._users, price_of=self._price_of(result), changes=changes
        )
        sheet = sheet.beside(self._waiting[-1] if self._waiting else None)
        if self._waiting and not self._has_room(sheet):
            return
        self._waiting.append(sheet)
        self._waiting_bytes += sheet.size_bytes
        self._roster = roster
        self._sayings.adopt(changes)

    def _has_booked(self, result: Result) -> bool:
        """Also what is older than the books: another analyzer was there first, or the clock was ahead once."""
        newest = self._waiting[-1].at_ms if self._waiting else self._books.booked_ms
        now_ms, tolerated_ms = int(result.at * 1000), COVERED_INTERVALS * result.settings.scheduler.interval * 1000
        self._clock.compare(newest, now_ms=now_ms, tolerated_ms=tolerated_ms)
        return newest is not None and now_ms <= newest

    def _has_room(self, sheet: Sheet) -> bool:
        if self._waiting_bytes + sheet.size_bytes <= self.settings.buffer_megabytes * 1_000_000:
            return True
        self._lost += 1
        if not self._is_full:
            log.warning("ledger_buffer_full", waiting=len(self._waiting), consequence="time from now on is unknown")
        self._is_full = True
        return False

    def _price_of(self, result: Result) -> PriceOf:
        settings = result.settings.prices
        if self._prices is None or self._prices[0] != settings:
            self._prices = settings, PriceList(settings)
        return self._prices[1].micros_per_gpu_hour

    def _catch_up(self) -> None:
        if not self._is_ready:
            return
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while self._waiting and self._write(self._waiting[0], deadline):
            self._waiting_bytes -= self._waiting.popleft().size_bytes
        if not self._waiting:
            self._waiting_bytes, self._is_full = 0, False
            if self._is_torn:
                self._read_standing()
            self._keep_house()
        if self._error:
            self._recover()

    def _write(self, sheet: Sheet, deadline: float) -> bool:
        for attempt in range(REFUSALS):
            try:
                is_done = self._books.write(sheet, lambda: time.monotonic() < deadline)
            except Exception as error:
                if not is_data_error(error):
                    raise
                if attempt == REFUSALS - 1:
                    self._set_aside(sheet, describe_error(error))
            else:
                self._refusal = "" if is_done else self._refusal
                return is_done
        return True

    def _set_aside(self, sheet: Sheet, reason: str) -> None:
        """It would fail for ever: one cycle is lost, the others go on."""
        self._lost += 1
        self._refused += 1
        self._is_torn = True
        if not self._refusal:
            log.warning("ledger_refused_cycle", at_ms=sheet.at_ms, reason=reason)
        self._refusal = f"the last cycle was refused: {reason}"

    def _bring_back(self, now_ms: int) -> None:
        """Books that a wrong clock has led far ahead."""
        deadline = time.monotonic() + CATCH_UP_SECONDS
        if not self._is_ready or self._waiting:
            return
        if self._clock.bring_back(now_ms, lambda: time.monotonic() < deadline):
            self._housekept_ms = 0
            self._read_standing()

    def _recover(self) -> None:
        log.info("ledger_writes_again", waiting=len(self._waiting), lost=self._lost)
        self._error = ""
        if not self._waiting:
            self._read_standing()

    def _keep_house(self) -> None:
        """Once an hour of the books' own time."""
        booked_ms = self._books.booked_ms or 0
        for _ in range(self._rounds if floor_hour(booked_ms) > self._housekept_ms else 0):
            left = roll_up(self.engine) + prune(self.engine, self.settings, now_ms=booked_ms)
            if not left:
                self._housekept_ms = floor_hour(booked_ms)
                return
