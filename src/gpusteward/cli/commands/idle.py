"""`gpusteward idle`: who holds GPUs without using them, since when, and what that has cost."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.pagination import read_all
from gpusteward.cli.api.workloads import WorkloadName, name_of
from gpusteward.cli.costs import Cost, read_idle_costs
from gpusteward.cli.exit_codes import EXIT_FOUND, EXIT_OK, describe_exits
from gpusteward.cli.flags import (
    FlagParser,
    add_language_flag,
    add_output_flags,
    add_server_flags,
    language_of,
    open_server,
)
from gpusteward.cli.json_access import Row, count, moment, number, text
from gpusteward.cli.output import quantities
from gpusteward.cli.output.console import Advance, show_progress
from gpusteward.cli.output.formats import Column, write_rows
from gpusteward.cli.output.verdict_labels import translate
from gpusteward.core.messages import Language, Message
from gpusteward.core.verdicts import Signature
from gpusteward.messages.verdicts import FINDINGS, SIGNATURES

PATH = "/api/v1/workloads"
SUSPICIOUS = tuple(signature.value for signature in Signature if signature.is_suspicious)
KEYS = (
    *("kind", "namespace", "name", "finding", "signature", "gpus", "idle_gpus", "unknown_gpus"),
    *("score", "idle_since", "idle_seconds", "idle_cost_7d", "currency"),
)
NOTHING = Message("No idle and no suspicious workload.", "没有空闲或可疑的工作负载。")

Found = Mapping[str, Any]


def build_parser() -> FlagParser:
    parser = FlagParser(
        prog="gpusteward idle",
        description="List workloads with idle GPUs, and those whose activity looks made up, hung or starved.",
        epilog=describe_exits("idle"),
    )
    parser.add_argument("--namespace", "-n", action="append", metavar="NAME", help="only these; may be repeated")
    parser.add_argument(
        "--longer-than", type=quantities.read_span, default=0.0, metavar="TIME", help="idle at least: 30m, 2h, 7d"
    )
    parser.add_argument("--exit-code", action="store_true", help=f"end with {EXIT_FOUND} if there is any")
    add_output_flags(parser)
    add_language_flag(parser)
    add_server_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, and SourceError where no analyzer answers."""
    given = build_parser().parse(arguments)
    client = open_server(given)
    with show_progress("workloads") as advance:
        found = _find(client, given.namespace or (), advance)
        costs = read_idle_costs(client) if found else {}
    rows = [{**row, **_cost(row, costs)} for row in found if given.longer_than <= (row["idle_seconds"] or 0)]
    rows.sort(key=_rank)
    _write(rows, given, language=language_of(given))
    return EXIT_FOUND if rows and given.exit_code else EXIT_OK


def _find(client: Client, namespaces: Sequence[str], advance: Advance) -> list[Found]:
    """Two walks: down the list that begins with the most idle GPUs, and through the suspicious ones."""
    chosen = [("namespace", name) for name in namespaces]
    doubts = [("signature", each) for each in SUSPICIOUS]
    idle = read_all(client, PATH, [*chosen, ("sort", "-idle_gpus")], advance=advance, wanted=_has_idle_gpus)
    doubtful = read_all(client, PATH, [*chosen, *doubts], advance=advance)
    by_name = {name_of(row): _describe(row, idle.at) for row in (*idle.rows, *doubtful.rows)}
    return list(by_name.values())


def _rank(row: Found) -> tuple[float, float, float]:
    """The most idle GPUs first; among equals the longest idle, then the dearest. What is not known comes last."""
    return -row["idle_gpus"], -(row["idle_seconds"] or 0.0), -(row["idle_cost_7d"] or 0.0)


def _has_idle_gpus(row: Row) -> bool:
    return count(row, "idle_gpus") > 0


def _describe(row: Row, at: float | None) -> Found:
    began = moment(row, "idle_since")
    return {
        **{key: text(row, key) for key in ("kind", "namespace", "name", "signature")},
        **{key: count(row, key) for key in ("gpus", "idle_gpus", "unknown_gpus")},
        "finding": _name_finding(row),
        "score": number(row, "score"),
        "idle_since": None if began is None else text(row, "idle_since"),
        "idle_seconds": None if began is None or at is None else max(0.0, at - began),
    }


def _name_finding(row: Row) -> str:
    if text(row, "activity") == "idle":
        return "idle"
    return "partly-idle" if _has_idle_gpus(row) else "suspicious"


def _cost(row: Found, costs: Mapping[WorkloadName, Cost]) -> Mapping[str, object]:
    cost = costs.get(name_of(row))
    return {"idle_cost_7d": cost.amount if cost else None, "currency": cost.currency if cost else None}


def _write(rows: Sequence[Found], given: argparse.Namespace, *, language: Language) -> None:
    if not rows and given.output == "table":
        print(NOTHING.text(language), file=sys.stderr)
        return
    shown = [{**row, **_for_people(row)} for row in rows]
    write_rows(shown, _columns(shown, language), keys=KEYS, output=given.output, language=language)


def _for_people(row: Found) -> Found:
    return {
        "workload": f"{row['kind']}/{row['name']}",
        "held": f"{row['idle_gpus']}/{row['gpus']}",
        "since": quantities.clock(moment(row, "idle_since")),
        "cost": None if row["idle_cost_7d"] is None else f"{row['idle_cost_7d']:.2f} {row['currency']}",
    }


def _columns(rows: Sequence[Found], language: Language) -> list[Column]:
    columns = [
        Column("namespace", Message("namespace", "命名空间")),
        Column("workload", Message("workload", "工作负载"), is_flexible=True),
        Column("finding", Message("verdict", "结论"), lambda word: translate(FINDINGS, word, language), is_styled=True),
        Column("signature", Message("signature", "特征"), lambda word: translate(SIGNATURES, word, language)),
        Column("held", Message("idle", "空闲/总数"), to_right=True),
        Column("idle_seconds", Message("for", "时长"), quantities.span, to_right=True),
        Column("since", Message("since", "始于")),
    ]
    if any(row["cost"] for row in rows):
        columns.append(Column("cost", Message("idle cost 7d", "7 天空闲费用"), to_right=True))
    return columns
