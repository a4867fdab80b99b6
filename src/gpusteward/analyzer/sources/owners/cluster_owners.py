"""Allocation -> root owner through the Kubernetes API, above what its metrics tell.

What was learnt is kept for a while: owners of a pod never change, so only new pods and workloads cost questions. One
that cannot be read costs itself its name and nobody else theirs; what the metrics told stands until more is known.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from gpusteward.analyzer.sources.owners.owner_resolver import (
    KEPT_SECONDS,
    RETRY_SECONDS,
    Budget,
    DetectedScheme,
    OwnerWalks,
    PodName,
)
from gpusteward.analyzer.sources.owners.settings import KubernetesSettings
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.containers import Container, Workload
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.usages import AllocationKey
from gpusteward.kubernetes.api import ApiServer, ObjectError
from gpusteward.logs import Log

log = Log(__name__)

QUESTIONS_PER_CYCLE = 400
SECONDS_PER_CYCLE = 30.0
"""A cluster of new pods is named over several cycles instead of holding one up, and so is a slow API server's."""
_FORBIDDEN = 403
_Subject = TypeVar("_Subject", PodName, Workload)


def open_owners(settings: KubernetesSettings, environ: Mapping[str, str]) -> "ClusterOwners":
    """Owners from the API server of the settings, else of this cluster, else from nobody.

    Raises ConfigurationError where they are to be asked for and there is nobody to ask.
    """
    if settings.owners == "never":
        return ClusterOwners(None)
    if settings.api_url:
        return ClusterOwners(ApiServer(settings.api_url, timeout_seconds=settings.timeout))
    try:
        return ClusterOwners(ApiServer.from_cluster(environ))
    except SourceError as error:
        if settings.owners == "always":
            raise ConfigurationError(
                f"kubernetes.owners is always, but there is {error}; set kubernetes.api_url"
            ) from error
        return ClusterOwners(None)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The last one that was one; `ask_again_at` comes sooner after a failure."""

    asked_at: float
    ask_again_at: float
    found: DetectedScheme | None


class ClusterOwners:
    """Names workloads; without an API server it leaves everything as it is."""

    def __init__(self, api: ApiServer | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._walks = None if api is None else OwnerWalks(api, clock=clock)
        self._clock = clock
        self._pods: dict[PodName, _Answer] = {}
        self._told: dict[Workload, _Answer] = {}  # by what the metrics call it
        self._wish_budget = _new_budget()
        self._complaint = ""
        self._forbidden: set[str] = set()  # namespaces that were complained about

    def name(self, table: UsageTable) -> UsageTable:
        """The same table with the outermost owner of every pod that could be asked about."""
        walks = self._walks
        if walks is None:
            return table
        nameless, told = _subjects(table.allocations)
        self._forget(nameless, told)
        walks.forget()
        self._wish_budget, budget = _new_budget(), _new_budget()
        self._learn(self._pods, nameless, walks.from_pod, budget)
        self._learn(self._told, told, lambda each, left: walks.from_workload(each, told[each], left), budget)
        return self._rename(table)

    def read_wish(self, namespace: str, pod: str) -> str:
        """The annotation gpusteward.io/notify of a pod or of one of its owners; empty: none, or nobody to ask."""
        if self._walks is None or not namespace or not pod:
            return ""
        self._learn(self._pods, [(namespace, pod)], self._walks.from_pod, self._wish_budget)
        answer = self._pods.get((namespace, pod))
        return answer.found.wish if answer and answer.found else ""

    def _rename(self, table: UsageTable) -> UsageTable:
        named = [self._with_root(allocation) for allocation in table.allocations]
        is_same = all(new is old for new, old in zip(named, table.allocations, strict=True))
        return table if is_same else replace(table, allocations=named)

    def _with_root(self, allocation: AllocationKey) -> AllocationKey:
        told = allocation.container.workload
        answer = self._pods.get(_pod(allocation)) if told is None else self._told.get(told)
        if answer is None or answer.found is None or answer.found.workload == told:
            return allocation
        return replace(allocation, container=replace(allocation.container, workload=answer.found.workload))

    def _learn(
        self,
        answers: dict[_Subject, _Answer],
        subjects: Collection[_Subject],
        walk: Callable[[_Subject, Budget], DetectedScheme],
        budget: Budget,
    ) -> None:
        """Those nobody asked about come first, so that what cannot be read never keeps them waiting."""
        try:
            for subject in self._due(answers, subjects):
                if budget.is_spent:
                    return
                answers[subject] = self._ask(subject, walk, answers.get(subject), budget)
            self._complaint = ""
        except SourceError as error:  # the server itself: it has nothing to say of the others either
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("owners_unreadable", reason=error)

    def _due(self, answers: Mapping[_Subject, _Answer], subjects: Collection[_Subject]) -> list[_Subject]:
        now = self._clock()
        known = {each: answers[each] for each in subjects if each in answers}
        again = [each for each, answer in known.items() if answer.ask_again_at <= now]
        return [each for each in subjects if each not in known] + sorted(again, key=lambda each: known[each].asked_at)

    def _ask(
        self,
        subject: _Subject,
        walk: Callable[[_Subject, Budget], DetectedScheme],
        before: _Answer | None,
        budget: Budget,
    ) -> _Answer:
        """Raises SourceError when the server cannot be asked. A name that was learnt outlives a later refusal."""
        now = self._clock()
        try:
            found = walk(subject, budget)
        except ObjectError as error:
            self._complain(subject, error)
            return _Answer(now, now + RETRY_SECONDS, before.found if before else None)
        self._forbidden.discard(_namespace(subject))
        return _Answer(now, now + KEPT_SECONDS, found)

    def _complain(self, subject: PodName | Workload, error: ObjectError) -> None:
        """A pod that has gone is nothing to tell; a namespace that may not be read is, once."""
        namespace = _namespace(subject)
        if error.http_status != _FORBIDDEN or namespace in self._forbidden:
            log.debug("owner_unreadable", namespace=namespace, reason=error)
            return
        self._forbidden.add(namespace)
        log.warning("owners_unreadable", namespace=namespace, reason=error)

    def _forget(self, nameless: set[PodName], told: Mapping[Workload, PodName]) -> None:
        """What is still in use keeps its name until there is a newer answer."""
        oldest = self._clock() - KEPT_SECONDS
        self._pods = {pod: each for pod, each in self._pods.items() if pod in nameless or each.asked_at > oldest}
        self._told = {name: each for name, each in self._told.items() if name in told or each.asked_at > oldest}
        self._forbidden &= {namespace for namespace, _ in nameless} | {workload.namespace for workload in told}


def _new_budget() -> Budget:
    return Budget(QUESTIONS_PER_CYCLE, SECONDS_PER_CYCLE)


def _subjects(allocations: Iterable[AllocationKey]) -> tuple[set[PodName], dict[Workload, PodName]]:
    """Pods without a workload, and workloads that were told, each with one of its pods."""
    nameless: set[PodName] = set()
    told: dict[Workload, PodName] = {}
    for allocation in allocations:
        pod, workload = _pod(allocation), allocation.container.workload
        if not all(pod):
            continue
        if workload is None:
            nameless.add(pod)
        else:
            told.setdefault(workload, pod)
    return nameless, told


def _pod(allocation: AllocationKey) -> PodName:
    container: Container = allocation.container
    return container.namespace, container.pod


def _namespace(subject: PodName | Workload) -> str:
    return subject.namespace if isinstance(subject, Workload) else subject[0]
