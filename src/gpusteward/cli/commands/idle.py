"""`gpusteward idle`: workloads that hold GPUs without using them, since when, and at what cost."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.pagination import read_all
from gpusteward.cli.api.workloads import WorkloadName, name_of
from gpusteward.cli.exit_codes import EXIT_FOUND, EXIT_OK, describe_exits
from gpusteward.cli.flags import (
    FlagParser,
    add_language_flag,
    add_namespace_flag,
    add_output_flags,
    add_server_flags,
    language_of,
    make_analyzer_client,
    read_duration,
)
from gpusteward.cli.json_access import (
    Row,
    as_object,
    get_number,
    get_object,
    get_objects,
    get_text,
    get_time,
)
from gpusteward.cli.output import quantities
from gpusteward.cli.output.console import Advance, show_progress
from gpusteward.cli.output.formats import Column, write_rows
from gpusteward.cli.output.verdict_labels import translate
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Language, Message
from gpusteward.core.verdicts import Signature
from gpusteward.messages import cli as messages
from gpusteward.messages.verdicts import FINDINGS, PROOFS, SIGNATURES

PATH = "/api/v1/workloads"
SUSPICIOUS = tuple(signature.value for signature in Signature if signature.is_suspicious)
KEYS = (
    *("kind", "namespace", "name", "finding", "signature", "gpus", "idle_gpus", "unknown_gpus"),
    *("score", "idle_since", "idle_seconds", "idle_cost_7d", "currency", "proof"),
)
REPORT_PATH = "/api/v1/reports"
MICROS = 1_000_000

IdleRow = Mapping[str, Any]


class Cost(NamedTuple):
    """An amount of money."""

    amount: float
    currency: str


def build_parser() -> FlagParser:
    parser = FlagParser(
        prog="gpusteward idle",
        description="List workloads with idle GPUs, and those that look hung, starved or artificially kept busy.",
        epilog=describe_exits("idle"),
    )
    add_namespace_flag(parser)
    parser.add_argument(
        "--longer-than", type=read_duration, default=0.0, metavar="TIME", help="only if idle for at least 30m, 2h, 7d"
    )
    parser.add_argument("--exit-code", action="store_true", help=f"exit {EXIT_FOUND} if any workload is listed")
    add_output_flags(parser)
    add_language_flag(parser)
    add_server_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, and SourceError if the analyzer cannot be reached."""
    options = build_parser().parse(arguments)
    client, language = make_analyzer_client(options), language_of(options)
    with show_progress(messages.READING_WORKLOADS.text(language)) as advance:
        found = _read_workloads(client, options.namespace or (), advance)
        costs = _read_idle_costs(client) if found else {}
    rows = [{**row, **_cost(row, costs)} for row in found if options.longer_than <= (row["idle_seconds"] or 0)]
    rows.sort(key=_rank)
    _write(rows, options, language=language)
    return EXIT_FOUND if rows and options.exit_code else EXIT_OK


def _read_workloads(client: Client, namespaces: Sequence[str], advance: Advance) -> list[IdleRow]:
    """Those with idle GPUs, and those with a suspicious signature."""
    chosen = [("namespace", name) for name in namespaces]
    signatures = [("signature", each) for each in SUSPICIOUS]
    idle = read_all(client, PATH, [*chosen, ("sort", "-idle_gpus")], advance=advance, is_wanted=_has_idle_gpus)
    suspicious = read_all(client, PATH, [*chosen, *signatures], advance=advance)
    by_name = {name_of(row): _describe(row, idle.at) for row in (*idle.rows, *suspicious.rows)}
    return list(by_name.values())


def _read_idle_costs(client: Client) -> Mapping[WorkloadName, Cost]:
    """Cost of the last seven days by owner. Empty without a ledger or prices: the table then lacks this column."""
    try:
        query = [("by", "owner"), ("since", "7d"), ("rows", "10000"), ("top", "0")]
        report = as_object(client.read(REPORT_PATH, query))
    except SourceError:
        return {}
    return dict(_list_costs(report))


def _list_costs(report: Row) -> Iterator[tuple[WorkloadName, Cost]]:
    for group in get_objects(report, "groups"):
        micros = get_number(get_object(group, "amounts"), "idle_cost_micros")
        if micros is not None:
            yield name_of(group), Cost(micros / MICROS, get_text(report, "currency"))


def _rank(row: IdleRow) -> tuple[float, float, float]:
    """Most idle GPUs first, then longest idle, then highest cost; unknown values last."""
    return -row["idle_gpus"], -(row["idle_seconds"] or 0.0), -(row["idle_cost_7d"] or 0.0)


def _has_idle_gpus(row: Row) -> bool:
    return (get_number(row, "idle_gpus") or 0) > 0


def _describe(row: Row, at: float | None) -> IdleRow:
    began = get_time(row, "idle_since")
    return {
        **{key: get_text(row, key) for key in ("kind", "namespace", "name", "signature", "proof")},
        **{key: get_number(row, key) or 0 for key in ("gpus", "idle_gpus", "unknown_gpus")},
        "finding": _name_finding(row),
        "score": get_number(row, "score"),
        "idle_since": None if began is None else get_text(row, "idle_since"),
        "idle_seconds": None if began is None or at is None else max(0.0, at - began),
    }


def _name_finding(row: Row) -> str:
    if get_text(row, "activity") == "idle":
        return "idle"
    return "partly-idle" if _has_idle_gpus(row) else "suspicious"


def _cost(row: IdleRow, costs: Mapping[WorkloadName, Cost]) -> Mapping[str, object]:
    cost = costs.get(name_of(row))
    return {"idle_cost_7d": cost.amount if cost else None, "currency": cost.currency if cost else None}


def _write(rows: Sequence[IdleRow], options: argparse.Namespace, *, language: Language) -> None:
    if not rows and options.output == "table":
        print(messages.NO_IDLE_WORKLOADS.text(language), file=sys.stderr)
        return
    shown = [{**row, **_format(row)} for row in rows]
    write_rows(shown, _columns(shown, language), keys=KEYS, output=options.output, language=language)


def _format(row: IdleRow) -> IdleRow:
    return {
        "workload": f"{row['kind']}/{row['name']}",
        "held": f"{quantities.gpus(row['idle_gpus'])}/{quantities.gpus(row['gpus'])}",
        "since": quantities.local_time(get_time(row, "idle_since")),
        "cost": None if row["idle_cost_7d"] is None else f"{row['idle_cost_7d']:.2f} {row['currency']}",
    }


def _columns(rows: Sequence[IdleRow], language: Language) -> list[Column]:
    columns = [
        Column("namespace", Message("namespace", "命名空间")),
        Column("workload", Message("workload", "工作负载"), is_flexible=True),
        Column("finding", Message("verdict", "结论"), lambda word: translate(FINDINGS, word, language), is_styled=True),
        Column("signature", Message("signature", "特征"), lambda word: translate(SIGNATURES, word, language)),
        Column("proof", Message("proof", "测量方式"), lambda word: translate(PROOFS, word, language)),
        Column("held", Message("idle", "空闲/总数"), to_right=True),
        Column("idle_seconds", Message("for", "时长"), quantities.duration, to_right=True),
        Column("since", Message("since", "始于")),
    ]
    if any(row["cost"] for row in rows):
        columns.append(Column("cost", Message("idle cost 7d", "7 天空闲费用"), to_right=True))
    return columns
