"""Low, and waiting on input: a data loader, a slow file system, too few cores beside the GPU."""

from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.keys import Mask
from gpusteward.analyzer.judge.signatures.evidence import RUN_THROUGH_KINDS, Evidence
from gpusteward.core.usages import Measure, Stat


class StarvedRule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: tuple[str, ...] = Field(
        default=tuple(RUN_THROUGH_KINDS),
        description="Owner kinds that are expected to work from start to end. A server with few requests is no case: "
        "mean, peak and spread of the two look alike, only the owner tells them apart.",
    )
    highest_ratio: float = Field(
        default=0.3,
        gt=0,
        le=1,
        description="Mean core utilization below which it is low. job_defense_shield warns below 25 %, OpenPAI "
        "below 30 %.",
    )
    memory_held_ratio: float = Field(
        default=0.05, ge=0, description="Part of the memory it must hold: gpu-reaper's line for a loaded GPU."
    )


def is_starved(evidence: Evidence, rule: StarvedRule) -> Mask:
    is_low = evidence.stat(Measure.CORE, Stat.MEAN) < rule.highest_ratio
    is_loaded = ~(evidence.memory_held_ratio < rule.memory_held_ratio)
    return evidence.activities.worked & is_low & is_loaded & evidence.runs_through(rule.kinds)
