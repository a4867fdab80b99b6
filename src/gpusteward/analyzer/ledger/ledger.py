"""Records results in the ledger. While the database is unavailable, cycles are buffered; verdicts are not affected."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.cycle_record import (
    COVERED_INTERVALS,
    NO_ALLOCATIONS,
    CycleRecord,
    make_cycle_record,
)
from gpusteward.analyzer.ledger.database.clock import find_clock_error
from gpusteward.analyzer.ledger.database.db_engine import (
    describe_error,
    is_data_error,
    is_file_missing,
    make_folder,
    open_engine,
    show_url,
)
from gpusteward.analyzer.ledger.database.periods import HOUR_MS, floor_hour
from gpusteward.analyzer.ledger.database.retention import BATCH_SIZE, prune, roll_up
from gpusteward.analyzer.ledger.database.schema_version import create_tables
from gpusteward.analyzer.ledger.ended_record import PriceOf
from gpusteward.analyzer.ledger.identities import PodLabels
from gpusteward.analyzer.ledger.ledger_writer import LedgerWriter
from gpusteward.analyzer.ledger.verdict_changes import LastVerdicts
from gpusteward.analyzer.prices import PriceList, PriceSettings
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import AllocationKey
from gpusteward.logs import Log

log = Log(__name__)

CATCH_UP_SECONDS = 10.0
"""Time limit for writing buffered cycles within one cycle; the rest follows in the next one."""
CLOSE_SECONDS = 1.0
MAX_ATTEMPTS = 3
"""A cycle whose data the database has refused this many times is skipped, so that the others can be written."""
_DATABASE_ERRORS = (SQLAlchemyError, SourceError, OSError)


class Ledger:
    """`record` is for the thread that runs cycles; `engine` and `describe` are for all threads."""

    def __init__(self, settings: LedgerSettings) -> None:
        """Opens the database; if that fails, it is logged and tried again later. Raises ConfigurationError for a URL
        that cannot be used."""
        self.settings = settings
        self.engine: Engine = open_engine(settings.locate())
        self._writer = LedgerWriter(self.engine)
        self._pod_labels = PodLabels(settings.user_labels, settings.labels)
        self._prices: tuple[PriceSettings, PriceList] | None = None
        self._lock = threading.Lock()
        self._pending: deque[CycleRecord] = deque()
        self._pending_bytes = 0
        self._held = NO_ALLOCATIONS  # of the last record
        self._allocations: Sequence[AllocationKey] = ()  # of the last result
        self._last_verdicts = LastVerdicts()
        self._maintained_ms = 0
        self._maintenance_rounds = 1  # per cycle
        self._clock_error = ""  # of the last cycle
        self._is_ready = False
        self._error = ""
        self._skip_reason = ""  # of the last cycle
        self._lost = self._skipped = 0
        self._is_full = False
        self._must_reread = False  # what the next record is compared with is not what the tables hold
        self._try(self._open)

    def record(self, result: Result) -> None:
        """Record a cycle. A result that is not newer than the last recorded cycle is ignored."""
        with self._lock:
            self._try(self._open)
            if self._must_reread and not self._pending:
                self._try(self._read_state)
            if self._pending:
                self._try(self._write_pending)  # frees buffer space first
            self._maintenance_rounds = 1 + result.settings.scheduler.interval * 1000 // (BATCH_SIZE * HOUR_MS)
            if self._has_right_time(result):
                self._append(result)
            self._try(self._write_pending)

    def hand_over(self) -> None:
        """Another analyzer writes from now on, or did until now: drop what is buffered, and read the tables before the
        next cycle is recorded."""
        with self._lock:
            self._pending.clear()
            self._pending_bytes = 0
            self._held, self._last_verdicts, self._allocations = NO_ALLOCATIONS, LastVerdicts(), ()
            self._must_reread = True
            self._writer.forget_state()

    def prune(self, now: float) -> int:
        """Delete a batch of expired rows; 0: none are left. Raises SQLAlchemyError."""
        return prune(self.engine, self.settings, now_ms=int(now * 1000))

    def describe(self) -> Mapping[str, Any]:
        """The state of the ledger, without the password."""
        recorded_ms = self._writer.recorded_ms
        return {
            "url": show_url(self.engine),
            "is_ready": self._is_ready and not self._error,
            "booked_at": None if recorded_ms is None else recorded_ms / 1000,
            "buffered_cycles": len(self._pending),
            "buffered_bytes": self._pending_bytes,
            "lost_cycles": self._lost,
            "refused_cycles": self._skipped,
            "error": self._error or self._clock_error or self._skip_reason,
        }

    def close(self) -> None:
        """Wait a moment for a cycle that is being written; a transaction that takes longer is rolled back."""
        if self._lock.acquire(timeout=CLOSE_SECONDS):
            self._lock.release()
        self.engine.dispose()

    def _try(self, work: Callable[[], None]) -> None:
        """Run it. A database error is logged once and shown by `describe` until the next successful write."""
        try:
            work()
        except _DATABASE_ERRORS as error:
            if not self._error:
                log.warning("ledger_unavailable", url=show_url(self.engine), reason=describe_error(error))
            self._error = describe_error(error)
            self._is_ready = False  # the next attempt checks everything again: it may be a different database

    def _open(self) -> None:
        if self._is_ready and not is_file_missing(self.engine):
            return
        if self._is_ready:
            self.engine.dispose()
        make_folder(self.engine)
        create_tables(self.engine)
        self._is_ready = True
        if not self._pending:
            self._read_state()

    def _read_state(self) -> None:
        """Only called without pending records, because those were made from the previous state."""
        state = self._writer.read_state()
        self._held, self._last_verdicts = state.held, state.last_verdicts.copy()
        self._must_reread = False

    def _append(self, result: Result) -> None:
        changes = self._last_verdicts.compare(result.workloads)
        record, held = make_cycle_record(
            result,
            self._held,
            pod_labels=self._pod_labels,
            price_of=self._price_of(result),
            changes=changes,
            last_allocations=self._allocations,
            before_ms=self._newest_ms or 0,
        )
        record = record.share_columns(self._pending[-1] if self._pending else None)
        if self._pending and self._pending_bytes + record.size_bytes > self.settings.buffer_megabytes * 1_000_000:
            self._lost += 1
            if not self._is_full:
                log.warning("ledger_buffer_full", cycles=len(self._pending), consequence="time from now on is unknown")
            self._is_full = True
            return
        self._pending.append(record)
        self._pending_bytes += record.size_bytes
        self._held, self._allocations = held, result.verdicts.usage.allocations
        self._last_verdicts.apply(changes)

    @property
    def _newest_ms(self) -> int | None:
        return self._pending[-1].at_ms if self._pending else self._writer.recorded_ms

    def _has_right_time(self, result: Result) -> bool:
        """Whether the clock is right and the result newer than the ledger: another analyzer may have written first, or
        the ledger may be ahead, which a small step back of the clock makes it for a while."""
        newest_ms, at_ms = self._newest_ms, int(result.at * 1000)
        ahead_ms = 0 if newest_ms is None else newest_ms - at_ms
        error = find_clock_error(self.engine, result.verdicts.usage.clock_skew)
        if error:
            if not self._clock_error:
                log.warning("ledger_clock_wrong", reason=error)
        elif ahead_ms > COVERED_INTERVALS * result.settings.scheduler.interval * 1000:
            error = f"the ledger is {ahead_ms // 1000} s ahead of the clock"
            if not self._clock_error:
                remedy = "if the clock is right, stop the analyzer and run: gpusteward ledger delete-after TIME"
                log.warning("ledger_ahead_of_clock", seconds=ahead_ms // 1000, remedy=remedy)
        self._clock_error = error
        return not error and (newest_ms is None or at_ms > newest_ms)

    def _price_of(self, result: Result) -> PriceOf:
        settings = result.settings.prices
        if self._prices is None or self._prices[0] != settings:
            self._prices = settings, PriceList(settings)
        return self._prices[1].micros_per_gpu_hour

    def _write_pending(self) -> None:
        if not self._is_ready:
            return
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while self._pending and self._write(self._pending[0], deadline):
            self._pending_bytes -= self._pending.popleft().size_bytes
        if not self._pending:
            self._pending_bytes, self._is_full = 0, False
            if self._must_reread:
                self._read_state()
            self._run_maintenance()
        if self._error:
            log.info("ledger_recovered", buffered=len(self._pending), lost=self._lost)
            self._error = ""
            if not self._pending:
                self._read_state()

    def _write(self, record: CycleRecord, deadline: float) -> bool:
        """Whether the record is complete or skipped."""
        for attempt in range(MAX_ATTEMPTS):
            try:
                is_complete = self._writer.write(record, lambda: time.monotonic() < deadline)
            except Exception as error:
                if not is_data_error(error):
                    raise
                if attempt == MAX_ATTEMPTS - 1:
                    self._skip(record, describe_error(error))
            else:
                self._skip_reason = "" if is_complete else self._skip_reason
                return is_complete
        return True

    def _skip(self, record: CycleRecord, reason: str) -> None:
        """Writing it would fail every time: this cycle is lost, the others are written."""
        self._lost += 1
        self._skipped += 1
        self._must_reread = True
        if not self._skip_reason:
            log.warning("ledger_cycle_rejected", at_ms=record.at_ms, reason=reason)
        self._skip_reason = f"the database rejected the last cycle: {reason}"

    def _run_maintenance(self) -> None:
        """Rollup and pruning, once per recorded hour."""
        recorded_ms = self._writer.recorded_ms or 0
        for _ in range(self._maintenance_rounds if floor_hour(recorded_ms) > self._maintained_ms else 0):
            left = roll_up(self.engine) + prune(self.engine, self.settings, now_ms=recorded_ms)
            if not left:
                self._maintained_ms = floor_hour(recorded_ms)
                return
