"""Notices of reclaim: warnings before an action, and what was done, restored or refused (pure)."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpusteward.analyzer.ledger.snoozes import clean_workload
from gpusteward.analyzer.notify.links import LinkSigner, make_details_button, make_snooze_buttons
from gpusteward.analyzer.notify.notices.formatting import format_duration, format_time, safe_line, safe_name
from gpusteward.analyzer.notify.notices.messages import MessageOptions, name_workload, write_as_of
from gpusteward.analyzer.notify.notices.routing import ChannelRouter
from gpusteward.analyzer.notify.outbox.records import Button, NoticeKind, OutboxBatch, make_event_key, write_buttons
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.gpu_counts import format_gpus
from gpusteward.core.messages import Language, Message
from gpusteward.core.node.containers import WorkloadKey
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
    language, name = options.language, name_workload(notice.workload, options)
    fields = {
        "workload": name,
        "name": name,
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


def plan_reclaim(notice: ReclaimNotice, settings: Settings, signer: LinkSigner, *, annotation: str) -> OutboxBatch:
    """To every channel of the workload; `annotation`: of its pod."""
    batch, router, workload = OutboxBatch(), ChannelRouter(settings.notify), clean_workload(notice.workload)
    for channel in router.find(notice.workload.namespace, annotation=annotation):
        options = MessageOptions.of(settings, channel)
        key = make_event_key(notice.kind, notice.action_id, str(notice.number), channel)
        buttons = _make_buttons(notice, signer, settings.server.public_url, channel=channel, language=options.language)
        body, headers = write_reclaim(notice, options), write_buttons(buttons)
        targets = router.targets(channel)
        batch.add_notice(notice.kind, channel, targets, {key: workload}, key=key, body=body, headers=headers)
    return batch


def _make_buttons(
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
