"""A result as series: gpu-oour's names, one status at a time, and the analyzer's own health. Made once a cycle."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from gpusteward import __version__
from gpusteward.analyzer.explain.tallies import Tally
from gpusteward.analyzer.judge.keys import encode
from gpusteward.analyzer.judge.states import find_low
from gpusteward.analyzer.pipeline import DURATION_BUCKETS, CycleStats
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, DOUBTS, SIGNATURES, STATES, Codes
from gpusteward.core import analyzer_metrics as metrics
from gpusteward.core.exposition import Family, Samples, render_labels
from gpusteward.core.metrics import Metric
from gpusteward.core.usages import AllocationKey
from gpusteward.core.verdicts import State

MIB = 1024 * 1024
Names = tuple[str, ...]  # values of `metrics.HOLDER`


def result_families(result: Result) -> Iterator[Family]:
    """What a finished cycle says of the cluster as a whole; `holder_lines` has what it says of each allocation."""
    yield from _opinions(result)
    yield from _counts(result)
    yield from _kinds(result)


def health_families(
    result: Result | None, stats: CycleStats, tally: Tally, *, queries: Mapping[str, int]
) -> list[Family]:
    """How the analyzer itself fares."""
    finished = Family(metrics.ANALYSES, [("", stats.finished)])
    failed = Family(metrics.ANALYSIS_ERRORS, [("", stats.failed)])
    version = Family(metrics.BUILD_INFO, [(render_labels((("version", __version__),)), 1)])
    families = [version, finished, failed, _durations(stats), *_model(tally), _by(metrics.QUERIES, "result", queries)]
    if stats.last_ended_at is not None:
        families.append(Family(metrics.CYCLE_TIME, [("", round(stats.last_ended_at, 3))]))
    if result is not None:
        families += [Family(metrics.CYCLE_SECONDS, [("", round(result.seconds, 3))]), _service_info(result)]
    return families


def gpu_id(allocation: AllocationKey) -> str:
    """The seed's `gpu_id`: the uuid; a MIG instance has its number behind it, so that two are not taken for one."""
    return f"{allocation.gpu_uuid}/{allocation.gpu_instance}" if allocation.gpu_instance else allocation.gpu_uuid


def name_holder(allocation: AllocationKey) -> Names:
    return gpu_id(allocation), allocation.container.pod, allocation.container.namespace, allocation.node


def _opinions(result: Result) -> Iterable[Family]:
    confidence, score = Family(metrics.AI_CONFIDENCE, []), Family(metrics.AI_SCORE, [])
    told: set[str] = set()
    for row, opinion in sorted(result.opinions.items()):
        names = name_holder(result.verdicts.usage.allocations[row])[: len(metrics.TENANT)]
        labels = [*zip(metrics.TENANT, names, strict=True)]
        text = render_labels(labels)
        if text not in told:
            told.add(text)
            asked = render_labels([*labels, ("ai_status", opinion.status)])
            confidence.samples.append((asked, round(opinion.confidence, 3)))
            if (caution := result.cautions.get(row)) is not None and caution.score is not None:
                score.samples.append((text, round(caution.score, 1)))
    return (confidence, score)


def _counts(result: Result) -> Iterable[Family]:
    verdicts = result.verdicts
    known = verdicts.score[~np.isnan(verdicts.score)]
    yield Family(metrics.TOTAL, [("", len(verdicts))])
    is_low = find_low(verdicts.score, verdicts.state, thresholds=result.settings.thresholds)
    yield Family(metrics.LOW, [("", int(is_low.sum()))])
    yield Family(metrics.IDLE, [("", int(np.sum(verdicts.state == STATES.index(State.IDLE))))])
    if len(known):
        yield Family(metrics.AVERAGE, [("", round(float(known.mean()), 1))])
    yield _by(metrics.BY_STATUS, "status", _tally(verdicts.state, STATES))
    yield from _by_namespace(result)


def _by_namespace(result: Result) -> Iterable[Family]:
    verdicts = result.verdicts
    coded = encode([allocation.container.namespace for allocation in verdicts.usage.allocations])
    codes, size = coded.codes, len(coded.names)
    scored = ~np.isnan(verdicts.score)
    counts = np.bincount(codes, minlength=size)
    scores = np.bincount(codes[scored], minlength=size)
    sums = np.bincount(codes[scored], weights=verdicts.score[scored], minlength=size)
    yield _by(metrics.BY_NAMESPACE, "namespace", dict(sorted(zip(coded.names, counts.tolist(), strict=True))))
    means = {
        name: round(total / n, 1)
        for name, total, n in sorted(zip(coded.names, sums.tolist(), scores.tolist(), strict=True))
        if n
    }
    yield _by(metrics.NAMESPACE_AVERAGE, "namespace", means)


def _kinds(result: Result) -> Iterable[Family]:
    verdicts = result.verdicts
    yield _by(metrics.ACTIVITY, "activity", _tally(verdicts.activity, ACTIVITIES))
    yield _by(metrics.SIGNATURES, "signature", _tally(verdicts.signature, SIGNATURES))
    yield _by(metrics.WORKLOADS, "activity", _tally(result.workloads.activity, ACTIVITIES))
    if len(verdicts):
        yield Family(metrics.COVERAGE, [("", round(float(verdicts.usage.coverage.mean()), 4))])
    doubts = _tally(verdicts.doubt, DOUBTS)
    yield _by(metrics.UNKNOWN, "reason", {name: count for name, count in doubts.items() if name})


def _tally(codes: Codes, names: Sequence[str]) -> Mapping[str, int]:
    counts = np.bincount(codes, minlength=len(names)).tolist()
    return {str(name): count for name, count in zip(names, counts, strict=True)}


def _by(metric: Metric, label: str, values: Mapping[str, float]) -> Family:
    return Family(metric, [(render_labels(((label, name),)), value) for name, value in values.items()])


def _durations(stats: CycleStats) -> Family:
    """A histogram by hand: the suffix of a sample's name stands where its labels begin."""
    limits = [*(f"{limit:g}" for limit in DURATION_BUCKETS), "+Inf"]
    runs = stats.finished + stats.failed
    samples: Samples = [
        (f'_bucket{{le="{limit}"}}', count) for limit, count in zip(limits, [*stats.duration_counts, runs], strict=True)
    ]
    return Family(metrics.ANALYSIS_SECONDS, [*samples, ("_sum", round(stats.seconds_total, 3)), ("_count", runs)])


def _model(tally: Tally) -> Iterable[Family]:
    failures = {failure.value: count for failure, count in tally.failures.items()}
    yield _by(metrics.MODEL_CALLS, "result", {"ok": tally.opinions, "recalled": tally.recalled, **failures})
    yield _by(metrics.MODEL_TOKENS, "direction", {"input": tally.input_tokens, "output": tally.output_tokens})
    yield Family(metrics.MODEL_COST, [("", round(tally.cost, 6))])


def _service_info(result: Result) -> Family:
    settings = result.settings
    labels = (
        ("version", __version__),
        ("threshold", f"{settings.thresholds.low_utilization:g}"),
        ("interval", str(settings.scheduler.interval)),
        ("ai_enabled", str(settings.ai.enabled)),
    )
    return Family(metrics.SERVICE_INFO, [(render_labels(labels), 1)])
