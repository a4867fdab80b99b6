"""Verdicts: score, state, activity, signature and proof of allocations and workloads, with reasons."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from gpusteward.core.node.containers import Workload
from gpusteward.core.usages import Usage


class State(StrEnum):
    """The range that a score falls into; unknown where there is no score."""

    IDLE = "idle"
    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    UNKNOWN = "unknown"


class Activity(StrEnum):
    ACTIVE = "active"
    IDLE = "idle"
    UNKNOWN = "unknown"


class Doubt(StrEnum):
    """Why an activity is unknown."""

    NONE = ""
    STALE = "stale"  # the usage table is older than its window
    SOURCE = "source"  # the source marked the allocation as unusable, with a reason
    NO_DATA = "no-data"  # core utilization is unknown
    COVERAGE = "coverage"  # no work in the samples, but too many samples are missing
    SPARSE = "sparse"  # no work in the samples, but there are too few of them
    PARTIAL = "partial"  # an activity signal has a mean but no peak
    POWER = "power"  # no work in the samples, but the GPU draws the power of a working one
    ENERGY = "energy"  # no work in the samples, but the energy counter shows that some minutes were not as the others


class Proof(StrEnum):
    """How a verdict was proven, weakest first."""

    SAMPLED = "sampled"  # by gauges: work between two samples is not seen
    INTEGRATED = "integrated"  # by a signal that includes all time: busy time, engine activity


class Step(StrEnum):
    """How far reclaim may ever go on a signature; each step includes those before it."""

    NOTHING = "nothing"
    NOTICE = "notice"
    RECLAIM = "reclaim"


class Signature(StrEnum):
    """The kind of use or idleness: the table of signatures.

    Each row: the word of the API; the highest step of reclaim; the rank among the signatures of one workload (the
    lowest of its allocations becomes that of the workload: the most active first, then the most careful, so that one
    GPU at work keeps the workload from being called keep-alive, and one hung GPU from being called parked); whether a
    person should look at it. Only what certainly does nothing, and is not work that stopped, may be reclaimed.

    A new signature needs a row here, its rule in `analyzer.judge.signatures` and its texts in `messages.verdicts`.
    """

    highest_step: Step
    rank: int
    is_suspicious: bool

    EMPTY = "empty", Step.RECLAIM, 13
    PARKED = "parked", Step.RECLAIM, 12
    NO_REQUESTS = "no-requests", Step.RECLAIM, 11
    ASLEEP = "asleep", Step.NOTICE, 10
    STARVED = "starved", Step.NOTICE, 3, True
    HUNG = "hung", Step.NOTICE, 9, True
    BURSTY = "bursty", Step.NOTICE, 2
    KEEP_ALIVE = "keep-alive", Step.NOTICE, 4, True
    HEALTH_CHECK = "health-check", Step.NOTICE, 5, True
    STALLED = "stalled", Step.NOTICE, 6, True
    STEADY = "steady", Step.NOTICE, 1
    STARTING = "starting", Step.NOTHING, 7
    UNKNOWN = "unknown", Step.NOTICE, 8

    def __new__(cls, word: str, highest_step: Step, rank: int, is_suspicious: bool = False) -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.highest_step, member.rank, member.is_suspicious = highest_step, rank, is_suspicious
        return member


class VerdictName(StrEnum):
    """The one word for what a workload does with its GPUs, on every surface."""

    ACTIVE = "active"
    IDLE = "idle"
    SUSPICIOUS = "suspicious"
    UNKNOWN = "unknown"


BUSY_WITHOUT_WORK = frozenset({Signature.KEEP_ALIVE, Signature.STALLED, Signature.HEALTH_CHECK, Signature.NO_REQUESTS})
"""Signatures of what looks busy but is not: something runs on the GPU and does no work. Who waits for data works."""


def name_verdict(activity: Activity, signature: Signature) -> VerdictName:
    """Idle if all of it is idle, hung too; active with the signature of real work, also where it waits for data."""
    if activity is Activity.ACTIVE and signature in BUSY_WITHOUT_WORK:
        return VerdictName.SUSPICIOUS
    return VerdictName(activity.value)


@dataclass(frozen=True, slots=True)
class Objection:
    """A confident second opinion that an allocation judged idle is in use. It can only lower the highest step."""

    status: str  # the status the model gave: active or suspicious
    confidence: float  # 0 to 1
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one allocation. `score` is None where a signal it needs is unknown."""

    usage: Usage
    score: float | None
    state: State
    activity: Activity
    signature: Signature
    highest_step: Step
    proof: Proof = Proof.SAMPLED
    idle_since: float | None = None  # unix seconds
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkloadVerdict:
    """The verdict on a root owner with all GPUs of all its pods: idle only if every allocation is idle."""

    workload: Workload
    activity: Activity
    state: State
    score: float | None
    signature: Signature
    highest_step: Step
    gpus: float  # a share of a GPU is a fraction
    idle_gpus: float
    unknown_gpus: float
    proof: Proof = Proof.SAMPLED  # of its weakest allocation
    idle_since: float | None = None
    finding: str = ""  # "3 of 8 GPUs unused"
    reasons: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    evidence: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> VerdictName:
        return name_verdict(self.activity, self.signature)
