"""Younger than the grace and not working yet: images, weights and data sets load."""

from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.keys import Mask
from gpusteward.analyzer.judge.signatures.evidence import Evidence
from gpusteward.core.verdicts import Activity


class StartingRule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    grace_seconds: float = Field(
        default=900,
        ge=0,
        description="A pod younger than this that does not work yet is starting. 15 minutes is gpu-reaper's warm-up; "
        "gpu-pruner gives 5, too few for loading a large model.",
    )


def is_starting(evidence: Evidence, rule: StartingRule) -> Mask:
    """A pod whose age nobody knows is not starting: it would be so for ever."""
    return ~evidence.has(Activity.ACTIVE) & (evidence.age_seconds < rule.grace_seconds)
