"""The result of one cycle: immutable, so that any thread may read it during the next cycle."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from gpusteward.analyzer.explain.opinion_effects import OpinionEffect, contradicts_low
from gpusteward.analyzer.explain.opinions import Opinion
from gpusteward.analyzer.judge.allocation_columns import Mask
from gpusteward.analyzer.judge.resumption import NO_HISTORY, Resumption, SpellHistory
from gpusteward.analyzer.judge.score import find_low
from gpusteward.analyzer.judge.workloads import WorkloadTable, judge_workloads
from gpusteward.analyzer.pool_minutes import PoolMinutes
from gpusteward.analyzer.prices import PriceList
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.tables import Column, SiteFinding, VerdictTable, take_values
from gpusteward.core.namespaces import VisibleNamespaces
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.messages.data_health import summarize
from gpusteward.messages.unknown_reasons import hide_errors


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
    visible: VisibleNamespaces | None = None  # only these namespaces; None: all
    spells: SpellHistory = NO_HISTORY  # for chances of resumption; up to the cycle before
    pools: Mapping[WorkloadKey, PoolMinutes] = field(default_factory=dict)  # read after it was published

    @property
    def read_at(self) -> float:
        """When it was read: later than the end of the window where all samples arrive late."""
        return self.at + self.verdicts.usage.lag_seconds

    @cached_property
    def is_low(self) -> Mask:
        """Rows with low utilization, as in gpu-oour, except those that a confident second opinion takes for used."""
        is_low = find_low(self.verdicts.score, self.verdicts.state, thresholds=self.settings.thresholds)
        confidence, low = self.settings.ai.threshold, self.settings.thresholds.low_utilization
        for row, opinion in self.opinions.items():
            is_low[row] &= not contradicts_low(opinion, confidence=confidence, low=low)
        return is_low

    @cached_property
    def cost_micros_per_hour(self) -> Column:
        """Of what each row of `verdicts` holds, in millionths of the currency; NaN without a price."""
        prices = PriceList(self.settings.prices)
        found = (
            prices.micros_per_gpu_hour(one.model, one.container.namespace) for one in self.verdicts.usage.allocations
        )
        column = np.fromiter(found, np.float64, len(self.verdicts))
        return np.where(column > 0, column, np.nan) * self.workloads.fractions

    def estimate_resumption(self, number: int) -> Resumption | None:
        """The chance that work comes back to a workload; None: it is not idle."""
        idle_since = float(self.workloads.idle_since[number])
        if np.isnan(idle_since):
            return None
        return self.spells.estimate_all(self.workloads.keys[number], age=max(0.0, self.at - idle_since))

    @property
    def tag(self) -> str:
        """Unique for each result and for the namespaces in it; part of ETags and cursors."""
        return tag_result(f"{int(self.at)}-{self.number}", self.visible)


def tag_result(tag: str, visible: VisibleNamespaces | None) -> str:
    """The tag of a result that is limited to some namespaces."""
    return tag if visible is None else f"{tag}-{visible.fingerprint}"


def limit_result(result: Result, visible: VisibleNamespaces, is_visible: Mask) -> Result:
    """The same result as if there were only these namespaces. `is_visible`: as `find_visible` returns it."""
    rows = np.flatnonzero(is_visible)
    verdicts = _hide_errors(result.verdicts.take(rows), result.verdicts.usage.findings)
    return replace(
        result,
        verdicts=verdicts,
        workloads=judge_workloads(verdicts, result.settings.rules, result.workloads.fractions[rows]),
        opinions=take_values(result.opinions, rows),
        opinion_effects=take_values(result.opinion_effects, rows),
        sources={},
        visible=visible,
    )


def _hide_errors(verdicts: VerdictTable, findings: tuple[SiteFinding, ...]) -> VerdictTable:
    """`findings`: of the whole site; they stay, without the names of others."""
    unknown = {row: hide_errors(reason) for row, reason in verdicts.usage.unknown.items()}
    shown = tuple(one._replace(message=summarize(one.code)) for one in findings)
    return replace(verdicts, usage=replace(verdicts.usage, unknown=unknown, findings=shown))


def find_visible(result: Result, visible: VisibleNamespaces) -> Mask:
    """The rows of visible namespaces."""
    includes = lru_cache(maxsize=None)(visible.includes)  # there are few namespaces
    containers = (one.container for one in result.verdicts.usage.allocations)
    return np.array([includes(one.cluster, one.namespace) for one in containers], dtype=bool)
