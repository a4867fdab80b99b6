"""Adds the root owner of every pod to a usage table, from the Kubernetes API; also its uid and its start, where the
metrics name neither.

Every pod is read, by its uid: pods of the same name, or of a workload of the same name, may
have different owners. What was read is cached, so only new pods cost requests. A pod that cannot be read keeps the
workload that its metrics name; others are not affected.

The API server knows the pods of one cluster. Where the metrics name several, or ever did, only those of
`kubernetes.cluster` are looked up: the same names may exist in each of them (`cluster_names.py`).

Where the metrics do not name the uid, a pod is known by its name alone, so its node is compared (`pods_by_name.py`).
One on another node is not the pod of this name here: it gets neither uid nor owner. A name that matches no node may be
in a form of its own; it contradicts only where others have matched. Until one does, nobody has confirmed that the
metrics are those of this API server, unless `kubernetes.cluster` says so: the owner counts as a reference, and nothing
is done to it.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from gpusteward.analyzer.sources.offered_gpus import OfferedGpus
from gpusteward.analyzer.sources.owners.cluster_names import ClusterNames, NamedGpu
from gpusteward.analyzer.sources.owners.owner_resolver import CACHE_SECONDS as OWNER_SECONDS
from gpusteward.analyzer.sources.owners.owner_resolver import (
    RETRY_SECONDS,
    Budget,
    OwnerResolver,
    PodName,
    PodOwner,
    ResolvedOwner,
)
from gpusteward.analyzer.sources.owners.pods_by_name import PodUids, is_address, is_on_node
from gpusteward.analyzer.sources.owners.settings import KubernetesSettings
from gpusteward.analyzer.sources.usage.findings import list_names
from gpusteward.analyzer.tables import EndedHolder, ServerPod, SiteFinding, UsageTable
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.node.containers import Container, OwnerEvidence
from gpusteward.core.usages import AllocationKey
from gpusteward.kubernetes.api import SERVICE_ACCOUNT, ApiServer, ObjectError
from gpusteward.logs import Log
from gpusteward.messages import data_health
from gpusteward.messages.errors import kubernetes_errors as messages
from gpusteward.messages.unknown_reasons import NO_CURRENT_SAMPLE

log = Log(__name__)

REQUESTS_PER_CYCLE = 1000
SECONDS_PER_CYCLE = 30.0
"""Many new pods, or a slow API server, are resolved over several cycles instead of delaying one."""
USER_AGENT = "gpusteward-analyzer"
CACHE_SECONDS = 6 * 3600.0
"""A pod keeps its controller as long as it runs, but for rare exceptions; the owners above it are read more often."""
MOST_SERVER_PODS = 1000
"""Pods without GPUs, with an inference server by its metrics, whose owner is read: a target may name any number."""
_FORBIDDEN = 403
_Api = TypeVar("_Api", bound=ApiServer)


def open_owners(
    settings: KubernetesSettings, environ: Mapping[str, str], *, account: Path = SERVICE_ACCOUNT
) -> "ClusterOwners":
    """Owners from the API server of the settings, or of this cluster, or from none.

    Raises ConfigurationError if the settings require an API server and there is none.
    """
    if settings.owners == "never":
        return ClusterOwners(None)
    try:
        return ClusterOwners(open_api(settings, environ, account), own_cluster=settings.cluster)
    except SourceError as error:
        if settings.owners == "always":
            raise ConfigurationError(messages.OWNERS_REQUIRED, reason=error) from error
        return ClusterOwners(None)


def open_offered_gpus(settings: KubernetesSettings, environ: Mapping[str, str]) -> OfferedGpus | None:
    """The GPUs that the nodes of this cluster offer; None without an API server, or if it must not be asked."""
    if settings.owners == "never":
        return None
    try:
        return OfferedGpus(open_api(settings, environ))
    except SourceError:
        return None


def open_api(settings: KubernetesSettings, environ: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> ApiServer:
    """The API server of the settings, else that of this cluster. Raises SourceError if there is none."""
    return open_api_as(ApiServer, settings, environ, account)


def open_api_as(
    kind: type[_Api], settings: KubernetesSettings, environ: Mapping[str, str], account: Path = SERVICE_ACCOUNT
) -> _Api:
    """The same with a client of this class. Raises SourceError if there is none."""
    timeout = settings.timeout
    if not settings.api_url:
        return kind.from_cluster(environ, account=account, timeout_seconds=timeout, user_agent=USER_AGENT)
    token, ca = (Path(name) if name else None for name in (settings.token_file, settings.ca_file))
    if token is None and ca is None and (account / "token").exists():
        token, ca = account / "token", account / "ca.crt"  # only a server with a certificate of this cluster gets it
    return kind(settings.api_url, token_path=token, ca_path=ca, timeout_seconds=timeout, user_agent=USER_AGENT)


@dataclass(frozen=True, slots=True)
class _CachedPod:
    """`read`: what the pod said when it could be read last. `refresh_at` comes sooner after a failure."""

    requested_at: float
    refresh_at: float
    read: PodOwner | None
    owner: ResolvedOwner | None = None
    follow_at: float = 0.0  # when its owners are looked up again


class _PodOnNode(NamedTuple):
    """As the metrics name them."""

    namespace: str
    pod: str
    node: str


class ClusterOwners:
    """Resolves owners; without an API server tables stay as they are."""

    def __init__(
        self, api: ApiServer | None, *, own_cluster: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`own_cluster`: the name of the API server's cluster; empty: not known."""
        self._resolver = None if api is None else OwnerResolver(api, clock=clock)
        self._uids = None if api is None else PodUids(api, clock=clock)
        self._names = ClusterNames(own_cluster)
        self._clusters = frozenset({own_cluster})  # names whose pods are looked up in this cycle
        self._has_matched = False  # whether the metrics have named the node of a pod as the API server does
        self._elsewhere: set[_PodOnNode] = set()  # in this cycle: pods of the metrics that are not those of their name
        self._elsewhere_before: set[_PodOnNode] = set()  # in the last cycle
        self._unconfirmed: set[_PodOnNode] = set()  # whose node matches nothing, in this cycle
        self._clock = clock
        self._pods: dict[PodName, _CachedPod] = {}
        self._pod_names: dict[PodName, PodName] = {}  # without uid -> as in the last table
        self._annotation_budget = _new_budget()
        self._failure = ""
        self._forbidden: set[str] = set()  # namespaces that were logged

    def use_ledger(self, read_clusters: Callable[[Collection[str]], Iterable[NamedGpu]]) -> None:
        """Which clusters earlier processes have seen (`ClusterNames.read_recorded`)."""
        self._names.read_recorded = read_clusters

    def resolve_owners(self, table: UsageTable) -> UsageTable:
        """The same table with root owner, uid and start of every pod that could be read, and with findings."""
        if self._resolver is None:
            return table
        self._clusters = self._names.find_own(table)
        own = self._list_own(table.allocations)
        is_reachable = True
        if self._uids is not None and (unnamed := {_pod_of(one): None for one in own if not one.pod_uid}):
            try:
                self._uids.refresh(unnamed)
            except SourceError as error:
                self._log_failure(error)
                is_reachable = False
        pods = {self._name(one): None for one in own}
        ended = {self._name(one): None for one in self._list_own(each.allocation for each in table.ended)}
        servers = self._choose_servers(table)
        rows = {(pod.namespace, pod.name) for pod in pods}
        named = (
            _pod_of(one)
            for one in (server.container for server in servers)
            if one.cluster in self._clusters and (one.namespace, one.pod) not in rows
        )
        of_servers = dict.fromkeys(islice(named, MOST_SERVER_PODS))
        self._pod_names = {pod._replace(uid=""): pod for pod in pods}
        oldest = self._clock() - CACHE_SECONDS  # entries in use stay until there is a newer one
        self._pods = {
            pod: each
            for pod, each in self._pods.items()
            if pod in pods or pod in of_servers or each.requested_at > oldest
        }
        self._forbidden &= {pod.namespace for pod in pods}
        self._resolver.expire_cache()
        self._annotation_budget = _new_budget()
        if is_reachable:
            budget = _new_budget()
            self._refresh(self._resolver, list(pods), budget)
            # Pods of a Job can still be read for a while after their end.
            self._refresh(self._resolver, [pod for pod in ended if pod not in pods], budget)
            self._refresh(self._resolver, [pod for pod in of_servers if pod not in pods], budget)
        by_name = (one for one in table.allocations if one.cluster in self._clusters and not one.container.pod_uid)
        self._has_matched = self._has_matched or any(self._is_here(one) and not is_address(one.node) for one in by_name)
        resolved = replace(self._with_owners(table), servers=[self._with_owner_of_server(each) for each in servers])
        return replace(resolved, findings=(*table.findings, *self._find_findings(table)))

    def _list_own(self, allocations: Iterable[AllocationKey]) -> list[Container]:
        """The containers in the cluster of the API server."""
        own = (each.container for each in allocations if each.cluster in self._clusters)
        return [container for container in own if container.namespace and container.pod]

    def _name(self, container: Container) -> PodName:
        """With its uid, as far as it is known."""
        if container.pod_uid or self._uids is None:
            return _pod_of(container)
        return PodName(container.namespace, container.pod, self._uids.find(container.namespace, container.pod))

    def _is_here(self, allocation: AllocationKey) -> bool | None:
        """Whether this is the pod of the API server: by its uid, else by its node. None: that cannot be told."""
        if allocation.container.pod_uid:
            return True
        entry = self._pods.get(self._name(allocation.container))
        if entry is None or entry.read is None:
            return None
        is_here = is_on_node(allocation.node, entry.read.node, entry.read.addresses)
        return None if is_here is False and not self._has_matched else is_here

    def _find_findings(self, table: UsageTable) -> Iterator[SiteFinding]:
        known = [name or '""' for names in self._names.clusters for name in sorted(names)]
        if not self._clusters and known:
            text = data_health.OWN_CLUSTER_NOT_FOUND if self._names.own else data_health.OWN_CLUSTER_UNKNOWN
            fields = {"own": self._names.own, "names": list_names(known)}
            yield SiteFinding("warning", "owners-not-looked-up", text.fill(**fields))
        # A pod that has moved leaves a row on its former node for a while.
        stale = {row for row, reason in table.unknown.items() if reason == NO_CURRENT_SAMPLE}
        self._elsewhere -= {_locate(table.allocations[row]) for row in stale}
        if lasting := self._elsewhere & self._elsewhere_before:
            names = list_names(f"{one.namespace}/{one.pod} ({one.node})" for one in lasting)
            text = data_health.PODS_ELSEWHERE.fill(count=len(lasting), names=names)
            yield SiteFinding("warning", "pods-elsewhere", text)
        self._elsewhere_before = self._elsewhere
        if self._unconfirmed:
            nodes = list_names(one.node or '""' for one in self._unconfirmed)
            text = data_health.PODS_NOT_CONFIRMED.fill(count=len(self._unconfirmed), names=nodes)
            yield SiteFinding("info", "pods-not-confirmed", text)

    def read_notify_annotation(self, namespace: str, pod: str, cluster: str = "") -> str:
        """The annotation gpusteward.io/notify of a pod or of one of its owners; empty if there is none, or if the pod
        is in another cluster."""
        if self._resolver is None or not namespace or not pod or cluster not in self._clusters:
            return ""
        # Threads of the API ask while the cycle adds: a copy, which nothing interrupts.
        if any((one.namespace, one.pod) == (namespace, pod) for one in tuple(self._elsewhere)):
            return ""  # it may be about the other one
        name = self._pod_names.get(PodName(namespace, pod), PodName(namespace, pod))
        self._refresh(self._resolver, [name], self._annotation_budget)
        entry = self._pods.get(name)
        return entry.owner.notify_annotation if entry and entry.owner else ""

    def _with_owners(self, table: UsageTable) -> UsageTable:
        if table.ended:
            table = replace(table, ended=[self._with_owner_of_ended(each) for each in table.ended])
        self._elsewhere, self._unconfirmed = set(), set()  # without those that ended: a pod that has moved is one
        containers: dict[tuple[Container, str], Container] = {}  # several GPUs may belong to one
        for each in table.allocations:
            if (each.container, each.node) not in containers:
                containers[each.container, each.node] = self._with_owner(each)
        pairs = [(each, containers[each.container, each.node]) for each in table.allocations]
        if all(container is each.container for each, container in pairs):
            return table
        resolved = [
            each if container is each.container else replace(each, container=container) for each, container in pairs
        ]
        return replace(table, allocations=resolved)

    def _with_owner_of_ended(self, ended: EndedHolder) -> EndedHolder:
        """The API server may already have the next pod of this name: that one has the same owner, another uid and
        another start."""
        before = ended.allocation.container
        container = self._with_owner(ended.allocation)
        if not before.pod_uid and (container.started_at is None or container.started_at > ended.last_at):
            container = replace(container, pod_uid="", started_at=None)
        return replace(ended, allocation=replace(ended.allocation, container=container))

    def _choose_servers(self, table: UsageTable) -> Sequence[ServerPod]:
        """Those that may belong to a row: others are in namespaces without GPUs."""
        held = {one.container.namespace for one in table.allocations} if table.servers else set[str]()
        return [one for one in table.servers if one.container.namespace in held]

    def _with_owner_of_server(self, server: ServerPod) -> ServerPod:
        """A pod with a row has the owner of its row; this is for pods without GPUs."""
        entry = self._pods.get(_pod_of(server.container)) if server.container.cluster in self._clusters else None
        if entry is None or entry.owner is None:
            return server
        workload = replace(entry.owner.workload, cluster=server.container.cluster)
        return replace(server, container=replace(server.container, workload=workload))

    def _with_owner(self, allocation: AllocationKey) -> Container:
        container = allocation.container
        if container.cluster not in self._clusters:
            return container
        name = self._name(container)
        entry = self._pods.get(name)
        is_here = self._is_here(allocation)
        if is_here is False:
            self._elsewhere.add(_locate(allocation))
            return container
        if entry is None or entry.owner is None:
            return replace(container, pod_uid=name.uid) if name.uid != container.pod_uid else container
        started_at = container.started_at
        if started_at is None and name.uid and entry.read is not None:
            started_at = entry.read.started_at
        workload = replace(entry.owner.workload, cluster=container.cluster)
        if is_here is None and not self._names.own and workload.evidence is OwnerEvidence.READ:
            self._unconfirmed.add(_locate(allocation))
            workload = replace(workload, evidence=OwnerEvidence.REFERENCE)
        return replace(container, workload=workload, pod_uid=name.uid, started_at=started_at)

    def _refresh(self, resolver: OwnerResolver, pods: Sequence[PodName], budget: Budget) -> None:
        """New pods come first, so that those that cannot be read never delay them."""
        now = self._clock()
        due = [pod for pod in pods if pod in self._pods and self._pods[pod].refresh_at <= now]
        due.sort(key=lambda pod: self._pods[pod].requested_at)
        try:
            for pod in (*(pod for pod in pods if pod not in self._pods), *due):
                if budget.is_spent:
                    return
                self._request(resolver, pod, budget)
            for pod in pods:  # an owner may lose its own owner while its pods run
                entry = self._pods.get(pod)
                if entry and entry.read and entry.follow_at <= self._clock() and not budget.is_spent:
                    owner = resolver.follow_owners(entry.read, budget)
                    self._pods[pod] = replace(entry, owner=owner, follow_at=self._clock() + OWNER_SECONDS)
            self._failure = ""
        except SourceError as error:  # of the server itself: further requests would fail too
            self._log_failure(error)

    def _log_failure(self, error: SourceError) -> None:
        if str(error) != self._failure:
            self._failure = str(error)
            log.warning("owners_unreadable", reason=error)

    def _request(self, resolver: OwnerResolver, pod: PodName, budget: Budget) -> None:
        """What is known of a pod is kept if it cannot be read later. Raises SourceError if the server cannot be
        reached."""
        now, before = self._clock(), self._pods.get(pod)
        try:
            read = resolver.read_pod(pod, budget)
        except ObjectError as error:
            self._log_unreadable(pod.namespace, error)
            failed = before or _CachedPod(now, now, None)
            self._pods[pod] = replace(failed, requested_at=now, refresh_at=now + RETRY_SECONDS)
            return
        self._forbidden.discard(pod.namespace)
        owner = resolver.follow_owners(read, budget)  # before it is kept: a failing server leaves no half of a chain
        seconds = CACHE_SECONDS if pod.uid else OWNER_SECONDS  # without one it may be another of this name by then
        if read.started_at is None:
            seconds = RETRY_SECONDS  # it has not started yet: its start tells it from an earlier pod of its name
        self._pods[pod] = _CachedPod(now, now + seconds, read, owner, now + OWNER_SECONDS)

    def _log_unreadable(self, namespace: str, error: ObjectError) -> None:
        """A deleted pod is not worth a warning; a namespace that may not be read is, once."""
        if error.http_status != _FORBIDDEN or namespace in self._forbidden:
            log.debug("owner_unreadable", namespace=namespace, reason=error)
            return
        self._forbidden.add(namespace)
        log.warning("owners_unreadable", namespace=namespace, reason=error)


def _new_budget() -> Budget:
    return Budget(REQUESTS_PER_CYCLE, SECONDS_PER_CYCLE)


def _locate(allocation: AllocationKey) -> _PodOnNode:
    return _PodOnNode(allocation.container.namespace, allocation.container.pod, allocation.node)


def _pod_of(container: Container) -> PodName:
    return PodName(container.namespace, container.pod, container.pod_uid)
