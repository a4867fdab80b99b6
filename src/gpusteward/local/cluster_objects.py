"""Kubernetes objects of the simulated workloads: what an API server would return for them (pure).

A workload has a root object, for some kinds one between it and its pods, and its pods. The rules of the controllers are
here too: which pods shall run, as the table of kinds says, and the status that follows from those that do.
"""

from functools import partial
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from gpusteward.analyzer.reclaim.execution.changes import format_time
from gpusteward.analyzer.reclaim.kinds.objects import Json, read_pointer
from gpusteward.core.kinds import find_kind, plural_of
from gpusteward.core.node.containers import Container, Workload


class Resource(NamedTuple):
    """A resource of the simulated API server."""

    version: str  # with its group, as in apps/v1
    kind: str
    is_namespaced: bool = True
    is_made_here: bool = False  # clients may create objects

    @property
    def plural(self) -> str:
        return plural_of(self.kind)


RESOURCES = (
    Resource("v1", "Namespace", is_namespaced=False),
    Resource("v1", "Node", is_namespaced=False),
    Resource("v1", "Pod"),
    Resource("v1", "Event", is_made_here=True),
    Resource("events.k8s.io/v1", "Event", is_made_here=True),
    Resource("coordination.k8s.io/v1", "Lease", is_made_here=True),
    Resource("apps/v1", "Deployment"),
    Resource("apps/v1", "ReplicaSet"),
    Resource("apps/v1", "StatefulSet"),
    Resource("batch/v1", "Job"),
    Resource("batch/v1", "CronJob"),
    Resource("kubeflow.org/v1", "PyTorchJob"),
    Resource("kubeflow.org/v1", "Notebook"),
    Resource("autoscaling/v2", "HorizontalPodAutoscaler"),
)

WORKLOAD_KINDS = ("Deployment", "StatefulSet", "Job", "PyTorchJob", "Notebook")
VERSIONS = {each.kind: each.version for each in RESOURCES if each.kind != "Event"}


class ObjectKey(NamedTuple):
    """Where an object is."""

    kind: str
    namespace: str
    name: str


class PlacedPod(NamedTuple):
    """A pod that runs, and which one of its workload it is."""

    container: Container
    ordinal: int
    node: str
    gpus: int


def make_uid(*parts: object) -> str:
    return str(uuid5(NAMESPACE_URL, "/".join(map(str, ("gpusteward-demo", *parts)))))


def make_object(key: ObjectKey, *, created_at: float, owner: Json | None = None, **fields: Any) -> Json:
    """An object with complete metadata."""
    metadata: Json = {
        "name": key.name,
        "uid": make_uid(*key),
        "creationTimestamp": format_time(created_at),
        "generation": 1,
        "labels": {},
        "annotations": {},
    }
    if key.namespace:
        metadata["namespace"] = key.namespace
    if owner:
        metadata["ownerReferences"] = [make_reference(owner)]
    return {"apiVersion": VERSIONS[key.kind], "kind": key.kind, "metadata": metadata, **fields}


def make_reference(owner: Json) -> Json:
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def make_workload_objects(workload: Workload, *, pods: int, created_at: float) -> list[Json]:
    """The root object of a workload, and the one between it and its pods, if its kind has one."""
    root = _make_controlled(ObjectKey(workload.kind, workload.namespace, workload.name), pods, created_at, None)
    if not find_kind(workload.kind).children:
        return [root]
    below = find_kind(workload.kind).children[0]
    suffix = f"-{make_uid(workload)[:8]}" if below == "ReplicaSet" else ""
    key = ObjectKey(below, workload.namespace, f"{workload.name}{suffix}")
    return [root, _make_controlled(key, pods, created_at, root)]


def _make_controlled(key: ObjectKey, pods: int, created_at: float, owner: Json | None) -> Json:
    fields = {"spec": _make_spec(key.kind, pods), "status": make_status(key.kind, pods, is_suspended=False)}
    return make_object(key, created_at=created_at, owner=owner, **fields)


def make_pod(pod: PlacedPod, owner: Json) -> Json:
    """Its uid is that of the simulation, which the metrics name too."""
    container = pod.container
    key = ObjectKey("Pod", container.namespace, container.pod)
    limits = {"nvidia.com/gpu": str(pod.gpus)}
    made = make_object(
        key,
        created_at=container.started_at or 0.0,
        owner=owner,
        spec={"nodeName": pod.node, "containers": [{"name": container.name, "resources": {"limits": limits}}]},
        status={
            "phase": "Running",
            "startTime": format_time(container.started_at or 0.0),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    )
    made["metadata"] |= {"uid": container.pod_uid, "labels": dict(container.pod_labels)}
    return made


def count_wanted(one: Json, before: int) -> int:
    """The pods that shall run, of those before: none if the fields of its kind suspend it."""
    kind, read = find_kind(one["kind"]), partial(read_pointer, one)
    if kind.replicas:
        return int(read(kind.replicas) or 0)
    return 0 if kind.is_suspended(read) else before


def _make_spec(kind: str, pods: int) -> Json:
    if kind == "Job":
        return {"parallelism": pods, "completions": pods, "suspend": False}
    if kind == "PyTorchJob":
        replicas = {"Master": {"replicas": 1}, "Worker": {"replicas": max(pods - 1, 0)}}
        return {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": replicas}
    return {"template": {}} if kind == "Notebook" else {"replicas": pods}


def make_status(kind: str, pods: int, *, is_suspended: bool) -> Json:
    """`pods`: those that run."""
    if kind == "Job":
        suspended = {"type": "Suspended", "status": str(is_suspended), "reason": "JobSuspended"}
        return {"active": pods, "ready": pods, "conditions": [suspended]}
    if kind == "PyTorchJob":
        states = {"Created": True, "Running": not is_suspended, "Suspended": is_suspended}
        return {"conditions": [{"type": name, "status": str(value)} for name, value in states.items()]}
    if kind == "Notebook":
        return {"readyReplicas": pods, "containerState": {"running": {}} if pods else {}}
    return {"replicas": pods, "readyReplicas": pods, "availableReplicas": pods, "observedGeneration": 1}
