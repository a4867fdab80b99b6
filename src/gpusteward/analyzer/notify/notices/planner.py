"""Decides which notices a cycle sends: no repetition within the repeat interval, no idle notices in quiet hours, one
message for many workloads.

An idle notice that must wait is not stored: if the workload is still idle, a later cycle sends the notice. One that is
stored and waits for its receiver is reviewed in every cycle: `review_idle`.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Engine

from gpusteward.analyzer.ledger.snoozes import clean_workload
from gpusteward.analyzer.notify.notices.digest import find_due_digest, read_week, write_digest
from gpusteward.analyzer.notify.notices.idle_workloads import (
    NoticeWorkload,
    NoticeWorkloadBuilder,
    find_idle_workloads,
    find_stalled_workloads,
)
from gpusteward.analyzer.notify.notices.messages import (
    MessageOptions,
    write_idle,
    write_outage,
    write_recovery,
    write_stalled,
)
from gpusteward.analyzer.notify.notices.routing import ChannelRouter, NoticeHistory, is_quiet
from gpusteward.analyzer.notify.outbox.records import (
    ASKED,
    NoticeKind,
    OutboxBatch,
    OutboxEvent,
    PendingDelivery,
    Review,
    Subject,
    make_event_key,
    make_stream,
    read_channel,
    read_subject,
    write_subject,
)
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.tables import ACTIVITIES
from gpusteward.core.errors import SourceError
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Activity
from gpusteward.logs import Log

log = Log(__name__)

ReadNotifyAnnotation = Callable[[str, str, str], str]
"""Namespace, pod and cluster -> value of the annotation gpusteward.io/notify; empty: there is none."""

_Tenant = tuple[str, str]  # cluster, namespace
NO_WORKLOAD = WorkloadKey("", "", "")
NO_HEADERS: Mapping[str, str] = {}
DIGESTS_PER_CYCLE = 5
"""Each digest reads its own report; the other channels get theirs in the next cycles."""


class NoticePlanner:
    """Created again when the settings change; `history` is kept."""

    def __init__(
        self,
        settings: Settings,
        history: NoticeHistory,
        *,
        engine: Engine | None,
        read_notify_annotation: ReadNotifyAnnotation,
    ) -> None:
        """`engine` is the ledger's, for digests; None without a ledger."""
        self._settings, self._notify = settings, settings.notify
        self._history = history
        self._engine = engine
        self._router = ChannelRouter(settings.notify)
        self._read_notify_annotation = read_notify_annotation
        self._window_seconds = 0.0
        self._with_cluster = False
        self._longest_interval_ms = round(max(self._notify.repeat_hours, self._notify.owner_minutes / 60) * 3_600_000)

    def plan(self, result: Result, *, now: float, snoozed: Collection[WorkloadKey] = ()) -> OutboxBatch:
        """All notices of a successful cycle; none about idle GPUs of `snoozed` workloads."""
        self._follow_result(result)
        batch = self.plan_recovery(now=now)
        batch.extend(self.plan_stalled(result, now=now, snoozed=snoozed))
        batch.extend(self.plan_idle(result, now=now, snoozed=snoozed))
        batch.extend(self._plan_digests(result, now=now))
        return batch

    def plan_idle(self, result: Result, *, now: float, snoozed: Collection[WorkloadKey] = ()) -> OutboxBatch:
        """Workloads that are idle for long enough and were not reported recently. `snoozed`: as the ledger has them."""
        batch = OutboxBatch()
        idle = find_idle_workloads(result, minutes=self._notify.idle_minutes)
        due = self._find_due(NoticeKind.IDLE, idle, result, snoozed, now=now)
        if not due:
            return batch
        builder = NoticeWorkloadBuilder(result)
        for channel, found in due.items():
            # One message per namespace; where a channel would get too many of them, one message for all.
            is_merged = len(found) > self._notify.merge_above
            for numbers in [[each for group in found for each in group]] if is_merged else found:
                self._add_idle(batch, channel, list(builder.build(numbers)), at=result.at, now=now)
        return batch

    def plan_stalled(self, result: Result, *, now: float, snoozed: Collection[WorkloadKey] = ()) -> OutboxBatch:
        """Workloads that are busy without doing anything, at once: one message per channel and namespace."""
        batch = OutboxBatch()
        due = self._find_due(NoticeKind.STALLED, find_stalled_workloads(result), result, snoozed, now=now)
        for channel, found in sorted(due.items()):
            for numbers in found:
                keys = [clean_workload(result.workloads.keys[number]) for number in numbers]
                tenant = keys[0].cluster, keys[0].namespace
                event_key = make_event_key(NoticeKind.STALLED, channel, *tenant, str(_ms(result.at)))
                body = write_stalled(result, numbers, self._message_options(channel))
                self._add(batch, NoticeKind.STALLED, channel, keys, body=body, key=event_key, now=now)
        return batch

    def plan_now(self, result: Result, number: int, *, now: float) -> OutboxBatch:
        """About one idle workload because somebody asks for it: also in quiet hours, and whatever was sent before. The
        same again within a minute is the same message."""
        batch = OutboxBatch()
        self._follow_result(result)
        idle_workloads = list(NoticeWorkloadBuilder(result).build([number]))
        workload = clean_workload(result.workloads.keys[number])
        for channel in self._find_channels(result, number):
            key = make_event_key(NoticeKind.IDLE, "now", channel, *workload, str(_ms(now) // 60_000))
            body = write_idle(idle_workloads, self._message_options(channel), at=result.at)
            headers = write_subject(Subject(key, 0.0, (workload,)))
            self._add(batch, NoticeKind.IDLE, channel, [workload], body=body, key=key, now=now, headers=headers)
        batch.events = [replace(each, stream=make_stream(each.target, ASKED)) for each in batch.events]
        return batch

    def review_idle(
        self, waiting: Sequence[PendingDelivery], result: Result, *, snoozed: Collection[WorkloadKey] = ()
    ) -> Review:
        """What is true now of notices about idle workloads that wait for their receiver. A workload that is in use
        again, gone or snoozed is not mentioned any more; one whose use is unknown is, when it is idle again."""
        if not waiting:
            return Review()
        self._follow_result(result)
        numbers = {clean_workload(key): number for number, key in enumerate(result.workloads.keys)}
        builder, renewed, withdrawn = NoticeWorkloadBuilder(result), list[OutboxEvent](), list[str]()
        ended: dict[str, tuple[str, WorkloadKey]] = {}  # by the key of their record
        for row in waiting:
            subject, channel = read_subject(row.headers), read_channel(row.target)
            found = {key: numbers[key] for key in subject.workloads if key in numbers and key not in snoozed}
            long = frozenset(find_idle_workloads(result, minutes=subject.idle_minutes))
            idle = [number for number in found.values() if number in long]
            kept = tuple(key for key, number in found.items() if number in long or _is_unknown(result, number))
            ended |= {
                _make_record_key(subject.message, key): (channel, key) for key in subject.workloads if key not in kept
            }
            if idle:
                body = write_idle(list(builder.build(idle)), self._message_options(channel), at=result.at)
                headers = write_subject(Subject(subject.message, subject.idle_minutes, kept))
                renewed.append(OutboxEvent(row.stream, row.key, row.kind, row.target, body, headers))
            elif not kept:
                withdrawn.append(row.key)
        return Review(renewed, withdrawn, list(ended), list(ended.values()))

    def plan_outage(self, reason: str | SourceError, *, since: float, now: float) -> OutboxBatch:
        """Usage cannot be read. Sent after `lost_minutes`, then every `repeat_hours`, also in quiet hours."""
        notify, is_new = self._notify, self._history.outage_ms is None
        interval_hours = notify.owner_minutes / 60 if is_new else notify.repeat_hours
        is_long = now - since >= notify.lost_minutes * 60
        if not is_long or not self._is_due(NoticeKind.OUTAGE, NO_WORKLOAD, now=now, hours=interval_hours):
            return OutboxBatch()
        return self._plan_for_default_channels(
            NoticeKind.OUTAGE, now, lambda options: write_outage(reason, options, since=since, now=now)
        )

    def plan_recovery(self, *, now: float) -> OutboxBatch:
        """Usage can be read again: sent if the outage was announced."""
        outage_ms = self._history.outage_ms
        if outage_ms is None:
            return OutboxBatch()
        return self._plan_for_default_channels(
            NoticeKind.RECOVERY, now, lambda options: write_recovery(options, since=outage_ms / 1000, now=now)
        )

    def _follow_result(self, result: Result) -> None:
        """For the texts."""
        self._window_seconds = result.verdicts.usage.window_seconds
        self._with_cluster = len(result.verdicts.usage.clusters) > 1

    def _plan_digests(self, result: Result, *, now: float) -> OutboxBatch:
        """One per channel and week, about the namespaces of that channel."""
        batch = OutboxBatch()
        day = find_due_digest(now, self._notify.digest, self._notify.time_zone)
        if day is None or self._is_quiet(now):
            return batch
        channels = self._router.namespaces_by_channel()
        keys = {channel: make_event_key(NoticeKind.DIGEST, channel, day.isoformat()) for channel in channels}
        due = [channel for channel, key in keys.items() if not self._history.has_digest(key)][:DIGESTS_PER_CYCLE]
        bodies: dict[str, str] = {}
        for channel in due:
            namespaces, options, week = channels[channel], self._message_options(channel), None
            if self._engine is not None:
                try:
                    week = read_week(self._engine, result, namespaces=namespaces, now=now)
                except SourceError as error:  # all of them are retried in the next cycle until MAX_DIGEST_DELAY
                    log.warning("digest_delayed", reason=error)
                    return batch
            bodies[channel] = write_digest(week, result, day=day, namespaces=namespaces, options=options)
        for channel, body in bodies.items():
            self._add(batch, NoticeKind.DIGEST, channel, [NO_WORKLOAD], body=body, key=keys[channel], now=now)
        return batch

    def _is_quiet(self, now: float) -> bool:
        return is_quiet(now, self._notify.quiet_hours, self._notify.time_zone)

    def _is_due(self, kind: NoticeKind, workload: WorkloadKey, *, now: float, hours: float) -> bool:
        return self._history.is_due(kind, workload, now_ms=_ms(now), repeat_hours=hours)

    def _find_due(
        self,
        kind: NoticeKind,
        numbers: Iterable[int],
        result: Result,
        snoozed: Collection[WorkloadKey],
        *,
        now: float,
    ) -> Mapping[str, list[list[int]]]:
        """Channel -> those of these workloads that were not reported recently, by namespace, without the namespaces of
        which the channel has just got a message; none in quiet hours."""
        if not self._notify.channels or self._is_quiet(now):
            return {}
        self._follow_result(result)
        self._history.prune(_ms(now) - self._longest_interval_ms)
        by_channel: defaultdict[str, defaultdict[_Tenant, list[int]]] = defaultdict(lambda: defaultdict(list))
        for number in numbers:
            key = clean_workload(result.workloads.keys[number])
            if key in snoozed or not self._is_due(kind, key, now=now, hours=self._notify.repeat_hours):
                continue
            for channel in self._find_channels(result, number):
                by_channel[channel][key.cluster, key.namespace].append(number)
        return {
            channel: [
                found
                for tenant, found in sorted(by_tenant.items())
                if self._history.is_within_rate(
                    (kind, channel, *tenant), now_ms=_ms(now), minutes=self._notify.owner_minutes
                )
            ]
            for channel, by_tenant in by_channel.items()
        }

    def _find_channels(self, result: Result, number: int) -> Iterable[str]:
        key, annotation = result.workloads.keys[number], ""
        if self._notify.annotation:
            pod = result.verdicts.usage.allocations[result.workloads.rows(number)[0]].container.pod
            annotation = self._read_notify_annotation(key.namespace, pod, key.cluster)
        return self._router.find(key.namespace, annotation=annotation)

    def _add_idle(
        self, batch: OutboxBatch, channel: str, idle_workloads: Sequence[NoticeWorkload], *, at: float, now: float
    ) -> None:
        tenants = sorted({(each.key.cluster, each.key.namespace) for each in idle_workloads})
        namespaces = [f"{cluster}/{namespace}" if cluster else namespace for cluster, namespace in tenants]
        key = make_event_key(NoticeKind.IDLE, channel, *namespaces, str(_ms(at)))
        body = write_idle(idle_workloads, self._message_options(channel), at=at)
        keys = [clean_workload(idle_workload.key) for idle_workload in idle_workloads]
        headers = write_subject(Subject(key, self._notify.idle_minutes, tuple(keys)))
        self._add(batch, NoticeKind.IDLE, channel, keys, body=body, key=key, now=now, headers=headers)

    def _plan_for_default_channels(
        self, kind: NoticeKind, now: float, write: Callable[[MessageOptions], str]
    ) -> OutboxBatch:
        batch = OutboxBatch()
        for channel in self._router.default:
            key = make_event_key(kind, channel, str(_ms(now)))
            self._add(batch, kind, channel, [NO_WORKLOAD], body=write(self._message_options(channel)), key=key, now=now)
        return batch

    def _add(
        self,
        batch: OutboxBatch,
        kind: NoticeKind,
        channel: str,
        workloads: Sequence[WorkloadKey],
        *,
        body: str,
        key: str,
        now: float,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        """One message."""
        records = {key if each == NO_WORKLOAD else _make_record_key(key, each): each for each in workloads}
        batch.add_notice(kind, channel, self._router.targets(channel), records, key=key, body=body, headers=headers)
        for record_key, workload in records.items():
            self._history.add(kind, channel, workload, at_ms=_ms(now), key=record_key)

    def _message_options(self, channel: str) -> MessageOptions:
        return MessageOptions.of(
            self._settings, channel, window_seconds=self._window_seconds, with_cluster=self._with_cluster
        )


def _make_record_key(message: str, workload: WorkloadKey) -> str:
    return f"{message}/{make_event_key(*workload)}"


def _is_unknown(result: Result, number: int) -> bool:
    return ACTIVITIES[result.workloads.activity[number]] is Activity.UNKNOWN


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
