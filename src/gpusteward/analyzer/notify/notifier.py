"""Entry point of this package: `notify(result)` after a successful cycle, `announce_outage(reason)` after a failed one.

Both only decide what is sent and write it to the outbox; other threads deliver. An error here never fails a cycle.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.ledger.database.db_engine import describe_error
from gpusteward.analyzer.ledger.snoozes import active_snoozes
from gpusteward.analyzer.notify.alertmanager import AlertPublisher
from gpusteward.analyzer.notify.channels import build_senders
from gpusteward.analyzer.notify.control_webhook import AwaitedOpinions, control_events
from gpusteward.analyzer.notify.links import LinkSigner
from gpusteward.analyzer.notify.notices.planner import NoticePlanner, ReadNotifyAnnotation
from gpusteward.analyzer.notify.notices.reclaim_notices import ReclaimNotice, plan_reclaim
from gpusteward.analyzer.notify.notices.routing import NoticeHistory
from gpusteward.analyzer.notify.outbox.dispatcher import POLL_SECONDS, Dispatcher
from gpusteward.analyzer.notify.outbox.records import (
    Delivery,
    DeliveryCounters,
    NoticeKind,
    OutboxBatch,
    PendingDelivery,
    Review,
)
from gpusteward.analyzer.notify.outbox.store import Outbox
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.logs import Log
from gpusteward.messages.notices import OUTBOX_UNREADABLE

log = Log(__name__)

HISTORY_DAYS = 8
"""How much notice history is read at a start: the digest is weekly. `notify.repeat_hours` may require more."""


def _no_annotation(_namespace: str, _pod: str, _cluster: str) -> str:
    return ""


class Notifier:
    """`notify`, `announce_outage` and `apply_settings` are called by the thread that runs cycles, the others by any."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine | None,
        *,
        read_notify_annotation: ReadNotifyAnnotation = _no_annotation,
        clock: Callable[[], float] = time.time,
        poll_seconds: float = POLL_SECONDS,
        may_send: Callable[[], bool] = lambda: True,
        links: LinkSigner | None = None,
    ) -> None:
        """`engine` is the ledger's, None without a ledger. Deliveries wait while `may_send` is false: another replica
        sends them. Raises ConfigurationError for an unusable channel."""
        self.counters = DeliveryCounters()
        self._settings = self._last_settings = settings  # in use; last given, which may have an unusable channel
        self._engine = engine
        self._read_notify_annotation = read_notify_annotation
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._may_send = may_send
        self._links = links or LinkSigner()
        self._has_reported_links = False
        self._senders = build_senders(settings.control, settings.notify, clock=clock)
        self._history = NoticeHistory()
        self._planner = self._make_planner(settings)
        self._alerts = AlertPublisher(settings, self.counters)
        self._awaited_opinions = AwaitedOpinions()
        self._outbox: Outbox | None = None  # opened when there is a target
        self._dispatcher: Dispatcher | None = None
        self._is_running = self._has_history = False
        self._withdrawn: deque[tuple[str, WorkloadKey]] = deque()  # channel and workload of notices that nobody got
        self._outage_since: float | None = None
        self._last_fault = ""
        self._snoozed: Collection[WorkloadKey] = frozenset()
        self._planning = threading.RLock()  # the planner and its history, for cycles and for `notify_now`
        self._open_outbox()

    def start(self) -> None:
        self._is_running = True
        if self._dispatcher is not None:
            self._dispatcher.start()
        self._alerts.start()

    def stop(self, timeout_seconds: float) -> None:
        """End the threads. Rows pending in the ledger are delivered after the next start."""
        self._is_running = False
        deadline = time.monotonic() + timeout_seconds
        self._alerts.stop(timeout_seconds / 2)
        if self._dispatcher is not None and self._outbox is not None:
            self._dispatcher.stop(max(0.0, deadline - time.monotonic()))
            self._outbox.close()

    def hand_over(self) -> None:
        """Another analyzer on the same ledger notifies from now on, or did until now: what is not stored is dropped,
        and the notices of the other one are read before the next one is sent. For any thread."""
        self._has_history = False
        self._outage_since = None
        if self._outbox is not None:
            self._outbox.hand_over()

    def apply_settings(self, settings: Settings) -> None:
        """Raises ConfigurationError for an unusable channel, and changes nothing then."""
        self._senders = build_senders(settings.control, settings.notify, clock=self._clock)
        if self._outbox is not None and settings.control != self._settings.control:
            self._outbox.hold_states()
        self._settings = settings
        self._planner = self._make_planner(settings)
        self._open_outbox()
        if self._outbox is not None and self._dispatcher is not None:
            self._outbox.apply_settings(settings.outbox)
            self._dispatcher.apply_settings(settings.outbox, self._senders)
        self._alerts.apply_settings(settings)

    def notify(self, result: Result) -> None:
        """Write notices and control webhook events of a successful cycle to the outbox, and push its alerts."""
        with self._guarded():
            self._follow_settings(result.settings)
            self._outage_since = None
            snoozed = self._read_snoozed()
            self._alerts.publish(result, snoozed=snoozed)
            while self._withdrawn:  # who has not received a notice is notified when the workload is idle again
                self._history.forget(NoticeKind.IDLE, *self._withdrawn.popleft())
            batch = self._plan(result, snoozed)
            if self._outbox is not None and self._dispatcher is not None:
                self._outbox.add(
                    batch.events,
                    batch.notices,
                    at_ms=self._now_ms(),
                    replaces_states=True,
                    withdraws=(NoticeKind.OUTAGE,),
                    review=partial(self._review, self._planner, result, snoozed),
                )
                self._dispatcher.wake()

    def notify_now(self, result: Result, number: int) -> list[str]:
        """Write a notice about one idle workload of a result to the outbox, because somebody asks for it. Returns the
        names of the channels; none where there is no channel. May take as long as the database; for any thread."""
        with self._planning:
            if not self._may_send_notices():
                return []
            batch = self._planner.plan_now(result, number, now=self._clock())
            self._store(batch)
        return sorted({each.channel for each in batch.notices})

    def announce_outage(self, reason: str | SourceError, *, at: float) -> None:
        """A cycle failed: usage could not be read."""
        with self._guarded():
            if self._outbox is not None:
                self._outbox.hold_states()
            since = self._outage_since = at if self._outage_since is None else self._outage_since
            if at - since >= self._settings.notify.lost_minutes * 60:
                self._alerts.publish_outage(reason, since=since, now=at)
            if self._may_send_notices():
                batch = self._planner.plan_outage(reason, since=since, now=at)
                self._store(batch, withdraws=(NoticeKind.OUTAGE, NoticeKind.RECOVERY) if batch.events else ())

    def send_reclaim_notice(self, notice: ReclaimNotice) -> tuple[str, ...]:
        """Write a notice of reclaim to the outbox; the keys of its rows, none without a channel. The same notice a
        second time changes nothing. For any thread."""
        batch = self._write_reclaim(notice)
        self._store(batch)
        return tuple(event.key for event in batch.events)

    def renew_reclaim_notice(self, notice: ReclaimNotice) -> None:
        """A warning that waits for its receiver is still true: give it its present text. For any thread."""
        if self._outbox is not None and self._dispatcher is not None:
            self._outbox.renew(self._write_reclaim(notice).events, at_ms=self._now_ms())
            self._dispatcher.wake()

    def _write_reclaim(self, notice: ReclaimNotice) -> OutboxBatch:
        settings, key, annotation = self._settings, notice.workload, ""
        if self._outbox is None or not settings.notify.channels:
            return OutboxBatch()
        if settings.notify.annotation and notice.pod:
            annotation = self._read_notify_annotation(key.namespace, notice.pod, key.cluster)
        if not settings.server.public_url and not self._has_reported_links:
            self._has_reported_links = True
            log.warning("notices_without_links", reason="server.public_url is empty", effect="no snooze by link")
        return plan_reclaim(notice, settings, self._links, annotation=annotation)

    def read_delivered(self, keys: Collection[str]) -> Mapping[str, float]:
        """When these rows of the outbox were delivered, in unix seconds; those that were not are missing. Raises
        SourceError."""
        if self._outbox is None or not keys:
            return {}
        with _translate_errors():
            return {key: ms / 1000 for key, ms in self._outbox.read_delivered(keys).items()}

    def describe(self) -> Mapping[str, Any]:
        """The state of deliveries for /api/v1/health: no secrets, and only the hosts of addresses."""
        outbox, dispatcher = self._outbox, self._dispatcher
        return {
            "targets": sorted(self._senders),
            "alerts": self._alerts.describe(),
            "counts": self.counters.counts(),
            "failures": dict(dispatcher.failures) if dispatcher else {},
            "left_alone": dispatcher.open_hosts() if dispatcher else [],
            "outbox": outbox.describe() if outbox else {},
            "fault": self._last_fault,
        }

    def read_deliveries(self, state: str | None, limit: int) -> list[Delivery]:
        """The newest ones. Raises SourceError; may take as long as the database does."""
        if self._outbox is None:
            return []
        with _translate_errors():
            return [self._add_host(each) for each in self._outbox.read_deliveries(state, limit=limit)]

    def retry_delivery(self, number: int) -> tuple[Delivery | None, bool]:
        """The delivery with this id, and whether it was dead and is retried now. Raises SourceError."""
        if self._outbox is None or self._dispatcher is None:
            return None, False
        with _translate_errors():
            delivery, is_retried = self._outbox.retry(number, now_ms=self._now_ms())
        self._dispatcher.wake()
        return self._add_host(delivery) if delivery else None, is_retried

    def _add_host(self, delivery: Delivery) -> Delivery:
        sender = self._senders.get(delivery.target)
        return replace(delivery, host=sender.host if sender else "")

    def _make_planner(self, settings: Settings) -> NoticePlanner:
        return NoticePlanner(
            settings, self._history, engine=self._engine, read_notify_annotation=self._read_notify_annotation
        )

    def _follow_settings(self, settings: Settings) -> None:
        if settings == self._last_settings:
            return
        self._last_settings = settings
        try:
            self.apply_settings(settings)
        except ConfigurationError as error:
            log.warning("channels_not_changed", reason=error, effect="the previous channels stay in use")
            self.apply_settings(settings.model_copy(update={"notify": self._settings.notify}))

    def _open_outbox(self) -> None:
        """Without a target there is no outbox, no thread and no query to the ledger."""
        if self._outbox is not None or not self._senders:
            return
        settings = self._settings.outbox
        self._outbox = Outbox(self._engine, settings, self.counters)
        self._dispatcher = Dispatcher(
            self._outbox,
            settings,
            self.counters,
            clock=self._clock,
            poll_seconds=self._poll_seconds,
            may_send=self._may_send,
        )
        self._dispatcher.apply_settings(settings, self._senders)
        if self._is_running:
            self._dispatcher.start()

    def _plan(self, result: Result, snoozed: Collection[WorkloadKey]) -> OutboxBatch:
        """Notices first: when the outbox is nearly full, calls to the control webhook are refused before notices."""
        batch = OutboxBatch()
        if self._may_send_notices():
            batch = self._planner.plan(result, now=self._clock(), snoozed=snoozed)
        if self._settings.control.enabled:
            waiting = self._awaited_opinions.update(result)
            batch.events += control_events(result, snoozed=snoozed, waiting=waiting)
        return batch

    def _read_snoozed(self) -> Collection[WorkloadKey]:
        """While the ledger cannot be read, those of the last time. Without a target nothing is read."""
        if self._engine is None or not (self._senders or self._settings.alertmanager.url):
            return self._snoozed
        try:
            with self._engine.connect() as connection:
                self._snoozed = active_snoozes(connection, self._clock()).keys()
        except SQLAlchemyError as error:
            log.debug("snoozes_unreadable", reason=describe_error(error))
        return self._snoozed

    def _may_send_notices(self) -> bool:
        """Whether there is a channel and the notice history is loaded."""
        if not self._settings.notify.channels or self._outbox is None:
            return False
        if not self._has_history:
            hours = max(24 * HISTORY_DAYS, self._settings.notify.repeat_hours)
            try:
                self._history.clear()
                self._history.load(self._outbox.read_notices(self._now_ms() - round(hours * 3_600_000)))
                self._has_history = True
            except SQLAlchemyError as error:
                self._outbox.report_failure(error)
        return self._has_history

    def _store(self, batch: OutboxBatch, *, withdraws: Sequence[NoticeKind] = ()) -> None:
        if self._outbox is None or self._dispatcher is None:
            return
        self._outbox.add(batch.events, batch.notices, at_ms=self._now_ms(), withdraws=withdraws)
        self._dispatcher.wake()

    def _review(
        self,
        planner: NoticePlanner,
        result: Result,
        snoozed: Collection[WorkloadKey],
        waiting: Sequence[PendingDelivery],
    ) -> Review:
        """Called by the outbox, in any thread: the history, which belongs to cycles, is changed by the next one."""
        review = planner.review_idle(waiting, result, snoozed=snoozed)
        self._withdrawn.extend(review.forgotten)
        return review

    def _now_ms(self) -> int:
        return round(self._clock() * 1000)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            with self._planning:
                yield
            self._last_fault = ""
        # An unexpected error is logged once; the next cycle tries again.
        except Exception as error:  # noqa: BLE001
            fault = describe_error(error)
            if fault != self._last_fault:
                log.warning("notify_failed", reason=fault)
            self._last_fault = fault


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise SourceError(OUTBOX_UNREADABLE, reason=describe_error(error)) from error
