"""Worked, then stood still with its memory pinned: a lost peer, a deadlock, a dead storage mount."""

from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.keys import Mask
from gpusteward.analyzer.judge.signatures.evidence import RUN_THROUGH_KINDS, Evidence
from gpusteward.analyzer.judge.signatures.held_memory import HoldingRule, holds_something
from gpusteward.core.verdicts import Activity


class HungRule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: tuple[str, ...] = Field(
        default=tuple(RUN_THROUGH_KINDS),
        description="Owner kinds that are expected to work from start to end; only these can hang.",
    )
    first_look_seconds: float = Field(
        default=1800,
        ge=0,
        description="A pod that was first seen later in its life than this may have worked before. Half an hour: "
        "the grace, a window, and a cycle.",
    )


def is_hung(evidence: Evidence, rule: HungRule, *, holding: HoldingRule) -> Mask:
    """Idle, holds something, and has worked, or may have before anybody looked.

    The second half is what keeps a hung job from being given away as parked after the memory of earlier cycles is
    lost: hung never goes beyond a notice.
    """
    is_idle = evidence.has(Activity.IDLE) & holds_something(evidence, holding)
    return is_idle & evidence.runs_through(rule.kinds) & (has_worked(evidence) | may_have_worked(evidence, rule))


def has_worked(evidence: Evidence) -> Mask:
    """In an earlier window of this pod's life."""
    return evidence.past.worked_at > 0


def may_have_worked(evidence: Evidence, rule: HungRule) -> Mask:
    """Nobody saw its beginning, or knows when that was."""
    first_seen_at = evidence.past.first_seen_at
    is_old = evidence.table.at - evidence.table.started_at > rule.first_look_seconds
    seen_late = first_seen_at - evidence.table.started_at > rule.first_look_seconds
    is_new_here = ~(first_seen_at > 0)
    is_age_unknown = ~(evidence.table.started_at > 0)
    return is_age_unknown | seen_late | (is_new_here & is_old)
