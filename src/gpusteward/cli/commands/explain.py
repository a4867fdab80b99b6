"""`gpusteward explain WORKLOAD`: the verdict of one workload, why, and on what evidence."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from gpusteward.cli.api.workloads import find_workload
from gpusteward.cli.exit_codes import EXIT_OK, describe_exits
from gpusteward.cli.flags import (
    FlagParser,
    add_language_flag,
    add_output_flags,
    add_server_flags,
    language_of,
    open_server,
)
from gpusteward.cli.json_access import Row, each, inner, text, texts
from gpusteward.cli.output.formats import write_json, write_rows
from gpusteward.cli.output.paragraphs import Line, write_paragraphs
from gpusteward.cli.output.verdict_texts import describe_workload

KEYS = (
    *("namespace", "pod", "container", "gpu", "node", "index", "model", "share", "activity", "state", "signature"),
    *("score", "doubt", "idle_since", "coverage", "core_mean_ratio", "core_peak_ratio", "memory_used_bytes"),
    *("memory_total_bytes", "power_watts", "reasons", "opinion_status", "opinion_confidence", "opinion_reason"),
)


def build_parser() -> FlagParser:
    parser = FlagParser(
        prog="gpusteward explain",
        description="Tell the verdict of one workload: the reasons, the evidence, and what a language model thinks.",
        epilog=describe_exits("explain"),
    )
    parser.add_argument("workload", metavar="WORKLOAD", help="NAMESPACE/NAME, KIND/NAMESPACE/NAME or NAME")
    add_output_flags(parser)
    add_language_flag(parser)
    add_server_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, and SourceError where no analyzer answers or the workload is unknown."""
    given = build_parser().parse(arguments)
    client, language = open_server(given), language_of(given)
    name = find_workload(client, given.workload)
    answer = client.read(name.path, [("lang", language)])
    detail = answer if isinstance(answer, dict) else {}
    if given.output == "json":
        write_json(detail)
    elif given.output == "csv":
        write_rows(list(_rows(detail)), (), keys=KEYS, output="csv")
    else:
        title = Line(str(name), is_title=True)
        write_paragraphs([title, *describe_workload(detail, language)], sys.stdout)
    return EXIT_OK


def _rows(detail: Row) -> Iterator[dict[str, Any]]:
    """One row an allocation."""
    for judged in each(detail, "allocations"):
        opinion = inner(judged, "opinion")
        yield {
            **inner(judged, "allocation"),
            "reasons": " ".join(texts(judged, "reasons")),
            "opinion_status": text(opinion, "status"),
            "opinion_confidence": opinion.get("confidence"),
            "opinion_reason": text(opinion, "reason"),
        }
