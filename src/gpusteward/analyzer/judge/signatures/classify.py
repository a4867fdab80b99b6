"""The signature of each row, and how far reclaim may ever go on it."""

from collections.abc import Mapping

import numpy as np

from gpusteward.analyzer.judge.allocation_columns import Mask
from gpusteward.analyzer.judge.signatures.active import ACTIVE_SIGNATURES, ActiveRules
from gpusteward.analyzer.judge.signatures.evidence import Evidence
from gpusteward.analyzer.judge.signatures.idle import IDLE_SIGNATURES, IdleRules, is_starting
from gpusteward.analyzer.tables import SIGNATURES, STEPS, Codes
from gpusteward.core.verdicts import Activity, Signature, Step

_STEPS = np.array([STEPS.index(signature.highest_step) for signature in SIGNATURES], dtype=np.int8)


class SignatureRules(ActiveRules, IdleRules):
    """`judge.signatures.*`: one section per rule."""


def classify(evidence: Evidence, rules: SignatureRules) -> Codes:
    """The first signature that matches. Active and no match: steady; idle and nothing known of its memory: unknown."""
    matches: Mapping[Signature, Mask] = {
        Signature.STARTING: is_starting(evidence, rules),
        Signature.UNKNOWN: evidence.has(Activity.UNKNOWN),
        **{signature: matches(evidence, rules) for signature, matches in IDLE_SIGNATURES.items()},
        **{signature: matches(evidence, rules) for signature, matches in ACTIVE_SIGNATURES.items()},
        Signature.STEADY: evidence.has(Activity.ACTIVE),
    }
    codes = [SIGNATURES.index(signature) for signature in matches]
    return np.select(list(matches.values()), codes, SIGNATURES.index(Signature.UNKNOWN)).astype(np.int8)


def find_highest_steps(evidence: Evidence, signature: Codes) -> Codes:
    """The highest step of each row. A notice at most: a parked allocation of unknown owner, which may be a hung job; a
    job that has never worked, which may still load data; and what only samples show, since work between two of them is
    not seen."""
    steps = _STEPS[signature]
    may_hang = (signature == SIGNATURES.index(Signature.PARKED)) & ~evidence.is_owned
    may_load = evidence.may_be_job & ~evidence.has_worked
    is_limited = may_hang | may_load | ~evidence.is_integrated
    return np.where(is_limited, np.minimum(steps, STEPS.index(Step.NOTICE)), steps).astype(np.int8)
