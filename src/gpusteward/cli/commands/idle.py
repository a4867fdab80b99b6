"""`gpusteward idle`: workloads that hold GPUs without using them: who, since when, and at what cost."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpusteward.cli import flags
from gpusteward.cli.api.client import Client
from gpusteward.cli.api.pagination import read_all
from gpusteward.cli.api.workload_facts import IdleCosts, describe_plan, read_idle_costs, read_plans
from gpusteward.cli.api.workloads import check_namespaces, label_workloads, name_of
from gpusteward.cli.json_access import Row
from gpusteward.cli.output import quantities, words
from gpusteward.cli.output.quantities import MICROS
from gpusteward.cli.output.tables import Advance, Column, show_progress, write_rows
from gpusteward.cli.output.verdict_texts import describe_result_time, name_verdict, translate, warn_stale
from gpusteward.cli.program import EXIT_FOUND, EXIT_OK
from gpusteward.core.messages import Language, Message
from gpusteward.core.verdicts import Signature
from gpusteward.messages.verdicts import PROOFS, SIGNATURES, VERDICTS

NO_IDLE_WORKLOADS = Message("No idle or suspicious workloads.", "没有空闲或可疑的工作负载。")
NO_IDLE_WORKLOADS_IN = Message("No idle or suspicious workloads in {names}.", "{names} 中没有空闲或可疑的工作负载。")
NO_GPUS_HELD_IN = Message("No GPUs are held in {names} now.", "{names} 目前没有占用 GPU。")
COST_7D = Message("last 7 days", "近 7 天")
TOTAL_WORKLOADS = Message("{count} {count:|workload|workloads}", "共 {count} 个工作负载")

PATH = "/api/v1/workloads"
SUSPICIOUS = (*(one.value for one in Signature if one.is_suspicious), Signature.NO_REQUESTS.value)
"""The last one is idle most often, and suspicious where its GPUs spin."""
KEYS = (
    *("kind", "namespace", "name", "finding", "signature", "gpus", "idle_gpus", "unknown_gpus"),
    *("score", "idle_since", "idle_seconds", "idle_cost_7d", "currency", "proof"),
    *("workload", "users", "models", "nodes", "allocations", "idle_allocations"),
    *("idle_cost_per_hour", "idle_cost", "cluster", "owner_evidence"),
    *("next_action", "next_outcome", "next_at", "resumption_30m"),
    *("requests_per_hour", "tokens_per_hour", "last_request_at", "silent_since"),
    "verdict",
)
SORTS: Mapping[str, Callable[[Row], Any]] = {
    "cost": lambda row: _descending(row["idle_cost"]),
    "rate": lambda row: _descending(row["idle_cost_per_hour"]),
    "cost-7d": lambda row: _descending(row["idle_cost_7d"]),
    "gpus": lambda row: _descending(row["idle_gpus"]),
    "since": lambda row: _descending(row["idle_seconds"]),
    "user": lambda row: (not row["users"], row["users"]),
    "name": lambda row: row["workload"],
}
"""The highest and the longest first, names in order; unknown values last."""


def build_parser() -> flags.FlagParser:
    parser = flags.make_parser(
        "idle", "List workloads with idle GPUs, and those that look hung, starved or artificially kept busy."
    )
    flags.add_namespace_flag(parser)
    flags.add_cluster_flag(parser)
    parser.add_argument(
        "--longer-than",
        type=flags.read_duration,
        default=0.0,
        metavar="TIME",
        help="only if idle for at least 30m, 2h, 7d",
    )
    parser.add_argument(
        "--sort", choices=SORTS, default="cost", help="order of the rows (default cost: of the current idle spell)"
    )
    parser.add_argument("--exit-code", action="store_true", help=f"exit {EXIT_FOUND} if any workload is listed")
    flags.add_request_flags(parser, has_wide=True)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, also for an unknown namespace; SourceError if the analyzer cannot be reached."""
    options = build_parser().parse(arguments)
    client, language = flags.make_analyzer_client(options), flags.language_of(options)
    namespaces = options.namespace or ()
    with show_progress(Message("reading workloads", "正在读取工作负载").text(language)) as advance:
        holding = check_namespaces(client, namespaces)
        found, stamp = _read_workloads(client, namespaces, options.cluster or (), advance)
        costs = read_idle_costs(client) if found else IdleCosts()
        plans = read_plans(client) if found else {}
    rows = [
        Row(_add_cost(row, costs), **describe_plan(plans.get(name_of(row)), language))
        for row in found
        if options.longer_than <= (row["idle_seconds"] or 0)
    ]
    # Rows that are equal, and all where no cost is known: the most GPUs and the longest time first.
    rows.sort(key=lambda row: (_descending(row["idle_gpus"]), _descending(row["idle_seconds"]), row["workload"]))
    rows.sort(key=SORTS[options.sort])
    if options.output in ("json", "csv"):
        warn_stale(stamp, language)
        write_rows(rows, (), keys=KEYS, output=options.output)
    else:
        if rows:
            is_wide = options.output == flags.WIDE
            columns = list(list_columns(rows, ledger_currency=costs.currency, language=language, is_wide=is_wide))
            shown = [format_row(row, is_wide=is_wide) for row in rows]
            write_rows(shown, columns, keys=(), output="table", language=language, total=sum_up(rows, language))
        else:
            none_in = NO_IDLE_WORKLOADS_IN if holding else NO_GPUS_HELD_IN
            text = (
                none_in.text(language, names=", ".join(namespaces)) if namespaces else NO_IDLE_WORKLOADS.text(language)
            )
            print(text, file=sys.stderr)
        print(describe_result_time(stamp, language), file=sys.stdout if rows else sys.stderr)
    return EXIT_FOUND if rows and options.exit_code else EXIT_OK


def _read_workloads(
    client: Client, namespaces: Sequence[str], clusters: Sequence[str], advance: Advance
) -> tuple[list[Row], Row]:
    """Those with idle GPUs, and those with a suspicious signature; and the stamp of their result."""
    chosen = [*(("namespace", name) for name in namespaces), *(("cluster", name) for name in clusters)]
    signatures = [("signature", each) for each in SUSPICIOUS]
    idle = read_all(client, PATH, [*chosen, ("sort", "-idle_gpus")], advance=advance, is_wanted=_has_idle_gpus)
    suspicious = read_all(client, PATH, [*chosen, *signatures], advance=advance)
    rows = {name_of(row): row for row in (*idle.rows, *suspicious.rows)}
    labels = label_workloads(client, rows)
    at = idle.result.time("at")
    return [Row(_describe(row, at), workload=labels[name]) for name, row in rows.items()], idle.result


def _descending(value: float | None) -> float:
    return float("inf") if value is None else -value


def _has_idle_gpus(row: Row) -> bool:
    return (row.number("idle_gpus") or 0) > 0


def _describe(row: Row, at: float | None) -> dict[str, Any]:
    began, requests = row.time("idle_since"), row.object("requests")
    partly = "partly-idle" if _has_idle_gpus(row) else "suspicious"
    return {
        **{key: row.text(key) for key in ("kind", "namespace", "name", "cluster", "signature", "proof")},
        "owner_evidence": row.text("owner_evidence"),
        **{key: row.number(key) or 0 for key in ("gpus", "idle_gpus", "unknown_gpus")},
        **{key: row.texts(key) for key in ("users", "models", "nodes")},
        **{key: row.count(key) for key in ("allocations", "idle_allocations", "nodes_total")},
        "finding": "idle" if row.text("activity") == "idle" else partly,
        "verdict": name_verdict(row),
        "score": row.number("score"),
        "idle_since": None if began is None else row.text("idle_since"),
        "idle_seconds": None if began is None or at is None else max(0.0, at - began),
        "resumption_30m": row.object("resumption").object("within_30_minutes").number("probability"),
        "requests_per_hour": requests.number("per_hour"),
        "tokens_per_hour": requests.number("tokens_per_hour"),
        "last_request_at": requests.text("last_at") or None,
        "silent_since": requests.text("silent_since") or None,
        "currency": row.text("currency") or None,
        "idle_cost_per_hour": row.number("idle_cost_micros_per_hour", unit=MICROS),
        "idle_cost": row.number("idle_cost_micros", unit=MICROS),
    }


def _add_cost(row: Row, costs: IdleCosts) -> Row:
    """`currency` is that of the ledger where it has a cost: the currency of the settings may be newer."""
    micros = costs.micros.get(name_of(row))
    currency = row["currency"] if micros is None else costs.currency
    return Row(row, idle_cost_7d=None if micros is None else micros / MICROS, currency=currency)


BLANK = " "  # in the line of sums; an empty text would be a dash
COSTS = ("idle_cost_per_hour", "idle_cost", "idle_cost_7d")


def list_columns(
    rows: Sequence[Row], *, ledger_currency: str, language: Language, is_wide: bool = False
) -> Iterator[Column]:
    """On a narrow terminal, columns of a low priority are left out."""
    now = next((row["currency"] for row in rows if row["idle_cost"] is not None), "") or ledger_currency
    yield Column("workload", Message("workload", "工作负载"), stands_alone=True)
    yield Column("verdict", words.VERDICT, _translate(VERDICTS, language), is_styled=True, priority=4)
    yield Column("signature", Message("signature", "特征"), _translate(SIGNATURES, language))
    yield Column("proof", words.PROOF, _translate(PROOFS, language), priority=1)
    yield Column("users", words.USER)
    yield Column("models", words.MODEL, priority=3)
    yield Column("nodes", Message("node", "节点"), priority=2)
    yield Column("held", Message("idle GPUs", "空闲/占用 GPU"), to_right=True)
    yield Column("idle_seconds", Message("for", "时长"), quantities.duration, to_right=True)
    if is_wide:
        yield Column("since", Message("since", "始于"))
        yield Column("score", Message("score", "评分"), quantities.score, to_right=True)
        yield Column("resumption_30m", Message("CHANCE 30M", "30 分钟内恢复"), quantities.chance, to_right=True)
    if is_wide and any(row["requests_per_hour"] is not None for row in rows):
        yield Column("requests_per_hour", Message("requests/hour", "每小时请求"), quantities.whole, to_right=True)
        yield Column("tokens_per_hour", Message("tokens/hour", "每小时 token"), quantities.whole, to_right=True)
        yield Column("last_request", Message("last request", "最近请求"))
    titles = Message("{currency}/hour", "每小时 {currency}"), Message("this spell", "本次空闲"), COST_7D
    if any(row.get("next") for row in rows):
        yield Column("next", words.NEXT, priority=5)
    for key, title, currency in zip(COSTS, titles, (now, now, ledger_currency or now), strict=True):
        yield Column(key, title.fill(currency=currency), to_right=True)


def _translate(words: Mapping[str, Any], language: Language) -> Any:
    return lambda word: translate(words, word, language) if word else ""


def format_row(row: Row, *, is_wide: bool = False) -> dict[str, object]:
    """What the columns show; all other values stay. Only a wide table has all names."""
    models = [model.removeprefix("NVIDIA ") for model in row["models"]]
    names = {"users": row["users"], "models": models, "nodes": row["nodes"]}
    totals = {"nodes": row["nodes_total"]}
    return {
        **row,
        **{
            key: quantities.all_names(each) if is_wide else quantities.first_name(each, totals.get(key))
            for key, each in names.items()
        },
        "held": f"{quantities.gpus(row['idle_gpus'])}/{quantities.gpus(row['gpus'])}",
        "since": quantities.iso_time(row["idle_since"] or ""),
        "last_request": quantities.iso_time(row["last_request_at"] or ""),
        **{key: quantities.amount(row[key]) for key in COSTS},
    }


def sum_up(rows: Sequence[Row], language: Language) -> dict[str, object]:
    """The line below the table. Where the cost of some idle GPUs is unknown, the sum is a lower bound."""
    sums = {key: sum(row[key] for row in rows) for key in ("idle_gpus", "gpus")}
    return {
        "workload": TOTAL_WORKLOADS.text(language, count=len(rows)),
        "held": "/".join(quantities.gpus(sums[key]) for key in ("idle_gpus", "gpus")),
        **dict.fromkeys(("users", "models", "nodes", "since"), BLANK),
        **{key: _sum_costs([row[key] for row in rows if row["idle_gpus"] or row[key] is not None]) for key in COSTS},
    }


def _sum_costs(costs: Sequence[float | None]) -> str:
    known = [cost for cost in costs if cost is not None]
    if not known:
        return quantities.UNKNOWN
    return ("" if len(known) == len(costs) else "≥") + quantities.amount(sum(known))
