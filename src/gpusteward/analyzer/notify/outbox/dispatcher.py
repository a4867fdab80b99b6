"""Delivers pending rows of the outbox. One thread reads and updates rows; worker threads make the calls.

A host that hangs or fails costs only itself: it never has all workers, and its circuit breaker stops further calls.
"""

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.database.db_engine import describe_error
from gpusteward.analyzer.notify.outbox.records import (
    CONTROL,
    AttemptOutcome,
    DeliveryCounters,
    DeliveryError,
    PendingDelivery,
)
from gpusteward.analyzer.notify.outbox.retry import CircuitBreakers, backoff_seconds
from gpusteward.analyzer.notify.outbox.store import Outbox
from gpusteward.analyzer.settings.notify import OutboxSettings
from gpusteward.logs import Log

log = Log(__name__)

POLL_SECONDS = 1.0
"""A retry begins at most this late; new rows at once, because whoever adds them calls `wake`."""
EXPIRE_SECONDS = 60.0
"""Old rows are given up and deleted this often: it needs a transaction that writes; SQLite has one at a time."""
ROWS_PER_READ = 500
"""In memory at once, for all receivers together: bodies of notices may have some kilobytes."""
MAX_REFUSALS = 5
"""A message that a working receiver has rejected this often is given up: other messages of its stream wait for it."""
_STOP_POLL_SECONDS = 0.02
_SAVE_SECONDS = 0.5  # of the time to stop, reserved for storing outcomes


class Sender(Protocol):
    """Delivers rows of one target."""

    @property
    def host(self) -> str:
        """The circuit breaker counts failures per host."""

    def send(self, delivery: PendingDelivery) -> None:
        """Raises DeliveryError."""


class _Attempt(NamedTuple):
    """A call that has ended."""

    delivery: PendingDelivery
    host: str
    error: DeliveryError | None


class Dispatcher:
    """Started once. Call `wake` after events were added to the outbox."""

    def __init__(
        self,
        outbox: Outbox,
        settings: OutboxSettings,
        counters: DeliveryCounters,
        *,
        clock: Callable[[], float] = time.time,
        poll_seconds: float = POLL_SECONDS,
        may_send: Callable[[], bool] = lambda: True,
    ) -> None:
        self._poll_seconds = poll_seconds
        self._may_send = may_send
        self._outbox = outbox
        self._settings = settings
        self._counters = counters
        self._clock = clock
        self._senders: Mapping[str, Sender] = {}
        self._breakers = CircuitBreakers(failures=settings.breaker_failures, seconds=settings.breaker_seconds)
        self._ready: deque[PendingDelivery] = deque()
        self._state_changes = 0  # of the outbox, when the states in `_ready` were read
        self._in_flight: dict[int, str] = {}  # row id -> host; until the outcome is stored
        self._unsaved: list[AttemptOutcome] = []
        self._jobs: queue.SimpleQueue[tuple[PendingDelivery, Sender] | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[_Attempt | None] = queue.SimpleQueue()  # None: wake up
        self._sending: set[int] = set()  # row ids of calls being made right now
        self._stopping = threading.Event()
        self._stop_by = 0.0  # monotonic
        self._threads: list[threading.Thread] = []
        self._expired_at = self._counted_at = self._read_at = 0.0  # monotonic
        self._last_fault = ""
        self.failures: dict[str, str] = {}  # target -> error of its last delivery

    def apply_settings(self, settings: OutboxSettings, senders: Mapping[str, Sender]) -> None:
        """Takes effect at the next poll."""
        if settings != self._settings:
            self._breakers = CircuitBreakers(failures=settings.breaker_failures, seconds=settings.breaker_seconds)
        self._settings, self._senders = settings, senders
        self.failures = {target: error for target, error in self.failures.items() if target in senders}
        self.wake()

    def start(self) -> None:
        workers = [threading.Thread(target=self._work, name=f"deliver-{n}") for n in range(self._settings.workers)]
        self._threads = [threading.Thread(target=self._run, name="dispatcher"), *workers]
        for thread in self._threads:
            thread.daemon = True  # an interrupted call is repeated after the restart
            thread.start()

    def wake(self) -> None:
        self._ended.put(None)

    def stop(self, timeout_seconds: float) -> None:
        """Calls in flight get this much time to end and to be stored."""
        self._stop_by = time.monotonic() + timeout_seconds
        self._stopping.set()
        self.wake()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, self._stop_by - time.monotonic()))

    def open_hosts(self) -> list[str]:
        """Hosts whose circuit breaker is open."""
        return self._breakers.open_hosts(time.monotonic())

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._poll()
            except SQLAlchemyError as error:
                self._outbox.report_failure(error)
            # An unexpected error must not end deliveries for good.
            except Exception as error:  # noqa: BLE001
                self._log_fault(describe_error(error))
            self._collect_attempts()
        self._save_last_outcomes()

    def _log_fault(self, fault: str) -> None:
        if fault != self._last_fault:
            log.warning("dispatcher_failed", reason=fault)
        self._last_fault = fault

    def _poll(self) -> None:
        """Store outcomes, then start deliveries that are due. Raises SQLAlchemyError."""
        self._save_outcomes()
        if not self._may_send():
            self._ready.clear()
            return
        if not self._outbox.flush():
            return
        self._maintain()
        self._start_deliveries()
        if len(self._in_flight) < self._settings.workers and self._may_read():
            self._read_due()
            self._start_deliveries()

    def _may_read(self) -> bool:
        """While some rows are ready, more are read for other hosts only; reading a full outbox is expensive."""
        return not self._ready or time.monotonic() - self._read_at >= self._poll_seconds

    def _read_due(self) -> None:
        """Read rows for hosts that have none ready, so that a host that hangs does not hold up the others."""
        now = self._read_at = time.monotonic()
        ready_targets = {row.target for row in self._ready}
        ready_hosts = {self._senders[target].host for target in ready_targets if target in self._senders}
        targets = [
            target
            for target, sender in self._senders.items()
            if sender.host not in ready_hosts and self._breakers.allows(sender.host, now)
            if target != CONTROL or self._outbox.has_current_states
        ]
        if not targets:
            return
        limit = ROWS_PER_READ + len(self._in_flight)
        rows = self._outbox.read_due(targets, now_ms=self._now_ms(), limit=limit)
        may_check = self._outbox.has_current_states
        self._ready.extend(row for row in rows if row.id not in self._in_flight and (may_check or not row.is_checked))

    def _start_deliveries(self) -> None:
        """One per free worker, and never all workers for one host: it may hang. Rows that have to wait for their host
        stay first in line, in their order."""
        self._drop_replaced_states()
        calls, later = Counter(self._in_flight.values()), deque[PendingDelivery]()
        calls_per_host = max(1, self._settings.workers - 1)
        while self._ready and len(self._in_flight) < self._settings.workers:
            row = self._ready.popleft()
            sender = self._senders.get(row.target)
            if sender is None or not self._breakers.allows(sender.host, time.monotonic()):
                continue  # it stays pending
            if calls[sender.host] >= calls_per_host:
                later.append(row)
                continue
            calls[sender.host] += 1
            self._breakers.begin(sender.host)
            self._in_flight[row.id] = sender.host
            self._jobs.put((row, sender))
        self._ready.extendleft(reversed(later))

    def _drop_replaced_states(self) -> None:
        changes = self._outbox.state_changes
        if changes != self._state_changes:
            self._state_changes = changes
            self._ready = deque(row for row in self._ready if not row.is_checked)

    def _work(self) -> None:
        """A worker thread."""
        while (job := self._jobs.get()) is not None and not self._stopping.is_set():
            row, sender = job
            self._sending.add(row.id)
            error: DeliveryError | None = None
            try:
                sender.send(row)
            except DeliveryError as fault:
                error = fault
            except Exception as fault:  # noqa: BLE001 - costs one attempt; the text of the error may contain a secret
                error = DeliveryError(f"unexpected {type(fault).__name__}")
            # In this order: at the end of the program, attempts are collected once more when no row is being sent.
            self._ended.put(_Attempt(row, sender.host, error))
            self._sending.discard(row.id)

    def _collect_attempts(self) -> None:
        """Wait for an attempt to end or for `wake`, then take everything that is there."""
        try:
            attempt = self._ended.get(timeout=_STOP_POLL_SECONDS if self._stopping.is_set() else self._poll_seconds)
            while True:
                if attempt is not None:
                    self._finish(attempt)
                attempt = self._ended.get_nowait()
        except queue.Empty:
            return

    def _finish(self, attempt: _Attempt) -> None:
        # A refusal proves that the host works: its other messages need not wait.
        has_failed = attempt.error is not None and not attempt.error.is_refusal
        self._breakers.end(attempt.host, has_failed=has_failed, now=time.monotonic())
        self._unsaved.append(self._decide_outcome(attempt.delivery, attempt.error))

    def _decide_outcome(self, row: PendingDelivery, error: DeliveryError | None) -> AttemptOutcome:
        now_ms, attempts = self._now_ms(), row.attempts + 1
        if error is None:
            self._counters.add("sent", row.kind)
            self.failures.pop(row.target, None)
            return AttemptOutcome(row.id, "done", attempts, now_ms)
        self._counters.add("failed", row.kind)
        self._log_failure(row, error)
        if self._is_final(error, attempts):
            self._counters.add("dead", row.kind)
            log.error("delivery_given_up", kind=row.kind, target=row.target, attempts=attempts, reason=error)
            return AttemptOutcome(row.id, "dead", attempts, now_ms, str(error))
        backoff = backoff_seconds(
            attempts, first=self._settings.first_wait_seconds, longest=self._settings.longest_wait_seconds
        )
        wait_ms = round(max(backoff, error.wait_seconds) * 1000)
        return AttemptOutcome(row.id, "pending", attempts, now_ms + wait_ms, str(error))

    def _is_final(self, error: DeliveryError, attempts: int) -> bool:
        limit = min(MAX_REFUSALS, self._settings.max_attempts) if error.is_refusal else self._settings.max_attempts
        return attempts >= limit

    def _log_failure(self, row: PendingDelivery, error: DeliveryError) -> None:
        """Once per target and reason."""
        if self.failures.get(row.target) != str(error):
            log.warning("delivery_failed", kind=row.kind, target=row.target, attempt=row.attempts + 1, reason=error)
        self.failures[row.target] = str(error)

    def _save_outcomes(self) -> None:
        """A row counts as in flight until its outcome is stored. Raises SQLAlchemyError."""
        outcomes = list(self._unsaved)
        self._outbox.save_outcomes(outcomes)
        for outcome in outcomes:
            self._in_flight.pop(outcome.id, None)
        del self._unsaved[: len(outcomes)]

    def _save_last_outcomes(self) -> None:
        while self._sending and time.monotonic() < self._stop_by - _SAVE_SECONDS:
            self._collect_attempts()
        self._collect_attempts()
        try:
            self._save_outcomes()
        except SQLAlchemyError as error:
            self._outbox.report_failure(error)

    def _maintain(self) -> None:
        now = time.monotonic()
        if now - self._expired_at >= EXPIRE_SECONDS:
            self._outbox.expire(self._now_ms())
            self._expired_at = now
        if now - self._counted_at >= 5 * self._poll_seconds:
            self._outbox.count_pending()
            self._counted_at = now

    def _now_ms(self) -> int:
        return round(self._clock() * 1000)
