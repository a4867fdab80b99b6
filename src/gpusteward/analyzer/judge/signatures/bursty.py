"""Work with pauses: requests, cells of a notebook."""

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.keys import Mask
from gpusteward.analyzer.judge.signatures.evidence import Evidence
from gpusteward.core.usages import Measure, Stat


class BurstyRule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    spread_to_mean: float = Field(
        default=0.5,
        gt=0,
        description="Standard deviation over mean from which work is bursty. Work that is on for x of the time has "
        "sqrt(1/x - 1): half a per mean is on for 80 %, less than that counts as pauses.",
    )
    peak_to_mean: float = Field(default=2.0, gt=1, description="The same, where nobody measures the spread.")


def is_bursty(evidence: Evidence, rule: BurstyRule) -> Mask:
    mean, spread = evidence.stat(Measure.CORE, Stat.MEAN), evidence.stat(Measure.CORE, Stat.SPREAD)
    peaks = np.isnan(spread) & (evidence.stat(Measure.CORE, Stat.PEAK) > rule.peak_to_mean * mean)
    swings = spread > rule.spread_to_mean * mean
    return evidence.activities.paused | (evidence.activities.worked & (peaks | swings))
