"""The result of one cycle: immutable, so that any thread may read it during the next cycle."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpusteward.analyzer.explain.opinion_effects import OpinionEffect
from gpusteward.analyzer.explain.opinions import Opinion
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

    @property
    def tag(self) -> str:
        """Unique for each result; part of ETags and cursors."""
        return f"{int(self.at)}-{self.number}"
