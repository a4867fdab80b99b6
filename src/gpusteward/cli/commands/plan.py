"""`gpusteward plan [WORKLOAD]`: what reclaim would do now, for each workload every guard and its answer."""

import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence

from gpusteward.cli import flags
from gpusteward.cli.api.client import Client
from gpusteward.cli.api.workload_facts import describe_due
from gpusteward.cli.api.workloads import find_workload, label_workloads, name_of
from gpusteward.cli.json_access import Row
from gpusteward.cli.output import quantities, words
from gpusteward.cli.output.tables import Column, write_json, write_rows
from gpusteward.cli.output.terminal_text import Line, write_paragraphs
from gpusteward.cli.output.verdict_texts import translate
from gpusteward.cli.program import EXIT_OK
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Language, Message

OUTCOMES: Mapping[str, Message] = {
    "act": Message("act", "执行"),
    "warn": Message("warn", "警告"),
    "wait": Message("wait", "等待"),
    "refuse": Message("refuse", "拒绝"),
    "nothing": Message("nothing", "无操作"),
}
OUTCOME = Message("outcome", "结果")
NO_PLAN = Message(
    "no plan yet: the first cycle has not finished, or another replica acts",
    "尚无计划：第一个分析周期未完成，或由其他副本执行",
)

PATH = "/api/v1/plan"
MOST_ROWS = 1000
DUE_OUTCOMES = ("act", "warn", "wait", "refuse")
KEYS = (
    *("cluster", "namespace", "kind", "name", "gpus", "idle_since", "policy", "action", "outcome", "due_at"),
    *("action_id", "why", "answers", "changes"),
)


def build_parser() -> flags.FlagParser:
    parser = flags.make_parser(
        "plan",
        "Show what reclaim would do now: for each workload the outcome, when, and why; for one workload "
        "every guard with its answer, and what exactly would change.",
    )
    parser.add_argument("workload", nargs="?", metavar="WORKLOAD", help="only this one, with every guard")
    flags.add_namespace_flag(parser)
    flags.add_cluster_flag(parser)
    parser.add_argument("--all", action="store_true", help="also workloads for which nothing is planned")
    parser.add_argument("--guards", action="store_true", help="every guard of each workload")
    flags.add_request_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, SourceError."""
    options = build_parser().parse(arguments)
    client, language = flags.make_analyzer_client(options), flags.language_of(options)
    query = _make_query(client, options)
    page = client.read(PATH, [("language", language), *query])
    decisions = page.objects("items")
    if options.workload and not decisions and page.text("mode") != "off":
        raise SourceError(f"there is no decision on {options.workload}: it holds no GPUs")
    if options.output == "json":
        write_json(page)
        return EXIT_OK
    has_guards = options.guards or bool(options.workload)
    _write(client, page, output=options.output, has_guards=has_guards, language=language)
    return EXIT_OK


def _make_query(client: Client, options: Namespace) -> list[tuple[str, str]]:
    if options.workload:
        name = find_workload(client, options.workload).name
        return name.filters
    query = [("limit", str(MOST_ROWS))]
    query += [("namespace", name) for name in options.namespace or ()]
    query += [("cluster", name) for name in options.cluster or ()]
    return query if options.all else [*query, *(("outcome", each) for each in DUE_OUTCOMES)]


def _write(client: Client, page: Row, *, output: str, has_guards: bool, language: Language) -> None:
    decisions, now = page.objects("items"), time.time()
    labels = label_workloads(client, map(name_of, decisions))
    if has_guards and output == "table":
        lines: list[Line] = []
        for each in decisions:
            lines += [*describe_decision(each, label=labels[name_of(each)], now=now, language=language), Line("")]
        write_paragraphs(lines, sys.stdout)
    elif decisions or output == "csv":
        rows = [make_plan_row(each, label=labels[name_of(each)], now=now, language=language) for each in decisions]
        write_rows(rows, list_plan_columns(language), keys=KEYS, output=output, language=language)
    if output == "table":
        for line in _sum_up(page, language):
            print(line, file=sys.stdout if decisions else sys.stderr)


def _sum_up(page: Row, language: Language) -> Iterator[str]:
    mode = page.text("mode")
    if mode == "off":
        yield words.MODE_OFF.text(language)
        return
    if page.get("at") is None:
        yield NO_PLAN.text(language)
        return
    counts = page.object("counts")
    shown = ", ".join(
        f"{translate(OUTCOMES, name, language)} {counts.count(name)}" for name in OUTCOMES if counts.count(name)
    )
    summary = Message("mode {mode}; {counts}", "模式 {mode}；{counts}").text(
        language,
        mode=translate(words.MODES, mode, language),
        counts=shown or Message("nothing is planned", "没有计划").text(language),
    )
    yield summary
    if stopped := page.text("stopped_by"):
        yield words.STOPPED.text(language, reason=stopped)


ANSWERS: Mapping[bool | None, tuple[str, Message]] = {
    True: ("ok", Message("yes", "是")),
    False: ("fail", Message("no", "否")),
    None: ("skip", Message("-", "-")),
}
OUTCOME_STYLES = {"act": "fail", "warn": "warn", "wait": "idle", "refuse": "suspicious", "nothing": "skip"}


def list_plan_columns(language: Language) -> list[Column]:
    return [
        Column("workload", words.WORKLOAD, stands_alone=True),
        Column("gpus", words.GPUS, quantities.gpus, to_right=True),
        Column("idle_seconds", Message("idle for", "已空闲"), quantities.duration, to_right=True),
        Column("policy", words.POLICY, priority=2),
        Column("action", words.ACTION),
        Column("outcome", OUTCOME, lambda word: translate(OUTCOMES, word, language)),
        Column("when", Message("when", "时间")),
        Column("why", words.WHY, is_flexible=True, priority=4),
    ]


def make_plan_row(decision: Row, *, label: str, now: float, language: Language) -> dict[str, object]:
    """What the columns show, and for JSON and CSV the fields of the API."""
    began = decision.time("idle_since")
    failed = [answer for answer in decision.objects("answers") if answer.get("passed") is False]
    happens_by_itself = decision.text("outcome") not in ("refuse", "nothing")
    return {
        **decision,
        "workload": label,
        "gpus": decision.number("gpus"),
        "idle_seconds": None if began is None else max(0.0, now - began),
        "when": describe_due(decision, language, now=now) if happens_by_itself else "",
        "why": failed[0].text("reason") if failed else "",
    }


def describe_decision(decision: Row, *, label: str, now: float, language: Language) -> Iterator[Line]:
    """The workload, what will happen when, every guard, and what exactly would change."""
    row = make_plan_row(decision, label=label, now=now, language=language)
    outcome = decision.text("outcome")
    yield Line(label, is_title=True)
    word = translate(OUTCOMES, outcome, language)
    when = f" ({row['when']})" if row["when"] else ""
    yield Line(f"{word}{when}", OUTCOME.text(language), OUTCOME_STYLES.get(outcome, ""))
    if action := decision.text("action"):
        yield Line(action, words.ACTION.text(language))
        yield Line(decision.text("policy"), words.POLICY.text(language))
    for answer in decision.objects("answers"):
        passed = answer.get("passed")
        style, answered = ANSWERS[passed if isinstance(passed, bool) else None]
        yield Line(f"{answered.text(language)}: {answer.text('reason')}", answer.text("guard"), style, indent=2)
    for change in decision.objects("changes"):
        text = f"{change.text('kind')}/{change.text('name')}: {change.text('text')}"
        yield Line(text, Message("change", "修改").text(language), indent=2)
