"""From a pod, or from what its metrics call its workload, up the controller references of the Kubernetes API.

A walk stops at the first owner that may not be read, with what it knows by then. Owners are remembered for a while, so
that the pods of one workload ask about it once.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from gpusteward.core.containers import Workload
from gpusteward.kubernetes.api import ApiServer, ObjectError
from gpusteward.kubernetes.owners import Owner, find_workload
from gpusteward.logs import Log

log = Log(__name__)

PodName = tuple[str, str]  # namespace, name

LONGEST_WALK = 6
KEPT_SECONDS = 3600.0
RETRY_SECONDS = 600.0
"""What could not be read is asked for again after this: by then a pod that has gone has left the window too."""
MOST_OWNERS = 4000
NOTIFY_ANNOTATION = "gpusteward.io/notify"
"""On a pod or one of its owners: the name of the channel that is told about it."""


class _Reference(msgspec.Struct, rename="camel", frozen=True):
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


@dataclass(slots=True)
class Budget:
    """What may still be asked. Time counts while somebody waits for an answer."""

    questions: int
    seconds: float

    @property
    def is_spent(self) -> bool:
        return self.questions <= 0 or self.seconds <= 0


@dataclass(frozen=True, slots=True)
class DetectedScheme:
    """The end of a walk, and the wish nearest to the pod."""

    workload: Workload
    wish: str


@dataclass(frozen=True, slots=True)
class _Above:
    """Who controls an owner, and the owner's own wish."""

    controller: _Reference | None
    wish: str
    until: float


class OwnerWalks:
    """Each raises ObjectError for a beginning that cannot be read, SourceError for a server that cannot be asked."""

    def __init__(self, api: ApiServer, *, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._above: dict[tuple[str, _Reference], _Above] = {}  # by namespace and owner

    def from_pod(self, pod: PodName, budget: Budget) -> DetectedScheme:
        namespace, name = pod
        metadata = self._read("api/v1", namespace, "pods", name, budget)
        references = metadata.owner_references
        owners = [Owner(each.kind, each.name, each.controller) for each in references]
        told = find_workload(namespace, name, owners=owners, labels=metadata.labels)
        return self._climb(told, _controller(references), _wish(metadata), budget)

    def from_workload(self, told: Workload, pod: PodName, budget: Budget) -> DetectedScheme:
        """Metrics name a kind without its group. Where that may be one of several, a pod of the workload knows."""
        group = _ONE_GROUP.get(told.kind)
        if group is None:
            return self.from_pod(pod, budget)
        try:
            metadata = self._read(f"apis/{group}", told.namespace, _plural(told.kind), told.name, budget)
        except ObjectError:  # its name was a guess from the pod's
            return self.from_pod(pod, budget)
        return self._climb(told, _controller(metadata.owner_references), _wish(metadata), budget)

    def forget(self) -> None:
        now = self._clock()
        self._above = {key: above for key, above in self._above.items() if above.until > now}
        if len(self._above) > MOST_OWNERS:
            self._above.clear()

    def _climb(self, told: Workload, above: _Reference | None, wish: str, budget: Budget) -> DetectedScheme:
        for _step in range(LONGEST_WALK):
            if above is None:
                break
            told = _outermost(told, above, told.namespace)
            found = self._owner_of(above, told.namespace, budget)
            above, wish = found.controller, wish or found.wish
        return DetectedScheme(told, wish)

    def _owner_of(self, reference: _Reference, namespace: str, budget: Budget) -> _Above:
        """Who controls an owner; nobody, as far as we know, if it may not be read."""
        known = self._above.get((namespace, reference))
        if known is None or known.until <= self._clock():
            known = self._above[namespace, reference] = self._ask_above(reference, namespace, budget)
        return known

    def _ask_above(self, reference: _Reference, namespace: str, budget: Budget) -> _Above:
        try:
            metadata = self._read(_group(reference), namespace, _plural(reference.kind), reference.name, budget)
        except ObjectError as error:
            log.debug("owner_unreadable", kind=reference.kind, name=reference.name, reason=error)
            return _Above(None, "", self._clock() + RETRY_SECONDS)
        return _Above(_controller(metadata.owner_references), _wish(metadata), self._clock() + KEPT_SECONDS)

    def _read(self, group: str, namespace: str, plural: str, name: str, budget: Budget) -> _Metadata:
        path = f"/{group}/namespaces/{quote(namespace, safe='')}/{plural}/{quote(name, safe='')}"
        began = self._clock()
        try:
            return self._api.read_json(path, _Object).metadata
        finally:
            budget.questions -= 1
            budget.seconds -= self._clock() - began


_ONE_GROUP = {"Deployment": "apps/v1", "CronJob": "batch/v1"}
"""Not Job, which Volcano has too, nor StatefulSet and DaemonSet, which OpenKruise has."""

_BELOW = {
    "Deployment": ("ReplicaSet",),
    "Rollout": ("ReplicaSet",),
    "CronJob": ("Job",),
    "Notebook": ("StatefulSet",),
    "Workspace": ("StatefulSet",),
    "LeaderWorkerSet": ("StatefulSet",),
    "JobSet": ("Job",),
    "RayJob": ("RayCluster",),
    "RayService": ("RayCluster",),
    "InferenceService": ("ReplicaSet", "Deployment", "Revision", "Configuration", "Service"),
}


def _outermost(told: Workload, above: _Reference, namespace: str) -> Workload:
    """What the pod's own labels told stands as long as the walk only confirms what is below it."""
    return told if above.kind in _BELOW.get(told.kind, ()) else Workload(above.kind, namespace, above.name)


def _wish(metadata: _Metadata) -> str:
    """A channel's name is short; what is longer is not one, and is not kept."""
    wish = metadata.annotations.get(NOTIFY_ANNOTATION, "").strip()
    return wish[:64]


def _controller(references: Iterable[_Reference]) -> _Reference | None:
    return next((each for each in references if each.controller and each.name), None)


def _group(reference: _Reference) -> str:
    return f"apis/{reference.api_version}" if "/" in reference.api_version else f"api/{reference.api_version or 'v1'}"


def _plural(kind: str) -> str:
    """Kubernetes names its paths after the plural; the kinds that own pods all form it this way."""
    return f"{kind.lower()}s"
