"""Pod -> root owner through the Kubernetes API, for allocations whose metrics do not name one.

The walk follows controller references from the pod upwards and stops at the first owner that may not be read. What it
learnt is kept for a while: owners of a pod never change, so only new pods cost questions.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

import msgspec

from gpusteward.analyzer.settings.sections import KubernetesSettings
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.containers import Container, Workload
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.core.usages import Holding
from gpusteward.kubernetes.api import ApiServer
from gpusteward.kubernetes.owners import Owner, find_workload
from gpusteward.logs import Log

log = Log(__name__)

PodName = tuple[str, str]  # namespace, name

LONGEST_WALK = 6
QUESTIONS_PER_CYCLE = 400
"""A cluster of new pods is named over several cycles instead of holding one up."""
KEPT_SECONDS = 3600.0
NOTIFY_ANNOTATION = "gpusteward.io/notify"
"""On a pod or one of its owners: the name of the channel that is told about it."""


class _Reference(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[_Reference] = []


class _Object(msgspec.Struct):
    metadata: _Metadata


_Above = tuple[_Reference | None, str]  # the controller of an owner, and the owner's own wish


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


@dataclass(slots=True)
class _Budget:
    questions: int


class ClusterOwners:
    """Names workloads; without an API server it leaves everything as it is."""

    def __init__(self, api: ApiServer | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._known: dict[PodName, tuple[float, Workload]] = {}
        self._above: dict[tuple[str, str, str], _Above] = {}  # namespace, kind, name -> who controls it
        self._wishes: dict[PodName, str] = {}  # of those that have one
        self._wish_budget = _Budget(QUESTIONS_PER_CYCLE)
        self._complaint = ""

    def name(self, table: UsageTable) -> UsageTable:
        """The same table with a workload for every pod that could be asked about."""
        if self._api is None:
            return table
        nameless = {_pod(holding) for holding in table.holdings if holding.container.workload is None}
        self._forget()
        self._wish_budget = _Budget(QUESTIONS_PER_CYCLE)
        self._learn(nameless - {("", "")}, _Budget(QUESTIONS_PER_CYCLE))
        if not nameless & self._known.keys():
            return table
        return replace(table, holdings=[self._with_workload(holding) for holding in table.holdings])

    def read_wish(self, namespace: str, pod: str) -> str:
        """The annotation gpusteward.io/notify of a pod or of one of its owners; empty: none, or nobody to ask."""
        if self._api is None or not namespace or not pod:
            return ""
        self._learn([(namespace, pod)], self._wish_budget)
        return self._wishes.get((namespace, pod), "")

    def _with_workload(self, holding: Holding) -> Holding:
        found = self._known.get(_pod(holding))
        if holding.container.workload is not None or found is None:
            return holding
        return replace(holding, container=replace(holding.container, workload=found[1]))

    def _learn(self, pods: Iterable[PodName], budget: _Budget) -> None:
        try:
            for pod in pods:
                if pod not in self._known and budget.questions > 0:
                    self._known[pod] = (self._clock(), self._walk(pod, budget))
            self._complaint = ""
        except SourceError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("owners_unreadable", reason=error)

    def _walk(self, pod: PodName, budget: _Budget) -> Workload:
        """Raises SourceError when the pod itself cannot be read."""
        namespace, name = pod
        metadata = self._read("api/v1", namespace, "pods", name, budget)
        references = metadata.owner_references
        owners = [Owner(each.kind, each.name, each.controller) for each in references]
        told = find_workload(namespace, name, owners=owners, labels=metadata.labels)
        above, wishes = _controller(references), [_wish(metadata)]
        for _step in range(LONGEST_WALK):
            if above is None:
                break
            told = _outermost(told, above, namespace)
            above, wish = self._owner_of(above, namespace, budget)
            wishes.append(wish)
        self._note_wish(pod, wishes)
        return told

    def _note_wish(self, pod: PodName, wishes: Iterable[str]) -> None:
        """The one nearest to the pod counts."""
        self._wishes.pop(pod, None)
        if wish := next(filter(None, wishes), ""):
            self._wishes[pod] = wish

    def _owner_of(self, reference: _Reference, namespace: str, budget: _Budget) -> _Above:
        """Who controls an owner; nobody, as far as we know, if it may not be read."""
        key = (namespace, reference.kind, reference.name)
        if key not in self._above:
            try:
                metadata = self._read(_group(reference), namespace, _plural(reference.kind), reference.name, budget)
                self._above[key] = _controller(metadata.owner_references), _wish(metadata)
            except SourceError as error:
                log.debug("owner_unreadable", kind=reference.kind, name=reference.name, reason=error)
                self._above[key] = None, ""
        return self._above[key]

    def _read(self, group: str, namespace: str, plural: str, name: str, budget: _Budget) -> _Metadata:
        assert self._api is not None
        budget.questions -= 1
        path = f"/{group}/namespaces/{quote(namespace, safe='')}/{plural}/{quote(name, safe='')}"
        return self._api.read_json(path, _Object).metadata

    def _forget(self) -> None:
        oldest = self._clock() - KEPT_SECONDS
        self._known = {pod: found for pod, found in self._known.items() if found[0] > oldest}
        self._wishes = {pod: wish for pod, wish in self._wishes.items() if pod in self._known}
        if len(self._above) > 10 * QUESTIONS_PER_CYCLE:
            self._above.clear()


def _pod(holding: Holding) -> PodName:
    container: Container = holding.container
    return container.namespace, container.pod


def _wish(metadata: _Metadata) -> str:
    """A channel's name is short; what is longer is not one, and is not kept."""
    wish = metadata.annotations.get(NOTIFY_ANNOTATION, "").strip()
    return wish[:64]


def _controller(references: Iterable[_Reference]) -> _Reference | None:
    return next((each for each in references if each.controller and each.name), None)


def _outermost(told: Workload, above: _Reference, namespace: str) -> Workload:
    """What the pod's own labels told stands as long as the walk only confirms what is below it."""
    return told if above.kind in _BELOW.get(told.kind, ()) else Workload(above.kind, namespace, above.name)


_BELOW = {
    "Deployment": ("ReplicaSet",),
    "Rollout": ("ReplicaSet",),
    "CronJob": ("Job",),
    "Notebook": ("StatefulSet",),
    "Workspace": ("StatefulSet",),
    "LeaderWorkerSet": ("StatefulSet",),
    "JobSet": ("Job",),
    "InferenceService": ("ReplicaSet", "Deployment", "Revision", "Configuration", "Service"),
}


def _group(reference: _Reference) -> str:
    return f"apis/{reference.api_version}" if "/" in reference.api_version else f"api/{reference.api_version or 'v1'}"


def _plural(kind: str) -> str:
    """Kubernetes names its paths after the plural; the kinds that own pods all form it this way."""
    return f"{kind.lower()}s"
