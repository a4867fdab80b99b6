"""Metric families of the analyzer itself: cycles, queries, model calls, settings, ledger, deliveries, reclaim."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpusteward import __version__
from gpusteward.analyzer.data_health import DataHealth
from gpusteward.analyzer.explain.explainer import ModelCounters
from gpusteward.analyzer.metrics import analyzer_metrics as metrics
from gpusteward.analyzer.metrics.result_metrics import family_by
from gpusteward.analyzer.notify.outbox.records import DELIVERY_RESULTS
from gpusteward.analyzer.pipeline import DURATION_BUCKETS, CycleStats
from gpusteward.analyzer.reclaim.decisions.host_use import HostSignal
from gpusteward.analyzer.reclaim.lending import LendableGpus
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.analyzer.reclaim.plan import Outcome, ReclaimControl
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies
from gpusteward.analyzer.results import Result
from gpusteward.core.exposition import Family, Samples, render_labels


def cycle_families(result: Result | None, stats: CycleStats) -> Iterator[Family]:
    """`result`: the last one; None before the first."""
    yield Family(metrics.BUILD_INFO, [(render_labels((("version", __version__),)), 1)])
    created: Samples = [("", round(stats.created_at, 3))]
    yield Family(metrics.ANALYSES, [("", stats.finished)])
    yield Family(metrics.ANALYSES_CREATED, created)
    yield Family(metrics.ANALYSIS_ERRORS, [("", stats.failed)])
    yield Family(metrics.ANALYSIS_ERRORS_CREATED, created)
    yield _durations(stats)
    yield Family(metrics.ANALYSIS_SECONDS_CREATED, created)
    if stats.last_succeeded_at is not None:
        yield Family(metrics.CYCLE_TIME, [("", round(stats.last_succeeded_at, 3))])
    if result is not None:
        yield Family(metrics.CYCLE_SECONDS, [("", round(result.seconds, 3))])
        settings = result.settings
        labels = (
            ("version", __version__),
            ("threshold", f"{settings.thresholds.low_utilization:g}"),
            ("interval", str(settings.scheduler.interval)),
            ("ai_enabled", str(settings.ai.enabled)),
        )
        yield Family(metrics.SERVICE_INFO, [(render_labels(labels), 1)])


def data_families(health: DataHealth) -> Iterator[Family]:
    """How old and how complete the last result is."""
    yield Family(metrics.RESULT_MAX_AGE, [("", health.max_age_seconds)])
    if health.result_at is not None and health.age_seconds is not None:
        yield Family(metrics.RESULT_TIME, [("", round(health.result_at, 3))])
        yield Family(metrics.RESULT_AGE, [("", round(health.age_seconds, 3))])
    if health.unknown_ratio is not None:
        yield Family(metrics.UNKNOWN_RATIO, [("", health.unknown_ratio)])
    if health.findings:
        pairs = dict.fromkeys((one.level, one.code) for one in health.findings)
        samples: Samples = [(render_labels((("level", level), ("code", code))), 1) for level, code in pairs]
        yield Family(metrics.FINDINGS, samples)
    if health.targets:
        down = health.targets - health.targets_up
        yield family_by(metrics.TARGETS, "state", {"up": health.targets_up, "down": down})


def _durations(stats: CycleStats) -> Family:
    """A histogram: the label text of a sample begins with the suffix of its name."""
    limits = [*map(str, DURATION_BUCKETS), "+Inf"]  # "1.0", as gpu-oour and OpenMetrics write it
    runs = stats.finished + stats.failed
    samples: Samples = [
        (f'_bucket{{le="{limit}"}}', count) for limit, count in zip(limits, [*stats.duration_counts, runs], strict=True)
    ]
    return Family(metrics.ANALYSIS_SECONDS, [*samples, ("_sum", round(stats.seconds_total, 3)), ("_count", runs)])


def model_families(counters: ModelCounters) -> Iterable[Family]:
    failures = {failure.value: count for failure, count in counters.failures.copy().items()}  # another thread counts
    yield family_by(metrics.MODEL_CALLS, "result", {"ok": counters.opinions, "recalled": counters.recalled, **failures})
    yield family_by(
        metrics.MODEL_TOKENS, "direction", {"input": counters.input_tokens, "output": counters.output_tokens}
    )
    yield Family(metrics.MODEL_COST, [("", round(counters.cost, 6))])


def count_families(
    *, queries: Mapping[str, int], reloads: Mapping[str, int], refusals: Mapping[str, int], is_leader: bool
) -> Iterator[Family]:
    """What the parts of the program have counted since its start, and whether it is the leader."""
    yield family_by(metrics.QUERIES, "result", queries)
    yield family_by(metrics.SETTINGS_RELOADS, "result", reloads)
    yield family_by(metrics.REFUSED_REQUESTS, "reason", refusals)
    yield Family(metrics.LEADER, [("", int(is_leader))])


def lending_families(lendable: Iterable[LendableGpus]) -> Iterator[Family]:
    """One sample for each horizon and model."""
    rows = [(render_labels((("horizon", each.horizon), ("model", each.model))), each) for each in lendable]
    if not rows:
        return
    yield Family(metrics.LENDABLE_GPUS, [(labels, round(each.gpus, 4)) for labels, each in rows])
    yield Family(metrics.LENDABLE_EXPECTED_GPUS, [(labels, round(each.expected_gpus, 4)) for labels, each in rows])


def ledger_families(described: Mapping[str, Any] | None) -> Iterator[Family]:
    """No family where the ledger is disabled (None)."""
    if described:
        yield Family(metrics.LEDGER_UP, [("", int(described["is_ready"]))])
        yield Family(metrics.LEDGER_BUFFERED, [("", described["buffered_cycles"])])
        yield Family(metrics.LEDGER_LOST, [("", described["lost_cycles"])])


def delivery_families(described: Mapping[str, Any]) -> Iterator[Family]:
    counts: Mapping[str, Mapping[str, int]] = described.get("counts", {})
    by_result = {
        (kind, result): number for result in DELIVERY_RESULTS for kind, number in counts.get(result, {}).items()
    }
    yield Family(
        metrics.DELIVERIES,
        [(render_labels((("kind", kind), ("result", result))), number) for (kind, result), number in by_result.items()],
    )
    yield family_by(metrics.DELIVERIES_PENDING, "kind", counts.get("pending", {}))


def reclaim_families(control: ReclaimControl | None, policies: WatchedPolicies) -> Iterator[Family]:
    """In mode off only the mode, and what is suspended."""
    mode = control.mode if control else Mode.OFF
    yield Family(metrics.RECLAIM_INFO, [(render_labels((("mode", mode),)), 1)])
    if policies.has_file or mode is not Mode.OFF:
        yield Family(metrics.RECLAIM_POLICIES_VALID, [("", int(policies.error is None))])
    if control is None:
        return
    if control.suspended is not None:
        yield Family(metrics.RECLAIM_SUSPENDED, [("", control.suspended.actions)])
        yield Family(metrics.RECLAIM_SUSPENDED_GPUS, [("", round(control.suspended.gpus, 4))])
    if mode is Mode.OFF:
        return
    plan = control.read_plan(visible=None)
    if plan is not None:
        yield Family(metrics.RECLAIM_STOPPED, [("", int(plan.stopped_by is not None))])
        yield family_by(
            metrics.RECLAIM_DECISIONS, "outcome", {each.value: plan.counts.get(each, 0) for each in Outcome}
        )
        yield family_by(
            metrics.RECLAIM_HOST_REFUSALS,
            "signal",
            {each.value: plan.host_refusals.get(each, 0) for each in HostSignal},
        )
    samples: Samples = [
        (render_labels((("kind", kind), ("outcome", outcome))), count)
        for (kind, outcome), count in sorted(control.counts.items())
    ]
    yield Family(metrics.RECLAIM_ACTIONS, samples)
    yield family_by(
        metrics.RECLAIM_POLICY_RELOADS, "result", {"ok": policies.reloads_ok, "refused": policies.reloads_refused}
    )
