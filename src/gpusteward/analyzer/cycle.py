"""The day of the analyzer: read -> name owners -> judge -> explain -> restrain -> a result for everybody to look at."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpusteward.analyzer.explain.answers import Opinion
from gpusteward.analyzer.explain.caution import restrain_all, weigh_all
from gpusteward.analyzer.explain.choosing import rows_worth_asking
from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.explain.prompt_cases import case_of
from gpusteward.analyzer.judge.history import Memory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.reasons import make_verdict
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.usage_source import UsageSource
from gpusteward.analyzer.tables import UsageTable, VerdictTable

CASES_OFFERED = 1000
"""So many rows are offered to the explainer; its own budget says how many are asked."""

NameOwners = Callable[[UsageTable], UsageTable]
Recollect = Callable[[UsageTable], Memory]


@dataclass(frozen=True, slots=True)
class Parts:
    """Whom a cycle asks."""

    source: UsageSource
    name_owners: NameOwners
    explainer: Explainer
    recollect: Recollect = lambda _: Memory()  # what is known at the first cycle


class Cycle:
    """One after another; what a later one needs of an earlier one is its memory."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._memory: Memory | None = None
        self._number = 0

    def run(self, settings: Settings, *, at: float, use_ai: bool) -> Result:
        """The whole story. Raises SourceError when nothing at all could be read: the last result then stands."""
        started = time.monotonic()
        usage = self._parts.name_owners(self._parts.source.read(at))
        memory = self._parts.recollect(usage) if self._memory is None else self._memory
        verdicts, self._memory = judge(usage, settings.rules, memory, now=at)
        opinions = self._explain(verdicts, settings, at=at) if use_ai else {}
        cautions = weigh_all(verdicts, opinions, threshold=settings.ai.threshold)
        verdicts = restrain_all(verdicts, cautions)
        workloads = judge_workloads(verdicts, settings.rules)
        self._number += 1
        return Result(
            number=self._number,
            at=at,
            seconds=time.monotonic() - started,
            settings=settings,
            verdicts=verdicts,
            workloads=workloads,
            opinions=opinions,
            cautions=cautions,
            sources=self._parts.source.describe(),
        )

    def _explain(self, verdicts: VerdictTable, settings: Settings, *, at: float) -> Mapping[int, Opinion]:
        rows = rows_worth_asking(verdicts, limit=CASES_OFFERED)
        cases = [
            case_of(str(row), make_verdict(verdicts, row, rules=settings.rules, language=settings.ai.language), now=at)
            for row in rows
        ]
        return {int(key): opinion for key, opinion in self._parts.explainer.explain(cases, now=at).items()}
