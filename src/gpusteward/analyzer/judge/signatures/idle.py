"""Signatures of allocations without work: starting, hung, empty, parked."""

from collections.abc import Callable, Mapping

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.allocation_columns import Mask
from gpusteward.analyzer.judge.signatures.evidence import RUN_THROUGH_KINDS, Evidence
from gpusteward.core.verdicts import Activity, Signature


class StartingRule(BaseModel):
    """Images, weights and data sets are being loaded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    grace_seconds: float = Field(
        default=900,
        ge=0,
        description="A pod younger than this that does not work yet is starting. 15 minutes is gpu-reaper's warm-up; "
        "gpu-pruner gives 5, too few for loading a large model.",
    )


class HoldingRule(BaseModel):
    """Whether an idle allocation holds anything."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nothing_bytes: float = Field(
        default=64 << 20,
        ge=0,
        description="Memory up to this counts as none. An untouched GPU shows a few MiB, and the smallest CUDA context "
        "is above 100 MiB; drivers before 510 count their reserve as used: raise it there.",
    )


class HungRule(BaseModel):
    """Worked, then stopped while it holds its memory: a lost peer, a deadlock, a dead storage mount."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: tuple[str, ...] = Field(
        default=tuple(RUN_THROUGH_KINDS),
        description="Owner kinds that are expected to work from start to end; only these can hang.",
    )
    first_look_seconds: float = Field(
        default=1800,
        ge=0,
        description="A pod that was first seen later in its life than this may have worked before. Half an hour: "
        "the grace period, a window and a cycle.",
    )


class IdleRules(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    starting: StartingRule = Field(default_factory=StartingRule, description="Pods that are too young to judge.")
    holding: HoldingRule = Field(default_factory=HoldingRule, description="Empty or parked.")
    hung: HungRule = Field(default_factory=HungRule, description="Stopped in the middle of work.")


def is_starting(evidence: Evidence, rules: IdleRules) -> Mask:
    """A pod of unknown age is not starting: it would be starting for ever."""
    return ~evidence.has(Activity.ACTIVE) & (evidence.age_seconds < rules.starting.grace_seconds)


def is_empty(evidence: Evidence, rules: IdleRules) -> Mask:
    """Idle without a process or memory in use."""
    is_known = ~np.isnan(evidence.processes) | ~np.isnan(evidence.memory_held_bytes)
    return evidence.has(Activity.IDLE) & is_known & ~holds_something(evidence, rules.holding)


def is_parked(evidence: Evidence, rules: IdleRules) -> Mask:
    """Idle with a process or memory in use."""
    return evidence.has(Activity.IDLE) & holds_something(evidence, rules.holding)


def is_hung(evidence: Evidence, rules: IdleRules) -> Mask:
    """Parked by a job that has worked, or may have worked before it was first observed.

    The second case keeps a hung job from being reclaimed as parked after the history was lost: hung never goes beyond
    a notice.
    """
    may_hang = evidence.runs_through(rules.hung.kinds) & (has_worked(evidence) | may_have_worked(evidence, rules.hung))
    return is_parked(evidence, rules) & may_hang


IDLE_SIGNATURES: Mapping[Signature, Callable[[Evidence, IdleRules], Mask]] = {
    Signature.HUNG: is_hung,
    Signature.EMPTY: is_empty,
    Signature.PARKED: is_parked,
}
"""In the order in which they are tried."""


def holds_something(evidence: Evidence, rule: HoldingRule) -> Mask:
    """A process, or memory in use where processes are not counted; False where neither is known."""
    uncounted = np.isnan(evidence.processes) & (evidence.memory_held_bytes > rule.nothing_bytes)
    return uncounted | (evidence.processes > 0)


def has_worked(evidence: Evidence) -> Mask:
    """Worked in an earlier window of this pod's life."""
    return evidence.past.worked_at > 0


def may_have_worked(evidence: Evidence, rule: HungRule) -> Mask:
    """The beginning of the pod was not observed, or its age is unknown."""
    first_seen_at = evidence.past.first_seen_at
    is_old = evidence.age_seconds > rule.first_look_seconds
    seen_late = first_seen_at - evidence.table.started_at > rule.first_look_seconds
    is_new_here = ~(first_seen_at > 0)
    is_age_unknown = ~(evidence.table.started_at > 0)
    return is_age_unknown | seen_late | (is_new_here & is_old)
