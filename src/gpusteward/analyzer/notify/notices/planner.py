"""Decides what people are told in a cycle: nothing too often, nothing at night, one message instead of many.

What may not be told now is not stored up: while it stays true it is found again in the next cycle, and told then.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from gpusteward.analyzer.judge.workloads import WorkloadKey
from gpusteward.analyzer.notify.channels import channel_target
from gpusteward.analyzer.notify.notices.findings import FindingMaker, IdleFinding, idle_workloads
from gpusteward.analyzer.notify.notices.messages import MessageOptions, write_found, write_idle, write_lost
from gpusteward.analyzer.notify.notices.notice_history import NoticeHistory, NoticeKind, clean_key
from gpusteward.analyzer.notify.notices.quiet_hours import is_quiet
from gpusteward.analyzer.notify.outbox.records import NoticeRecord, OutboxEvent
from gpusteward.analyzer.notify.routes import Routes
from gpusteward.analyzer.notify.signing import make_key
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings

ReadNotifyAnnotation = Callable[
    [str, str], str
]  # namespace, pod -> the annotation gpusteward.io/notify; empty: there is none
WriteDigest = Callable[[Sequence[str], MessageOptions], str]  # about these namespaces, none: about all

NOBODY: WorkloadKey = ("", "", "")
DIGESTS_A_CYCLE = 5
"""Each is a report of its own; the other channels get theirs with the next cycles."""


@dataclass
class OutboxBatch:
    """What goes into the outbox together."""

    events: list[OutboxEvent] = field(default_factory=list)
    notes: list[NoticeRecord] = field(default_factory=list)


class Notices:
    """For one state of the settings; `told` outlives it."""

    def __init__(self, settings: Settings, told: NoticeHistory, *, read_wish: ReadNotifyAnnotation) -> None:
        self._settings = settings
        self._notify = settings.notify
        self._told = told
        self._routes = Routes(settings.notify)
        self._read_wish = read_wish
        self._window_seconds = 0.0
        self._longest_wait_ms = round(max(self._notify.repeat_hours, self._notify.owner_minutes / 60) * 3_600_000)

    def find_idle(self, result: Result, *, now: float) -> OutboxBatch:
        """Workloads that are idle for long enough and were not told of lately."""
        mail = OutboxBatch()
        if not self._notify.channels or is_quiet(now, self._notify.quiet_hours, self._notify.time_zone):
            return mail
        self._window_seconds = result.verdicts.usage.window_seconds
        self._told.forget(_ms(now) - self._longest_wait_ms)
        for channel, by_namespace in self._route(self._due(result, now=now)).items():
            allowed = [
                findings
                for namespace, findings in sorted(by_namespace.items())
                if self._told.may_tell(
                    (NoticeKind.IDLE, channel, namespace), now_ms=_ms(now), minutes=self._notify.owner_minutes
                )
            ]
            for findings in self._merge(allowed):
                self._tell_idle(mail, channel, findings, at=result.at, now=now)
        return mail

    def lose_source(self, reason: str, *, since: float, now: float) -> OutboxBatch:
        """Nothing could be read; people are told after a while, and again after a long one. Day and night."""
        wait_hours = self._notify.owner_minutes / 60 if self._told.lost_ms is None else self._notify.repeat_hours
        has_waited = now - since >= self._notify.lost_minutes * 60
        if not has_waited or not self._told.is_due(NoticeKind.LOST, NOBODY, now_ms=_ms(now), repeat_hours=wait_hours):
            return OutboxBatch()
        return self._tell_default(
            NoticeKind.LOST, now, lambda options: write_lost(reason, options, since=since, now=now)
        )

    def find_source(self, *, now: float) -> OutboxBatch:
        """It can be read again: whoever was told that it could not is told so."""
        lost_ms = self._told.lost_ms
        if lost_ms is None:
            return OutboxBatch()
        return self._tell_default(
            NoticeKind.FOUND, now, lambda options: write_found(options, since=lost_ms / 1000, now=now)
        )

    def send_digests(self, day: date, write: WriteDigest, *, now: float) -> OutboxBatch:
        """One a channel, about the namespaces it is told about, once for that day."""
        mail = OutboxBatch()
        if is_quiet(now, self._notify.quiet_hours, self._notify.time_zone):
            return mail
        audiences = self._routes.audiences()
        keys = {channel: make_key(NoticeKind.DIGEST, channel, day.isoformat()) for channel in audiences}
        due = [channel for channel, key in keys.items() if not self._told.has_told(key)]
        bodies = {channel: write(audiences[channel], self._manner(channel)) for channel in due[:DIGESTS_A_CYCLE]}
        for channel, body in bodies.items():  # only when all could be written: what is noted must be sent
            self._add(mail, channel, body, key=keys[channel])
            self._note(mail, NoticeKind.DIGEST, channel, [NOBODY], body=body, key=keys[channel], now=now)
        return mail

    def _due(self, result: Result, *, now: float) -> Iterable[IdleFinding]:
        numbers = idle_workloads(result, minutes=self._notify.idle_minutes)
        keys = result.workloads.keys
        due = [
            number
            for number in numbers
            if self._told.is_due(
                NoticeKind.IDLE, clean_key(keys[number]), now_ms=_ms(now), repeat_hours=self._notify.repeat_hours
            )
        ]
        return FindingMaker(result).make(due) if due else ()

    def _route(self, findings: Iterable[IdleFinding]) -> Mapping[str, Mapping[str, list[IdleFinding]]]:
        """By channel and namespace."""
        routed: dict[str, dict[str, list[IdleFinding]]] = defaultdict(lambda: defaultdict(list))
        for finding in findings:
            wish = self._read_wish(finding.namespace, finding.pod) if self._notify.annotation else ""
            for channel in self._routes.find(finding.namespace, wish=wish):
                routed[channel][finding.namespace].append(finding)
        return routed

    def _merge(self, groups: list[list[IdleFinding]]) -> list[list[IdleFinding]]:
        """One message an owner; where one channel would get many of them, one for all."""
        if len(groups) <= self._notify.merge_above:
            return groups
        return [[finding for group in groups for finding in group]]

    def _tell_idle(
        self, mail: OutboxBatch, channel: str, findings: Sequence[IdleFinding], *, at: float, now: float
    ) -> None:
        namespaces = sorted({finding.namespace for finding in findings})
        key = make_key(NoticeKind.IDLE, channel, *namespaces, str(_ms(at)))
        body = write_idle(findings, self._manner(channel))
        self._add(mail, channel, body, key=key)
        workloads = [clean_key(finding.key) for finding in findings]
        self._note(mail, NoticeKind.IDLE, channel, workloads, body=body, key=key, now=now)

    def _tell_default(self, kind: NoticeKind, now: float, write: Callable[[MessageOptions], str]) -> OutboxBatch:
        mail = OutboxBatch()
        for channel in self._routes.default:
            key = make_key(kind, channel, str(_ms(now)))
            body = write(self._manner(channel))
            self._add(mail, channel, body, key=key)
            self._note(mail, kind, channel, [NOBODY], body=body, key=key, now=now)
        return mail

    def _add(self, mail: OutboxBatch, channel: str, body: str, *, key: str) -> None:
        for number in range(self._routes.count_addresses(channel)):
            target = channel_target(channel, number)
            mail.events.append(OutboxEvent(target, make_key(key, target), "notice", target, body))

    def _note(
        self,
        mail: OutboxBatch,
        kind: NoticeKind,
        channel: str,
        workloads: Sequence[WorkloadKey],
        *,
        body: str,
        key: str,
        now: float,
    ) -> None:
        """`key` is the message's; a workload's begins with it. The text is kept once."""
        for number, workload in enumerate(workloads):
            owner_kind, namespace, name = workload
            own = key if workload == NOBODY else f"{key}/{make_key(*workload)}"
            mail.notes.append(NoticeRecord(own, kind, namespace, owner_kind, name, channel, body if not number else ""))
            self._told.note(kind, channel, workload, at_ms=_ms(now), key=own)

    def _manner(self, channel: str) -> MessageOptions:
        return MessageOptions(
            language=self._notify.languages.get(channel, self._notify.language),
            zone=self._notify.time_zone,
            currency=self._settings.prices.currency,
            repeat_hours=self._notify.repeat_hours,
            window_seconds=self._window_seconds,
        )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
