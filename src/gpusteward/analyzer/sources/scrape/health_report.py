"""The state of every target in plain data, those in trouble first, in bounded number."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from gpusteward import __version__
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme
from gpusteward.analyzer.sources.scrape.scrape_loop import Health
from gpusteward.analyzer.sources.scrape.store import Store
from gpusteward.analyzer.sources.scrape.targets import KnownTargets

MOST_SHOWN = 200
MOST_FAILURES = 50


def describe(
    store: Store,
    known: KnownTargets,
    health: Mapping[str, Health],
    *,
    found: Iterable[DetectedScheme],
    interval: float,
    asked: Mapping[str, int],
) -> Mapping[str, Any]:
    """For people: who is scraped, how that goes, and what was found there."""
    targets = [_show(store, name, state) for name, state in sorted(health.items())]
    failed = {target["target"]: target["error"] for target in targets if target["error"]}
    return {
        "url": "",
        "engine": "gpusteward",
        "version": __version__,
        "scrape_intervals_seconds": {"scrape": interval},
        "dialects": [_show_dialect(one) for one in found],
        "origins": list(known.origins),
        "targets": len(targets),
        "targets_up": len(targets) - len(failed),
        "targets_left_out": known.left_out,
        "scrapes": {"ok": asked.get("ok", 0), "failed": asked.get("failed", 0)},
        "series": store.series,
        "bad_lines": dict(_sum_up(targets)),
        "failures": {**known.complaints, **dict(list(failed.items())[:MOST_FAILURES])},
        "states": sorted(targets, key=lambda target: not (target["error"] or target["bad_lines"]))[:MOST_SHOWN],
    }


def _show(store: Store, name: str, state: Health) -> dict[str, Any]:
    series, bad_lines, examples = store.describe_target(name)
    return {
        "target": name,
        "error": state.error,
        "failures_in_a_row": state.failures_in_a_row,
        "scrapes": state.scrapes,
        "scraped_at": state.scraped_at,
        "seconds": round(state.seconds, 4),
        "page_bytes": state.page_bytes,
        "values": state.values,
        "series": series,
        "bad_lines": bad_lines,
        "examples": examples,
    }


def _sum_up(targets: Iterable[Mapping[str, Any]]) -> Counter[str]:
    total = Counter[str]()
    for target in targets:
        total.update(target["bad_lines"])
    return total


def _show_dialect(found: DetectedScheme) -> dict[str, Any]:
    sides = [side for side in (found.holder, found.device) if side]
    return {
        "name": found.scheme.value,
        "labels": {},  # each target may have its own
        "metrics": sorted({signal.metric for side in sides for signal in side.signals}),
    }
