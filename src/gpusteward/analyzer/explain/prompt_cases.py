"""The cases that a model is asked about: which rows, their evidence, and the fingerprint for the cache."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gpusteward.analyzer.judge.allocation_columns import Mask
from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES, VerdictTable
from gpusteward.core.node.containers import USER_LABELS, normalize_label
from gpusteward.core.usages import Measure, Stat, Usage
from gpusteward.core.verdicts import Activity, Signature, State, Verdict

_USER_LABELS = frozenset(map(normalize_label, USER_LABELS))


def choose_rows(verdicts: VerdictTable, *, limit: int, is_low: Mask | None = None) -> list[int]:
    """Idle, suspicious and low rows: suspicious ones first, then those idle for the longest time, then low ones.

    As in gpu-oour, a model is asked about everything that the control webhook may be called for.
    """
    suspicious = np.isin(
        verdicts.signature, [SIGNATURES.index(signature) for signature in Signature if signature.is_suspicious]
    )
    idle = verdicts.activity == ACTIVITIES.index(Activity.IDLE)
    rows = np.flatnonzero(idle | suspicious | (False if is_low is None else is_low))
    since = np.nan_to_num(verdicts.idle_since[rows], nan=np.inf)
    order = np.lexsort((since, ~suspicious[rows]))
    return [int(row) for row in rows[order[:limit]]]


@dataclass(frozen=True, slots=True)
class Case:
    """One allocation as judged by the rules. Names and labels were chosen by users: data, never instructions."""

    key: str  # identifies the allocation for the caller
    state: State
    activity: Activity
    signature: Signature
    score: float | None
    evidence: Mapping[str, float] = field(default_factory=dict)  # `core_ratio_mean`, in base units
    names: Mapping[str, str] = field(default_factory=dict)  # pod, namespace, container, workload, node, model
    labels: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    coverage: float = 1.0
    window_seconds: float = 0.0
    idle_seconds: float | None = None


def make_case(key: str, verdict: Verdict, *, now: float) -> Case:
    """The case of a verdict."""
    usage = verdict.usage
    # Without the counts of samples: coverage shows them, and one more or less must not change the fingerprint.
    stats = {pair: value for pair, value in usage.stats.items() if pair[1] is not Stat.COUNT}
    # Without the user: who it is says nothing about the use of a GPU.
    labels = [each for each in usage.allocation.container.pod_labels if normalize_label(each[0]) not in _USER_LABELS]
    return Case(
        key=key,
        state=verdict.state,
        activity=verdict.activity,
        signature=verdict.signature,
        score=verdict.score,
        evidence={f"{measure.value}_{stat.value}": value for (measure, stat), value in stats.items()},
        names=_names(usage),
        labels=dict(labels),
        reasons=verdict.reasons,
        coverage=usage.coverage,
        window_seconds=usage.window_seconds,
        idle_seconds=None if verdict.idle_since is None else max(0.0, now - verdict.idle_since),
    )


def _names(usage: Usage) -> dict[str, str]:
    allocation, container = usage.allocation, usage.allocation.container
    names = {
        "cluster": container.cluster,
        "namespace": container.namespace,
        "pod": container.pod,
        "container": container.name,
        "node": allocation.node,
        "model": allocation.model,
        "share": allocation.share,
    }
    if container.workload is not None:
        names["workload"] = f"{container.workload.kind}/{container.workload.name}"
    return {key: name for key, name in names.items() if name}


def make_fingerprint(case: Case, *, model_key: str) -> str:
    """Equal for cases that a model would answer alike: evidence in coarse steps, everything else as it is.

    `model_key` is what else determines the opinion: model, language.
    """
    known = [
        model_key,
        [case.state, case.activity, case.signature],
        sorted((name, _coarse(name, value)) for name, value in case.evidence.items()),
        sorted(case.names.items()),
        sorted(case.labels.items()),
        _doublings(case.idle_seconds or 0.0),
    ]
    return hashlib.blake2b(json.dumps(known).encode(), digest_size=16).hexdigest()


_STEPS = {
    Measure.MEMORY_USED: 2.0**30,
    Measure.MEMORY_SHARED: 2.0**30,
    Measure.MEMORY_TOTAL: 2.0**30,
    Measure.POWER: 10.0,
    Measure.POWER_LIMIT: 10.0,
    Measure.SM_CLOCK: 1e8,
    Measure.PROCESSES: 1.0,
    Measure.PCIE: 1e9,
    Measure.NVLINK: 1e9,
}
"""Smaller changes do not cause a new request. Chosen by judgement: above the noise of the measurements."""

_RATIO_STEP = 0.05


def _coarse(name: str, value: float) -> float:
    if not math.isfinite(value):
        return -1.0
    step = next((step for measure, step in _STEPS.items() if name.startswith(measure.value)), _RATIO_STEP)
    if value and abs(value) < step / 2:
        return 0.5  # a little is not the same as nothing
    return float(round(value / step))


def _doublings(seconds: float) -> int:
    """Quarters of an hour, in powers of two: the longer it is idle, the rarer a new request."""
    return int(math.log2(seconds / 900 + 1))
