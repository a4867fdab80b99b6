"""What reclaim reads and writes in Kubernetes. This is the only module of the analyzer that writes there.

Every object is read when it is needed; nothing is cached beyond one `Reading`, which lasts for one cycle or one action.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from urllib.parse import quote

from gpusteward.analyzer.reclaim.kinds.kind import Kind
from gpusteward.analyzer.reclaim.kinds.objects import Json, KubeObject, make_patch, make_path
from gpusteward.analyzer.reclaim.kinds.registry import WorkloadObjects
from gpusteward.analyzer.sources.owners.owner_kinds import is_readable
from gpusteward.core.errors import SourceError
from gpusteward.kubernetes.api import ObjectError
from gpusteward.kubernetes.writes import ApiWriter, ConflictError
from gpusteward.messages import reclaim as messages

PAGE = 500  # objects of one list request
MAX_DEPTH = 8
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_ENDED = ("Succeeded", "Failed")
_MISSING = 404


class PodName(NamedTuple):
    name: str
    uid: str  # empty: not known


class UnreadableOwnerError(SourceError):
    """An owner cannot be read, or is another one by now: what is above it is not known."""


class Cluster:
    """One API server. Methods raise SourceError, those that write also WriteError."""

    def __init__(self, api: ApiWriter) -> None:
        self._api = api

    def keeping_connections(self) -> AbstractContextManager[None]:
        """Requests within this block share connections."""
        return self._api.keeping_connections()

    def read(self, path: str) -> KubeObject | None:
        """The object at a path; None if there is none."""
        try:
            json = self._api.read_json(path, dict[str, Any])
        except ObjectError as error:
            if error.http_status == _MISSING:
                return None
            raise
        return _make_object(json)

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
        found = self.read(f"/api/v1/namespaces/{quote(name, safe='')}")
        return found.annotations if found else {}

    def list_pending(self) -> list[KubeObject]:
        """Pods of all namespaces that wait for a node."""
        return self.list_objects("v1", "Pod", "", query="fieldSelector=status.phase%3DPending,spec.nodeName%3D")

    def patch(self, one: KubeObject, fields: Mapping[str, Any], *, dry_run: bool = False) -> KubeObject:
        """Set fields by JSON pointer (None removes), only on this very object, and only if it is as it was read."""
        body = make_patch(fields)
        body.setdefault("metadata", {}).update(uid=one.uid, resourceVersion=one.resource_version)
        return _make_object(self._api.patch(one.path, body, dry_run=dry_run), one)

    def evict(self, pod: KubeObject, *, dry_run: bool = False) -> None:
        self._api.evict(pod.namespace, pod.name, uid=pod.uid, dry_run=dry_run)

    def send_command(self, kind: Kind, target: KubeObject, *, name: str, resume: bool, dry_run: bool = False) -> None:
        """Create the object that stops or resumes another one. The same name a second time changes nothing."""
        command = kind.resume if resume else kind.stop
        assert command is not None
        reference = {
            "apiVersion": target.version,
            "kind": target.kind,
            "name": target.name,
            "uid": target.uid,
            "controller": True,
        }
        body: Json = {
            "apiVersion": command.version,
            "kind": command.kind,
            "metadata": {"name": name, "namespace": target.namespace, "ownerReferences": [reference]},
            "action": command.action,
            "target": reference,
            "reason": "gpusteward",
        }
        try:
            self._api.create(make_path(command.version, command.kind, target.namespace), body, dry_run=dry_run)
        except ConflictError:
            return

    def set_deletion_costs(self, costs: Mapping[str, tuple[KubeObject, int]]) -> None:
        """By pod name: with which cost it is deleted; the lowest goes first."""
        for pod, cost in costs.values():
            self._api.patch(
                pod.path,
                {"metadata": {"uid": pod.uid, "annotations": {DELETION_COST: str(cost)}}},
            )

    def reset_deletion_costs(self, costs: Mapping[str, tuple[KubeObject, int]]) -> None:
        """As they were before `set_deletion_costs`."""
        for pod, _ in costs.values():
            before = pod.annotations.get(DELETION_COST)
            self._api.patch(pod.path, {"metadata": {"uid": pod.uid, "annotations": {DELETION_COST: before}}})

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
        token = ""
        while True:
            parts = [f"limit={PAGE}", query, f"continue={quote(token, safe='')}" if token else ""]
            page = self._api.read_json(f"{path}?{'&'.join(part for part in parts if part)}", dict[str, Any])
            for item in page.get("items") or ():
                yield KubeObject(version, kind, item)
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                return


class Reading:
    """The objects of one cycle or one action: each is read once, so that all decisions in it see the same."""

    def __init__(self, cluster: Cluster, *, roots: Mapping[str, str] | None = None) -> None:
        """`roots`: uid of a pod -> uid of its root owner, where the verdicts have it from the API server. The owners of
        these pods need not be read to know that they belong to another workload."""
        self._cluster, self._roots = cluster, roots or {}
        self._owners: dict[str, KubeObject | None] = {}  # by path
        self._pods: dict[str, list[KubeObject]] = {}  # by namespace
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
            self._pods[namespace] = [pod for pod in found if is_holding(pod)]
        return self._pods[namespace]

    def read_workload_objects(self, namespace: str, pods: Collection[PodName]) -> WorkloadObjects:
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

    def _list_by_name(self, namespace: str) -> Mapping[str, KubeObject]:
        if namespace not in self._by_name:
            self._by_name[namespace] = {pod.name: pod for pod in self.list_holders(namespace)}
        return self._by_name[namespace]

    def _list_uids_above(self, pod: KubeObject) -> set[str]:
        """Of a pod and its owners. Owner references name uids: those of an owner that is gone by now count as well."""
        uids = {pod.uid, *_list_owner_uids(pod)}
        if (root := self._roots.get(pod.uid)) is not None:
            return uids | {root}
        one, depth = pod, 0
        while (reference := one.controller) is not None and depth < MAX_DEPTH:
            above = self._read_owner(one.namespace, reference)
            if above is None:
                break
            uids |= {above.uid, *_list_owner_uids(above)}
            one, depth = above, depth + 1
        return uids

    def _climb(self, pod: KubeObject) -> list[KubeObject]:
        """The owners of a pod, the nearest first."""
        chain: list[KubeObject] = []
        one = pod
        while (reference := one.controller) is not None and reference.get("kind") != "Node":
            above = self._read_owner(pod.namespace, reference)
            if above is None or len(chain) >= MAX_DEPTH:
                raise UnreadableOwnerError(messages.OWNER_UNREADABLE, kind=reference["kind"], name=reference["name"])
            chain.append(above)
            one = above
        return chain

    def _read_owner(self, namespace: str, reference: Mapping[str, Any]) -> KubeObject | None:
        """None if it is gone, another one by now, or may not be read."""
        version, kind = str(reference.get("apiVersion", "")), str(reference.get("kind", ""))
        if not is_readable(version.rpartition("/")[0], kind):
            return None
        path = make_path(version, kind, namespace, str(reference.get("name", "")))
        if path not in self._owners:
            try:
                self._owners[path] = self._cluster.read(path)
            except ObjectError:
                self._owners[path] = None
        found = self._owners[path]
        return found if found is not None and found.uid == reference.get("uid") else None


def _list_owner_uids(one: KubeObject) -> list[str]:
    return [str(each.get("uid", "")) for each in one.owners]


def is_holding(pod: KubeObject) -> bool:
    """Whether a pod holds GPUs or will: it asks for some, is on a node, and has not ended."""
    return bool(pod.spec.get("nodeName")) and pod.status.get("phase") not in _ENDED and asks_for_gpus(pod)


def asks_for_gpus(pod: KubeObject) -> bool:
    return bool(pod.spec.get("resourceClaims")) or bool(count_gpus(pod))


def count_gpus(pod: KubeObject) -> dict[str, int]:
    """How many of each GPU resource a pod asks for."""
    counts: dict[str, int] = {}
    for container in pod.spec.get("containers") or ():
        for resource, quantity in ((container.get("resources") or {}).get("limits") or {}).items():
            if is_gpu_resource(resource) and str(quantity).isdecimal():
                counts[resource] = counts.get(resource, 0) + int(quantity)
    return {resource: count for resource, count in counts.items() if count}


def is_gpu_resource(resource: str) -> bool:
    """`nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`, `nvidia.com/gpu.shared`, `amd.com/gpu`; no amounts such as HAMi's."""
    domain, _, name = resource.partition("/")
    is_amount = any(part in name for part in ("mem", "core", "priority"))
    return bool(name) and not is_amount and ("gpu" in name or domain == "nvidia.com")


def _make_object(json: Json, like: KubeObject | None = None) -> KubeObject:
    version = json.get("apiVersion") or (like.version if like else "")
    return KubeObject(version, json.get("kind") or (like.kind if like else ""), json)
