"""What usage means: score, state, activity, signature, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpusteward.core.containers import Workload
from gpusteward.core.usages import Usage


class State(StrEnum):
    """The score in four words, and a fifth for what could not be scored."""

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
    STALE = "stale"  # the whole reading is older than its window
    SOURCE = "source"  # whoever read it says that it must not be judged, and why
    NO_DATA = "no-data"  # core utilization is unknown
    COVERAGE = "coverage"  # no work seen, but too much of the window was not seen
    SPARSE = "sparse"  # no work seen, but too few looks were taken to say so
    PARTIAL = "partial"  # of an activity signal there is a mean but no peak
    POWER = "power"  # no work seen, yet the GPU draws power as if there were some


class Signature(StrEnum):
    """What kind of (in)activity it is."""

    EMPTY = "empty"
    PARKED = "parked"
    STARVED = "starved"
    HUNG = "hung"
    BURSTY = "bursty"
    KEEP_ALIVE = "keep-alive"
    STEADY = "steady"
    STARTING = "starting"
    UNKNOWN = "unknown"


class Step(StrEnum):
    """How far reclaim may ever go on a signature; each step includes those before it."""

    NOTHING = "nothing"
    NOTICE = "notice"
    RECLAIM = "reclaim"


@dataclass(frozen=True, slots=True)
class Objection:
    """A second opinion, sure of itself, that what is judged idle is not. It takes steps away and gives none."""

    status: str  # what it calls the allocation
    confidence: float  # 0 to 1
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """One allocation judged. `score` is None where a signal it needs is unknown."""

    usage: Usage
    score: float | None
    state: State
    activity: Activity
    signature: Signature
    highest_step: Step
    idle_since: float | None = None  # unix seconds
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkloadVerdict:
    """A root owner with all GPUs of all its pods. Idle only if every allocation is idle and covered."""

    workload: Workload
    activity: Activity
    state: State
    score: float | None
    signature: Signature
    highest_step: Step
    gpus: int
    idle_gpus: int
    unknown_gpus: int
    idle_since: float | None = None
    finding: str = ""  # "3 of 8 GPUs unused"
    reasons: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    evidence: Mapping[str, float] = field(default_factory=dict)
