"""Delivers what waits in the outbox: in order for each stream, at least once, whatever receivers do.

One thread looks after the rows, some others call. A row stays pending until its outcome is written, so a process that
ends in the middle of a call makes it again after its restart, with the same key.
"""

import queue
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.db_engine import describe_error
from gpusteward.analyzer.notify.channels import Sender
from gpusteward.analyzer.notify.errors import DeliveryError
from gpusteward.analyzer.notify.outbox.circuit_breaker import CircuitBreakers
from gpusteward.analyzer.notify.outbox.delivery_counters import DeliveryCounters
from gpusteward.analyzer.notify.outbox.records import Outcome, PendingDelivery
from gpusteward.analyzer.notify.outbox.store import Outbox
from gpusteward.analyzer.settings.notify import OutboxSettings
from gpusteward.logs import Log

log = Log(__name__)

POLL_SECONDS = 1.0
SWEEP_SECONDS = 60.0
_LAST_SECONDS = 0.02  # between looks when all is about to end
ROWS_AT_ONCE = 500
REFUSALS = 5
"""A receiver that lives and refuses a message so often will not take it; others of its stream wait behind it."""

Ended = tuple[PendingDelivery, str, DeliveryError | None]  # row, host, what went wrong


class Dispatcher:
    """Started once; `wake` after something was put into the outbox."""

    def __init__(
        self,
        outbox: Outbox,
        settings: OutboxSettings,
        counters: DeliveryCounters,
        *,
        clock: Callable[[], float] = time.time,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._poll_seconds = poll_seconds
        self._outbox = outbox
        self._settings = settings
        self._tally = counters
        self._clock = clock
        self._senders: Mapping[str, Sender] = {}
        self._breakers = CircuitBreakers(failures=settings.breaker_failures, seconds=settings.breaker_seconds)
        self._ready: deque[PendingDelivery] = deque()
        self._under_way: dict[int, str] = {}  # row -> host
        self._unsettled: list[Outcome] = []
        self._jobs: queue.SimpleQueue[tuple[PendingDelivery, Sender] | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[Ended | None] = queue.SimpleQueue()  # None: look again
        self._calling: set[int] = set()  # rows that are being sent at this moment
        self._stopping = threading.Event()
        self._stop_by = 0.0  # on the monotonic clock
        self._threads: list[threading.Thread] = []
        self._swept_at = self._counted_at = self._fetched_at = 0.0
        self._last_fault = ""
        self.failures: dict[str, str] = {}  # target -> why its last delivery failed

    def adopt(self, settings: OutboxSettings, senders: Mapping[str, Sender]) -> None:
        """From the next look on."""
        if settings != self._settings:
            self._breakers = CircuitBreakers(failures=settings.breaker_failures, seconds=settings.breaker_seconds)
        self._settings, self._senders = settings, senders
        self.failures = {target: why for target, why in self.failures.items() if target in senders}
        self.wake()

    def start(self) -> None:
        callers = [threading.Thread(target=self._call, name=f"deliver-{n}") for n in range(self._settings.workers)]
        self._threads = [threading.Thread(target=self._run, name="courier"), *callers]
        for thread in self._threads:
            thread.daemon = True  # a call under way at the end is made again after the restart
            thread.start()

    def wake(self) -> None:
        self._ended.put(None)

    def stop(self, timeout_seconds: float) -> None:
        """End; calls under way have this time to end too, and to be written down."""
        self._stop_by = time.monotonic() + timeout_seconds
        self._stopping.set()
        self.wake()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, self._stop_by - time.monotonic()))

    def open_hosts(self) -> list[str]:
        return self._breakers.open_hosts(time.monotonic())

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._look()
            except SQLAlchemyError as error:
                self._outbox.complain(error)
            # A fault nobody foresaw must not end deliveries for good.
            except Exception as error:  # noqa: BLE001
                self._stumble(describe_error(error))
            self._gather()
        self._settle_last()

    def _stumble(self, fault: str) -> None:
        if fault != self._last_fault:
            log.warning("courier_stumbled", reason=fault)
        self._last_fault = fault

    def _look(self) -> None:
        """Write down what has ended, then send out what is due. Raises SQLAlchemyError."""
        self._settle()
        if not self._outbox.flush():
            return
        self._sweep()
        self._send_out()
        if len(self._under_way) < self._settings.workers and self._may_fetch():
            self._fetch()
            self._send_out()

    def _may_fetch(self) -> bool:
        """Looking for more while some are ready is for other hosts only, and a look at a full outbox costs much."""
        return not self._ready or time.monotonic() - self._fetched_at >= self._poll_seconds

    def _fetch(self) -> None:
        """More rows for hosts that have none ready: one that hangs keeps its rows, not those of others."""
        now = self._fetched_at = time.monotonic()
        ready = {row.target for row in self._ready}
        hosts = {self._senders[target].host for target in ready if target in self._senders}
        targets = [
            target
            for target, sender in self._senders.items()
            if sender.host not in hosts and self._breakers.allows(sender.host, now)
        ]
        limit, now_ms = ROWS_AT_ONCE + len(self._under_way), round(self._clock() * 1000)
        rows = self._outbox.take(targets, now_ms=now_ms, limit=limit) if targets else []
        self._ready.extend(row for row in rows if row.id not in self._under_way)

    def _send_out(self) -> None:
        """As many as there are callers, and never all of them to one host: it may hang."""
        busy, later = Counter(self._under_way.values()), deque[PendingDelivery]()
        most = max(1, self._settings.workers - 1)
        while self._ready and len(self._under_way) < self._settings.workers:
            row = self._ready.popleft()
            sender = self._senders.get(row.target)
            if sender is None or not self._breakers.allows(sender.host, time.monotonic()):
                continue  # it stays pending
            if busy[sender.host] >= most:
                later.append(row)
                continue
            busy[sender.host] += 1
            self._breakers.begin(sender.host)
            self._under_way[row.id] = sender.host
            self._jobs.put((row, sender))
        self._ready.extendleft(reversed(later))

    def _call(self) -> None:
        while (job := self._jobs.get()) is not None and not self._stopping.is_set():
            row, sender = job
            self._calling.add(row.id)
            error: DeliveryError | None = None
            try:
                sender.send(row)
            except DeliveryError as fault:
                error = fault
            except Exception as fault:  # noqa: BLE001 - whatever a sender raises costs one attempt; its text may be secret
                error = DeliveryError(f"unexpected {type(fault).__name__}")
            self._ended.put((row, sender.host, error))
            self._calling.discard(row.id)

    def _gather(self) -> None:
        """Wait until something has ended or is asked for, then take all there is."""
        try:
            ended = self._ended.get(timeout=_LAST_SECONDS if self._stopping.is_set() else self._poll_seconds)
            while True:
                if ended is not None:
                    self._note(ended)
                ended = self._ended.get_nowait()
        except queue.Empty:
            return

    def _note(self, ended: Ended) -> None:
        row, host, error = ended
        has_failed = error is not None and not error.is_refusal
        self._breakers.note(host, has_failed=has_failed, now=time.monotonic())
        self._unsettled.append(self._judge(row, error))

    def _judge(self, row: PendingDelivery, error: DeliveryError | None) -> Outcome:
        now_ms, attempts = round(self._clock() * 1000), row.attempts + 1
        if error is None:
            self._tally.add("sent", row.kind)
            self.failures.pop(row.target, None)
            return Outcome(row.id, "done", attempts, now_ms)
        self._tally.add("failed", row.kind)
        self._say(row, error)
        if self._is_hopeless(error, attempts):
            self._tally.add("dead", row.kind)
            log.error("delivery_given_up", kind=row.kind, target=row.target, attempts=attempts, reason=error)
            return Outcome(row.id, "dead", attempts, now_ms, str(error))
        wait = max(self._wait_after(attempts), error.wait_seconds)
        return Outcome(row.id, "pending", attempts, now_ms + round(wait * 1000), str(error))

    def _is_hopeless(self, error: DeliveryError, attempts: int) -> bool:
        limit = min(REFUSALS, self._settings.max_attempts) if error.is_refusal else self._settings.max_attempts
        return attempts >= limit

    def _wait_after(self, attempts: int) -> float:
        """Twice as long each time, with chance in it: many rows must not come back at the same moment."""
        longest = min(
            self._settings.first_wait_seconds * 2.0 ** min(attempts - 1, 32), self._settings.longest_wait_seconds
        )
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing

    def _say(self, row: PendingDelivery, error: DeliveryError) -> None:
        if self.failures.get(row.target) != str(error):
            log.warning("delivery_failed", kind=row.kind, target=row.target, attempt=row.attempts + 1, reason=error)
        self.failures[row.target] = str(error)

    def _settle(self) -> None:
        """Only what is written is over: until then a row counts as under way. Raises SQLAlchemyError."""
        written: Sequence[Outcome] = list(self._unsettled)
        self._outbox.settle(written)
        for outcome in written:
            self._under_way.pop(outcome.id, None)
        del self._unsettled[: len(written)]

    def _settle_last(self) -> None:
        """Half a second is kept for writing."""
        while self._calling and time.monotonic() < self._stop_by - 0.5:
            self._gather()
        self._gather()
        try:
            self._settle()
        except SQLAlchemyError as error:
            self._outbox.complain(error)

    def _sweep(self) -> None:
        now = time.monotonic()
        if now - self._swept_at >= SWEEP_SECONDS:
            self._outbox.sweep(round(self._clock() * 1000))
            self._swept_at = now
        if now - self._counted_at >= 5 * self._poll_seconds:
            self._outbox.count()
            self._counted_at = now
