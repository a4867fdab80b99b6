"""Empty or parked: what an idle row holds."""

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.keys import Mask
from gpusteward.analyzer.judge.signatures.evidence import Evidence
from gpusteward.core.verdicts import Activity


class HoldingRule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    nothing_bytes: float = Field(
        default=64 << 20,
        ge=0,
        description="Memory up to this is nothing. An untouched GPU shows a few MiB, and the smallest CUDA context is "
        "above 100 MiB; drivers before 510 count their reserve as used: raise it there.",
    )


def is_empty(evidence: Evidence, rule: HoldingRule) -> Mask:
    """Nothing on it."""
    is_known = ~np.isnan(evidence.processes) | ~np.isnan(evidence.memory_held_bytes)
    return evidence.has(Activity.IDLE) & is_known & ~holds_something(evidence, rule)


def is_parked(evidence: Evidence, rule: HoldingRule) -> Mask:
    """Something on it that did no work."""
    return evidence.has(Activity.IDLE) & holds_something(evidence, rule)


def holds_something(evidence: Evidence, rule: HoldingRule) -> Mask:
    """A process was seen, or, where nobody counts them, memory in use. Where neither is known, nothing is said."""
    uncounted = np.isnan(evidence.processes) & (evidence.memory_held_bytes > rule.nothing_bytes)
    return uncounted | (evidence.processes > 0)
