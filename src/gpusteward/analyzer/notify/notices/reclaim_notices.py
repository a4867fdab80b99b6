"""Notices of reclaim: warnings before an action, and what was done, restored or refused (pure)."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpusteward.analyzer.notify.notices.formatting import format_time, safe_line, safe_name
from gpusteward.analyzer.notify.notices.messages import MessageOptions
from gpusteward.analyzer.notify.notices.notice_history import NoticeKind, clean_key
from gpusteward.analyzer.notify.outbox.records import NOTICE, NoticeRecord, OutboxBatch, OutboxEvent, make_event_key
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.containers import WorkloadKey
from gpusteward.core.gpu_counts import format_gpus
from gpusteward.core.messages import Message
from gpusteward.messages import notices as messages

TEXTS = {
    NoticeKind.WARNING: (messages.RECLAIM_WARNING_TITLE, messages.RECLAIM_WARNING),
    NoticeKind.ACTION: (messages.RECLAIM_ACTED_TITLE, messages.RECLAIM_ACTED),
    NoticeKind.RESTORED: (messages.RECLAIM_RESTORED_TITLE, messages.RECLAIM_RESTORED),
    NoticeKind.REFUSED: (messages.RECLAIM_REFUSED_TITLE, messages.RECLAIM_REFUSED),
}


@dataclass(frozen=True, slots=True)
class ReclaimNotice:
    """One notice about one workload."""

    kind: NoticeKind
    workload: WorkloadKey
    pod: str  # one of its pods, to read the notify annotation from
    gpus: float
    idle_since: float
    action_id: str
    action: str  # suspend, scale-to-keep, evict
    policy: str
    text: Message  # what changes or has changed, or why it is refused
    at: float
    due_at: float | None = None  # of a warning: when it would be acted on
    by: str = ""
    number: int = 0  # of a warning: which one


def write_reclaim(notice: ReclaimNotice, options: MessageOptions) -> str:
    """The first line is the title."""
    language = options.language
    title, body = TEXTS[notice.kind]
    workload = safe_name(f"{notice.workload.kind} {notice.workload.namespace} {notice.workload.name}")
    fields = {
        "workload": workload,
        "gpus": format_gpus(notice.gpus),
        "since": format_time(notice.idle_since, options.time_zone),
        "due": format_time(notice.due_at or notice.at, options.time_zone),
        "text": safe_line(notice.text.text(language)),
        "action": notice.action_id,
        "policy": safe_name(notice.policy),
        "by": safe_name(notice.by),
    }
    return f"{title.text(language, **fields)}\n{body.text(language, **fields)}"


def add_reclaim_notice(
    batch: OutboxBatch, notice: ReclaimNotice, channel: str, targets: Sequence[str], options: MessageOptions
) -> None:
    """An event per address of the channel, and a record."""
    body = write_reclaim(notice, options)
    key = make_event_key(notice.kind, notice.action_id, str(notice.number), channel)
    for target in targets:
        batch.events.append(OutboxEvent(target, make_event_key(key, target), NOTICE, target, body))
    workload = clean_key(notice.workload)
    batch.notices.append(
        NoticeRecord(
            key=key,
            kind=notice.kind,
            cluster=workload.cluster,
            namespace=workload.namespace,
            owner_kind=workload.kind,
            owner_name=workload.name,
            channel=channel,
            body=body,
        )
    )


def make_options(settings: Settings, channel: str) -> MessageOptions:
    notify = settings.notify
    return MessageOptions(
        language=notify.languages.get(channel, notify.language),
        time_zone=notify.time_zone,
        currency=settings.prices.currency,
        repeat_hours=notify.repeat_hours,
        window_seconds=0.0,
    )
