"""`gpusteward actions`: the journal of reclaim: planned, done, refused and restored."""

import sys
from collections.abc import Sequence

from gpusteward.cli import flags
from gpusteward.cli.api.workloads import find_workload, label_workloads, name_of
from gpusteward.cli.json_access import Row
from gpusteward.cli.output import quantities, words
from gpusteward.cli.output.tables import Column, write_json, write_rows
from gpusteward.cli.output.verdict_texts import translate
from gpusteward.cli.program import EXIT_OK
from gpusteward.core.gpu_counts import format_gpus
from gpusteward.core.messages import Language, Message
from gpusteward.messages.reclaim import RESTORED_WAITING, STATES

DRY_RUN = Message("{state} (dry run)", "{state}（试运行）")

PATH = "/api/v1/actions"
KEYS = (
    *("id", "cluster", "namespace", "kind", "name", "action", "mode", "is_dry_run", "state", "policy", "gpus"),
    *("idle_since", "created_at", "acted_at", "ended_at", "by", "error", "waiting_gpus"),
)


def build_parser() -> flags.FlagParser:
    parser = flags.make_parser("actions", "List what reclaim planned, did, refused and put back, the newest first.")
    parser.add_argument("workload", nargs="?", metavar="WORKLOAD", help="only actions on this one")
    parser.add_argument("--state", action="append", choices=list(STATES), help="only in this state; may be repeated")
    parser.add_argument(
        "--limit", type=flags.integer_between(1, 1000), default=50, metavar="NUMBER", help="maximum number (default 50)"
    )
    flags.add_request_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, SourceError."""
    options = build_parser().parse(arguments)
    client, language = flags.make_analyzer_client(options), flags.language_of(options)
    query = [("language", language), ("limit", str(options.limit)), *(("state", each) for each in options.state or ())]
    if options.workload:
        name = find_workload(client, options.workload).name
        query += name.filters
    page = client.read(PATH, query)
    found = page.objects("items")
    if options.output == "json":
        write_json(page)
    elif options.output == "csv":
        write_rows(found, (), keys=KEYS, output="csv")
    elif not found:
        print(Message("no actions", "没有操作记录").text(language), file=sys.stderr)
    else:
        labels = label_workloads(client, map(name_of, found))
        rows = [_make_row(each, labels[name_of(each)], language) for each in found]
        write_rows(rows, _list_columns(), keys=KEYS, output="table", language=language)
    return EXIT_OK


def _list_columns() -> list[Column]:
    return [
        Column("workload", words.WORKLOAD, stands_alone=True),
        Column("at", Message("at", "时间")),
        Column("action", words.ACTION),
        Column("shown_state", words.STATE),
        Column("gpus", words.GPUS, quantities.gpus, to_right=True),
        Column("by", Message("by", "操作者"), priority=3),
        Column("id", Message("id", "编号"), priority=2),
        Column("error", words.WHY, is_flexible=True, priority=4),
    ]


def describe_state(action: Row, language: Language) -> str:
    """Restored means running: until then it says what it waits for."""
    waiting = action.number("waiting_gpus")
    if waiting is not None:
        return RESTORED_WAITING.text(language, gpus=format_gpus(waiting))
    return translate(STATES, action.text("state"), language)


def _make_row(action: Row, label: str, language: Language) -> dict[str, object]:
    state = describe_state(action, language)
    is_dry_run = action.get("is_dry_run") is True
    return {
        **action,
        "workload": label,
        "at": quantities.iso_time(action.text("updated_at")),
        "gpus": action.number("gpus"),
        "shown_state": DRY_RUN.text(language, state=state) if is_dry_run else state,
    }
