"""Adds the root owner of every pod to a usage table, from the Kubernetes API.

Owners of a pod never change, so they are cached: only new pods and workloads cost requests. A pod whose owner cannot
be read keeps the workload that its metrics name; others are not affected.

The API server knows the pods of one cluster. Where the metrics name several, only those of `kubernetes.cluster` are
looked up: the same names may exist in each of them.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from gpusteward.analyzer.sources.owners.owner_resolver import (
    CACHE_SECONDS,
    RETRY_SECONDS,
    Budget,
    OwnerResolver,
    PodName,
    ResolvedOwner,
)
from gpusteward.analyzer.sources.owners.settings import KubernetesSettings
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.containers import Workload
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.usages import AllocationKey
from gpusteward.kubernetes.api import ApiServer, ObjectError
from gpusteward.logs import Log
from gpusteward.messages import kubernetes_errors as messages

log = Log(__name__)

REQUESTS_PER_CYCLE = 400
SECONDS_PER_CYCLE = 30.0
"""Many new pods, or a slow API server, are resolved over several cycles instead of delaying one."""
_FORBIDDEN = 403
_Subject = TypeVar("_Subject", PodName, Workload)


def open_owners(settings: KubernetesSettings, environ: Mapping[str, str]) -> "ClusterOwners":
    """Owners from the API server of the settings, or of this cluster, or from none.

    Raises ConfigurationError if the settings require an API server and there is none.
    """
    if settings.owners == "never":
        return ClusterOwners(None)
    if settings.api_url:
        return ClusterOwners(
            ApiServer(settings.api_url, timeout_seconds=settings.timeout), own_cluster=settings.cluster
        )
    try:
        return ClusterOwners(ApiServer.from_cluster(environ), own_cluster=settings.cluster)
    except SourceError as error:
        if settings.owners == "always":
            raise ConfigurationError(messages.OWNERS_REQUIRED, reason=error) from error
        return ClusterOwners(None)


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    """`owner`: the last one that could be read. `refresh_at` comes sooner after a failure."""

    requested_at: float
    refresh_at: float
    owner: ResolvedOwner | None


class ClusterOwners:
    """Resolves owners; without an API server tables stay as they are."""

    def __init__(
        self, api: ApiServer | None, *, own_cluster: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`own_cluster`: the name of the API server's cluster; empty: not known."""
        self._resolver = None if api is None else OwnerResolver(api, clock=clock)
        self._own_cluster = own_cluster
        self._cluster: str | None = own_cluster  # whose pods are looked up in this cycle; None: those of no cluster
        self._clock = clock
        self._pods: dict[PodName, _CacheEntry] = {}
        self._workloads: dict[Workload, _CacheEntry] = {}  # by the workload that the metrics name
        self._annotation_budget = _new_budget()
        self._failure = ""
        self._forbidden: set[str] = set()  # namespaces that were logged

    def resolve_owners(self, table: UsageTable) -> UsageTable:
        """The same table with the root owner of every pod that could be read."""
        resolver = self._resolver
        if resolver is None:
            return table
        self._choose_cluster(table)
        pods, workloads = _list_subjects(each for each in table.allocations if each.cluster == self._cluster)
        self._expire(pods, workloads)
        resolver.expire_cache()
        self._annotation_budget, budget = _new_budget(), _new_budget()
        self._refresh(self._pods, pods, resolver.resolve_pod, budget)
        self._refresh(
            self._workloads,
            workloads,
            lambda each, left: resolver.resolve_workload(each, workloads[each], left),
            budget,
        )
        return self._with_owners(table)

    def _choose_cluster(self, table: UsageTable) -> None:
        """Without a name of its own, the API server belongs to the only cluster there is."""
        found = {allocation.cluster for allocation in table.allocations}
        chosen = self._own_cluster if self._own_cluster in found - {""} else None
        if len(found) == 1 and (found == {""} or not self._own_cluster):
            chosen = next(iter(found))
        if chosen is None and found and self._cluster is not None:
            names = ", ".join(sorted(found))
            log.warning("owners_not_looked_up", clusters=names, own=self._own_cluster, help="set kubernetes.cluster")
        self._cluster = chosen

    def read_notify_annotation(self, namespace: str, pod: str, cluster: str = "") -> str:
        """The annotation gpusteward.io/notify of a pod or of one of its owners; empty if there is none, or if the pod
        is in another cluster."""
        if self._resolver is None or not namespace or not pod or cluster != self._cluster:
            return ""
        name = PodName(namespace, pod)
        self._refresh(self._pods, [name], self._resolver.resolve_pod, self._annotation_budget)
        entry = self._pods.get(name)
        return entry.owner.notify_annotation if entry and entry.owner else ""

    def _with_owners(self, table: UsageTable) -> UsageTable:
        resolved = [self._with_owner(allocation) for allocation in table.allocations]
        is_same = all(new is old for new, old in zip(resolved, table.allocations, strict=True))
        return table if is_same else replace(table, allocations=resolved)

    def _with_owner(self, allocation: AllocationKey) -> AllocationKey:
        container = allocation.container
        if container.cluster != self._cluster:
            return allocation
        reported = container.workload
        entry = self._pods.get(_pod_of(allocation)) if reported is None else self._workloads.get(reported)
        if entry is None or entry.owner is None:
            return allocation
        owner = replace(entry.owner.workload, cluster=container.cluster)
        return allocation if owner == reported else replace(allocation, container=replace(container, workload=owner))

    def _refresh(
        self,
        cache: dict[_Subject, _CacheEntry],
        subjects: Collection[_Subject],
        resolve: Callable[[_Subject, Budget], ResolvedOwner],
        budget: Budget,
    ) -> None:
        """New subjects come first, so that those that cannot be read never delay them."""
        try:
            for subject in self._list_due(cache, subjects):
                if budget.is_spent:
                    return
                cache[subject] = self._request(subject, resolve, cache.get(subject), budget)
            self._failure = ""
        except SourceError as error:  # of the server itself: further requests would fail too
            if str(error) != self._failure:
                self._failure = str(error)
                log.warning("owners_unreadable", reason=error)

    def _list_due(self, cache: Mapping[_Subject, _CacheEntry], subjects: Collection[_Subject]) -> list[_Subject]:
        now = self._clock()
        cached = {each: cache[each] for each in subjects if each in cache}
        due = [each for each, entry in cached.items() if entry.refresh_at <= now]
        new = [each for each in subjects if each not in cached]
        return new + sorted(due, key=lambda each: cached[each].requested_at)

    def _request(
        self,
        subject: _Subject,
        resolve: Callable[[_Subject, Budget], ResolvedOwner],
        before: _CacheEntry | None,
        budget: Budget,
    ) -> _CacheEntry:
        """A known owner is kept if it cannot be read later. Raises SourceError if the server cannot be reached."""
        now = self._clock()
        try:
            owner = resolve(subject, budget)
        except ObjectError as error:
            self._log_unreadable(subject.namespace, error)
            return _CacheEntry(now, now + RETRY_SECONDS, before.owner if before else None)
        self._forbidden.discard(subject.namespace)
        return _CacheEntry(now, now + CACHE_SECONDS, owner)

    def _log_unreadable(self, namespace: str, error: ObjectError) -> None:
        """A deleted pod is not worth a warning; a namespace that may not be read is, once."""
        if error.http_status != _FORBIDDEN or namespace in self._forbidden:
            log.debug("owner_unreadable", namespace=namespace, reason=error)
            return
        self._forbidden.add(namespace)
        log.warning("owners_unreadable", namespace=namespace, reason=error)

    def _expire(self, pods: set[PodName], workloads: Mapping[Workload, PodName]) -> None:
        """Entries in use stay until there is a newer one."""
        oldest = self._clock() - CACHE_SECONDS
        self._pods = {pod: each for pod, each in self._pods.items() if pod in pods or each.requested_at > oldest}
        self._workloads = {
            name: each for name, each in self._workloads.items() if name in workloads or each.requested_at > oldest
        }
        self._forbidden &= {pod.namespace for pod in pods} | {workload.namespace for workload in workloads}


def _new_budget() -> Budget:
    return Budget(REQUESTS_PER_CYCLE, SECONDS_PER_CYCLE)


def _list_subjects(allocations: Iterable[AllocationKey]) -> tuple[set[PodName], dict[Workload, PodName]]:
    """Pods without a workload, and the workloads that metrics name, each with one of its pods."""
    pods: set[PodName] = set()
    workloads: dict[Workload, PodName] = {}
    for allocation in allocations:
        pod, workload = _pod_of(allocation), allocation.container.workload
        if not all(pod):
            continue
        if workload is None:
            pods.add(pod)
        else:
            workloads.setdefault(workload, pod)
    return pods, workloads


def _pod_of(allocation: AllocationKey) -> PodName:
    return PodName(allocation.container.namespace, allocation.container.pod)
