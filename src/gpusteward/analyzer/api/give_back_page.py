"""/snooze/give-back and /snooze/restore: whoever got the link of a warning suspends the workload now, or undoes that.

Links are forwarded, and opened by chat robots. So GET changes nothing; it is offered only on channels that the settings
name, in mode `enforce`, where a policy of the file suspends the workload; a second page says what stops and how it
comes back; every guard but window and warning holds; and a link is good for it once. The journal is the record of
that: the action is `by` the channel and a digest of the link. Restoring is limited to what the same link suspended.
"""

import hashlib
from html import escape
from http import HTTPStatus

from fastapi import APIRouter, Request, Response

from gpusteward.analyzer.api.dependencies import ApiDependencies, Service
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.snooze_page import (
    Token,
    make_fact,
    make_form,
    make_paragraph,
    may_give_back,
    name_link,
    read_link,
    send_page,
    send_refusal,
)
from gpusteward.analyzer.notify.links import SNOOZE_PATH, SnoozeLink
from gpusteward.analyzer.notify.notices.formatting import format_time
from gpusteward.analyzer.reclaim.execution.journal import Action
from gpusteward.analyzer.reclaim.plan import Asker, Decision, ReclaimControl
from gpusteward.core.messages import Message
from gpusteward.logs import Log
from gpusteward.messages import snooze_page as messages

log = Log(__name__)

router = APIRouter(include_in_schema=False)

MOST_ACTIONS = 100
"""Of one workload, the newest, among which that of a link is looked for: a link ends after two days."""


def name_asker(link: SnoozeLink, token: str) -> str:
    """Of the journal: the channel, and which link it was."""
    return f"link ({link.channel}) {hashlib.sha256(token.encode()).hexdigest()[:16]}"


@router.get(f"{SNOOZE_PATH}/give-back")
async def ask(request: Request, dependencies: Service, token: Token = "") -> Response:
    """What would stop, how it comes back, and one button."""
    link = read_link(dependencies, token)
    if isinstance(link, Message):
        return send_refusal(request, link, root="../")
    control = dependencies.reclaim
    if control is None or not may_give_back(dependencies, link):
        return _send(HTTPStatus.CONFLICT, make_paragraph(messages.NOT_OFFERED.text(link.language)), link)
    try:
        decision = await dependencies.ask_reclaim(lambda: control.preview(link.workload, asker=Asker.LINK))
    except ProblemError as error:
        return _refuse(link, error)
    content = _describe(dependencies, link, decision)
    content += make_form(f"?link={token}", messages.GIVE_BACK_NOW.text(link.language))
    return _send(HTTPStatus.OK, content, link)


@router.post(f"{SNOOZE_PATH}/give-back")
async def confirm(request: Request, dependencies: Service, token: Token = "") -> Response:
    """Suspend it, once for each link."""
    link = read_link(dependencies, token)
    if isinstance(link, Message):
        return send_refusal(request, link, root="../")
    language, control, by = link.language, dependencies.reclaim, name_asker(link, token)
    if control is None or not may_give_back(dependencies, link):
        return _send(HTTPStatus.CONFLICT, make_paragraph(messages.NOT_OFFERED.text(language)), link)
    try:
        if await _find_own(dependencies, control, link, by) is not None:
            return _send(HTTPStatus.CONFLICT, make_paragraph(messages.USED.text(language)), link)
        log.info("suspend_requested", by=by, workload=name_link(link))
        await dependencies.ask_reclaim(lambda: control.suspend(link.workload, by=by, asker=Asker.LINK))
    except ProblemError as error:
        return _refuse(link, error)
    content = make_paragraph(messages.GIVEN_BACK.text(language, workload=name_link(link)))
    content += make_form(f"restore?link={token}", messages.RESTORE.text(language))
    return _send(HTTPStatus.OK, content, link)


@router.get(f"{SNOOZE_PATH}/restore")
async def ask_restore(request: Request, dependencies: Service, token: Token = "") -> Response:
    """One button."""
    link = read_link(dependencies, token)
    if isinstance(link, Message):
        return send_refusal(request, link, root="../")
    content = make_paragraph(messages.RESTORE_QUESTION.text(link.language, workload=name_link(link)))
    return _send(HTTPStatus.OK, content + make_form(f"?link={token}", messages.RESTORE.text(link.language)), link)


@router.post(f"{SNOOZE_PATH}/restore")
async def restore(request: Request, dependencies: Service, token: Token = "") -> Response:
    """Put the original back, where this very link has suspended it. Giving back to owners is allowed in every mode."""
    link = read_link(dependencies, token)
    if isinstance(link, Message):
        return send_refusal(request, link, root="../")
    control, by = dependencies.reclaim, name_asker(link, token)
    try:
        found = await _find_own(dependencies, control, link, by) if control is not None else None
        if control is None or found is None or not found.is_open:
            return _send(HTTPStatus.CONFLICT, make_paragraph(messages.NOTHING_TO_RESTORE.text(link.language)), link)
        action_id = found.id
        await dependencies.ask_reclaim(lambda: control.restore(action_id, by=by))
    except ProblemError as error:
        return _refuse(link, error)
    text = messages.RESTORED.text(link.language, workload=name_link(link))
    return _send(HTTPStatus.OK, make_paragraph(text), link)


async def _find_own(dependencies: ApiDependencies, control: ReclaimControl, link: SnoozeLink, by: str) -> Action | None:
    """The action that this link asked for."""
    found = await dependencies.ask_reclaim(
        lambda: control.read_actions(visible=None, workload=link.workload, limit=MOST_ACTIONS)
    )
    return next((each for each in found if each.by == by), None)


def _describe(dependencies: ApiDependencies, link: SnoozeLink, decision: Decision) -> str:
    language, zone = link.language, dependencies.settings.current.notify.time_zone
    stops = "; ".join(each.text for each in decision.changes)
    facts = make_fact(messages.STOPS, stops, language) if stops else ""
    if decision.other_pods:
        names = ", ".join(each.name for each in decision.other_pods[:10])
        facts += f"<dd>{escape(messages.OTHER_PODS.text(language, pods=names))}</dd>"
    facts += f"<dd>{escape(messages.LOSS.text(language))}</dd>"
    back = messages.BY_LINK.text(language, time=format_time(link.expires_at, zone), workload=name_link(link))
    return f"<dl>{facts}{make_fact(messages.COMES_BACK, back, language)}</dl>"


def _refuse(link: SnoozeLink, error: ProblemError) -> Response:
    text = messages.REFUSED.text(link.language, reason=error.text(link.language))
    return _send(HTTPStatus(error.status), make_paragraph(text), link)


def _send(status: HTTPStatus, content: str, link: SnoozeLink) -> Response:
    return send_page(status, content, link.language, heading=name_link(link), root="../")
