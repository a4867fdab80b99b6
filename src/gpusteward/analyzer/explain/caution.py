"""Verdict + opinion -> perhaps a doubt. An opinion only ever makes the system more careful (pure).

It never turns active or unknown into idle, never lowers a score, and never allows a step the rules do not.
"""

from dataclasses import dataclass

from gpusteward.analyzer.explain.answers import Opinion
from gpusteward.core.verdicts import Activity, Step


@dataclass(frozen=True, slots=True)
class Caution:
    """What an opinion changes: nothing, or a doubt about idleness."""

    doubt: bool = False
    reason: str = ""
    score: float | None = None  # the rule's, or the model's where it is higher


def weigh(activity: Activity, score: float | None, *, opinion: Opinion | None, threshold: float) -> Caution:
    """Doubt where the rule says idle and a confident model does not."""
    if opinion is None:
        return Caution(score=score)
    raised = None if score is None else max(score, opinion.adjusted_score)
    if activity is not Activity.IDLE or opinion.status == "idle" or opinion.confidence < threshold:
        return Caution(score=raised)
    return Caution(doubt=True, reason=f"the model calls it {opinion.status}: {opinion.reason}", score=raised)


def restrain(step: Step, caution: Caution) -> Step:
    """A doubted verdict goes no further than a notice."""
    return Step.NOTICE if caution.doubt and step is Step.RECLAIM else step
