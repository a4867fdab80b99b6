"""The state of every target as plain data, failing targets first, limited in number."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from gpusteward import __version__
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme, list_missing_metrics
from gpusteward.analyzer.sources.scrape.sample_store import SampleStore
from gpusteward.analyzer.sources.scrape.scrape_loop import TargetHealth
from gpusteward.analyzer.sources.scrape.targets import TargetRegistry

MAX_STATES = 200
MAX_FAILURES = 50


def describe(
    store: SampleStore,
    registry: TargetRegistry,
    health: Mapping[str, TargetHealth],
    *,
    schemes: Iterable[DetectedScheme],
    interval: float,
    scrape_counts: Mapping[str, int],
) -> Mapping[str, Any]:
    """For people: the targets, their scrapes, and what was found there."""
    targets = [_describe_target(store, name, state) for name, state in sorted(health.items())]
    failed = {target["target"]: target["error"] for target in targets if target["error"]}
    return {
        "url": "",
        "engine": "gpusteward",
        "version": __version__,
        "scrape_intervals_seconds": {"scrape": interval},
        "dialects": [_describe_scheme(detected) for detected in schemes],
        "origins": list(registry.origins),
        "targets": len(targets),
        "targets_up": len(targets) - len(failed),
        "targets_left_out": registry.omitted,
        "scrapes": {"ok": scrape_counts.get("ok", 0), "failed": scrape_counts.get("failed", 0)},
        "series": store.series,
        "bad_lines": dict(_sum_errors(targets)),
        "failures": {**registry.errors, **dict(list(failed.items())[:MAX_FAILURES])},
        "states": sorted(targets, key=lambda target: not (target["error"] or target["bad_lines"]))[:MAX_STATES],
    }


def _describe_target(store: SampleStore, name: str, state: TargetHealth) -> dict[str, Any]:
    summary = store.describe_target(name)
    return {
        "target": name,
        "error": state.error,
        "failures_in_a_row": state.failures_in_a_row,
        "scrapes": state.scrapes,
        "scraped_at": state.scraped_at,
        "seconds": round(state.seconds, 4),
        "page_bytes": state.page_bytes,
        "values": state.values,
        "series": summary.series,
        "bad_lines": summary.error_counts,
        "examples": summary.error_examples,
    }


def _sum_errors(targets: Iterable[Mapping[str, Any]]) -> Counter[str]:
    total = Counter[str]()
    for target in targets:
        total.update(target["bad_lines"])
    return total


def _describe_scheme(detected: DetectedScheme) -> dict[str, Any]:
    groups = [group for group in (detected.holder, detected.device) if group]
    return {
        "name": detected.scheme.value,
        "labels": {},  # each target may have its own
        "metrics": sorted({metric.name for group in groups for metric in group.metrics}),
        "missing_metrics": list_missing_metrics(detected),
    }
