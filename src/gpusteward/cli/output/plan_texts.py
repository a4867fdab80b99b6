"""Decisions of reclaim for the terminal: one row each, or every guard and its answer."""

from collections.abc import Iterator, Mapping

from gpusteward.cli.json_access import Row, get_number, get_objects, get_text, get_time
from gpusteward.cli.output import quantities
from gpusteward.cli.output.formats import Column
from gpusteward.cli.output.paragraphs import Line
from gpusteward.cli.output.verdict_labels import translate
from gpusteward.core.messages import Language
from gpusteward.messages.cli import reclaim as messages

OUTCOME_STYLES = {"act": "fail", "warn": "warn", "wait": "idle", "refuse": "suspicious", "nothing": "skip"}


def list_plan_columns(language: Language) -> list[Column]:
    return [
        Column("workload", messages.WORKLOAD, stands_alone=True),
        Column("gpus", messages.GPUS, quantities.gpus, to_right=True),
        Column("idle_seconds", messages.IDLE, quantities.duration, to_right=True),
        Column("policy", messages.POLICY, priority=2),
        Column("action", messages.ACTION),
        Column("outcome", messages.OUTCOME, lambda word: translate(messages.OUTCOMES, word, language)),
        Column("when", messages.WHEN),
        Column("why", messages.WHY, is_flexible=True, priority=4),
    ]


def make_plan_row(decision: Row, *, label: str, now: float, language: Language) -> dict[str, object]:
    """What the columns show, and for JSON and CSV the fields of the API."""
    began = get_time(decision, "idle_since")
    failed = [answer for answer in get_objects(decision, "answers") if answer.get("passed") is False]
    return {
        **decision,
        "workload": label,
        "gpus": get_number(decision, "gpus"),
        "idle_seconds": None if began is None else max(0.0, now - began),
        "when": describe_due(decision, now=now, language=language),
        "why": get_text(failed[0], "reason") if failed else "",
    }


def describe_due(decision: Row, *, now: float, language: Language) -> str:
    """`in 12m`; empty where nothing will happen by itself."""
    due = get_time(decision, "due_at")
    if due is None or get_text(decision, "outcome") in ("refuse", "nothing"):
        return ""
    if due <= now:
        return messages.NOW.text(language)
    return messages.IN_TIME.text(language, duration=quantities.duration(due - now))


def describe_decision(decision: Row, *, label: str, now: float, language: Language) -> Iterator[Line]:
    """The workload, what will happen when, every guard, and what exactly would change."""
    row = make_plan_row(decision, label=label, now=now, language=language)
    outcome = get_text(decision, "outcome")
    yield Line(label, is_title=True)
    word = translate(messages.OUTCOMES, outcome, language)
    when = f" ({row['when']})" if row["when"] else ""
    yield Line(f"{word}{when}", messages.OUTCOME.text(language), OUTCOME_STYLES.get(outcome, ""))
    if action := get_text(decision, "action"):
        yield Line(action, messages.ACTION.text(language))
        yield Line(get_text(decision, "policy"), messages.POLICY.text(language))
    for answer in get_objects(decision, "answers"):
        yield _describe_answer(answer, language)
    for change in get_objects(decision, "changes"):
        text = f"{get_text(change, 'kind')}/{get_text(change, 'name')}: {get_text(change, 'text')}"
        yield Line(text, messages.CHANGE.text(language), indent=2)


_PASSED: Mapping[bool | None, tuple[str, object]] = {
    True: ("ok", messages.YES),
    False: ("fail", messages.NO),
    None: ("skip", messages.NOT_ASKED),
}


def _describe_answer(answer: Row, language: Language) -> Line:
    passed = answer.get("passed")
    word, label = _PASSED[passed if isinstance(passed, bool) else None]
    shown = label.text(language) if hasattr(label, "text") else str(label)
    return Line(f"{shown}: {get_text(answer, 'reason')}", get_text(answer, "guard"), word, indent=2)
