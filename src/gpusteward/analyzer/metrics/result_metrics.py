"""Metric families of a result for the cluster as a whole, under gpu-oour's names and our own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.judge.allocation_columns import CodedColumn, Mask, encode
from gpusteward.analyzer.judge.fleet import Fleet, count_fleet, sum_gpus
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.metrics import analyzer_metrics as metrics
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, DOUBTS, PROOFS, SIGNATURES, STATES, Codes, Column, UsageTable
from gpusteward.core.exposition import Family, Samples, render_labels
from gpusteward.core.metrics import Metric
from gpusteward.core.usages import AllocationKey
from gpusteward.core.verdicts import Activity, State

MIB = 1024 * 1024
HolderLabels = tuple[str, ...]  # values of `metrics.HOLDER`


class FamilyPart(NamedTuple):
    """Samples of a family, made one after the other: all rendered labels of a family may need more memory than the
    page."""

    metric: Metric
    samples: Iterable[tuple[str, float]]


def result_families(result: Result) -> Iterator[FamilyPart]:
    """All families but those with one sample per allocation, which `allocation_samples` renders; cluster by cluster."""
    yield from _opinions(result)
    for part in _split_by_cluster(result):
        yield from _counts(part)
        yield from _verdict_counts(part)


@dataclass(frozen=True, slots=True)
class _ClusterPart:
    """The columns of one cluster."""

    cluster: str  # empty: not known, and then it is no label
    is_low: Mask
    score: Column
    state: Codes
    activity: Codes
    is_ineffective: Mask
    signature: Codes
    doubt: Codes
    proof: Codes
    coverage: Column
    fractions: Column  # of a GPU
    fleet: Fleet
    namespaces: Sequence[str]
    workload_activity: Codes

    def label(self, values: Mapping[str, str] | None = None) -> str:
        return render_labels([*(values or {}).items(), ("cluster", self.cluster)])

    def count(self, metric: Metric, number: float) -> FamilyPart:
        return FamilyPart(metric, [(self.label(), number)])

    def family_by(self, metric: Metric, label: str, values: Mapping[str, float]) -> FamilyPart:
        return FamilyPart(metric, ((self.label({label: name}), value) for name, value in values.items()))


def _split_by_cluster(result: Result) -> Iterator[_ClusterPart]:
    """At least one part, also without allocations."""
    verdicts, allocations = result.verdicts, result.verdicts.usage.allocations
    coded = encode([allocation.cluster for allocation in allocations])
    namespaces = [allocation.container.namespace for allocation in allocations]
    owners = np.array([key.cluster for key in result.workloads.keys])
    names = sorted({*coded.names, *(key.cluster for key in verdicts.usage.fleet)}) or [""]
    for cluster in names:
        rows = slice(None) if len(names) == 1 else np.flatnonzero(coded.among((cluster,)))
        yield _ClusterPart(
            cluster,
            result.is_low[rows],
            verdicts.score[rows],
            verdicts.state[rows],
            verdicts.activity[rows],
            verdicts.is_ineffective[rows],
            verdicts.signature[rows],
            verdicts.doubt[rows],
            verdicts.proof[rows],
            verdicts.usage.coverage[rows],
            result.workloads.fractions[rows],
            count_fleet(verdicts.usage if isinstance(rows, slice) else _only_cluster(verdicts.usage, cluster)),
            namespaces if isinstance(rows, slice) else [namespaces[row] for row in rows.tolist()],
            result.workloads.activity[owners == cluster],
        )


def _only_cluster(table: UsageTable, cluster: str) -> UsageTable:
    """With the allocations and the fleet of one cluster."""
    allocations = [each for each in table.allocations if each.cluster == cluster]
    return replace(table, allocations=allocations, fleet={k: n for k, n in table.fleet.items() if k.cluster == cluster})


def gpu_id(allocation: AllocationKey) -> str:
    """gpu-oour's `gpu_id`: the UUID; a MIG instance has its instance id appended, which makes it unique."""
    return f"{allocation.gpu_uuid}/{allocation.gpu_instance}" if allocation.gpu_instance else allocation.gpu_uuid


def holder_labels(allocation: AllocationKey) -> HolderLabels:
    return gpu_id(allocation), allocation.container.pod, allocation.container.namespace, allocation.node


def family_by(metric: Metric, label: str, values: Mapping[str, float]) -> Family:
    """A family with one label."""
    return Family(metric, [(render_labels(((label, name),)), value) for name, value in values.items()])


def _opinions(result: Result) -> Iterable[FamilyPart]:
    """One sample per holder: containers of one pod on one GPU have the same labels."""
    confidence: Samples = []
    score: Samples = []
    seen: set[str] = set()
    for row, opinion in sorted(result.opinions.items()):
        allocation = result.verdicts.usage.allocations[row]
        values = holder_labels(allocation)[: len(metrics.TENANT)]
        labels = [*zip(metrics.TENANT, values, strict=True), ("cluster", allocation.cluster)]
        text = render_labels(labels)
        if text not in seen:
            seen.add(text)
            with_status = render_labels([*labels, ("ai_status", opinion.status)])
            confidence.append((with_status, round(opinion.confidence, 3)))
            if (effect := result.opinion_effects.get(row)) is not None and effect.score is not None:
                score.append((text, round(effect.score, 1)))
    return FamilyPart(metrics.AI_CONFIDENCE, confidence), FamilyPart(metrics.AI_SCORE, score)


def _counts(part: _ClusterPart) -> Iterable[FamilyPart]:
    is_scored = ~np.isnan(part.score)
    known, states = part.score[is_scored], _count_codes(part.state[is_scored], STATES)
    yield part.count(metrics.TOTAL, len(known))
    yield part.count(metrics.LOW, int(part.is_low.sum()))
    yield part.count(metrics.IDLE, states[State.IDLE])
    if len(known):
        yield part.count(metrics.AVERAGE, round(float(known.mean()), 1))
    unknown = {State.UNKNOWN.value: len(part.score) - len(known)}
    yield part.family_by(metrics.BY_STATUS, "status", {**states, **unknown})
    yield from _by_namespace(part)


def _by_namespace(part: _ClusterPart) -> Iterable[FamilyPart]:
    coded = encode(part.namespaces)
    codes, size = coded.codes, len(coded.names)
    scored = ~np.isnan(part.score)
    scores = np.bincount(codes[scored], minlength=size)
    sums = np.bincount(codes[scored], weights=part.score[scored], minlength=size)
    known = [each for each in sorted(zip(coded.names, scores.tolist(), sums.tolist(), strict=True)) if each[1]]
    yield part.family_by(metrics.BY_NAMESPACE, "namespace", {name: number for name, number, _ in known})
    means = {name: round(total / number, 1) for name, number, total in known}
    yield part.family_by(metrics.NAMESPACE_AVERAGE, "namespace", means)
    yield _namespace_gpus(part, coded)
    ineffective = np.bincount(coded.codes, weights=part.fractions * part.is_ineffective, minlength=size).tolist()
    gpus = {name: round(count, GPU_DIGITS) for name, count in sorted(zip(coded.names, ineffective, strict=True))}
    yield part.family_by(metrics.NAMESPACE_INEFFECTIVE_GPUS, "namespace", gpus)


def _namespace_gpus(part: _ClusterPart, coded: CodedColumn) -> FamilyPart:
    size = len(coded.names)
    columns = {
        each.value: np.bincount(coded.codes, weights=part.fractions * (part.activity == code), minlength=size).tolist()
        for code, each in enumerate(ACTIVITIES)
    }
    samples = (
        (part.label({"namespace": name, "activity": word}), round(column[number], GPU_DIGITS))
        for name, number in sorted(zip(coded.names, range(size), strict=True))
        for word, column in columns.items()
    )
    return FamilyPart(metrics.NAMESPACE_GPUS, samples)


def _verdict_counts(part: _ClusterPart) -> Iterable[FamilyPart]:
    yield part.family_by(metrics.ACTIVITY, "activity", _count_codes(part.activity, ACTIVITIES))
    counts = asdict(sum_gpus(part.activity, part.fractions, part.fleet))
    gpus = {name: round(count, GPU_DIGITS) for name, count in counts.items() if count is not None}
    yield part.family_by(metrics.GPUS, "activity", gpus)
    effective = counts["active"] - float(part.fractions[part.is_ineffective].sum())
    yield part.count(metrics.EFFECTIVE_GPUS, round(max(0.0, effective), GPU_DIGITS))
    yield part.family_by(metrics.SIGNATURES, "signature", _count_codes(part.signature, SIGNATURES))
    idle = part.proof[part.activity == ACTIVITIES.index(Activity.IDLE)]
    yield part.family_by(metrics.PROOFS, "proof", _count_codes(idle, PROOFS))
    yield part.family_by(metrics.WORKLOADS, "activity", _count_codes(part.workload_activity, ACTIVITIES))
    if len(part.coverage):
        yield part.count(metrics.COVERAGE, round(float(part.coverage.mean()), 4))
    doubts = _count_codes(part.doubt, DOUBTS)
    yield part.family_by(metrics.UNKNOWN, "reason", {name: count for name, count in doubts.items() if name})


def _count_codes(codes: Codes, names: Sequence[str]) -> Mapping[str, int]:
    counts = np.bincount(codes, minlength=len(names)).tolist()
    return {str(name): count for name, count in zip(names, counts, strict=True)}
