"""Kubernetes objects of the simulated workloads: what an API server would return for them (pure).

A workload has a root object, for some kinds one between it and its pods, and its pods. The rules of the controllers are
here too: which pods shall run, and the status that follows from those that do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from gpusteward.core.containers import Container, Workload

Json = dict[str, Any]
NOTEBOOK_STOPPED = "kubeflow-resource-stopped"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


class Resource(NamedTuple):
    """A resource of the simulated API server."""

    version: str  # with its group, as in apps/v1
    kind: str
    is_namespaced: bool = True
    is_made_here: bool = False  # clients may create objects

    @property
    def plural(self) -> str:
        return f"{self.kind.lower()}s"


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

_BETWEEN = {"Deployment": "ReplicaSet", "Notebook": "StatefulSet"}
"""The kind between a workload and its pods."""
VERSIONS = {each.kind: each.version for each in RESOURCES if each.kind != "Event"}


class ObjectKey(NamedTuple):
    """Where an object is."""

    kind: str
    namespace: str
    name: str


class SimulatedPod(NamedTuple):
    """A pod that runs, and which one of its workload it is."""

    container: Container
    ordinal: int
    node: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Controller:
    """What the controller of a kind does with its object."""

    spec: Callable[[int], Json]  # number of pods -> the spec of the object
    count_wanted: Callable[[Json, int], int]  # object, pods before -> pods that shall run
    status: Callable[[int, bool], Json]  # pods that run, suspended -> status


def format_time(at: float) -> str:
    """As Kubernetes writes times: RFC 3339 in whole seconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
    below = _BETWEEN.get(workload.kind)
    if below is None:
        return [root]
    suffix = f"-{make_uid(workload)[:8]}" if below == "ReplicaSet" else ""
    key = ObjectKey(below, workload.namespace, f"{workload.name}{suffix}")
    return [root, _make_controlled(key, pods, created_at, root)]


def _make_controlled(key: ObjectKey, pods: int, created_at: float, owner: Json | None) -> Json:
    controller = CONTROLLERS[key.kind]
    fields = {"spec": controller.spec(pods), "status": controller.status(pods, False)}
    return make_object(key, created_at=created_at, owner=owner, **fields)


def make_pod(pod: SimulatedPod, owner: Json) -> Json:
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


def _replicas_spec(pods: int) -> Json:
    return {"replicas": pods}


def _job_spec(pods: int) -> Json:
    return {"parallelism": pods, "completions": pods, "suspend": False}


def _training_spec(pods: int) -> Json:
    replicas = {"Master": {"replicas": 1}, "Worker": {"replicas": max(pods - 1, 0)}}
    return {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": replicas}


def _replicas_status(pods: int, _is_suspended: bool) -> Json:
    return {"replicas": pods, "readyReplicas": pods, "availableReplicas": pods, "observedGeneration": 1}


def _job_status(pods: int, is_suspended: bool) -> Json:
    suspended = {"type": "Suspended", "status": "True" if is_suspended else "False", "reason": "JobSuspended"}
    return {"active": pods, "ready": pods, "conditions": [suspended]}


def _training_status(_pods: int, is_suspended: bool) -> Json:
    states = {"Created": True, "Running": not is_suspended, "Suspended": is_suspended}
    return {"conditions": [{"type": name, "status": str(value)} for name, value in states.items()]}


def _notebook_status(pods: int, _is_suspended: bool) -> Json:
    return {"readyReplicas": pods, "containerState": {"running": {}} if pods else {}}


def _count_replicas(one: Json, _before: int) -> int:
    return int(one["spec"].get("replicas") or 0)


def _count_unless(is_stopped: Callable[[Json], bool]) -> Callable[[Json, int], int]:
    return lambda one, before: 0 if is_stopped(one) else before


def _is_notebook_stopped(one: Json) -> bool:
    return NOTEBOOK_STOPPED in (one["metadata"].get("annotations") or {})


def _is_training_suspended(one: Json) -> bool:
    return bool((one["spec"].get("runPolicy") or {}).get("suspend"))


_REPLICATED = Controller(_replicas_spec, _count_replicas, _replicas_status)
CONTROLLERS: Mapping[str, Controller] = {
    "Deployment": _REPLICATED,
    "ReplicaSet": _REPLICATED,
    "StatefulSet": _REPLICATED,
    "Job": Controller(_job_spec, _count_unless(lambda one: bool(one["spec"].get("suspend"))), _job_status),
    "PyTorchJob": Controller(_training_spec, _count_unless(_is_training_suspended), _training_status),
    "Notebook": Controller(lambda _: {"template": {}}, _count_unless(_is_notebook_stopped), _notebook_status),
}
