"""Signatures of allocations without work: starting, hung, empty, asleep, no requests, parked."""

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.allocation_columns import Mask
from gpusteward.analyzer.judge.signatures.evidence import Evidence, MemoryGrowth
from gpusteward.analyzer.judge.valid_values import first_known
from gpusteward.analyzer.tables import Column
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity, Signature


class StartingRule(BaseModel):
    """Images, weights and data sets are being loaded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    grace_seconds: float = Field(
        default=900,
        ge=0,
        description="A pod younger than this that has not worked yet is starting. 15 minutes is gpu-reaper's warm-up; "
        "gpu-pruner gives 5, too few for loading a large model. The same time after its memory last grew, as long as "
        "it has not worked.",
    )
    growth_bytes: ClassVar[float] = 64 << 20
    """Memory grows if it is this much above its lowest level, or above its mean in one window. Loading 2 GB in 40
    minutes is 250 MiB in 5 minutes; an allocation that does nothing varies by a few MiB."""
    growth_ratio: ClassVar[float] = 0.01
    """The same as a part of the memory that it holds; both must be exceeded."""


class HoldingRule(BaseModel):
    """Whether an idle allocation holds anything."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nothing_bytes: float = Field(
        default=64 << 20,
        ge=0,
        description="Memory up to this counts as none. An untouched GPU shows a few MiB, and the smallest CUDA context "
        "is above 100 MiB; drivers before 510 count their reserve as used: raise it there.",
    )


FIRST_LOOK_SECONDS = 1800.0
"""A pod that was first seen later in its life than this may have worked before. Half an hour: the grace period, a
window and a cycle."""


class IdleRules(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    starting: StartingRule = Field(default_factory=StartingRule, description="Pods that are too young to judge.")
    holding: HoldingRule = Field(default_factory=HoldingRule, description="Empty or parked.")


def find_growth(evidence: Evidence, rule: StartingRule) -> MemoryGrowth:
    """A window in which memory changed counts as growth: what has never worked has nothing to release."""
    peak, mean = (evidence.memory_bytes[stat] for stat in (Stat.PEAK, Stat.MEAN))
    before, floor = evidence.past.memory_bytes, np.fmax(rule.growth_bytes, rule.growth_ratio * peak)
    grows = (peak - before >= floor) | (peak - mean >= floor)
    return MemoryGrowth(
        np.where(grows, peak, np.fmin(before, peak)), np.where(grows, evidence.table.at, evidence.past.grew_at)
    )


def is_starting(evidence: Evidence, rules: IdleRules) -> Mask:
    """A pod that has not worked since its start, and is young or still loads: its memory grew a short time ago. A
    server that has worked and grows has a leak. Without growth, a pod of unknown age is not starting: it would be so
    for ever."""
    grace = max(rules.starting.grace_seconds, evidence.table.window_seconds)
    is_loading = evidence.table.at - evidence.growth.grew_at < grace
    is_young = evidence.age_seconds < rules.starting.grace_seconds
    return ~evidence.has(Activity.ACTIVE) & ~evidence.has_worked & (is_young | is_loading)


def is_empty(evidence: Evidence, rules: IdleRules) -> Mask:
    """Idle without a process or memory in use."""
    is_known = ~np.isnan(evidence.processes) | ~np.isnan(_find_memory(evidence))
    return evidence.has(Activity.IDLE) & is_known & ~holds_something(evidence, rules.holding)


def is_parked(evidence: Evidence, rules: IdleRules) -> Mask:
    """Idle with a process or memory in use."""
    return evidence.has(Activity.IDLE) & holds_something(evidence, rules.holding)


def is_hung(evidence: Evidence, rules: IdleRules) -> Mask:
    """Parked by a job that has worked, or may have worked before it was first observed.

    The second case keeps a hung job from being reclaimed as parked after the history was lost: hung never goes beyond
    a notice.
    """
    may_hang = evidence.runs_through & (evidence.has_worked | may_have_worked(evidence))
    return is_parked(evidence, rules) & may_hang


ASLEEP_MEMORY_RATIO = 0.2
"""Part of its memory that a GPU with a sleeping engine holds at most. vLLM takes 0.9 of a GPU by default, and keeps a
context and the graphs when it sleeps: 1 to 5 GiB. A guess between."""


def is_no_requests(evidence: Evidence, rules: IdleRules) -> Mask:
    """Idle with a server in memory that had no request."""
    return is_parked(evidence, rules) & evidence.is_silent


def is_asleep(evidence: Evidence, rules: IdleRules) -> Mask:
    """Parked by a server that says it sleeps. It may say so and hold its weights, so the memory must say it too."""
    says_so = np.equal(evidence.table.column(Measure.ASLEEP, Stat.LOWEST), 1.0)
    return is_parked(evidence, rules) & evidence.serves & says_so & (evidence.memory_held_ratio <= ASLEEP_MEMORY_RATIO)


IDLE_SIGNATURES: Mapping[Signature, Callable[[Evidence, IdleRules], Mask]] = {
    Signature.HUNG: is_hung,
    Signature.EMPTY: is_empty,
    Signature.ASLEEP: is_asleep,
    Signature.NO_REQUESTS: is_no_requests,
    Signature.PARKED: is_parked,
}
"""In the order in which they are tried."""


def holds_something(evidence: Evidence, rule: HoldingRule) -> Mask:
    """A process, or memory in use where processes are not counted; False where neither is known. A GPU with a process
    of anybody is not empty: it may work for the holder."""
    uncounted = np.isnan(evidence.processes) & (_find_memory(evidence) > rule.nothing_bytes)
    return uncounted | (evidence.processes > 0) | evidence.has_other_processes


def _find_memory(evidence: Evidence) -> Column:
    """The memory that it holds; of a shared GPU that may be the memory of others, none of whom works on it."""
    return first_known(evidence.memory_held_bytes, evidence.memory_bytes[Stat.PEAK])


def may_have_worked(evidence: Evidence) -> Mask:
    """The beginning of the pod was not observed, or its age is unknown."""
    first_seen_at = evidence.past.first_seen_at
    is_old = evidence.age_seconds > FIRST_LOOK_SECONDS
    seen_late = first_seen_at - evidence.table.started_at > FIRST_LOOK_SECONDS
    is_new_here = ~(first_seen_at > 0)
    is_age_unknown = ~(evidence.table.started_at > 0)
    return is_age_unknown | seen_late | (is_new_here & is_old)
