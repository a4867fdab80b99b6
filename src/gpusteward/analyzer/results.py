"""The result of one cycle: immutable, so that any thread may read it during the next cycle."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpusteward.analyzer.explain.opinion_effects import OpinionEffect, contradicts_low
from gpusteward.analyzer.explain.opinions import Opinion
from gpusteward.analyzer.judge.allocation_columns import Mask
from gpusteward.analyzer.judge.states import find_low
from gpusteward.analyzer.judge.workloads import WorkloadTable
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.tables import VerdictTable


@dataclass(frozen=True)
class Result:
    """A finished cycle."""

    number: int  # counts from 1 since the start
    at: float  # unix seconds: the end of the window
    seconds: float  # how long the cycle took
    settings: Settings  # the verdicts were computed with
    verdicts: VerdictTable
    workloads: WorkloadTable
    opinions: Mapping[int, Opinion] = field(default_factory=dict)  # by row of `verdicts`
    sources: Mapping[str, Any] = field(default_factory=dict)  # description of the source, as plain data
    opinion_effects: Mapping[int, OpinionEffect] = field(default_factory=dict)  # by the same rows

    @cached_property
    def is_low(self) -> Mask:
        """Rows with low utilization, as in gpu-oour, except those that a confident second opinion takes for used."""
        is_low = find_low(self.verdicts.score, self.verdicts.state, thresholds=self.settings.thresholds)
        confidence, low = self.settings.ai.threshold, self.settings.thresholds.low_utilization
        for row, opinion in self.opinions.items():
            is_low[row] &= not contradicts_low(opinion, confidence=confidence, low=low)
        return is_low

    @property
    def tag(self) -> str:
        """Unique for each result; part of ETags and cursors."""
        return f"{int(self.at)}-{self.number}"
