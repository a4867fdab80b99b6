"""What is asked about: a verdict with its evidence, and the key its opinion is remembered by."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpusteward.core.usages import Measure, Stat, Usage
from gpusteward.core.verdicts import Activity, Signature, State, Verdict


@dataclass(frozen=True, slots=True)
class Case:
    """One allocation as the rules see it. Names and labels were chosen by other people: data, never instructions."""

    key: str  # names the allocation to whoever asked
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


def case_of(key: str, verdict: Verdict, *, now: float) -> Case:
    """The case that a verdict makes."""
    usage = verdict.usage
    return Case(
        key=key,
        state=verdict.state,
        activity=verdict.activity,
        signature=verdict.signature,
        score=verdict.score,
        evidence=_evidence(usage),
        names=_names(usage),
        labels=dict(usage.allocation.container.pod_labels),
        reasons=verdict.reasons,
        coverage=usage.coverage,
        window_seconds=usage.window_seconds,
        idle_seconds=None if verdict.idle_since is None else max(0.0, now - verdict.idle_since),
    )


def _evidence(usage: Usage) -> dict[str, float]:
    """How many samples there were is told by the coverage, and one more or less of them is no news."""
    return {
        f"{measure.value}_{stat.value}": value
        for (measure, stat), value in usage.stats.items()
        if stat is not Stat.COUNT
    }


def _names(usage: Usage) -> dict[str, str]:
    allocation, container = usage.allocation, usage.allocation.container
    names = {
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


def fingerprint(case: Case, *, asked_as: str) -> str:
    """Equal for cases that a model would answer alike: evidence in coarse steps, everything else as it is.

    `asked_as` is whatever else shapes the answer: model, language.
    """
    known = [
        asked_as,
        [case.state, case.activity, case.signature],
        sorted((name, _coarse(name, value)) for name, value in case.evidence.items()),
        sorted(case.names.items()),
        sorted(case.labels.items()),
        _doublings(case.idle_seconds or 0.0),
    ]
    return hashlib.blake2b(json.dumps(known).encode(), digest_size=16).hexdigest()


_STEPS = {
    Measure.MEMORY_USED: 2.0**30,
    Measure.MEMORY_TOTAL: 2.0**30,
    Measure.POWER: 10.0,
    Measure.POWER_LIMIT: 10.0,
    Measure.SM_CLOCK: 1e8,
    Measure.PROCESSES: 1.0,
}
"""Steps in which a change is news to a model. Chosen by judgement: below them, noise would buy new answers."""

_RATIO_STEP = 0.05


def _coarse(name: str, value: float) -> float:
    if not math.isfinite(value):
        return -1.0
    step = next((step for measure, step in _STEPS.items() if name.startswith(measure.value)), _RATIO_STEP)
    if value and abs(value) < step / 2:
        return 0.5  # a little is something else than nothing
    return float(round(value / step))


def _doublings(seconds: float) -> int:
    """Quarters of an hour, in powers of two: longer idleness is news ever more rarely."""
    return int(math.log2(seconds / 900 + 1))
