"""Follows owner references from a pod, or from the workload that its metrics name, to the root owner.

It stops at the first owner that cannot be read, with what is known by then. Owners are cached, so that the pods of one
workload cost one request for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from gpusteward.core.containers import Workload
from gpusteward.kubernetes.api import ApiServer, ObjectError
from gpusteward.kubernetes.owners import Owner, find_workload
from gpusteward.logs import Log

log = Log(__name__)

MAX_DEPTH = 6
CACHE_SECONDS = 3600.0
RETRY_SECONDS = 600.0
"""An object that could not be read is requested again after this; by then a deleted pod has left the window too."""
CACHE_LIMIT = 4000
NOTIFY_ANNOTATION = "gpusteward.io/notify"
"""On a pod or one of its owners: the name of the channel that is notified about it."""
_ANNOTATION_LIMIT = 64  # names of channels are short


class PodName(NamedTuple):
    namespace: str
    name: str


class _Reference(msgspec.Struct, rename="camel", frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[_Reference] = []

    @property
    def controller(self) -> _Reference | None:
        return next((each for each in self.owner_references if each.controller and each.name), None)

    @property
    def notify_annotation(self) -> str:
        return self.annotations.get(NOTIFY_ANNOTATION, "").strip()[:_ANNOTATION_LIMIT]


class _Object(msgspec.Struct):
    metadata: _Metadata


@dataclass(slots=True)
class Budget:
    """Requests, and seconds of waiting for them, that are left."""

    requests: int
    seconds: float

    @property
    def is_spent(self) -> bool:
        return self.requests <= 0 or self.seconds <= 0


@dataclass(frozen=True, slots=True)
class ResolvedOwner:
    """The root owner, and the notify annotation nearest to the pod."""

    workload: Workload
    notify_annotation: str


@dataclass(frozen=True, slots=True)
class _CachedOwner:
    """The controller of an owner, and the owner's own annotation."""

    controller: _Reference | None
    notify_annotation: str
    expires_at: float


class OwnerResolver:
    """Its methods raise ObjectError if the first object cannot be read, SourceError if the server cannot be reached."""

    def __init__(self, api: ApiServer, *, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._cache: dict[tuple[str, _Reference], _CachedOwner] = {}  # by namespace and owner

    def resolve_pod(self, pod: PodName, budget: Budget) -> ResolvedOwner:
        metadata = self._read("api/v1", pod.namespace, "pods", pod.name, budget)
        owners = [Owner(each.kind, each.name, each.controller) for each in metadata.owner_references]
        workload = find_workload(pod.namespace, pod.name, owners=owners, labels=metadata.labels)
        return self._follow_owners(workload, metadata, budget)

    def resolve_workload(self, reported: Workload, pod: PodName, budget: Budget) -> ResolvedOwner:
        """Metrics name a kind without its API group. If several groups have it, a pod of the workload is read."""
        group = _UNIQUE_GROUPS.get(reported.kind)
        if group is None:
            return self.resolve_pod(pod, budget)
        try:
            metadata = self._read(f"apis/{group}", reported.namespace, plural_of(reported.kind), reported.name, budget)
        except ObjectError:  # its name was derived from that of the pod
            return self.resolve_pod(pod, budget)
        return self._follow_owners(reported, metadata, budget)

    def expire_cache(self) -> None:
        now = self._clock()
        self._cache = {key: owner for key, owner in self._cache.items() if owner.expires_at > now}
        if len(self._cache) > CACHE_LIMIT:
            self._cache.clear()

    def _follow_owners(self, workload: Workload, metadata: _Metadata, budget: Budget) -> ResolvedOwner:
        controller, annotation = metadata.controller, metadata.notify_annotation
        for _depth in range(MAX_DEPTH):
            if controller is None:
                break
            workload = _choose_outer(workload, controller)
            owner = self._fetch_owner(controller, workload.namespace, budget)
            controller, annotation = owner.controller, annotation or owner.notify_annotation
        return ResolvedOwner(workload, annotation)

    def _fetch_owner(self, reference: _Reference, namespace: str, budget: Budget) -> _CachedOwner:
        cached = self._cache.get((namespace, reference))
        if cached is None or cached.expires_at <= self._clock():
            cached = self._cache[namespace, reference] = self._request_owner(reference, namespace, budget)
        return cached

    def _request_owner(self, reference: _Reference, namespace: str, budget: Budget) -> _CachedOwner:
        """An owner that cannot be read has no known controller."""
        try:
            metadata = self._read(_group_of(reference), namespace, plural_of(reference.kind), reference.name, budget)
        except ObjectError as error:
            log.debug("owner_unreadable", kind=reference.kind, name=reference.name, reason=error)
            return _CachedOwner(None, "", self._clock() + RETRY_SECONDS)
        return _CachedOwner(metadata.controller, metadata.notify_annotation, self._clock() + CACHE_SECONDS)

    def _read(self, group: str, namespace: str, plural: str, name: str, budget: Budget) -> _Metadata:
        path = f"/{group}/namespaces/{quote(namespace, safe='')}/{plural}/{quote(name, safe='')}"
        began = self._clock()
        try:
            return self._api.read_json(path, _Object).metadata
        finally:
            budget.requests -= 1
            budget.seconds -= self._clock() - began


_UNIQUE_GROUPS = {"Deployment": "apps/v1", "CronJob": "batch/v1"}
"""Kinds of one API group only. Not Job, which Volcano has too, nor StatefulSet and DaemonSet, which OpenKruise has."""

CHILD_KINDS = {
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
"""The kinds between a workload and its pods."""


def _choose_outer(workload: Workload, controller: _Reference) -> Workload:
    """The workload that the pod's labels name stays, as long as the controllers are kinds below it."""
    is_below = controller.kind in CHILD_KINDS.get(workload.kind, ())
    return workload if is_below else Workload(controller.kind, workload.namespace, controller.name)


def _group_of(reference: _Reference) -> str:
    return f"apis/{reference.api_version}" if "/" in reference.api_version else f"api/{reference.api_version or 'v1'}"


def plural_of(kind: str) -> str:
    """The plural in paths of the API; the kinds that own pods all form it this way."""
    return f"{kind.lower()}s"
