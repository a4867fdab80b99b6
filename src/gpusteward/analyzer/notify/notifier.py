"""The room's door: after every cycle `tell(result)`, after one that failed `tell_lost(reason)`.

Both only decide and write into the outbox; other threads deliver. A fault here costs what is told, never a cycle.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.db_engine import describe_error
from gpusteward.analyzer.notify.alerting import Alerting
from gpusteward.analyzer.notify.channels import build_senders
from gpusteward.analyzer.notify.control_webhook import control_events
from gpusteward.analyzer.notify.notices.digest import read_week, write_digest
from gpusteward.analyzer.notify.notices.messages import MessageOptions
from gpusteward.analyzer.notify.notices.notice_history import NoticeHistory
from gpusteward.analyzer.notify.notices.planner import Notices, OutboxBatch, ReadNotifyAnnotation
from gpusteward.analyzer.notify.notices.quiet_hours import digest_week
from gpusteward.analyzer.notify.outbox.delivery_counters import DeliveryCounters
from gpusteward.analyzer.notify.outbox.dispatcher import POLL_SECONDS, Dispatcher
from gpusteward.analyzer.notify.outbox.records import Delivery
from gpusteward.analyzer.notify.outbox.store import Outbox
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.logs import Log

log = Log(__name__)

RECORD_DAYS = 8
"""How far back the record is read at a start: a digest is weekly. `notify.repeat_hours` may ask for more."""


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise SourceError(f"the outbox cannot be read: {describe_error(error)}") from error


def _no_wish(_namespace: str, _pod: str) -> str:
    return ""


class Notifier:
    """`tell`, `tell_lost` and `adopt` are for the thread that runs cycles; the others are for everybody."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine | None,
        *,
        read_wish: ReadNotifyAnnotation = _no_wish,
        clock: Callable[[], float] = time.time,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """`engine` is the ledger's, None where there is none. Raises ConfigurationError for an unusable channel."""
        self.counters = DeliveryCounters()
        self._settings = self._heard = settings
        self._engine = engine
        self._read_wish = read_wish
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._senders = build_senders(settings.control, settings.notify, clock=clock)
        self._told = NoticeHistory()
        self._notices = Notices(settings, self._told, read_wish=read_wish)
        self._alerting = Alerting(settings, self.counters)
        self._outbox: Outbox | None = None  # opened when somebody is to be told
        self._dispatcher: Dispatcher | None = None
        self._is_running = self._has_record = False
        self._lost_since: float | None = None
        self._last_fault = ""
        self._open()

    def start(self) -> None:
        self._is_running = True
        if self._dispatcher is not None:
            self._dispatcher.start()
        self._alerting.start()

    def stop(self, timeout_seconds: float) -> None:
        """End the threads. What waits in the ledger is delivered after the next start."""
        self._is_running = False
        deadline = time.monotonic() + timeout_seconds
        self._alerting.stop(timeout_seconds / 2)
        if self._dispatcher is not None and self._outbox is not None:
            self._dispatcher.stop(max(0.0, deadline - time.monotonic()))
            self._outbox.close()

    def adopt(self, settings: Settings) -> None:
        """Settings that changed. Raises ConfigurationError, and changes nothing, for a channel that cannot be used."""
        self._senders = build_senders(settings.control, settings.notify, clock=self._clock)
        self._settings = settings
        self._notices = Notices(settings, self._told, read_wish=self._read_wish)
        self._open()
        if self._outbox is not None and self._dispatcher is not None:
            self._outbox.adopt(settings.outbox)
            self._dispatcher.adopt(settings.outbox, self._senders)
        self._alerting.adopt(settings)

    def notify(self, result: Result) -> None:
        """Everything that a finished cycle has to say to anybody."""
        with self._guarded():
            self._follow(result.settings)
            self._lost_since = None
            self._alerting.follow(result)
            self._put(self._gather(result))

    def announce_outage(self, reason: str, *, at: float) -> None:
        """A cycle failed: nothing could be read."""
        with self._guarded():
            self._lost_since = self._lost_since if self._lost_since is not None else at
            if at - self._lost_since >= self._settings.notify.lost_minutes * 60:
                self._alerting.lose(reason, since=self._lost_since, now=at)
            if self._has_notices():
                self._put(self._notices.lose_source(reason, since=self._lost_since, now=at))

    def describe(self) -> Mapping[str, Any]:
        """How deliveries stand, for people; no secret is in it, and of addresses only the hosts."""
        outbox, dispatcher = self._outbox, self._dispatcher
        return {
            "targets": sorted(self._senders),
            "alerts": self._alerting.describe(),
            "counts": self.counters.counts(),
            "failures": dict(dispatcher.failures) if dispatcher else {},
            "left_alone": dispatcher.open_hosts() if dispatcher else [],
            "outbox": outbox.describe() if outbox else {},
            "fault": self._last_fault,
        }

    def read_deliveries(self, state: str | None, limit: int) -> list[Delivery]:
        """The newest ones. Raises SourceError; may take as long as the database."""
        if self._outbox is None:
            return []
        with _translated():
            return [self._name_host(each) for each in self._outbox.read(state, limit=limit)]

    def retry_delivery(self, number: int) -> tuple[Delivery | None, bool]:
        """The one of this number, and whether it was given up and is tried again. Raises SourceError."""
        if self._outbox is None or self._dispatcher is None:
            return None, False
        with _translated():
            found, is_tried = self._outbox.retry(number, now_ms=round(self._clock() * 1000))
        self._dispatcher.wake()
        return self._name_host(found) if found else None, is_tried

    def _name_host(self, delivery: Delivery) -> Delivery:
        sender = self._senders.get(delivery.target)
        return replace(delivery, host=sender.host if sender else "")

    def _follow(self, settings: Settings) -> None:
        if settings == self._heard:
            return
        self._heard = settings
        try:
            self.adopt(settings)
        except ConfigurationError as error:
            log.warning("channels_not_changed", reason=error, kept="the channels as they were")
            self.adopt(settings.model_copy(update={"notify": self._settings.notify}))

    def _open(self) -> None:
        """Nobody to tell: no outbox, no threads, nothing asked of the ledger."""
        if self._outbox is None and self._senders:
            self._outbox = Outbox(self._engine, self._settings.outbox, self.counters)
            self._dispatcher = Dispatcher(
                self._outbox, self._settings.outbox, self.counters, clock=self._clock, poll_seconds=self._poll_seconds
            )
            self._dispatcher.adopt(self._settings.outbox, self._senders)
            if self._is_running:
                self._dispatcher.start()

    def _gather(self, result: Result) -> OutboxBatch:
        """Notices first: where there is no room for all, calls to a webhook nobody hears are refused before them."""
        mail = OutboxBatch()
        if self._has_notices():
            now = self._clock()
            for more in (
                self._notices.find_source(now=now),
                self._notices.find_idle(result, now=now),
                self._digests(result, now=now),
            ):
                mail.events += more.events
                mail.notes += more.notes
        if self._settings.control.enabled:
            mail.events += control_events(result)
        return mail

    def _digests(self, result: Result, *, now: float) -> OutboxBatch:
        notify = self._settings.notify
        day = digest_week(now, notify.digest, notify.time_zone)
        if day is None:
            return OutboxBatch()

        def write(namespaces: Sequence[str], options: MessageOptions) -> str:
            week = None if self._engine is None else read_week(self._engine, result, namespaces=namespaces, now=now)
            return write_digest(week, result, day=day, namespaces=namespaces, options=options)

        try:
            return self._notices.send_digests(day, write, now=now)
        except SourceError as error:  # tried again in the next cycle, as long as it is news
            log.warning("digest_delayed", reason=error)
            return OutboxBatch()

    def _has_notices(self) -> bool:
        """Whether anybody is to be told, and what was told before is known."""
        if not self._settings.notify.channels or self._outbox is None:
            return False
        if not self._has_record:
            hours = max(24 * RECORD_DAYS, self._settings.notify.repeat_hours)
            try:
                self._told.load(self._outbox.read_notes(round((self._clock() - hours * 3600) * 1000)))
                self._has_record = True
            except SQLAlchemyError as error:
                self._outbox.complain(error)
        return self._has_record

    def _put(self, mail: OutboxBatch) -> None:
        if self._outbox is None or self._dispatcher is None:
            return
        self._outbox.put(mail.events, mail.notes, at_ms=round(self._clock() * 1000))
        self._dispatcher.wake()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
            self._last_fault = ""
        # A fault nobody foresaw: said once, and the next cycle tries again.
        except Exception as error:  # noqa: BLE001
            fault = describe_error(error)
            if fault != self._last_fault:
                log.warning("telling_failed", reason=fault)
            self._last_fault = fault
