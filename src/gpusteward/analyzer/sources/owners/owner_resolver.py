"""Follows the owner references of a pod to its root owner, by uid.

Only what was read counts: a pod names its controller with its uid, and so does every owner above it. Where an owner
cannot be read, its reference still names it; what may be above it is derived from the names and labels of the pod, and
marked as derived. Owners are cached, so that the pods of one workload cost one request for it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from gpusteward.core.containers import OwnerEvidence, Workload
from gpusteward.core.kinds import find_kind, plural_of
from gpusteward.kubernetes.api import ApiServer, ObjectError
from gpusteward.kubernetes.owners import Owner, find_workload
from gpusteward.logs import Log
from gpusteward.messages.errors import kubernetes_errors as messages

log = Log(__name__)

MAX_DEPTH = 8
CACHE_SECONDS = 600.0
"""For so long an owner is not read again: a Deployment that is deleted without its ReplicaSets leaves them as roots."""
RETRY_SECONDS = 600.0
"""An object that could not be read is requested again after this; by then a deleted pod has left the window too."""
CACHE_LIMIT = 20_000
NOTIFY_ANNOTATION = "gpusteward.io/notify"
"""On a pod or one of its owners: the name of the channel that is notified about it."""
_ANNOTATION_LIMIT = 64  # names of channels are short


class PodName(NamedTuple):
    namespace: str
    name: str
    uid: str = ""  # empty: not known

    def has_uid_of(self, metadata: "_Metadata") -> bool:
        return not self.uid or self.uid == metadata.uid


class Reference(msgspec.Struct, rename="camel", frozen=True):
    """An entry of ownerReferences."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    def make_path(self, namespace: str) -> str:
        start = f"apis/{self.api_version}" if self.group else f"api/{self.api_version or 'v1'}"
        return f"/{start}/namespaces/{quote(namespace, safe='')}/{plural_of(self.kind)}/{quote(self.name, safe='')}"


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[Reference] = []

    @property
    def controller(self) -> Reference | None:
        return next((each for each in self.owner_references if each.controller and each.name), None)

    @property
    def notify_annotation(self) -> str:
        return self.annotations.get(NOTIFY_ANNOTATION, "").strip()[:_ANNOTATION_LIMIT]


class _Address(msgspec.Struct, frozen=True):
    ip: str = ""


class _Status(msgspec.Struct, frozen=True):
    start_time: str | None = msgspec.field(default=None, name="startTime")
    host: str = msgspec.field(default="", name="hostIP")
    hosts: tuple[_Address, ...] = msgspec.field(default=(), name="hostIPs")


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    node_name: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


@dataclass(slots=True)
class Budget:
    """Requests, and seconds of waiting for them, that are left."""

    requests: int
    seconds: float

    @property
    def is_spent(self) -> bool:
        return self.requests <= 0 or self.seconds <= 0


@dataclass(frozen=True, slots=True)
class PodOwner:
    """What a pod says of its owner."""

    pod: Workload  # the pod itself
    controller: Reference | None
    derived: Workload  # from the names and labels of the pod
    notify_annotation: str
    started_at: float | None = None  # unix seconds
    node: str = ""  # empty: it has none yet
    addresses: frozenset[str] = frozenset()  # of this node


@dataclass(frozen=True, slots=True)
class ResolvedOwner:
    """The root owner, and the notify annotation nearest to the pod."""

    workload: Workload
    notify_annotation: str


@dataclass(frozen=True, slots=True)
class _CachedOwner:
    """The controller of an owner, and the owner's own annotation."""

    is_read: bool  # else nothing is known of it but its reference
    controller: Reference | None
    notify_annotation: str
    expires_at: float


class OwnerResolver:
    """Its methods raise SourceError if the server cannot be reached."""

    def __init__(self, api: ApiServer, *, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._cache: dict[tuple[str, Reference], _CachedOwner] = {}  # by namespace and owner

    def read_pod(self, pod: PodName, budget: Budget) -> PodOwner:
        """Raises ObjectError if it cannot be read, or if the pod of this name is another one by now."""
        path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"
        found = self._read(path, budget)
        if not pod.has_uid_of(found.metadata):
            raise ObjectError(messages.REPLACED, path=path)
        return _make_pod_owner(pod.namespace, pod.name, found)

    def follow_owners(self, pod: PodOwner, budget: Budget) -> ResolvedOwner:
        """From the pod to its root owner, or to the first owner that cannot be read."""
        workload, controller, annotation = pod.pod, pod.controller, pod.notify_annotation
        for _depth in range(MAX_DEPTH):
            if controller is None or controller.kind == "Node":  # a static pod belongs to its node alone
                return ResolvedOwner(workload, annotation)
            workload = Workload(controller.kind, workload.namespace, controller.name, uid=controller.uid)
            owner = self._fetch_owner(controller, workload.namespace, budget)
            if not owner.is_read:
                return ResolvedOwner(_choose_outer(workload, pod.derived), annotation)
            workload = replace(workload, evidence=OwnerEvidence.READ)
            controller, annotation = owner.controller, annotation or owner.notify_annotation
        return ResolvedOwner(replace(workload, evidence=OwnerEvidence.REFERENCE), annotation)

    def expire_cache(self) -> None:
        now = self._clock()
        self._cache = {key: owner for key, owner in self._cache.items() if owner.expires_at > now}
        if len(self._cache) > CACHE_LIMIT:
            self._cache.clear()

    def _fetch_owner(self, reference: Reference, namespace: str, budget: Budget) -> _CachedOwner:
        cached = self._cache.get((namespace, reference))
        if cached is None or cached.expires_at <= self._clock():
            cached = self._cache[namespace, reference] = self._request_owner(reference, namespace, budget)
        return cached

    def _request_owner(self, reference: Reference, namespace: str, budget: Budget) -> _CachedOwner:
        unread = _CachedOwner(False, None, "", self._clock() + RETRY_SECONDS)
        if not find_kind(reference.kind, reference.group).is_owner:
            return unread
        try:
            metadata = self._read(reference.make_path(namespace), budget).metadata
        except ObjectError as error:
            log.debug("owner_unreadable", kind=reference.kind, name=reference.name, reason=error)
            return unread
        if reference.uid and metadata.uid != reference.uid:  # deleted, and created anew under the same name
            return unread
        return _CachedOwner(True, metadata.controller, metadata.notify_annotation, self._clock() + CACHE_SECONDS)

    def _read(self, path: str, budget: Budget) -> _Object:
        began = self._clock()
        try:
            return self._api.read_json(path, _Object)
        finally:
            budget.requests -= 1
            budget.seconds -= self._clock() - began


def _make_pod_owner(namespace: str, name: str, found: _Object) -> PodOwner:
    metadata = found.metadata
    owners = [Owner(each.kind, each.name, each.controller) for each in metadata.owner_references]
    return PodOwner(
        Workload("Pod", namespace, name, evidence=OwnerEvidence.READ, uid=metadata.uid),
        metadata.controller,
        find_workload(namespace, name, owners=owners, labels=metadata.labels),
        metadata.notify_annotation,
        _read_time(found.status.start_time),
        found.spec.node_name,
        frozenset({found.status.host, *(one.ip for one in found.status.hosts)} - {""}),
    )


def _read_time(text: str | None) -> float | None:
    """RFC 3339 -> unix seconds."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


def _choose_outer(unread: Workload, derived: Workload) -> Workload:
    """The workload that names and labels of the pod suggest, if the owner that could not be read is of a kind below it;
    else that owner, as its reference names it."""
    is_above = derived.evidence is OwnerEvidence.DERIVED and unread.kind in find_kind(derived.kind).children
    return derived if is_above else unread
