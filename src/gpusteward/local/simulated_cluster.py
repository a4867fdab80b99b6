"""A simulated API server over the simulated nodes: what owners and reclaim read and write, with the real one's checks.

- A merge patch is checked for uid (422) and resourceVersion (409); `dryRun=All` changes nothing.
- A workload that is suspended, or scaled down, leaves its simulated GPUs at once; restored, it has new pods.
- What the simulation does by itself, such as starting the next job, is taken over with every request.
- Leases and events can be created, namespaces annotated. Nothing can be deleted.
"""

import copy
import itertools
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from gpusteward.core.containers import Workload
from gpusteward.local.cluster_objects import (
    CONTROLLERS,
    DELETION_COST,
    RESOURCES,
    Json,
    ObjectKey,
    Resource,
    SimulatedPod,
    format_time,
    make_object,
    make_pod,
    make_workload_objects,
)
from gpusteward.local.demo_settings import OWN_NAMESPACE
from gpusteward.local.simulated_fleet import SimulatedFleet

SYNC_SECONDS = 2.0
MAX_EVENTS = 2000
MAX_WRITES = 10_000
MERGE_PATCH = "application/merge-patch+json"
_BY_PATH: Mapping[tuple[str, str], Resource] = {(each.version, each.plural): each for each in RESOURCES}
_IMMUTABLE = ("uid", "name", "namespace", "creationTimestamp")


class ApiRequest(NamedTuple):
    """A request to the API server."""

    method: str
    target: str  # path and query
    body: bytes = b""
    content_type: str = "application/json"


class ApiResponse(NamedTuple):
    """A status and a JSON object as text."""

    status: HTTPStatus
    body: bytes


class _Answer(NamedTuple):
    """A response whose object others may still change."""

    status: HTTPStatus
    body: Json


class _Place(NamedTuple):
    """What a path names; without a name all objects of a kind, in one namespace or in all."""

    resource: Resource
    namespace: str
    name: str
    subresource: str


class _RefusedError(Exception):
    """The request is answered with a Status."""

    def __init__(self, status: HTTPStatus, reason: str, message: str, *, field: str = "") -> None:
        super().__init__(message)
        causes = {"causes": [{"reason": "FieldValueInvalid", "field": field, "message": message}]} if field else {}
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
        self.answer = _Answer(status, {**body, "reason": reason, "code": int(status), "details": causes})


class SimulatedCluster:
    """The objects, and the controllers that make the simulated nodes follow them. Safe to use from several threads."""

    def __init__(self, fleet: SimulatedFleet, *, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._lock = threading.RLock()
        self._objects: dict[ObjectKey, Json] = {}
        self._versions = itertools.count(1000)
        self._pods: dict[Workload, list[SimulatedPod]] = {}
        self._sizes: dict[Workload, int] = {}  # pods of a workload that is not suspended
        self._running: dict[Workload, frozenset[int]] = {}  # ordinals, of workloads that were changed here
        self._synced_at = -SYNC_SECONDS
        self._below: dict[Workload, ObjectKey] = {}  # what is between a workload and its pods
        self.writes: deque[tuple[str, str]] = deque(maxlen=MAX_WRITES)
        """Method and path of every change that was not a dry run."""
        for name in (OWN_NAMESPACE, "kube-system"):
            self._add_namespace(name, clock())

    def handle(self, request: ApiRequest) -> ApiResponse:
        """The response of an API server. Never raises for what a client can send."""
        with self._lock:
            self.sync()
            try:
                answer = self._route(request)
            except _RefusedError as refused:
                answer = refused.answer
            return ApiResponse(answer.status, msgspec.json.encode(answer.body))

    def sync(self, *, force: bool = False) -> None:
        """Take over what the simulation did by itself."""
        with self._lock:
            now = self._clock()
            if not force and 0 <= now - self._synced_at < SYNC_SECONDS:
                return
            self._synced_at = now
            self._pods = self._list_pods(now)
            for workload, pods in self._pods.items():
                self._add_workload(workload, pods, now)
            self._remove_ended()
            self._replace_pods()

    def _route(self, request: ApiRequest) -> _Answer:
        target = urlsplit(request.target)
        query = {name: values[-1] for name, values in parse_qs(target.query).items()}
        place = _find_place(target.path)
        is_dry_run = _read_dry_run(query)
        if request.method == "GET" and not place.subresource:
            return self._read(place, query)
        if request.method == "PATCH" and place.name and not place.subresource:
            return self._patch(place, request, is_dry_run=is_dry_run)
        if request.method == "POST" and not place.name and place.resource.is_made_here:
            return self._create(place, _decode(request.body), is_dry_run=is_dry_run)
        raise _RefusedError(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )

    def _read(self, place: _Place, query: Mapping[str, str]) -> _Answer:
        if place.name:
            return _Answer(HTTPStatus.OK, self._find(place))
        kind = place.resource.kind
        items = [
            one
            for key, one in self._objects.items()
            if key.kind == kind and place.namespace in ("", key.namespace) and _is_selected(one, query)
        ]
        metadata = {"resourceVersion": str(next(self._versions))}
        body = {"kind": f"{kind}List", "apiVersion": place.resource.version, "metadata": metadata, "items": items}
        return _Answer(HTTPStatus.OK, body)

    def _find(self, place: _Place) -> Json:
        found = self._objects.get(_key_of(place))
        if found is None:
            name = f'{place.resource.plural} "{place.name}" not found'
            raise _RefusedError(HTTPStatus.NOT_FOUND, "NotFound", name)
        return found

    def _patch(self, place: _Place, request: ApiRequest, *, is_dry_run: bool) -> _Answer:
        if request.content_type.partition(";")[0].strip() != MERGE_PATCH:
            message = f"the simulated server supports {MERGE_PATCH} only"
            raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
        before, patch = self._find(place), _decode(request.body)
        _check_preconditions(place, before, patch.get("metadata") or {})
        after = _merge(before, patch)
        after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
        after["status"] = before.get("status", {})  # a subresource of its own
        if after == before:
            return _Answer(HTTPStatus.OK, before)
        if after.get("spec") != before.get("spec") and place.resource.kind != "Lease":
            after["metadata"]["generation"] = before["metadata"].get("generation", 1) + 1
        after["metadata"]["resourceVersion"] = str(next(self._versions))
        if not is_dry_run:
            self.writes.append(("PATCH", urlsplit(request.target).path))
            self._objects[_key_of(place)] = after
            self._run_controller(_key_of(place))
        return _Answer(HTTPStatus.OK, after if is_dry_run else self._objects[_key_of(place)])

    def _create(self, place: _Place, body: Json, *, is_dry_run: bool) -> _Answer:
        metadata = body.get("metadata") or {}
        version = next(self._versions)
        name = metadata.get("name") or f"{metadata.get('generateName', '')}{version:x}"
        key = ObjectKey(place.resource.kind, place.namespace, name)
        if ObjectKey("Namespace", "", place.namespace) not in self._objects:
            raise _RefusedError(HTTPStatus.NOT_FOUND, "NotFound", f'namespaces "{place.namespace}" not found')
        if key in self._objects:
            message = f'{place.resource.plural} "{name}" already exists'
            raise _RefusedError(HTTPStatus.CONFLICT, "AlreadyExists", message)
        made = _merge({"apiVersion": place.resource.version, "kind": place.resource.kind}, body)
        made["metadata"] |= {
            "name": name,
            "namespace": place.namespace,
            "uid": f"{version:08x}-0000-4000-8000-000000000000",
            "creationTimestamp": format_time(self._clock()),
            "resourceVersion": str(version),
        }
        if not is_dry_run:
            self.writes.append(("POST", f"/{place.resource.plural}"))
            self._objects[key] = made
            self._limit_events()
        return _Answer(HTTPStatus.CREATED, made)

    def _limit_events(self) -> None:
        events = [key for key in self._objects if key.kind == "Event"]
        for key in events[:-MAX_EVENTS]:
            del self._objects[key]

    def _run_controller(self, key: ObjectKey) -> None:
        """The simulated nodes follow an object that was changed."""
        workload = Workload(key.kind, key.namespace, key.name)
        if workload not in self._sizes:
            return
        now = self._clock()
        wanted = CONTROLLERS[key.kind].count_wanted(self._objects[key], self._sizes[workload])
        running = self._choose_running(workload, min(wanted, self._sizes[workload]))
        self._running[workload] = running
        for node in self._fleet.nodes:
            changed = node.with_pods_of(workload, is_running=running.__contains__, at=now)
            if changed is not node:
                self._fleet.replace_node(changed)
        self.sync(force=True)

    def _choose_running(self, workload: Workload, wanted: int) -> frozenset[int]:
        """Pods that run stay before others start; those with the highest deletion cost stay first."""
        costs = {each.ordinal: self._deletion_cost(each) for each in self._pods.get(workload, ())}
        every = sorted(range(self._sizes[workload]), key=lambda each: (each not in costs, -costs.get(each, 0), each))
        return frozenset(every[:wanted])

    def _deletion_cost(self, pod: SimulatedPod) -> int:
        found = self._objects.get(ObjectKey("Pod", pod.container.namespace, pod.container.pod))
        cost = ((found or {}).get("metadata", {}).get("annotations") or {}).get(DELETION_COST, "0")
        return int(cost) if cost.lstrip("-").isdecimal() else 0

    def _list_pods(self, now: float) -> dict[Workload, list[SimulatedPod]]:
        found: dict[Workload, dict[str, SimulatedPod]] = defaultdict(dict)
        gpus: Counter[str] = Counter()
        for node in self._fleet.nodes:
            for each in node.ownerships(now):
                container, request = each.allocation.container, each.placement.request
                if container.workload is None or request is None or container.workload.kind not in CONTROLLERS:
                    continue
                gpus[container.pod_uid] += 1
                pod = SimulatedPod(container, request.ordinal, node.name, gpus[container.pod_uid])
                found[container.workload][container.pod_uid] = pod
        return {workload: list(pods.values()) for workload, pods in found.items()}

    def _add_workload(self, workload: Workload, pods: Iterable[SimulatedPod], now: float) -> None:
        key = ObjectKey(workload.kind, workload.namespace, workload.name)
        if key in self._objects:
            return
        pods = list(pods)
        self._sizes[workload] = 1 + max(each.ordinal for each in pods)
        self._add_namespace(workload.namespace, now)
        created_at = min(each.container.started_at or now for each in pods)
        root, *below = make_workload_objects(workload, pods=self._sizes[workload], created_at=created_at)
        self._store(root)
        for one in below:
            self._below[workload] = self._store(one)

    def _remove_ended(self) -> None:
        """A job that has ended is gone, with all that was below it."""
        for workload in [each for each in self._sizes if each not in self._pods and each not in self._running]:
            del self._sizes[workload]
            del self._objects[ObjectKey(workload.kind, workload.namespace, workload.name)]
            self._objects.pop(self._below.pop(workload, ObjectKey("", "", "")), None)

    def _replace_pods(self) -> None:
        """The pods that run now, and the status of their owners."""
        present: set[ObjectKey] = set()
        for workload in self._sizes:
            pods = self._pods.get(workload, [])
            if len(pods) == self._sizes[workload]:
                self._running.pop(workload, None)
            owner = self._update_owners(workload, len(pods))
            for pod in pods:
                key = ObjectKey("Pod", pod.container.namespace, pod.container.pod)
                present.add(key)
                if self._objects.get(key, {}).get("metadata", {}).get("uid") != pod.container.pod_uid:
                    self._store(make_pod(pod, owner))
        self._objects = {key: one for key, one in self._objects.items() if key.kind != "Pod" or key in present}

    def _update_owners(self, workload: Workload, pods: int) -> Json:
        """Status of the root, spec and status of what is below it; the owner of the pods."""
        root = self._objects[ObjectKey(workload.kind, workload.namespace, workload.name)]
        wanted = CONTROLLERS[workload.kind].count_wanted(root, self._sizes[workload])
        self._set_status(root, pods, is_suspended=not wanted)
        if workload not in self._below:
            return root
        below = self._objects[self._below[workload]]
        below["spec"]["replicas"] = wanted
        self._set_status(below, pods, is_suspended=not wanted)
        return below

    def _set_status(self, one: Json, pods: int, *, is_suspended: bool) -> None:
        status = CONTROLLERS[one["kind"]].status(pods, is_suspended)
        if "observedGeneration" in status:
            status["observedGeneration"] = one["metadata"]["generation"]
        if status != one.get("status"):
            one["status"] = status
            one["metadata"]["resourceVersion"] = str(next(self._versions))

    def _add_namespace(self, name: str, now: float) -> None:
        key = ObjectKey("Namespace", "", name)
        if key not in self._objects:
            one = make_object(key, created_at=now, spec={}, status={"phase": "Active"})
            one["metadata"]["labels"]["kubernetes.io/metadata.name"] = name
            self._store(one)

    def _store(self, one: Json) -> ObjectKey:
        metadata = one["metadata"]
        metadata["resourceVersion"] = str(next(self._versions))
        key = ObjectKey(one["kind"], metadata.get("namespace", ""), metadata["name"])
        self._objects[key] = one
        return key


def _find_place(path: str) -> _Place:
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        version, rest = parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        version, rest = f"{parts[1]}/{parts[2]}", parts[3:]
    else:
        raise _not_found()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource = _BY_PATH.get((version, rest[0]))
    if resource is None or len(rest) > 3:
        raise _not_found()
    name, subresource = (*rest[1:], "", "")[:2]
    if name and bool(namespace) is not resource.is_namespaced:
        raise _not_found()
    return _Place(resource, namespace, name, subresource)


def _not_found() -> _RefusedError:
    return _RefusedError(HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource")


def _key_of(place: _Place) -> ObjectKey:
    return ObjectKey(place.resource.kind, place.namespace, place.name)


def _read_dry_run(query: Mapping[str, str]) -> bool:
    value = query.get("dryRun", "")
    if value not in ("", "All"):
        message = f'Invalid value: "{value}": unsupported value; supported: All'
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "BadRequest", message)
    return bool(value)


def _decode(body: bytes) -> Json:
    try:
        return msgspec.json.decode(body, type=Json)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "BadRequest", f"invalid JSON: {error}") from error


def _check_preconditions(place: _Place, before: Json, wanted: Json) -> None:
    """As the real one does for a patch of an object."""
    metadata, what = before["metadata"], f'{place.resource.plural} "{place.name}"'
    if wanted.get("resourceVersion") not in (None, metadata["resourceVersion"]):
        message = (
            f"Operation cannot be fulfilled on {what}: the object has been modified; please apply your changes to "
            "the latest version and try again"
        )
        raise _RefusedError(HTTPStatus.CONFLICT, "Conflict", message)
    for name in _IMMUTABLE:
        if name in wanted and wanted[name] != metadata.get(name):
            message = f'{what} is invalid: metadata.{name}: Invalid value: "{wanted[name]}": field is immutable'
            raise _RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message, field=f"metadata.{name}")


def _merge(before: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = copy.deepcopy(before) if isinstance(before, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


def _is_selected(one: Json, query: Mapping[str, str]) -> bool:
    labels = one["metadata"].get("labels") or {}
    for term in filter(None, query.get("labelSelector", "").split(",")):
        name, _, value = term.replace("==", "=").partition("=")
        if (labels.get(name) != value) if "=" in term else (name not in labels):
            return False
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = term.replace("==", "=").partition("=")
        found: Any = one
        for part in path.split("."):
            found = found.get(part, "") if isinstance(found, dict) else ""
        if found != value:
            return False
    return True
