"""The books and the deliveries as metrics."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpusteward.core import analyzer_metrics as metrics
from gpusteward.core.exposition import Family, render_labels

GROWING = ("sent", "failed", "dead", "refused")


def ledger_families(described: Mapping[str, Any] | None) -> Iterator[Family]:
    """No family where the ledger is disabled (None)."""
    if described:
        yield Family(metrics.LEDGER_UP, [("", int(described["is_ready"]))])
        yield Family(metrics.LEDGER_BUFFERED, [("", described["buffered_cycles"])])
        yield Family(metrics.LEDGER_LOST, [("", described["lost_cycles"])])


def delivery_families(described: Mapping[str, Any]) -> Iterator[Family]:
    counts: Mapping[str, Mapping[str, int]] = described.get("counts", {})
    grown = {(kind, result): number for result in GROWING for kind, number in counts.get(result, {}).items()}
    yield Family(metrics.DELIVERIES, [(_label(kind=kind, result=result), n) for (kind, result), n in grown.items()])
    waiting = counts.get("pending", {})
    yield Family(metrics.DELIVERIES_PENDING, [(_label(kind=kind), number) for kind, number in waiting.items()])


def _label(**labels: str) -> str:
    return render_labels(tuple(labels.items()))
