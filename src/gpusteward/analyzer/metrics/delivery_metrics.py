"""The books and the deliveries as metrics."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpusteward.core import analyzer_metrics as metrics
from gpusteward.core.exposition import Family, render_labels

GROWING = ("sent", "failed", "dead", "refused")


def aftermath_families(described: Mapping[str, Any]) -> Iterator[Family]:
    """From what `Aftermath.describe` says; where no books are kept nothing is said of them."""
    if ledger := described.get("ledger"):
        yield Family(metrics.LEDGER_UP, [("", int(ledger["is_ready"]))])
        yield Family(metrics.LEDGER_BUFFERED, [("", ledger["buffered_cycles"])])
        yield Family(metrics.LEDGER_LOST, [("", ledger["lost_cycles"])])
    counts: Mapping[str, Mapping[str, int]] = described.get("deliveries", {}).get("counts", {})
    grown = {(kind, result): number for result in GROWING for kind, number in counts.get(result, {}).items()}
    yield Family(metrics.DELIVERIES, [(_label(kind=kind, result=result), n) for (kind, result), n in grown.items()])
    waiting = counts.get("pending", {})
    yield Family(metrics.DELIVERIES_PENDING, [(_label(kind=kind), number) for kind, number in waiting.items()])


def _label(**labels: str) -> str:
    return render_labels(tuple(labels.items()))
