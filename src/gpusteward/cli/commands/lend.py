"""`gpusteward lend`: how many idle GPUs can be lent for how long, and with what probability."""

import sys
from collections.abc import Iterator, Sequence

from gpusteward.cli.flags import FlagParser, add_request_flags, language_of, make_analyzer_client, make_parser
from gpusteward.cli.json_access import Row
from gpusteward.cli.output import quantities
from gpusteward.cli.output.tables import Column, write_json, write_rows
from gpusteward.cli.output.verdict_texts import warn_stale
from gpusteward.cli.program import EXIT_OK
from gpusteward.core.messages import Language, Message

HORIZONS = {
    "1h": Message("1 hour", "1 小时"),
    "4h": Message("4 hours", "4 小时"),
    "morning": Message("until morning", "到早上"),
}
NOTHING_LENDABLE = Message(
    "No GPU is idle with a proof that would allow lending it.", "没有空闲且有充分证明、可以出借的 GPU。"
)

PATH = "/api/v1/lendable"
KEYS = ("horizon", "seconds", "model", "gpus", "probability", "expected_gpus", "unknown_gpus", "workloads_total")
SHOWN_WORKLOADS = 3


def build_parser() -> FlagParser:
    parser = make_parser(
        "lend",
        "Show how many idle GPUs of each model can be lent for 1 hour, 4 hours and until morning: those "
        "that nobody will need with a probability of at least 0.9, from the idle spells of the same workloads.",
    )
    parser.add_argument("--model", action="append", metavar="NAME", help="only this GPU model; repeatable")
    add_request_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, SourceError."""
    options = build_parser().parse(arguments)
    client, language = make_analyzer_client(options), language_of(options)
    page = client.read(PATH, [("model", name) for name in options.model or ()])
    warn_stale(page.object("result"), language)
    items = page.objects("items")
    if options.output == "json":
        write_json(page)
    elif items or options.output == "csv":
        rows = [_show(row, language) if options.output == "table" else dict(row) for row in items]
        write_rows(rows, list(_list_columns()), keys=KEYS, output=options.output, language=language)
    else:
        print(NOTHING_LENDABLE.text(language), file=sys.stderr)
    return EXIT_OK


def _list_columns() -> Iterator[Column]:
    yield Column("horizon", Message("FOR", "时长"))
    yield Column("model", Message("MODEL", "型号"))
    yield Column("gpus", Message("LENDABLE GPUS", "可出借 GPU"), to_right=True)
    yield Column("probability", Message("PROBABILITY", "概率"), to_right=True)
    yield Column("expected_gpus", Message("EXPECTED FREE", "预期空闲"), to_right=True)
    yield Column("unknown_gpus", Message("UNKNOWN", "未知"), to_right=True)
    yield Column("sources", Message("FROM", "来自"), stands_alone=True)


def _show(row: Row, language: Language) -> dict[str, object]:
    horizon, probability = row.text("horizon"), row.number("probability")
    sources = [f"{each.text('namespace')}/{each.text('name')}" for each in row.objects("workloads")]
    shown = ", ".join(sources[:SHOWN_WORKLOADS]) + (" …" if len(sources) > SHOWN_WORKLOADS else "")
    return {
        "horizon": HORIZONS[horizon].text(language) if horizon in HORIZONS else horizon,
        "model": row.text("model").removeprefix("NVIDIA "),
        **{key: quantities.gpus(row.number(key)) for key in ("gpus", "expected_gpus", "unknown_gpus")},
        "probability": quantities.chance(probability),
        "sources": shown,
    }
