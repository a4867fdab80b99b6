"""Warnings and other notices of reclaim, through the outbox of `notify`.

A warning counts when a row of it in the outbox is done: then somebody has received it. One that waits for its receiver
is sent only if the cycle renews it. In observe mode nobody is
warned; the plan goes on as if a warning were delivered at once.
"""

from collections.abc import Mapping

from gpusteward.analyzer.notify.notices.reclaim_notices import ReclaimNotice
from gpusteward.analyzer.notify.notifier import Notifier
from gpusteward.analyzer.notify.outbox.records import NoticeKind
from gpusteward.analyzer.reclaim.execution.journal import Action, Warned
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.core.messages import Message

KINDS = {
    "warning": NoticeKind.WARNING,
    "acted": NoticeKind.ACTION,
    "restored": NoticeKind.RESTORED,
    "reverted": NoticeKind.REFUSED,
    "refused": NoticeKind.REFUSED,
}


class Notices:
    """Writes notices about actions, and finds out whether warnings were delivered."""

    def __init__(self, notifier: Notifier | None) -> None:
        self._notifier = notifier

    def tell(self, kind: str, action: Action, *, text: Message, at: float) -> tuple[str, ...]:
        """A notice that something has happened."""
        return self._send(KINDS[kind], action, text=text, at=at) if action.mode is Mode.ENFORCE else ()

    def warn(self, action: Action, *, text: Message, at: float, due_at: float | None) -> Warned:
        """Send the next warning of an action. The same one a second time changes nothing."""
        if action.mode is Mode.OBSERVE:
            return Warned((), at, at)
        number = len(action.warnings)
        keys = self._send(NoticeKind.WARNING, action, text=text, at=at, due_at=due_at, number=number)
        return Warned(keys, at)

    def renew(self, action: Action, *, text: Message, at: float, due_at: float | None) -> None:
        """The last warning of an action is still true, if with another time; those before it are not sent any more."""
        if self._notifier is not None and action.warnings and action.warnings[-1].keys:
            number = len(action.warnings) - 1
            notice = _make_notice(NoticeKind.WARNING, action, text=text, at=at, due_at=due_at, number=number)
            self._notifier.renew_reclaim_notice(notice)

    def update(self, warnings: tuple[Warned, ...]) -> tuple[Warned, ...]:
        """The same warnings with the time of their delivery, as far as it is known. Raises SourceError."""
        waiting = [key for each in warnings if each.delivered_at is None for key in each.keys]
        delivered = self._notifier.read_delivered(waiting) if waiting and self._notifier else {}
        if not delivered:
            return warnings
        return tuple(each if each.delivered_at is not None else _mark(each, delivered) for each in warnings)

    def _send(
        self,
        kind: NoticeKind,
        action: Action,
        *,
        text: Message,
        at: float,
        due_at: float | None = None,
        number: int = 0,
    ) -> tuple[str, ...]:
        if self._notifier is None:
            return ()
        notice = _make_notice(kind, action, text=text, at=at, due_at=due_at, number=number)
        return self._notifier.send_reclaim_notice(notice)


def _make_notice(
    kind: NoticeKind, action: Action, *, text: Message, at: float, due_at: float | None, number: int
) -> ReclaimNotice:
    pods = action.evidence.get("allocations") or ()
    return ReclaimNotice(
        kind=kind,
        workload=action.workload,
        pod=str(pods[0]["pod"]) if pods else "",
        gpus=action.gpus,
        idle_since=action.idle_since,
        action_id=action.id,
        action=action.action.value,
        policy=action.policy,
        text=text,
        at=at,
        due_at=due_at,
        by=action.by,
        number=number,
    )


def _mark(warned: Warned, delivered: Mapping[str, float]) -> Warned:
    times = [delivered[key] for key in warned.keys if key in delivered]
    return warned._replace(delivered_at=min(times)) if times else warned
