"""The table of `gpusteward idle`: one row per workload, and their sums."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpusteward.cli.output import quantities
from gpusteward.cli.output.formats import Column
from gpusteward.cli.output.verdict_labels import translate
from gpusteward.core.messages import Language
from gpusteward.messages.cli import replay as cli_replay
from gpusteward.messages.cli import workloads as messages
from gpusteward.messages.verdicts import FINDINGS, PROOFS, SIGNATURES

Row = Mapping[str, Any]
BLANK = " "  # in the line of sums; an empty text would be a dash
COSTS = ("idle_cost_per_hour", "idle_cost", "idle_cost_7d")


def list_columns(
    rows: Sequence[Row], *, ledger_currency: str, language: Language, is_wide: bool = False
) -> Iterator[Column]:
    """On a narrow terminal, columns of a low priority are left out."""
    now = next((row["currency"] for row in rows if row["idle_cost"] is not None), "") or ledger_currency
    yield Column("workload", messages.WORKLOAD, stands_alone=True)
    yield Column("finding", messages.VERDICT, _translate(FINDINGS, language), is_styled=True, priority=4)
    yield Column("signature", messages.SIGNATURE, _translate(SIGNATURES, language))
    yield Column("proof", messages.PROOF, _translate(PROOFS, language), priority=1)
    yield Column("users", messages.USER)
    yield Column("models", messages.MODEL, priority=3)
    yield Column("nodes", messages.NODE, priority=2)
    yield Column("held", messages.IDLE_GPUS, to_right=True)
    yield Column("idle_seconds", messages.FOR, quantities.duration, to_right=True)
    if is_wide:
        yield Column("since", messages.SINCE)
        yield Column("score", messages.SCORE, quantities.score, to_right=True)
        yield Column("resumption_30m", cli_replay.CHANCE, _percent, to_right=True)
    titles = messages.COST_PER_HOUR, messages.COST_OF_SPELL, messages.COST_7D
    if any(row.get("next") for row in rows):
        yield Column("next", messages.NEXT, priority=5)
    for key, title, currency in zip(COSTS, titles, (now, now, ledger_currency or now), strict=True):
        yield Column(key, title.fill(currency=currency), to_right=True)


def _percent(share: float | None) -> str:
    return quantities.UNKNOWN if share is None else f"{share:.0%}"


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
        "since": quantities.iso_time(row["idle_since"]),
        **{key: quantities.amount(row[key]) for key in COSTS},
    }


def sum_up(rows: Sequence[Row], language: Language) -> dict[str, object]:
    """The line below the table. Where the cost of some idle GPUs is unknown, the sum is a lower bound."""
    sums = {key: sum(row[key] for row in rows) for key in ("idle_gpus", "gpus")}
    return {
        "workload": messages.TOTAL_WORKLOADS.text(language, count=len(rows)),
        "held": "/".join(quantities.gpus(sums[key]) for key in ("idle_gpus", "gpus")),
        **dict.fromkeys(("users", "models", "nodes", "since"), BLANK),
        **{key: _sum_costs([row[key] for row in rows if row["idle_gpus"] or row[key] is not None]) for key in COSTS},
    }


def _sum_costs(costs: Sequence[float | None]) -> str:
    known = [cost for cost in costs if cost is not None]
    if not known:
        return quantities.UNKNOWN
    return ("" if len(known) == len(costs) else "≥") + quantities.amount(sum(known))
