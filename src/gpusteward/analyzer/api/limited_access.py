"""The components of a person who sees some namespaces only. All that an endpoint reads passes here.

Whatever cannot be divided by namespace is empty or without text, so that an endpoint that shows it by mistake shows
nothing: error texts, descriptions of the source, deliveries, the /metrics page.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from fastapi.concurrency import run_in_threadpool

from gpusteward.analyzer.api.dependencies import ApiDependencies, CycleControl, LedgerReader, SourceReader
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.result_store import ResultStore
from gpusteward.analyzer.ledger.snoozes import Snooze
from gpusteward.analyzer.notify.outbox.records import Delivery
from gpusteward.analyzer.pipeline import CycleStats
from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState
from gpusteward.analyzer.reclaim.lending import LendableGpus
from gpusteward.analyzer.reclaim.permission import Mode, SwitchState
from gpusteward.analyzer.reclaim.plan import Decision, Plan, ReclaimControl, Suspended
from gpusteward.analyzer.reports.charges import Charge
from gpusteward.analyzer.reports.report import EndedWorkload, GroupDetails, Report
from gpusteward.analyzer.reports.report_query import ClusterNamespace, EndedQuery, ReportQuery
from gpusteward.analyzer.reports.workload_history import WorkloadHistory
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.sources.live_readings import Pod, PodProcesses, ReportedGpu
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.analyzer.spell_table import SpellTable
from gpusteward.core.containers import WorkloadKey
from gpusteward.core.errors import SourceError
from gpusteward.core.namespaces import VisibleNamespaces
from gpusteward.core.usages import AllocationKey
from gpusteward.logs import Log
from gpusteward.messages.errors import api_errors

log = Log(__name__)

MOST_ACTIONS = 10_000
"""Read for a viewer of some namespaces: those of the others are left out afterwards."""


async def limit_access(dependencies: ApiDependencies, visible: VisibleNamespaces | None) -> ApiDependencies:
    """The components as if there were only these namespaces; None: all of them."""
    if visible is None:
        return dependencies
    results = await _limit_results(dependencies.results, visible)
    return replace(
        dependencies,
        results=results,
        cycles=_LimitedCycles(dependencies.cycles),
        source=_LimitedSource(dependencies.source, visible, results),
        ledger=_LimitedLedger(dependencies.ledger, visible),
        deliveries=_NoDeliveries(),
        reclaim=dependencies.reclaim and _LimitedReclaim(dependencies.reclaim, visible),
        visible=visible,
    )


async def _limit_results(results: ResultStore, visible: VisibleNamespaces) -> ResultStore:
    """Without the /metrics page. The first request after a cycle takes a moment, in a thread."""
    limited, published = ResultStore(), results.published
    if published is not None:
        found = published.find_limited(visible)
        limited.publish(await run_in_threadpool(published.limit_to, visible) if found is None else found)
    return limited


@dataclass(frozen=True)
class _LimitedCycles:
    """The cycles without error texts; none can be started."""

    _cycles: CycleControl

    @property
    def stats(self) -> CycleStats:
        stats = self._cycles.stats
        return replace(stats, last_error=stats.last_error and str(api_errors.HIDDEN_ERROR), stages={})

    @property
    def defect(self) -> str:
        return self._cycles.defect and str(api_errors.HIDDEN_ERROR)

    def request_cycle(self, *, use_ai: bool | None = None) -> None:  # noqa: ARG002 - as its protocol
        raise _forbidden()


@dataclass(frozen=True)
class _LimitedSource:
    _source: SourceReader
    _visible: VisibleNamespaces
    _results: ResultStore  # of the visible namespaces

    @property
    def request_counts(self) -> Mapping[str, int]:
        return self._source.request_counts

    @property
    def target_counts(self) -> Mapping[str, int]:
        return self._source.target_counts

    def describe(self) -> Mapping[str, Any]:
        return {}

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        if not self._visible.includes(allocation.cluster, allocation.container.namespace):
            raise _forbidden()
        with _hiding_errors():
            return self._source.read_series(allocation, at, seconds=seconds)

    def read_processes(self, pods: Collection[Pod], at: float) -> PodProcesses:
        with _hiding_errors():
            running = self._source.read_processes([pod for pod in pods if self._is_visible(pod)], at)
        return PodProcesses(
            [each for each in running.processes if self._is_visible(each.pod)],
            frozenset(pod for pod in running.reported if self._is_visible(pod)),
        )

    def read_gpus(self, node: str, cluster: str, at: float) -> Sequence[ReportedGpu]:
        """Those of which a pod of a visible namespace holds a part; of MIG instances those that one holds."""
        published = self._results.published
        held = published.result.verdicts.usage.allocations if published else ()
        own = [one for one in held if (one.node, one.cluster) == (node, cluster)]
        visible = {(one.gpu_index, instance) for one in own for instance in ("", one.gpu_instance)}
        with _hiding_errors():
            found = self._source.read_gpus(node, cluster, at)
        return [each for each in found if (each.index, each.instance) in visible]

    def _is_visible(self, pod: Pod) -> bool:
        return self._visible.includes(pod.cluster, pod.namespace)


@dataclass(frozen=True)
class _LimitedLedger:
    _ledger: LedgerReader
    _visible: VisibleNamespaces

    def describe(self) -> Mapping[str, Any] | None:
        described = self._ledger.describe()
        return described and {name: described.get(name) for name in ("is_ready", "booked_at")}

    def read_namespaces(self) -> tuple[ClusterNamespace, ...]:
        return tuple(each for each in self._ledger.read_namespaces() if self._visible.includes(*each))

    def read_report(self, query: ReportQuery) -> Report:
        return self._ledger.read_report(replace(query, visible=self.read_namespaces()))

    def read_group_details(self, query: ReportQuery) -> GroupDetails:
        return self._ledger.read_group_details(replace(query, visible=self.read_namespaces()))

    def read_ended_workloads(self, query: EndedQuery) -> Sequence[EndedWorkload]:
        return self._ledger.read_ended_workloads(replace(query, visible=self.read_namespaces()))

    def read_charges(self, query: ReportQuery) -> Iterator[Charge]:
        return self._ledger.read_charges(replace(query, visible=self.read_namespaces()))

    def read_history(self, workload: WorkloadKey, *, limit: int) -> WorkloadHistory:
        """Without channels and deliveries: they belong to the whole site."""
        if not self._visible.includes(workload.cluster, workload.namespace):
            return WorkloadHistory((), (), (), ())
        history = self._ledger.read_history(workload, limit=limit)
        return replace(history, notices=[replace(each, channel="", deliveries=()) for each in history.notices])

    @property
    def lendable(self) -> Sequence[LendableGpus]:
        """Of the whole site: only for its metrics, which a limited person cannot read."""
        return ()

    def read_spells(self, since: float) -> SpellTable:
        table = self._ledger.read_spells(since)
        visible = [self._visible.includes(key.cluster, key.namespace) for key in table.workloads]
        return table.select_workloads(np.array(visible, np.bool_))

    def read_snoozes(self, at: float) -> Mapping[WorkloadKey, Snooze]:
        found = self._ledger.read_snoozes(at)
        return {key: one for key, one in found.items() if self._visible.includes(key.cluster, key.namespace)}

    def add_snooze(self, workload: WorkloadKey, **_: object) -> Snooze:  # noqa: ARG002 - as its protocol
        raise _forbidden()

    def end_snooze(self, workload: WorkloadKey, **_: object) -> bool:  # noqa: ARG002 - as its protocol
        raise _forbidden()


@dataclass(frozen=True)
class _LimitedReclaim:
    """Plan and journal of the visible namespaces; nothing can be changed."""

    _control: ReclaimControl
    _visible: VisibleNamespaces

    @property
    def mode(self) -> Mode:
        return self._control.mode

    @property
    def last_plan(self) -> Plan | None:
        plan = self._control.last_plan
        if plan is None:
            return None
        decisions = tuple(
            each for each in plan.decisions if self._visible.includes(each.workload.cluster, each.workload.namespace)
        )
        return replace(plan, decisions=decisions, counts=Counter(each.outcome for each in decisions))

    def read_actions(
        self, *, workload: WorkloadKey | None = None, states: Sequence[ActionState] = (), limit: int = 100
    ) -> list[Action]:
        with _hiding_errors():
            found = self._control.read_actions(workload=workload, states=states, limit=MOST_ACTIONS)
        return [each for each in found if self._is_visible(each)][:limit]

    def read_action(self, action_id: str) -> Action | None:
        with _hiding_errors():
            found = self._control.read_action(action_id)
        return found if found is not None and self._is_visible(found) else None

    def preview(self, workload: WorkloadKey) -> Decision:  # noqa: ARG002 - as its protocol
        raise _forbidden()

    def suspend(self, workload: WorkloadKey, *, by: str) -> Action:  # noqa: ARG002 - as its protocol
        raise _forbidden()

    def restore(self, action_id: str, *, by: str) -> Action:  # noqa: ARG002 - as its protocol
        raise _forbidden()

    def switch_off(self, *, by: str, reason: str = "") -> SwitchState:  # noqa: ARG002 - as its protocol
        raise _forbidden()

    def switch_on(self, *, by: str) -> SwitchState:  # noqa: ARG002 - as its protocol
        raise _forbidden()

    def read_switch(self) -> SwitchState:
        raise _forbidden()

    @property
    def suspended(self) -> Suspended | None:
        return None

    def describe(self) -> Mapping[str, Any]:
        return {}

    @property
    def counts(self) -> Mapping[tuple[str, str], int]:
        return {}

    def _is_visible(self, action: Action) -> bool:
        return self._visible.includes(action.workload.cluster, action.workload.namespace)


class _NoDeliveries:
    """Notices go to channels of the whole site."""

    def describe(self) -> Mapping[str, Any]:
        return {}

    def read_deliveries(self, state: str | None, limit: int) -> Sequence[Delivery]:  # noqa: ARG002 - as its protocol
        raise _forbidden()

    def retry_delivery(self, number: int) -> tuple[Delivery | None, bool]:  # noqa: ARG002 - as its protocol
        raise _forbidden()

    def notify_now(self, result: Result, number: int) -> Sequence[str]:  # noqa: ARG002 - as its protocol
        raise _forbidden()


@contextmanager
def _hiding_errors() -> Iterator[None]:
    """The text of an error may name anything: queries contain names of namespaces."""
    try:
        yield
    except SourceError as error:
        log.warning("reading for a viewer of some namespaces failed", reason=str(error))
        raise SourceError(api_errors.HIDDEN_ERROR) from None


def _forbidden() -> ProblemError:
    return ProblemError(403, "limited", api_errors.NEEDS_ALL_NAMESPACES)
