"""Work made up to dodge culling: flat, low, constant."""

from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.keys import Mask
from gpusteward.analyzer.judge.signatures.evidence import Evidence
from gpusteward.core.usages import Measure, Stat


class KeepAliveRule(BaseModel):
    """An accusation, so it asks for much and never goes beyond a notice. Public scripts of this sort burn 1 to 40 %."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    highest_ratio: float = Field(default=0.45, gt=0, le=1, description="Mean core utilization up to which it is low.")
    spread_ratio: float = Field(
        default=0.01, ge=0, description="Standard deviation up to which it is flat: one step of NVML's whole per cents."
    )
    rise_ratio: float = Field(default=0.02, ge=0, description="How far the peak may be above the mean: two such steps.")
    copy_ratio: float = Field(
        default=0.05,
        ge=0,
        description="Memory copy utilization up to which it moves no data. A loop over one small matrix stays in "
        "caches; real work at a constant rate reads weights and inputs. A guess.",
    )
    memory_swing_ratio: float = Field(
        default=0.01, ge=0, description="Part of its memory that may come and go. Such a loop allocates once."
    )


def is_keep_alive(evidence: Evidence, rule: KeepAliveRule) -> Mask:
    """What is not known cannot accuse: mean, peak and spread must be there."""
    mean, peak = evidence.stat(Measure.CORE, Stat.MEAN), evidence.stat(Measure.CORE, Stat.PEAK)
    is_low = (mean > 0) & (mean <= rule.highest_ratio)
    is_flat = (evidence.stat(Measure.CORE, Stat.SPREAD) <= rule.spread_ratio) & (peak - mean <= rule.rise_ratio)
    return evidence.activities.worked & is_low & is_flat & _moves_nothing(evidence, rule) & _is_pinned(evidence, rule)


def _moves_nothing(evidence: Evidence, rule: KeepAliveRule) -> Mask:
    return ~(evidence.stat(Measure.MEMORY_COPY, Stat.MEAN) > rule.copy_ratio)


def _is_pinned(evidence: Evidence, rule: KeepAliveRule) -> Mask:
    swing = evidence.stat(Measure.MEMORY_USED, Stat.SPREAD)
    return ~(swing > rule.memory_swing_ratio * evidence.memory_held_bytes)
