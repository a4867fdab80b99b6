"""Who holds the GPUs of each workload, on which nodes and models, and what its idle GPUs cost. Lazy: few are read."""

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.ledger.identities import UserLabels
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, Column
from gpusteward.core.api_rows import MOST_NAMES
from gpusteward.core.usages import AllocationKey
from gpusteward.core.verdicts import Activity

PodLabels = tuple[tuple[str, str], ...]
HOUR_SECONDS = 3600


class Names(NamedTuple):
    """Different texts of the allocations of a workload, the first ones."""

    shown: list[str]
    total: int


class WorkloadNames(NamedTuple):
    """Who and what a workload is about; may contain an empty text."""

    users: set[str]
    models: set[str]
    nodes: set[str]

    @staticmethod
    def show(names: set[str]) -> list[str]:
        """As `Names.shown`."""
        if len(names) == 1:
            return [name for name in names if name]
        return sorted(name for name in names if name)[:MOST_NAMES]


class WorkloadFacts:
    """The workloads of one result. Money is in millionths of the currency."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self._user_labels = UserLabels(result.settings.ledger.user_labels)
        self.currency = result.settings.prices.currency

    def list_all(self) -> list["WorkloadNames"]:
        """Of every workload: quicker than one by one."""
        collected = [WorkloadNames(set(), set(), set()) for _ in self._result.workloads.keys]
        find_user = lru_cache(maxsize=4096)(self._find_user_of)
        codes = self._result.workloads.codes.tolist()
        for one, code in zip(self._result.verdicts.usage.allocations, codes, strict=True):
            users, models, nodes = collected[code]
            container = one.container
            users.add(container.user or find_user(container.pod_labels))
            models.add(one.model)
            nodes.add(one.node)
        return collected

    def _find_user_of(self, pod_labels: PodLabels) -> str:
        return self._user_labels.find_user(pod_labels)

    def users(self, number: int) -> Names:
        return self._list_names(number, self._find_user)

    def models(self, number: int) -> Names:
        return self._list_names(number, lambda one: one.model)

    def nodes(self, number: int) -> Names:
        return self._list_names(number, lambda one: one.node)

    def _find_user(self, one: AllocationKey) -> str:
        return one.container.user or self._user_labels.find_user(one.container.pod_labels)

    def _list_names(self, number: int, read: Callable[[AllocationKey], str]) -> Names:
        allocations = self._result.verdicts.usage.allocations
        rows = self._result.workloads.rows(number).tolist()
        names = sorted({name for row in rows if (name := read(allocations[row]))})
        return Names(names[:MOST_NAMES], len(names))

    @cached_property
    def cost_per_hour(self) -> Column:
        """Of everything it holds. NaN if the price of a part is unknown: a partial sum would be read as the total."""
        return self._sum(self._result.cost_micros_per_hour)

    @cached_property
    def idle_cost_per_hour(self) -> Column:
        """NaN also where nothing is idle, so that idle GPUs without a price come before these in a list."""
        return self._sum_idle(self._result.cost_micros_per_hour)

    @cached_property
    def idle_cost(self) -> Column:
        """Since the workload, or else each idle GPU of it, is idle: the current idle spell."""
        result, table = self._result, self._result.workloads
        own, whole = result.verdicts.idle_since, table.idle_since[table.codes]
        hours = (result.at - np.where(np.isnan(whole), own, whole)) / HOUR_SECONDS
        return self._sum_idle(self._result.cost_micros_per_hour * np.maximum(hours, 0.0))

    def _sum_idle(self, column: Column) -> Column:
        is_idle = np.equal(self._result.verdicts.activity, ACTIVITIES.index(Activity.IDLE))
        return np.where(self._result.workloads.idle_gpus > 0, self._sum(np.where(is_idle, column, 0.0)), np.nan)

    def _sum(self, column: Column) -> Column:
        table = self._result.workloads
        return np.bincount(table.codes, weights=column, minlength=len(table)).astype(np.float64)
