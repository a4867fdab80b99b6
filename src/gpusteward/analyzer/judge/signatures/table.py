"""The signatures in the order in which they are tried, and how far reclaim may ever go on each."""

from collections.abc import Mapping

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.keys import Mask
from gpusteward.analyzer.judge.signatures.bursty import BurstyRule, is_bursty
from gpusteward.analyzer.judge.signatures.evidence import Evidence
from gpusteward.analyzer.judge.signatures.held_memory import HoldingRule, is_empty, is_parked
from gpusteward.analyzer.judge.signatures.hung import HungRule, is_hung
from gpusteward.analyzer.judge.signatures.keep_alive import KeepAliveRule, Streak, is_keep_alive
from gpusteward.analyzer.judge.signatures.starting import StartingRule, is_starting
from gpusteward.analyzer.judge.signatures.starved import StarvedRule, is_starved
from gpusteward.analyzer.tables import SIGNATURES, STEPS, Codes
from gpusteward.core.verdicts import Activity, Signature, Step

HIGHEST_STEP: Mapping[Signature, Step] = {
    Signature.EMPTY: Step.RECLAIM,
    Signature.PARKED: Step.RECLAIM,
    Signature.STARVED: Step.NOTICE,
    Signature.HUNG: Step.NOTICE,
    Signature.BURSTY: Step.NOTICE,
    Signature.KEEP_ALIVE: Step.NOTICE,
    Signature.STEADY: Step.NOTICE,
    Signature.STARTING: Step.NOTHING,
    Signature.UNKNOWN: Step.NOTICE,
}
"""Only what certainly does nothing, and is nobody's stopped work, may be given back."""
_STEPS = np.array([STEPS.index(HIGHEST_STEP[signature]) for signature in SIGNATURES], dtype=np.int8)


class SignatureRules(BaseModel):
    """One section a signature."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    starting: StartingRule = Field(default_factory=StartingRule, description="Pods that are too young to judge.")
    holding: HoldingRule = Field(default_factory=HoldingRule, description="Empty or parked.")
    hung: HungRule = Field(default_factory=HungRule, description="Stopped in the middle of work.")
    keep_alive: KeepAliveRule = Field(default_factory=KeepAliveRule, description="Made-up work.")
    starved: StarvedRule = Field(default_factory=StarvedRule, description="Waiting on input.")
    bursty: BurstyRule = Field(default_factory=BurstyRule, description="Work with pauses.")


def name_signatures(evidence: Evidence, rules: SignatureRules, *, streak: Streak) -> Codes:
    """The first that fits. What works and fits none is steady; what is idle and holds nobody knows what, unknown."""
    fits: Mapping[Signature, Mask] = {
        Signature.STARTING: is_starting(evidence, rules.starting),
        Signature.UNKNOWN: evidence.has(Activity.UNKNOWN),
        Signature.HUNG: is_hung(evidence, rules.hung, holding=rules.holding),
        Signature.EMPTY: is_empty(evidence, rules.holding),
        Signature.PARKED: is_parked(evidence, rules.holding),
        Signature.KEEP_ALIVE: is_keep_alive(evidence, streak, rule=rules.keep_alive),
        Signature.STARVED: is_starved(evidence, rules.starved),
        Signature.BURSTY: is_bursty(evidence, rules.bursty),
        Signature.STEADY: evidence.has(Activity.ACTIVE),
    }
    codes = [SIGNATURES.index(signature) for signature in fits]
    return np.select(list(fits.values()), codes, SIGNATURES.index(Signature.UNKNOWN)).astype(np.int8)


def find_steps(evidence: Evidence, signature: Codes) -> Codes:
    """How far reclaim may ever go on each row. What is parked by nobody knows whom may be a job that hangs."""
    steps = _STEPS[signature]
    may_hang = (signature == SIGNATURES.index(Signature.PARKED)) & ~evidence.is_owned
    return np.where(may_hang, np.minimum(steps, STEPS.index(Step.NOTICE)), steps).astype(np.int8)
