"""Notices of reclaim: warnings before an action, and what was done, restored or refused (pure)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpusteward.analyzer.notify.links import LinkSigner, make_details_button, make_snooze_buttons
from gpusteward.analyzer.notify.notices.formatting import format_duration, format_time, safe_line, safe_name
from gpusteward.analyzer.notify.notices.messages import MessageOptions, name_workload, write_as_of
from gpusteward.analyzer.notify.notices.routing import clean_key
from gpusteward.analyzer.notify.outbox.records import (
    NOTICE,
    Button,
    NoticeKind,
    NoticeRecord,
    OutboxBatch,
    OutboxEvent,
    make_event_key,
    make_stream,
    write_buttons,
)
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.containers import WorkloadKey
from gpusteward.core.gpu_counts import format_gpus
from gpusteward.core.messages import Language, Message
from gpusteward.messages import notices as messages

TITLES = {
    NoticeKind.WARNING: messages.RECLAIM_WARNING_TITLE,
    NoticeKind.ACTION: messages.RECLAIM_ACTED_TITLE,
    NoticeKind.RESTORED: messages.RECLAIM_RESTORED_TITLE,
    NoticeKind.REFUSED: messages.RECLAIM_REFUSED_TITLE,
}
_LINES: Mapping[NoticeKind, tuple[Message, ...]] = {
    NoticeKind.WARNING: (
        *(messages.RECLAIM_IDLE, messages.RECLAIM_DUE, messages.RECLAIM_HOW_TO_KEEP),
        messages.RECLAIM_UNDONE_LATER,
    ),
    NoticeKind.ACTION: (
        *(messages.RECLAIM_IDLE, messages.RECLAIM_CHANGED, messages.RECLAIM_BY, messages.RECLAIM_HOW_TO_RESTORE),
    ),
    NoticeKind.RESTORED: (messages.RECLAIM_CHANGED, messages.RECLAIM_BY, messages.RECLAIM_COOL_DOWN),
    NoticeKind.REFUSED: (messages.RECLAIM_IDLE, messages.RECLAIM_REASON),
}
_EVICT = "evict"


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
    fields = {
        "workload": name_workload(notice.workload, options),
        "name": name_workload(notice.workload, options),
        "gpus": format_gpus(notice.gpus),
        "since": format_time(notice.idle_since, options.time_zone),
        "duration": format_duration(max(0.0, notice.at - notice.idle_since), language),
        "due": format_time(notice.due_at or notice.at, options.time_zone),
        "text": safe_line(notice.text.text(language)),
        "policy": safe_name(notice.policy),
        "by": safe_name(notice.by),
    }
    lines = [line.text(language, **fields) for line in _LINES[notice.kind] if _applies(line, notice)]
    return "\n".join((TITLES[notice.kind].text(language, **fields), write_as_of(notice.at, options), *lines))


def _applies(line: Message, notice: ReclaimNotice) -> bool:
    """A bare pod that was evicted is gone."""
    if line in (messages.RECLAIM_UNDONE_LATER, messages.RECLAIM_HOW_TO_RESTORE):
        return notice.action != _EVICT
    return line is not messages.RECLAIM_BY or bool(notice.by)


def make_buttons(
    notice: ReclaimNotice, signer: LinkSigner, public_url: str, *, channel: str, language: Language
) -> list[Button]:
    """Those of the choices that a warning has, and one to the web UI; none without an address that people can reach."""
    if not public_url:
        return []
    buttons = [make_details_button(public_url, notice.workload, language=language)]
    if notice.kind is not NoticeKind.WARNING:
        return buttons
    snooze = make_snooze_buttons(signer, public_url, notice.workload, channel=channel, language=language, now=notice.at)
    return [*snooze, *buttons]


def add_reclaim_notice(
    batch: OutboxBatch,
    notice: ReclaimNotice,
    channel: str,
    *,
    targets: Sequence[str],
    options: MessageOptions,
    buttons: Sequence[Button] = (),
) -> None:
    """An event per address of the channel, and a record."""
    body = write_reclaim(notice, options)
    key = make_event_key(notice.kind, notice.action_id, str(notice.number), channel)
    headers = write_buttons(buttons)
    for target in targets:
        stream = make_stream(target, notice.kind)
        batch.events.append(OutboxEvent(stream, make_event_key(key, target), NOTICE, target, body, headers))
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
