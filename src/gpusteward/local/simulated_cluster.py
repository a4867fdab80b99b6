"""A simulated API server over the simulated nodes: what owners and reclaim read and write, with the real one's checks.

- A merge patch is checked for uid (422) and resourceVersion (409); `dryRun=All` changes nothing.
- A workload that is suspended, or scaled down, leaves its simulated GPUs at once; restored, it has new pods.
- What the simulation does by itself, such as starting the next job, is taken over with every request.
- Leases and events can be created, namespaces annotated. Nothing can be deleted.
"""

import itertools
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import msgspec

from gpusteward.analyzer.reclaim.execution.changes import format_time
from gpusteward.analyzer.reclaim.kinds.objects import DELETION_COST, Json
from gpusteward.core.node.containers import Workload
from gpusteward.local.api_requests import (
    MERGE_PATCH,
    ApiRequest,
    ApiResponse,
    JsonResponse,
    RefusedError,
    ResourcePath,
    check_preconditions,
    decode_object,
    is_selected,
    merge,
    parse_path,
    read_dry_run,
)
from gpusteward.local.cluster_objects import (
    WORKLOAD_KINDS,
    ObjectKey,
    PlacedPod,
    count_wanted,
    make_object,
    make_pod,
    make_status,
    make_workload_objects,
)
from gpusteward.local.demo_settings import OWN_NAMESPACE
from gpusteward.local.simulated_fleet import SimulatedFleet

SYNC_SECONDS = 2.0
MAX_EVENTS = 2000
MAX_WRITES = 10_000


class SimulatedCluster:
    """The objects, and the controllers that make the simulated nodes follow them. Safe to use from several threads."""

    def __init__(self, fleet: SimulatedFleet, *, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._lock = threading.RLock()
        self._objects: dict[ObjectKey, Json] = {}
        self._versions = itertools.count(1000)
        self._pods: dict[Workload, list[PlacedPod]] = {}
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
            except RefusedError as refused:
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

    def _route(self, request: ApiRequest) -> JsonResponse:
        target = urlsplit(request.target)
        query = {name: values[-1] for name, values in parse_qs(target.query).items()}
        place = parse_path(target.path)
        is_dry_run = read_dry_run(query)
        if request.method == "GET" and not place.subresource:
            return self._read(place, query)
        if request.method == "PATCH" and place.name and not place.subresource:
            return self._patch(place, request, is_dry_run=is_dry_run)
        if request.method == "POST" and not place.name and place.resource.is_made_here:
            return self._create(place, decode_object(request.body), is_dry_run=is_dry_run)
        raise RefusedError(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )

    def _read(self, place: ResourcePath, query: Mapping[str, str]) -> JsonResponse:
        if place.name:
            return JsonResponse(HTTPStatus.OK, self._find(place))
        kind = place.resource.kind
        items = [
            one
            for key, one in self._objects.items()
            if key.kind == kind and place.namespace in ("", key.namespace) and is_selected(one, query)
        ]
        metadata = {"resourceVersion": str(next(self._versions))}
        body = {"kind": f"{kind}List", "apiVersion": place.resource.version, "metadata": metadata, "items": items}
        return JsonResponse(HTTPStatus.OK, body)

    def _find(self, place: ResourcePath) -> Json:
        found = self._objects.get(place.key)
        if found is None:
            name = f'{place.resource.plural} "{place.name}" not found'
            raise RefusedError(HTTPStatus.NOT_FOUND, "NotFound", name, of=place)
        return found

    def _patch(self, place: ResourcePath, request: ApiRequest, *, is_dry_run: bool) -> JsonResponse:
        if request.content_type.partition(";")[0].strip() != MERGE_PATCH:
            message = f"the simulated server supports {MERGE_PATCH} only"
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
        before, patch = self._find(place), decode_object(request.body)
        check_preconditions(place, before, patch.get("metadata") or {})
        after = merge(before, patch)
        after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
        after["status"] = before.get("status", {})  # a subresource of its own
        if after == before:
            return JsonResponse(HTTPStatus.OK, before)
        if after.get("spec") != before.get("spec") and place.resource.kind != "Lease":
            after["metadata"]["generation"] = before["metadata"].get("generation", 1) + 1
        after["metadata"]["resourceVersion"] = str(next(self._versions))
        if not is_dry_run:
            self.writes.append(("PATCH", urlsplit(request.target).path))
            self._objects[place.key] = after
            self._run_controller(place.key)
        return JsonResponse(HTTPStatus.OK, after if is_dry_run else self._objects[place.key])

    def _create(self, place: ResourcePath, body: Json, *, is_dry_run: bool) -> JsonResponse:
        metadata = body.get("metadata") or {}
        version = next(self._versions)
        name = metadata.get("name") or f"{metadata.get('generateName', '')}{version:x}"
        key = ObjectKey(place.resource.kind, place.namespace, name)
        if ObjectKey("Namespace", "", place.namespace) not in self._objects:
            raise RefusedError(HTTPStatus.NOT_FOUND, "NotFound", f'namespaces "{place.namespace}" not found')
        if key in self._objects:
            message = f'{place.resource.plural} "{name}" already exists'
            raise RefusedError(HTTPStatus.CONFLICT, "AlreadyExists", message)
        made = merge({"apiVersion": place.resource.version, "kind": place.resource.kind}, body)
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
            for event in [each for each in self._objects if each.kind == "Event"][:-MAX_EVENTS]:
                del self._objects[event]
        return JsonResponse(HTTPStatus.CREATED, made)

    def _run_controller(self, key: ObjectKey) -> None:
        """The simulated nodes follow an object that was changed."""
        workload = Workload(key.kind, key.namespace, key.name)
        if workload not in self._sizes:
            return
        now = self._clock()
        wanted = count_wanted(self._objects[key], self._sizes[workload])
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

    def _deletion_cost(self, pod: PlacedPod) -> int:
        found = self._objects.get(ObjectKey("Pod", pod.container.namespace, pod.container.pod))
        cost = ((found or {}).get("metadata", {}).get("annotations") or {}).get(DELETION_COST, "0")
        return int(cost) if cost.lstrip("-").isdecimal() else 0

    def _list_pods(self, now: float) -> dict[Workload, list[PlacedPod]]:
        found: dict[Workload, dict[str, PlacedPod]] = defaultdict(dict)
        gpus: Counter[str] = Counter()
        for node in self._fleet.nodes:
            for each in node.ownerships(now):
                container, request = each.allocation.container, each.placement.request
                if container.workload is None or request is None or container.workload.kind not in WORKLOAD_KINDS:
                    continue
                gpus[container.pod_uid] += 1
                pod = PlacedPod(container, request.ordinal, node.name, gpus[container.pod_uid])
                found[container.workload][container.pod_uid] = pod
        return {workload: list(pods.values()) for workload, pods in found.items()}

    def _add_workload(self, workload: Workload, pods: Iterable[PlacedPod], now: float) -> None:
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
        wanted = count_wanted(root, self._sizes[workload])
        self._set_status(root, pods, is_suspended=not wanted)
        if workload not in self._below:
            return root
        below = self._objects[self._below[workload]]
        below["spec"]["replicas"] = wanted
        self._set_status(below, pods, is_suspended=not wanted)
        return below

    def _set_status(self, one: Json, pods: int, *, is_suspended: bool) -> None:
        status = make_status(one["kind"], pods, is_suspended=is_suspended)
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
