"""Metric families of a result for the cluster as a whole, under gpu-oour's names and our own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

import numpy as np

from gpusteward.analyzer.judge.allocation_columns import CodedColumn, encode
from gpusteward.analyzer.judge.fleet import count_fleet, count_gpus
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.judge.states import find_low
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, DOUBTS, PROOFS, SIGNATURES, STATES, Codes
from gpusteward.core import analyzer_metrics as metrics
from gpusteward.core.exposition import Family, Samples, render_labels
from gpusteward.core.metrics import Metric
from gpusteward.core.usages import AllocationKey
from gpusteward.core.verdicts import Activity, State

MIB = 1024 * 1024
HolderLabels = tuple[str, ...]  # values of `metrics.HOLDER`


def result_families(result: Result) -> Iterator[Family]:
    """All families but those with one sample per allocation, which `allocation_samples` renders."""
    yield from _opinions(result)
    yield from _counts(result)
    yield from _verdict_counts(result)


def gpu_id(allocation: AllocationKey) -> str:
    """gpu-oour's `gpu_id`: the UUID; a MIG instance has its instance id appended, which makes it unique."""
    return f"{allocation.gpu_uuid}/{allocation.gpu_instance}" if allocation.gpu_instance else allocation.gpu_uuid


def holder_labels(allocation: AllocationKey) -> HolderLabels:
    return gpu_id(allocation), allocation.container.pod, allocation.container.namespace, allocation.node


def family_by(metric: Metric, label: str, values: Mapping[str, float]) -> Family:
    """A family with one label."""
    return Family(metric, [(render_labels(((label, name),)), value) for name, value in values.items()])


def _opinions(result: Result) -> Iterable[Family]:
    """One sample per holder: containers of one pod on one GPU have the same labels."""
    confidence, score = Family(metrics.AI_CONFIDENCE, []), Family(metrics.AI_SCORE, [])
    seen: set[str] = set()
    for row, opinion in sorted(result.opinions.items()):
        values = holder_labels(result.verdicts.usage.allocations[row])[: len(metrics.TENANT)]
        labels = [*zip(metrics.TENANT, values, strict=True)]
        text = render_labels(labels)
        if text not in seen:
            seen.add(text)
            with_status = render_labels([*labels, ("ai_status", opinion.status)])
            confidence.samples.append((with_status, round(opinion.confidence, 3)))
            if (effect := result.opinion_effects.get(row)) is not None and effect.score is not None:
                score.samples.append((text, round(effect.score, 1)))
    return (confidence, score)


def _counts(result: Result) -> Iterable[Family]:
    verdicts = result.verdicts
    is_scored = ~np.isnan(verdicts.score)
    known, states = verdicts.score[is_scored], _count_codes(verdicts.state[is_scored], STATES)
    yield Family(metrics.TOTAL, [("", len(known))])
    is_low = find_low(verdicts.score, verdicts.state, thresholds=result.settings.thresholds)
    yield Family(metrics.LOW, [("", int(is_low.sum()))])
    yield Family(metrics.IDLE, [("", states[State.IDLE])])
    if len(known):
        yield Family(metrics.AVERAGE, [("", round(float(known.mean()), 1))])
    yield family_by(metrics.BY_STATUS, "status", {**states, State.UNKNOWN.value: len(verdicts) - len(known)})
    yield from _by_namespace(result)


def _by_namespace(result: Result) -> Iterable[Family]:
    verdicts = result.verdicts
    coded = encode([allocation.container.namespace for allocation in verdicts.usage.allocations])
    codes, size = coded.codes, len(coded.names)
    scored = ~np.isnan(verdicts.score)
    scores = np.bincount(codes[scored], minlength=size)
    sums = np.bincount(codes[scored], weights=verdicts.score[scored], minlength=size)
    counts = {name: n for name, n in sorted(zip(coded.names, scores.tolist(), strict=True)) if n}
    yield family_by(metrics.BY_NAMESPACE, "namespace", counts)
    means = {
        name: round(total / n, 1)
        for name, total, n in sorted(zip(coded.names, sums.tolist(), scores.tolist(), strict=True))
        if n
    }
    yield family_by(metrics.NAMESPACE_AVERAGE, "namespace", means)
    yield _namespace_gpus(result, coded)


def _namespace_gpus(result: Result, coded: CodedColumn) -> Family:
    activity, fractions, size = result.verdicts.activity, result.workloads.fractions, len(coded.names)
    columns = {
        each.value: np.bincount(coded.codes, weights=fractions * (activity == code), minlength=size).tolist()
        for code, each in enumerate(ACTIVITIES)
    }
    samples: Samples = [
        (render_labels((("namespace", name), ("activity", word))), round(column[number], GPU_DIGITS))
        for name, number in sorted(zip(coded.names, range(size), strict=True))
        for word, column in columns.items()
    ]
    return Family(metrics.NAMESPACE_GPUS, samples)


def _verdict_counts(result: Result) -> Iterable[Family]:
    verdicts = result.verdicts
    yield family_by(metrics.ACTIVITY, "activity", _count_codes(verdicts.activity, ACTIVITIES))
    counts = asdict(count_gpus(result.workloads, count_fleet(verdicts.usage)))
    gpus = {name: round(count, GPU_DIGITS) for name, count in counts.items() if count is not None}
    yield family_by(metrics.GPUS, "activity", gpus)
    yield family_by(metrics.SIGNATURES, "signature", _count_codes(verdicts.signature, SIGNATURES))
    idle = verdicts.proof[verdicts.activity == ACTIVITIES.index(Activity.IDLE)]
    yield family_by(metrics.PROOFS, "proof", _count_codes(idle, PROOFS))
    yield family_by(metrics.WORKLOADS, "activity", _count_codes(result.workloads.activity, ACTIVITIES))
    if len(verdicts):
        yield Family(metrics.COVERAGE, [("", round(float(verdicts.usage.coverage.mean()), 4))])
    doubts = _count_codes(verdicts.doubt, DOUBTS)
    yield family_by(metrics.UNKNOWN, "reason", {name: count for name, count in doubts.items() if name})


def _count_codes(codes: Codes, names: Sequence[str]) -> Mapping[str, int]:
    counts = np.bincount(codes, minlength=len(names)).tolist()
    return {str(name): count for name, count in zip(names, counts, strict=True)}
