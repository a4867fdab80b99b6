"""Follows the owner references of a pod to its root owner, by uid.

Only what was read counts: a pod names its controller with its uid, and so does every owner above it. Where an owner
cannot be read, its reference still names it; what may be above it is derived from the names and labels of the pod, and
marked as derived. Owners are cached, so that the pods of one workload cost one request for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from gpusteward.core.kinds import find_kind
from gpusteward.core.node.containers import OwnerEvidence, Workload
from gpusteward.kubernetes.api import ApiServer, ObjectError, make_path, parse_time
from gpusteward.kubernetes.owners import Reference, climb_owners, find_controller, find_workload
from gpusteward.logs import Log
from gpusteward.messages.errors import kubernetes_errors as messages

log = Log(__name__)

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


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[Reference] = []

    @property
    def controller(self) -> Reference | None:
        return find_controller(self.owner_references)

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
    """What an owner says of itself."""

    reference: Reference  # as the object below names it
    expires_at: float
    is_read: bool = False  # else nothing is known of it but its reference
    uid: str = ""
    controller: Reference | None = None
    notify_annotation: str = ""


class OwnerResolver:
    """Its methods raise SourceError if the server cannot be reached."""

    def __init__(self, api: ApiServer, *, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._cache: dict[tuple[str, Reference], _CachedOwner] = {}  # by namespace and owner

    def read_pod(self, pod: PodName, budget: Budget) -> PodOwner:
        """Raises ObjectError if it cannot be read, or if the pod of this name is another one by now."""
        path = make_path("v1", "Pod", pod.namespace, pod.name)
        found = self._read(path, budget)
        about, status = found.metadata, found.status
        if pod.uid and pod.uid != about.uid:
            raise ObjectError(messages.REPLACED, path=path)
        return PodOwner(
            Workload("Pod", pod.namespace, pod.name, evidence=OwnerEvidence.READ, uid=about.uid),
            about.controller,
            find_workload(pod.namespace, pod.name, owners=about.owner_references, labels=about.labels),
            about.notify_annotation,
            parse_time(status.start_time),
            found.spec.node_name,
            frozenset({status.host, *(one.ip for one in status.hosts)} - {""}),
        )

    def follow_owners(self, pod: PodOwner, budget: Budget) -> ResolvedOwner:
        """From the pod to its root owner, or to the first owner that cannot be read."""
        namespace = pod.pod.namespace
        owners, unread = climb_owners(pod.controller, lambda owner: self._fetch_owner(owner, namespace, budget))
        annotations = (pod.notify_annotation, *(owner.notify_annotation for owner in owners))
        workload = pod.pod
        if unread is not None:
            workload = Workload(unread.kind, namespace, unread.name, uid=unread.uid)
            # What names and labels of the pod suggest, if the owner that could not be read is of a kind below it.
            is_derived = pod.derived.evidence is OwnerEvidence.DERIVED
            if is_derived and unread.kind in find_kind(pod.derived.kind).children:
                workload = pod.derived
        elif owners:
            root = owners[-1].reference
            workload = Workload(root.kind, namespace, root.name, evidence=OwnerEvidence.READ, uid=root.uid)
        return ResolvedOwner(workload, next(filter(None, annotations), ""))

    def expire_cache(self) -> None:
        now = self._clock()
        self._cache = {key: owner for key, owner in self._cache.items() if owner.expires_at > now}
        if len(self._cache) > CACHE_LIMIT:
            self._cache.clear()

    def _fetch_owner(self, reference: Reference, namespace: str, budget: Budget) -> _CachedOwner | None:
        """None: it cannot be read."""
        cached = self._cache.get((namespace, reference))
        if cached is None or cached.expires_at <= self._clock():
            cached = self._cache[namespace, reference] = self._request_owner(reference, namespace, budget)
        return cached if cached.is_read else None

    def _request_owner(self, reference: Reference, namespace: str, budget: Budget) -> _CachedOwner:
        try:
            found = self._read(reference.make_path(namespace), budget).metadata
        except ObjectError as error:
            log.debug("owner_unreadable", kind=reference.kind, name=reference.name, reason=error)
            return _CachedOwner(reference, self._clock() + RETRY_SECONDS)
        expires_at = self._clock() + (CACHE_SECONDS if found.uid == reference.uid else RETRY_SECONDS)
        return _CachedOwner(reference, expires_at, True, found.uid, found.controller, found.notify_annotation)

    def _read(self, path: str, budget: Budget) -> _Object:
        began = self._clock()
        try:
            return self._api.read_json(path, _Object)
        finally:
            budget.requests -= 1
            budget.seconds -= self._clock() - began
