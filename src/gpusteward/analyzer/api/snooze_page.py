"""/snooze: the page behind a signed link in a notice. Opening it changes nothing; its button snoozes the workload.

The signature of the link is the only credential: it names one workload, and a snooze only makes reclaim more careful.
"""

from html import escape
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from gpusteward.analyzer.api.dependencies import ApiDependencies, Service
from gpusteward.analyzer.api.http.concurrency_limits import query_ledger
from gpusteward.analyzer.api.http.problems import ProblemError, find_language
from gpusteward.analyzer.api.http.responses import PAGE_POLICY, send_page
from gpusteward.analyzer.api.v1.workloads.snoozes import forget_snoozes
from gpusteward.analyzer.ledger.snoozes import Snooze, clean_workload
from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.notify.links import (
    LONGEST_TOKEN,
    SNOOZE_HOURS,
    SNOOZE_PATH,
    ExpiredLinkError,
    InvalidLinkError,
    SnoozeLink,
)
from gpusteward.analyzer.notify.notices.formatting import format_time
from gpusteward.core.messages import Language, Message
from gpusteward.logs import Log
from gpusteward.messages import snooze_page as messages

log = Log(__name__)

router = APIRouter(include_in_schema=False)

POLICY = PAGE_POLICY.replace("form-action 'none'", "form-action 'self'")

Token = Annotated[str, Query(alias="link", max_length=LONGEST_TOKEN)]
Hours = Annotated[int, Query(ge=1, le=24 * 365)]


@router.get(SNOOZE_PATH)
async def ask(request: Request, dependencies: Service, token: Token = "", hours: Hours = SNOOZE_HOURS[0]) -> Response:
    """A page with one button for each choice, that of the link first."""
    link = _read_link(dependencies, token)
    if isinstance(link, Message):
        return _send_refusal(request, link)
    language, longest = link.language, dependencies.find_longest_snooze(link.workload) / 3600
    choices = [each for each in dict.fromkeys((hours, *SNOOZE_HOURS)) if each <= longest and each in SNOOZE_HOURS]
    content = _paragraph(messages.QUESTION.text(language, workload=_name(link)))
    content += "".join(_button(token, each, language) for each in choices or [int(longest)])
    if len(choices) < len(SNOOZE_HOURS):
        content += _paragraph(messages.LIMIT.text(language, hours=f"{longest:g}"))
    return _send_page(HTTPStatus.OK, content, language)


@router.post(SNOOZE_PATH)
async def confirm(
    request: Request, dependencies: Service, token: Token = "", hours: Hours = SNOOZE_HOURS[0]
) -> Response:
    """Snooze the workload of the link, for as long as its policy allows at most. A longer snooze stays: whoever has the
    link can only make reclaim more careful."""
    link = _read_link(dependencies, token)
    if isinstance(link, Message):
        return _send_refusal(request, link)
    language, now = link.language, dependencies.clock()
    until = now + min(3600.0 * hours, dependencies.find_longest_snooze(link.workload))
    reason, who = messages.REASON.text(language), f"link ({link.channel})"
    try:
        snooze = await query_ledger(
            lambda: _extend(dependencies.ledger, link, until=until, reason=reason, who=who, at=now),
            dependencies.limits.snoozes,
        )
    except ProblemError as error:
        failed = messages.FAILED.text(language, reason=error.text(language))
        return _send_page(HTTPStatus(error.status), _paragraph(failed), language)
    forget_snoozes(dependencies)
    log.info("workload_snoozed", by=who, workload=_name(link), hours=hours)
    zone = dependencies.settings.current.notify.time_zone
    content = _paragraph(messages.DONE.text(language, workload=_name(link), until=format_time(snooze.until, zone)))
    content += _paragraph(messages.HOW_TO_END.text(language, workload=_name(link)))
    return _send_page(HTTPStatus.OK, content, language)


def _extend(ledger: LedgerAccess, link: SnoozeLink, *, until: float, reason: str, who: str, at: float) -> Snooze:
    """The snooze of the workload from now on: the present one if it is longer."""
    present = ledger.read_snoozes(at, visible=None).get(clean_workload(link.workload))
    if present is not None and present.until >= until:
        return present
    return ledger.add_snooze(link.workload, until=until, reason=reason, who=who, at=at)


def _read_link(dependencies: ApiDependencies, token: str) -> SnoozeLink | Message:
    """The link, or why it is refused."""
    try:
        return dependencies.links.verify(token, now=dependencies.clock())
    except InvalidLinkError:
        return messages.INVALID
    except ExpiredLinkError:
        return messages.EXPIRED


def _name(link: SnoozeLink) -> str:
    """As `gpusteward explain` accepts it."""
    return f"{link.namespace}/{link.kind}/{link.name}"


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _button(token: str, hours: int, language: Language) -> str:
    """A form without fields: the link and the hours are its address."""
    action = escape(f"?link={token}&hours={hours}")
    label = escape(messages.CONFIRM.text(language, hours=hours))
    return f'<form method="post" action="{action}"><button type="submit">{label}</button></form>'


def _send_refusal(request: Request, reason: Message) -> Response:
    status = HTTPStatus.GONE if reason is messages.EXPIRED else HTTPStatus.FORBIDDEN
    language = find_language(request.headers)
    return _send_page(status, _paragraph(reason.text(language)), language)


def _send_page(status: HTTPStatus, content: str, language: Language) -> Response:
    title = escape(messages.TITLE.text(language))
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store", "X-Robots-Tag": "noindex"}
    return send_page(title, content, language, status=status, headers=headers)
