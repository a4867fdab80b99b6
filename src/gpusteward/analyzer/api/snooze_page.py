"""/snooze: the page behind a signed link in a notice: since when the workload is idle, what happens when, what it costs
and why. Opening it changes nothing; its buttons keep the workload for some time.

The signature of the link is the only credential: it names one workload, and a snooze only makes reclaim more careful.
Whoever has the link sees what a notice says of this workload, and nothing else. The page needs no script: times are in
the zone of notices.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from http import HTTPStatus
from importlib.resources import files
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Request, Response

from gpusteward.analyzer.api.dependencies import ApiDependencies, Service
from gpusteward.analyzer.api.http import responses
from gpusteward.analyzer.api.http.concurrency_limits import query_ledger
from gpusteward.analyzer.api.http.problems import ProblemError, find_language
from gpusteward.analyzer.api.http.responses import PAGE_POLICY
from gpusteward.analyzer.api.v1.workloads.snoozes import find_snoozes, forget_snoozes
from gpusteward.analyzer.api.v1.workloads.workloads import view_workloads
from gpusteward.analyzer.ledger.snoozes import Snooze, clean_workload
from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.notify.links import (
    LONGEST_TOKEN,
    SNOOZE_HOURS,
    SNOOZE_PATH,
    ExpiredLinkError,
    InvalidLinkError,
    SnoozeLink,
    make_details_button,
)
from gpusteward.analyzer.notify.notices.formatting import format_duration, format_money, format_time
from gpusteward.analyzer.reclaim.kinds.objects import make_patch
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.analyzer.reclaim.plan import Decision, Outcome
from gpusteward.analyzer.reclaim.policies.policy import ReclaimAction
from gpusteward.analyzer.reports.workload_history import RecordedVerdict
from gpusteward.analyzer.results import Result
from gpusteward.core.errors import SourceError
from gpusteward.core.gpu_counts import format_gpus
from gpusteward.core.kinds import find_kind
from gpusteward.core.messages import Language, Message
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Activity
from gpusteward.logs import Log
from gpusteward.messages import snooze_page as messages

log = Log(__name__)

router = APIRouter(include_in_schema=False)

POLICY = PAGE_POLICY.replace("form-action 'none'", "form-action 'self'")
DAY_SECONDS = 86_400.0
MOST_CHANGES = 500
"""Of verdicts within the day: one in each cycle of five minutes, and more."""
MOST_REASONS = 4

Token = Annotated[str, Query(alias="link", max_length=LONGEST_TOKEN)]
Hours = Annotated[int, Query(ge=1, le=24 * 365)]


@router.get(f"{SNOOZE_PATH}/page.css")
def show_style() -> Response:
    style = files("gpusteward.analyzer.api").joinpath("assets", "snooze_page.css").read_text(encoding="utf-8")
    return Response(style, headers={"Cache-Control": "no-cache"}, media_type="text/css")


@router.get(SNOOZE_PATH)
async def ask(request: Request, dependencies: Service, token: Token = "", hours: Hours = SNOOZE_HOURS[0]) -> Response:
    """What is known of the workload, and one button for each choice, that of the link first."""
    link = read_link(dependencies, token)
    if isinstance(link, Message):
        return send_refusal(request, link)
    kept_until = (await find_snoozes(dependencies)).find_end(link.workload)
    content = "".join(_describe(dependencies, link, kept_until=kept_until))
    content += await _draw_day(dependencies, link)
    content += "".join(_offer(dependencies, link, token, hours))
    return send_page(HTTPStatus.OK, content, link.language, heading=name_link(link))


@router.post(SNOOZE_PATH)
async def confirm(
    request: Request, dependencies: Service, token: Token = "", hours: Hours = SNOOZE_HOURS[0]
) -> Response:
    """Snooze the workload of the link, for as long as its policy allows at most. A longer snooze stays: whoever has the
    link can only make reclaim more careful."""
    link = read_link(dependencies, token)
    if isinstance(link, Message):
        return send_refusal(request, link)
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
        return send_page(HTTPStatus(error.status), make_paragraph(failed), language)
    forget_snoozes(dependencies)
    log.info("workload_snoozed", by=who, workload=name_link(link), hours=hours)
    zone = dependencies.settings.current.notify.time_zone
    content = make_paragraph(
        messages.DONE.text(language, workload=name_link(link), until=format_time(snooze.until, zone))
    )
    content += make_paragraph(messages.HOW_TO_END.text(language, workload=name_link(link)))
    return send_page(HTTPStatus.OK, content, language)


def _extend(ledger: LedgerAccess, link: SnoozeLink, *, until: float, reason: str, who: str, at: float) -> Snooze:
    """The snooze of the workload from now on: the present one if it is longer."""
    present = ledger.read_snoozes(at, visible=None).get(clean_workload(link.workload))
    if present is not None and present.until >= until:
        return present
    return ledger.add_snooze(link.workload, until=until, reason=reason, who=who, at=at)


def read_link(dependencies: ApiDependencies, token: str) -> SnoozeLink | Message:
    """The link, or why it is refused."""
    try:
        return dependencies.links.verify(token, now=dependencies.clock())
    except InvalidLinkError:
        return messages.INVALID
    except ExpiredLinkError:
        return messages.EXPIRED


def _describe(dependencies: ApiDependencies, link: SnoozeLink, *, kept_until: float | None) -> Iterator[str]:
    """What it holds, since when it is idle, what happens when, what it costs, and the reasons of the verdict."""
    language, zone = link.language, dependencies.settings.current.notify.time_zone
    published = dependencies.results.published
    if published is None:
        yield make_paragraph(messages.NOT_READY.text(language))
        return
    result, table = published.result, published.result.workloads
    number = table.find(link.workload)
    if number is None:
        yield make_paragraph(messages.NOT_HELD.text(language))
        return
    (names,) = view_workloads(published).facts.list_names([number])
    gpus, idle_since = float(table.gpus[number]), float(table.idle_since[number])
    yield make_paragraph(messages.HOLDS.text(language, gpus=format_gpus(gpus), models=", ".join(names.models)), "lead")
    yield "<dl>"
    if np.isnan(idle_since):
        works = format_gpus(gpus - float(table.idle_gpus[number]))
        yield make_fact(
            messages.IDLE_SINCE, messages.WORKS.text(language, gpus=works, total=format_gpus(gpus)), language
        )
    else:
        duration = format_duration(max(0.0, result.at - idle_since), language)
        since = messages.SINCE.text(language, time=format_time(idle_since, zone), duration=duration)
        yield make_fact(messages.IDLE_SINCE, since, language)
    if kept_until is not None:
        happens = messages.KEPT.text(language, until=format_time(kept_until, zone))
    else:
        happens = _say_next(dependencies, link.workload, language)
    yield make_fact(messages.NEXT, happens, language)
    cost = float(view_workloads(published).facts.idle_cost[number])
    if not np.isnan(cost):
        yield make_fact(messages.COST, format_money(round(cost), result.settings.prices.currency), language)
    reasons = "".join(f"<li>{escape(each)}</li>" for each in _list_reasons(result, number, language))
    yield f"<dt>{escape(messages.WHY.text(language))}</dt><dd><ul>{reasons}</ul></dd></dl>"


def _list_reasons(result: Result, number: int, language: Language) -> list[str]:
    return list(result.workloads.verdict(number, language=language).reasons)[:MOST_REASONS]


def _say_next(dependencies: ApiDependencies, workload: WorkloadKey, language: Language) -> str:
    """What the last plan says of it."""
    zone = dependencies.settings.current.notify.time_zone
    decision = find_decision(dependencies, workload)
    if decision is None or decision.policy is None or decision.outcome in (Outcome.NOTHING, Outcome.REFUSE):
        return messages.NOTHING.text(language)
    if dependencies.reclaim is None or dependencies.reclaim.mode is not Mode.ENFORCE:
        return messages.ONLY_OBSERVED.text(language)
    policy = decision.policy.name
    if decision.due_at is not None and decision.due_at > dependencies.clock():
        return messages.DUE.text(language, time=format_time(decision.due_at, zone), policy=policy)
    waiting = next((each for each in decision.answers if each.passed is False), None)
    if waiting is None:
        return messages.DUE_SOON.text(language, policy=policy)
    return messages.WAITS.text(language, policy=policy, reason=waiting.reason.text(language))


def find_decision(dependencies: ApiDependencies, workload: WorkloadKey) -> Decision | None:
    plan = dependencies.reclaim.read_plan(visible=None) if dependencies.reclaim is not None else None
    for decision in plan.decisions if plan else ():
        found = decision.workload
        if WorkloadKey(found.kind, found.namespace, found.name, found.cluster) == workload:
            return decision
    return None


async def _draw_day(dependencies: ApiDependencies, link: SnoozeLink) -> str:
    """The verdicts of the last 24 hours as one bar; nothing where the ledger cannot be read."""
    try:
        history = await query_ledger(
            lambda: dependencies.ledger.read_history(link.workload, limit=MOST_CHANGES, visible=None),
            dependencies.limits.history,
        )
    except (ProblemError, SourceError):
        return ""
    parts = list(divide_day(history.verdicts, now=dependencies.clock()))
    if not parts:
        return ""
    language, zone = link.language, dependencies.settings.current.notify.time_zone
    sums = {each: sum(end - start for start, end, activity in parts if activity is each) for each in Activity}
    sums[Activity.UNKNOWN] += DAY_SECONDS - sum(sums.values())  # before the first verdict
    said = [
        messages.PARTS[each].text(language, duration=format_duration(seconds, language))
        for each, seconds in sums.items()
        if seconds
    ]
    first = dependencies.clock() - DAY_SECONDS
    bars = "".join(
        f'<rect class="{activity}" x="{start - first:.0f}" y="0" width="{end - start:.0f}" height="1"/>'
        for start, end, activity in parts
    )
    title, text = escape(messages.DAY.text(language)), escape(", ".join(said))
    return (
        f'<figure><figcaption>{title}: {text}</figcaption><svg role="img" aria-label="{title}: {text}" '
        f'viewBox="0 0 {DAY_SECONDS:.0f} 1" preserveAspectRatio="none">{bars}</svg>'
        f"<p><span>{escape(format_time(first, zone))}</span><span>{escape(format_time(first + DAY_SECONDS, zone))}"
        "</span></p></figure>"
    )


def divide_day(verdicts: Sequence[RecordedVerdict], *, now: float) -> Iterator[tuple[float, float, Activity]]:
    """(start, end, activity) within the 24 hours before `now`, in order. `verdicts`: the newest first."""
    end, parts = now, list[tuple[float, float, Activity]]()
    for one in verdicts:
        start = max(one.at_ms / 1000, now - DAY_SECONDS)
        if start < end:
            parts.append((start, end, Activity(one.activity)))
            end = start
        if end <= now - DAY_SECONDS:
            break
    yield from reversed(parts)


def _offer(dependencies: ApiDependencies, link: SnoozeLink, token: str, hours: int) -> Iterator[str]:
    """The choices: keep it, that of the link first; and where everything else is."""
    language, longest = link.language, dependencies.find_longest_snooze(link.workload) / 3600
    choices = [each for each in dict.fromkeys((hours, *SNOOZE_HOURS)) if each <= longest and each in SNOOZE_HOURS]
    yield f"<h2>{escape(messages.KEEP.text(language))}</h2>{make_paragraph(messages.KEEP_EFFECT.text(language))}"
    yield f'<div class="choices">{"".join(_button(token, each, language) for each in choices or [int(longest)])}</div>'
    if len(choices) < len(SNOOZE_HOURS):
        yield make_paragraph(messages.LIMIT.text(language, hours=f"{longest:g}"))
    if may_give_back(dependencies, link):
        yield f"<h2>{escape(messages.RELEASE.text(language))}</h2>"
        yield make_paragraph(messages.GIVE_BACK_EFFECT.text(language))
        address = escape(f"{SNOOZE_PATH.lstrip('/')}/give-back?link={token}")
        yield f'<p><a class="button" href="{address}">{escape(messages.GIVE_BACK.text(language))}</a></p>'
    elif command := make_stop_command(link.workload):
        yield f"<h2>{escape(messages.RELEASE.text(language))}</h2>"
        yield f"{make_paragraph(messages.RELEASE_BY_HAND.text(language))}<pre>{escape(command)}</pre>"
    if public_url := dependencies.settings.current.server.public_url:
        details = make_details_button(public_url, link.workload, language=language)
        yield f'<p><a href="{escape(details.url)}">{escape(messages.DETAILS.text(language))}</a></p>'


def may_give_back(dependencies: ApiDependencies, link: SnoozeLink) -> bool:
    """Whether the page of the link offers it."""
    decision = find_decision(dependencies, link.workload)
    is_suspended = decision is not None and decision.action is ReclaimAction.SUSPEND
    policy = decision.policy if decision is not None else None
    return (
        dependencies.reclaim is not None
        and dependencies.reclaim.mode is Mode.ENFORCE
        and is_suspended
        and policy is not None
        and not policy.is_default
        and dependencies.settings.current.notify.may_give_back(link.channel)
    )


def make_stop_command(workload: WorkloadKey) -> str:
    """What its owner types; empty for a kind that nothing is known of, or that is stopped in another way."""
    kind = find_kind(workload.kind)
    where = f"{workload.kind.lower()} {shlex.quote(workload.name)} --namespace {shlex.quote(workload.namespace)}"
    if kind.is_evicted:
        return f"kubectl delete {where}"
    if kind.replicas:
        return f"kubectl scale {where} --replicas=0"
    fields = kind.make_fields(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    return f"kubectl patch {where} --type merge --patch {shlex.quote(json.dumps(make_patch(fields)))}" if fields else ""


def name_link(link: SnoozeLink) -> str:
    """As `gpusteward explain` accepts it."""
    return f"{link.namespace}/{link.kind}/{link.name}"


def make_fact(name: Message, text: str, language: Language) -> str:
    return f"<dt>{escape(name.text(language))}</dt><dd>{escape(text)}</dd>"


def make_paragraph(text: str, style: str = "") -> str:
    return f'<p class="{style}">{escape(text)}</p>' if style else f"<p>{escape(text)}</p>"


def _button(token: str, hours: int, language: Language) -> str:
    """A form without fields: the link and the hours are its address."""
    return make_form(f"?link={token}&hours={hours}", messages.CONFIRM.text(language, hours=hours))


def make_form(action: str, label: str) -> str:
    return f'<form method="post" action="{escape(action)}"><button type="submit">{escape(label)}</button></form>'


def send_refusal(request: Request, reason: Message, *, root: str = "") -> Response:
    status = HTTPStatus.GONE if reason is messages.EXPIRED else HTTPStatus.FORBIDDEN
    language = find_language(request.headers)
    return send_page(status, make_paragraph(reason.text(language)), language, root=root)


def send_page(status: HTTPStatus, content: str, language: Language, *, heading: str = "", root: str = "") -> Response:
    """`root`: the relative path to `/`."""
    title = escape(messages.TITLE.text(language))
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store", "X-Robots-Tag": "noindex"}
    style = f"{SNOOZE_PATH.lstrip('/')}/page.css"
    return responses.send_page(
        title, content, language, status=status, headers=headers, heading=escape(heading), root=root, style=style
    )
