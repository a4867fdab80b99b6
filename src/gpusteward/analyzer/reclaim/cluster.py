"""What reclaim reads and writes in Kubernetes. This is the only module of the analyzer that writes there.

Every object is read when it is needed; nothing is cached beyond one `Reading`, which lasts for one cycle or one action.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple

from gpusteward.analyzer.reclaim.kinds.objects import DELETION_COST, Json, KubeObject, make_patch
from gpusteward.analyzer.reclaim.kinds.resource_claims import (
    GROUP,
    RESOURCE_CLAIM,
    VERSIONS,
    ClaimedDevice,
    UnknownClaimError,
    list_claimed_gpus,
)
from gpusteward.analyzer.reclaim.kinds.targets import WorkloadObjects
from gpusteward.analyzer.reclaim.listed_pods import ListedPod, is_gpu_resource, keep_used
from gpusteward.core.errors import SourceError
from gpusteward.core.kinds import WorkloadKind
from gpusteward.kubernetes.api import NotFoundError, ObjectError, make_path
from gpusteward.kubernetes.owners import Reference, climb_owners
from gpusteward.kubernetes.writes import FIELD_MANAGER, ApiWriter, ConflictError, RejectedError
from gpusteward.messages import reclaim as messages

GIVE_UP_ATTEMPTS = 10  # controllers write the status of an object that was just changed
_ENDED = ("Succeeded", "Failed")
_SELECTING_GROUPS = ("apps", "batch")
_MISSING = 404


class PodId(NamedTuple):
    name: str
    uid: str  # empty: not known


class UnreadableOwnerError(SourceError):
    """An owner cannot be read, or is another one by now: what is above it is not known."""


class UnreadableClaimError(SourceError):
    """A ResourceClaim of a pod cannot be read, or has no allocation: which GPUs the pod holds is not known."""


class Cluster:
    """One API server. Methods raise SourceError, those that write also WriteError."""

    def __init__(self, api: ApiWriter) -> None:
        self._api = api
        self._uid = ""

    def read_uid(self) -> str:
        """What tells this cluster from all others: the uid of namespace kube-system, which lives as long as the
        cluster. Read once; again if it could not be read. Raises SourceError."""
        if not self._uid:
            try:
                found = self.read("/api/v1/namespaces/kube-system")
            except SourceError as error:
                raise SourceError(messages.CLUSTER_UNKNOWN, reason=error.as_message()) from error
            if found is None or not found.uid:
                raise SourceError(messages.CLUSTER_UNKNOWN, reason="404")
            self._uid = found.uid
        return self._uid

    def keeping_connections(self) -> AbstractContextManager[None]:
        """Requests within this block share connections."""
        return self._api.keeping_connections()

    def read(self, path: str) -> KubeObject | None:
        """The object at a path; None if there is none. Raises SourceError also where the server does not serve the path
        any more, such as that of a version that was dropped: the object may still be there."""
        try:
            return _make_object(self._api.read_json(path, dict[str, Any]))
        except NotFoundError:
            return None

    def read_in_any_version(self, path: str) -> KubeObject | None:
        """As `read`. Where the server does not serve this version of the kind any more, the object is read in another
        one: an operator was upgraded while the object was suspended."""
        try:
            return self.read(path)
        except ObjectError as error:
            if error.http_status != _MISSING:
                raise
            _, root, group, _, rest = path.split("/", 4)
            for version in self._list_versions(group) if root == "apis" else ():
                with suppress(ObjectError):  # one that does not have the kind
                    return self.read(f"/apis/{version}/{rest}")
            raise

    def _list_versions(self, group: str) -> list[str]:
        """As `ray.io/v1`, those that the server serves."""
        found = self._api.read_json(f"/apis/{group}", dict[str, Any])
        return [str(each.get("groupVersion", "")) for each in found.get("versions") or ()]

    def list_objects(self, version: str, kind: str, namespace: str, *, query: str = "") -> list[KubeObject]:
        """All objects of a kind; none where the cluster does not have it."""
        try:
            return list(self._pages(make_path(version, kind, namespace), version, kind, query))
        except ObjectError as error:
            if error.http_status == _MISSING:
                return []
            raise

    def read_namespace(self, name: str) -> Mapping[str, str]:
        """The annotations of a namespace; none if it does not exist."""
        found = self.read(make_path("v1", "Namespace", "", name))
        return found.annotations if found else {}

    def list_pending(self) -> list[KubeObject]:
        """Pods of all namespaces that wait for a node."""
        return self.list_objects("v1", "Pod", "", query="fieldSelector=status.phase%3DPending,spec.nodeName%3D")

    def patch(
        self, one: KubeObject, fields: Mapping[str, Any], *, dry_run: bool = False, send_before: float | None = None
    ) -> KubeObject:
        """Set fields by JSON pointer (None removes), only on this very object, and only if it is as it was read.
        `send_before`: see `kubernetes.writes`, for every write that stops pods."""
        body = make_patch(fields)
        body.setdefault("metadata", {}).update(uid=one.uid, resourceVersion=one.resource_version)
        return _make_object(self._api.patch(one.path, body, dry_run=dry_run, send_before=send_before), one)

    def give_up_fields(self, one: KubeObject) -> None:
        """Take our entries out of `metadata.managedFields` of an object that was just read or written. The values stay,
        as do the entries of others; the owner's next server-side apply wins instead of a conflict with us. It has to be
        a request of its own: a request that changes fields enters us again."""
        for _ in range(GIVE_UP_ATTEMPTS - 1):
            try:
                return self._remove_entries(one)
            except (ConflictError, RejectedError):  # a controller has written to it meanwhile: a `test` fails with 422
                found = self.read(one.path)
                if found is None or found.uid != one.uid:
                    return None
                one = found
        return self._remove_entries(one)

    def _remove_entries(self, one: KubeObject) -> None:
        entries = one.metadata.get("managedFields") or ()
        ours = [number for number, entry in enumerate(entries) if entry.get("manager") == FIELD_MANAGER]
        if not ours:
            return
        operations: list[Json] = [
            {"op": "test", "path": "/metadata/uid", "value": one.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": one.resource_version},
        ]
        for number in reversed(ours):  # what is removed moves those after it
            path = f"/metadata/managedFields/{number}"
            operations.append({"op": "test", "path": f"{path}/manager", "value": FIELD_MANAGER})
            operations.append({"op": "remove", "path": path})
        self._api.patch_json(one.path, operations)

    def evict(self, pod: KubeObject, *, dry_run: bool = False, send_before: float | None = None) -> None:
        self._api.evict(pod.namespace, pod.name, uid=pod.uid, dry_run=dry_run, send_before=send_before)

    def send_command(
        self,
        kind: WorkloadKind,
        target: KubeObject,
        *,
        name: str,
        resume: bool,
        dry_run: bool = False,
        send_before: float | None = None,
    ) -> bool:
        """Create the object that stops or resumes another one; False if there is one of this name already."""
        command = kind.resume if resume else kind.stop
        assert command is not None
        reference = {"apiVersion": target.version, "kind": target.kind, "name": target.name, "uid": target.uid}
        body = command.make_body(name=name, namespace=target.namespace, target=reference)
        path = make_path(command.version, command.kind, target.namespace)
        try:
            self._api.create(path, body, dry_run=dry_run, send_before=send_before)
        except ConflictError:
            return False
        return True

    def set_deletion_costs(self, costs: Mapping[str, tuple[KubeObject, int]]) -> None:
        """By pod name: with which cost it is deleted; the lowest goes first."""
        for pod, cost in costs.values():
            body: Json = {"metadata": {"uid": pod.uid, "annotations": {DELETION_COST: str(cost)}}}
            changed = _make_object(self._api.patch(pod.path, body), pod)
            with suppress(SourceError):  # the cost is set; the pod is about to go, or its cost is taken off
                self.give_up_fields(changed)

    def add_event(self, one: KubeObject, *, name: str, reason: str, text: str, at: str, is_warning: bool) -> None:
        """An Event on an object. The same name a second time changes nothing."""
        body: Json = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": one.namespace},
            "involvedObject": {
                "apiVersion": one.version,
                "kind": one.kind,
                "namespace": one.namespace,
                "name": one.name,
                "uid": one.uid,
            },
            "reason": reason,
            "message": text[:1024],
            "type": "Warning" if is_warning else "Normal",
            "source": {"component": "gpusteward"},
            "reportingComponent": "gpusteward",
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        try:
            self._api.create(make_path("v1", "Event", one.namespace), body)
        except ConflictError:
            return

    def read_lease(self, namespace: str, name: str) -> KubeObject | None:
        return self.read(make_path("coordination.k8s.io/v1", "Lease", namespace, name))

    def create_lease(self, namespace: str, name: str, spec: Json) -> KubeObject:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }
        return _make_object(self._api.create(make_path("coordination.k8s.io/v1", "Lease", namespace), body))

    def _pages(self, path: str, version: str, kind: str, query: str) -> Iterator[KubeObject]:
        address = f"{path}?{query}" if query else path
        if (version, kind) == ("v1", "Pod"):
            for pods in self._api.read_pages(address, ListedPod):
                yield from (KubeObject(version, kind, keep_used(pod)) for pod in pods)
            return
        for items in self._api.read_pages(address, dict[str, Any]):
            yield from (KubeObject(version, kind, item) for item in items)


class Reading:
    """The objects of one cycle or one action: each is read once, so that all decisions in it see the same."""

    def __init__(self, cluster: Cluster, *, roots: Mapping[str, str] | None = None) -> None:
        """`roots`: uid of a pod -> uid of its root owner, where the verdicts have it from the API server. The owners of
        these pods need not be read to know that they belong to another workload."""
        self._cluster, self._roots = cluster, roots or {}
        self._owners: dict[str, KubeObject | None] = {}  # by path
        self._owners_of_others: dict[str, KubeObject | None] = {}  # of pods without GPUs, by path: metadata only
        self._pods: dict[str, list[KubeObject]] = {}  # with GPUs, by namespace
        self._asking: dict[str, list[KubeObject]] = {}  # also those that wait for a node
        self._others: dict[str, list[KubeObject]] = {}  # without GPUs, by namespace: metadata only
        self._above: dict[str, set[str]] = {}  # uid of a pod -> uids of all owners
        self._by_name: dict[str, Mapping[str, KubeObject]] = {}  # pods, by namespace
        self._below: dict[str, dict[str, dict[str, KubeObject]]] = {}  # namespace -> uid of an owner -> uid of a pod
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._lists: dict[tuple[str, str, str], list[KubeObject]] = {}

    def list_objects(self, version: str, kind: str, namespace: str) -> Sequence[KubeObject]:
        key = (version, kind, namespace)
        if key not in self._lists:
            self._lists[key] = self._cluster.list_objects(*key)
        return self._lists[key]

    def read_namespace(self, name: str) -> Mapping[str, str]:
        """Its annotations."""
        if name not in self._namespaces:
            self._namespaces[name] = self._cluster.read_namespace(name)
        return self._namespaces[name]

    def list_holders(self, namespace: str) -> list[KubeObject]:
        """Pods that hold GPUs, or are about to."""
        if namespace not in self._pods:
            found = self._cluster.list_objects("v1", "Pod", namespace)
            living = [pod for pod in found if pod.status.get("phase") not in _ENDED]
            holders = [pod for pod in living if self._asks_for_gpus(pod)]
            known = {pod.uid for pod in holders}
            self._asking[namespace] = holders
            self._pods[namespace] = [pod for pod in holders if pod.spec.get("nodeName")]
            others = (pod for pod in living if pod.uid not in known and not pod.is_deleted)
            self._others[namespace] = [_keep_metadata(pod) for pod in others]
        return self._pods[namespace]

    def list_claimed_gpus(self, pod: KubeObject) -> frozenset[ClaimedDevice]:
        """The GPUs that a pod holds through ResourceClaims. Raises SourceError: UnreadableClaimError if that is not
        known."""
        if not pod.spec.get("resourceClaims"):
            return frozenset()
        try:
            return list_claimed_gpus(pod, self._read_claims(pod.namespace))
        except UnknownClaimError as error:
            raise UnreadableClaimError(messages.CLAIM_UNKNOWN, pod=pod.name, claim=error.claim) from error
        except ObjectError as error:
            raise UnreadableClaimError(messages.CLAIMS_UNREADABLE, pod=pod.name, reason=error.as_message()) from error

    def list_asking_below(self, namespace: str, uids: Collection[str]) -> list[KubeObject]:
        """As `list_pods_below`, with pods that wait for a node and without those that are being deleted."""
        self.list_holders(namespace)
        living = (pod for pod in self._asking[namespace] if not pod.is_deleted)
        return [pod for pod in living if not self._list_known_uids_above(pod).isdisjoint(uids)]

    def list_others_below(self, owners: Sequence[KubeObject]) -> list[PodId]:
        """Pods without GPUs that have not ended and belong to one of these owners, directly or through others: what
        stops the owner stops them too."""
        found: dict[str, PodId] = {}
        for owner in owners:
            self.list_holders(owner.namespace)
            for pod in self._others[owner.namespace]:
                if _may_own(owner, pod) and owner.uid in self._list_known_uids_above(pod, has_gpus=False):
                    found[pod.uid] = PodId(pod.name, pod.uid)
        return sorted(found.values())

    def read_workload_objects(self, namespace: str, pods: Collection[PodId]) -> WorkloadObjects:
        """The pods with these names and their owners. Raises SourceError: UnreadableOwnerError if a pod or an owner is
        gone, or another one by now, or if the pods have different roots."""
        by_name = self._list_by_name(namespace)
        found: list[KubeObject] = []
        for name, uid in pods:
            pod = by_name.get(name)
            if pod is None or (uid and pod.uid != uid):
                raise UnreadableOwnerError(messages.POD_GONE, pod=name)
            found.append(pod)
        chains = [self._climb(pod) for pod in found]
        roots = {
            (chain[-1] if chain else pod).uid: (chain[-1] if chain else pod)
            for pod, chain in zip(found, chains, strict=True)
        }
        if len(roots) != 1:
            raise UnreadableOwnerError(messages.SEVERAL_ROOTS, count=len(roots))
        return WorkloadObjects(next(iter(roots.values())), found, chains)

    def list_pods_below(self, namespace: str, uids: Iterable[str]) -> list[KubeObject]:
        """Pods with GPUs that have an owner with one of these uids, or have it themselves."""
        if namespace not in self._below:
            below: defaultdict[str, dict[str, KubeObject]] = defaultdict(dict)
            self._below[namespace] = below
            for pod in self.list_holders(namespace):
                for uid in self._list_uids_above(pod):
                    below[uid][pod.uid] = pod
        found: dict[str, KubeObject] = {}
        for uid in uids:
            found |= self._below[namespace].get(uid, {})
        return list(found.values())

    def _asks_for_gpus(self, pod: KubeObject) -> bool:
        """One whose claims cannot be read may."""
        try:
            return bool(count_gpus(pod) or self.list_claimed_gpus(pod))
        except UnreadableClaimError:
            return True

    def _read_claims(self, namespace: str) -> Mapping[str, KubeObject]:
        """By name. An older server has the kind in an older version."""
        for version in VERSIONS:
            if found := self.list_objects(f"{GROUP}/{version}", RESOURCE_CLAIM, namespace):
                return {one.name: one for one in found}
        return {}

    def _list_known_uids_above(self, pod: KubeObject, *, has_gpus: bool = True) -> set[str]:
        if pod.uid not in self._above:
            self._above[pod.uid] = self._list_uids_above(pod, has_gpus=has_gpus)
        return self._above[pod.uid]

    def _list_by_name(self, namespace: str) -> Mapping[str, KubeObject]:
        if namespace not in self._by_name:
            self._by_name[namespace] = {pod.name: pod for pod in self.list_holders(namespace)}
        return self._by_name[namespace]

    def _list_uids_above(self, pod: KubeObject, *, has_gpus: bool = True) -> set[str]:
        """Of a pod and its owners. Owner references name uids: those of an owner that is gone by now count as well."""
        uids = {pod.uid, *_list_owner_uids(pod)}
        if (root := self._roots.get(pod.uid)) is not None:
            return uids | {root}
        owners, _ = climb_owners(
            pod.controller, lambda owner: self._read_owner(pod.namespace, owner, has_gpus=has_gpus)
        )
        return uids.union(*({owner.uid, *_list_owner_uids(owner)} for owner in owners))

    def _climb(self, pod: KubeObject) -> list[KubeObject]:
        """The owners of a pod, the nearest first."""
        chain, unread = climb_owners(pod.controller, lambda owner: self._read_owner(pod.namespace, owner))
        if unread is not None:
            raise UnreadableOwnerError(messages.OWNER_UNREADABLE, kind=unread.kind, name=unread.name)
        return chain

    def _read_owner(self, namespace: str, reference: Reference, *, has_gpus: bool = True) -> KubeObject | None:
        """None if it is gone or may not be read. Without GPUs below it its metadata is enough."""
        path = reference.make_path(namespace)
        known = self._owners if has_gpus or path in self._owners else self._owners_of_others
        if path not in known:
            try:
                read = self._cluster.read(path)
            except ObjectError:
                read = None
            known[path] = read if has_gpus or read is None else _keep_metadata(read)
        return known[path]


def _list_owner_uids(one: KubeObject) -> list[str]:
    return [str(each.get("uid", "")) for each in one.owners]


def _keep_metadata(one: KubeObject) -> KubeObject:
    """A namespace may have thousands of pods without GPUs: only their names, labels and owners are kept. The same of
    what owns them, which may have 1 MB each."""
    kept = ("name", "namespace", "uid", "labels", "ownerReferences")
    return KubeObject(one.version, one.kind, {"metadata": {key: one.metadata.get(key) for key in kept}})


def _may_own(owner: KubeObject, pod: KubeObject) -> bool:
    """Whether it is worth reading the owners of a pod. A pod of a Deployment, StatefulSet, ReplicaSet or Job has the
    labels of its selector: a pod that loses them is released."""
    labels = owner.read("/spec/selector/matchLabels") if owner.group in _SELECTING_GROUPS else None
    return all(pod.labels.get(name) == value for name, value in (labels or {}).items())


def count_gpus(pod: KubeObject) -> dict[str, int]:
    """How many of each GPU resource a pod asks for."""
    counts: dict[str, int] = {}
    sidecars = [one for one in pod.spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    for container in [*(pod.spec.get("containers") or ()), *sidecars]:
        for resource, quantity in ((container.get("resources") or {}).get("limits") or {}).items():
            if is_gpu_resource(resource) and str(quantity).isdecimal():
                counts[resource] = counts.get(resource, 0) + int(quantity)
    return {resource: count for resource, count in counts.items() if count}


def _make_object(json: Json, like: KubeObject | None = None) -> KubeObject:
    version = json.get("apiVersion") or (like.version if like else "")
    return KubeObject(version, json.get("kind") or (like.kind if like else ""), json)
