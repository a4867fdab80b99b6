"""What an opinion changes in a verdict: it can only make the system more careful (pure).

It never turns active or unknown into idle, never lowers a score, and never allows a step the rules do not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from gpusteward.analyzer.explain.opinions import Opinion
from gpusteward.analyzer.tables import ACTIVITIES, STEPS, VerdictTable
from gpusteward.core.verdicts import Activity, Objection, Step


@dataclass(frozen=True, slots=True)
class OpinionEffect:
    """What an opinion changes: perhaps a higher score, perhaps an objection to idleness."""

    score: float | None = None  # the rule's, or the model's where it is higher
    objection: Objection | None = None


def evaluate_opinion(
    activity: Activity, score: float | None, *, opinion: Opinion | None, threshold: float
) -> OpinionEffect:
    """An objection where the rules judge idle and a confident model does not."""
    if opinion is None:
        return OpinionEffect(score)
    raised = None if score is None else max(score, opinion.adjusted_score)
    if activity is not Activity.IDLE or opinion.status == "idle" or opinion.confidence < threshold:
        return OpinionEffect(raised)
    return OpinionEffect(raised, Objection(opinion.status, opinion.confidence, opinion.reason))


def contradicts_low(opinion: Opinion, *, confidence: float, low: float) -> bool:
    """Whether a GPU of low utilization is taken for used, so that no receiver may act on it.

    In gpu-oour the model's score decides alone; here a model that agrees with the rules removes nothing.
    """
    is_used = opinion.status == "active" or (opinion.status == "suspicious" and opinion.adjusted_score >= low)
    return is_used and opinion.confidence >= confidence


def limit_step(step: Step, effect: OpinionEffect) -> Step:
    """The highest step of a verdict with an objection is a notice."""
    return Step.NOTICE if effect.objection and step is Step.RECLAIM else step


def evaluate_opinions(
    verdicts: VerdictTable, opinions: Mapping[int, Opinion], *, threshold: float
) -> Mapping[int, OpinionEffect]:
    """The effect of each opinion, by row."""
    return {
        row: evaluate_opinion(
            ACTIVITIES[verdicts.activity[row]],
            None if np.isnan(verdicts.score[row]) else float(verdicts.score[row]),
            opinion=opinion,
            threshold=threshold,
        )
        for row, opinion in opinions.items()
    }


def apply_objections(verdicts: VerdictTable, opinion_effects: Mapping[int, OpinionEffect]) -> VerdictTable:
    """The same verdicts with the objections; the highest step of those rows is a notice.

    Called before verdicts are joined to workloads: the highest step of a workload is the lowest of its rows.
    """
    objections = {row: effect.objection for row, effect in opinion_effects.items() if effect.objection is not None}
    if not objections:
        return verdicts
    step, by_silence = verdicts.step.copy(), verdicts.step_by_silence.copy()
    for row, column in product(objections, (step, by_silence)):
        column[row] = STEPS.index(limit_step(STEPS[column[row]], opinion_effects[row]))
    return replace(verdicts, step=step, step_by_silence=by_silence, objections=objections)
