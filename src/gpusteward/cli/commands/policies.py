"""`gpusteward policies`: the policies of reclaim in effect, or an example of a policy file."""

import sys
from collections.abc import Iterator, Sequence

from gpusteward.analyzer.reclaim.policies.example import EXAMPLE
from gpusteward.cli.flags import FlagParser, add_request_flags, language_of, make_analyzer_client, make_parser
from gpusteward.cli.json_access import Row
from gpusteward.cli.output import quantities, words
from gpusteward.cli.output.tables import Column, write_json, write_rows
from gpusteward.cli.program import EXIT_FAILURE, EXIT_OK
from gpusteward.core.messages import Message

NO_POLICIES = Message(
    "the policy file has no policies: idle workloads are at most notified",
    "策略文件中没有策略：空闲的工作负载最多只通知",
)

PATH = "/api/v1/policies"
KEYS = ("name", "match", "action", "window", "grace")


def build_parser() -> FlagParser:
    parser = make_parser(
        "policies",
        "Show the policies of reclaim in the order in which they are tried, or why there are none: then nothing new is "
        "warned of or done.",
    )
    parser.add_argument("--example", action="store_true", help="print a policy file to begin with; asks no analyzer")
    add_request_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, SourceError."""
    options = build_parser().parse(arguments)
    if options.example:
        sys.stdout.write(EXAMPLE)
        return EXIT_OK
    client, language = make_analyzer_client(options), language_of(options)
    page = client.read(PATH, [("language", language)])
    if options.output == "json":
        write_json(page)
    else:
        rows = [_make_row(each) for each in page.objects("policies")]
        if rows or options.output == "csv":
            write_rows(rows, list(_list_columns()), keys=KEYS, output=options.output, language=language)
    if page.get("is_valid") is not True:
        print(words.STOPPED.text(language, reason=page.text("error")), file=sys.stderr)
        return EXIT_FAILURE
    if not page.objects("policies"):
        print(NO_POLICIES.text(language), file=sys.stderr)
    return EXIT_OK


def _list_columns() -> Iterator[Column]:
    yield Column("name", words.POLICY, stands_alone=True)
    yield Column("action", words.ACTION)
    yield Column("window", Message("window", "空闲窗口"), quantities.duration, to_right=True)
    yield Column("grace", Message("grace", "宽限期"), quantities.duration, to_right=True)
    yield Column("match", Message("match", "匹配"), is_flexible=True)


def _make_row(policy: Row) -> dict[str, object]:
    fields, match = policy.object("fields"), policy.object("match")
    return {
        "name": policy.text("name"),
        "match": "; ".join(f"{name}: {_show(match[name])}" for name in match) or "*",
        "action": fields.text("action") or "notify",
        "window": fields.number("window"),
        "grace": fields.number("grace"),
    }


def _show(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
