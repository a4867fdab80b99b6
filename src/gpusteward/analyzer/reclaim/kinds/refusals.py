"""Why a single object must not be touched: what the row of its kind says, and one predicate for each further reason
(pure)."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.core.kinds import WorkloadKind
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim_kinds as messages

QUEUE = "kueue.x-k8s.io/queue-name"
STOPPED = "kubeflow-resource-stopped"
LOCK = "odh-notebook-controller-lock"
PAUSES = (
    "autoscaling.keda.sh/paused-replicas",
    "autoscaling.keda.sh/paused",
    "autoscaling.keda.sh/paused-scale-in",
)
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
MIRROR = "kubernetes.io/config.mirror"
PHASE = "/status/state/phase"
"""Of a Job of Volcano."""


class Refusal(NamedTuple):
    """A reason, and whether it holds for an object."""

    text: Message  # may have the fields of `find_refusal`
    applies: Callable[[KubeObject], bool]


def is_of_model_mesh(one: KubeObject) -> bool:
    mode = one.status.get("deploymentMode") or one.annotations.get("serving.kserve.io/deploymentMode", "")
    return bool(mode == "ModelMesh")


def is_of_jupyterhub(one: KubeObject) -> bool:
    return "hub.jupyter.org/username" in one.labels or one.labels.get("component") == "singleuser-server"


def is_static(one: KubeObject) -> bool:
    return MIRROR in one.annotations or any(each.get("kind") == "Node" for each in one.owners)


REFUSALS: Mapping[tuple[str, str], tuple[Refusal, ...]] = {
    ("apps", "StatefulSet"): (
        Refusal(
            messages.LOSES_VOLUMES,
            lambda one: one.read("/spec/persistentVolumeClaimRetentionPolicy/whenScaled") == "Delete",
        ),
    ),
    ("jobset.x-k8s.io", "JobSet"): (Refusal(messages.FINISHED, lambda one: bool(one.status.get("terminalState"))),),
    ("ray.io", "RayJob"): (
        Refusal(messages.FINISHED, lambda one: one.status.get("jobDeploymentStatus") in ("Complete", "Failed")),
        Refusal(messages.USES_FOREIGN_CLUSTER, lambda one: bool(one.spec.get("clusterSelector"))),
    ),
    ("kubeflow.org", "Notebook"): (
        Refusal(messages.NOTEBOOK_LOCKED.fill(value=LOCK), lambda one: one.annotations.get(STOPPED) == LOCK),
        Refusal(messages.NOTEBOOK_STOPPED, lambda one: STOPPED in one.annotations),
    ),
    ("serving.kserve.io", "InferenceService"): (
        # The controller compares the value case-insensitively.
        Refusal(
            messages.ALREADY_SUSPENDED,
            lambda one: one.annotations.get("serving.kserve.io/stop", "").lower() == "true",
        ),
        Refusal(messages.MODEL_MESH, is_of_model_mesh),
    ),
    ("kueue.x-k8s.io", "Workload"): (
        Refusal(
            messages.WORKLOAD_FINISHED,
            lambda one: one.has_condition("Finished") or one.spec.get("active") is False,
        ),
    ),
    ("keda.sh", "ScaledObject"): (
        Refusal(messages.SCALED_OBJECT_PAUSED, lambda one: any(name in one.annotations for name in PAUSES)),
    ),
    ("batch.volcano.sh", "Job"): (
        Refusal(
            messages.VOLCANO_NOT_RUNNING,
            lambda one: (one.read(PHASE) or "") not in ("", "Pending", "Running"),
        ),
    ),
    # A PodDisruptionBudget may refuse an eviction (429): then it is tried again in a later cycle, and the pod is never
    # deleted instead.
    ("", "Pod"): (
        Refusal(messages.JUPYTERHUB_POD, is_of_jupyterhub),
        Refusal(messages.STATIC_POD, is_static),
        Refusal(
            messages.POD_NOT_EVICTABLE.fill(name=SAFE_TO_EVICT),
            lambda one: one.annotations.get(SAFE_TO_EVICT) == "false",
        ),
        Refusal(
            messages.POD_NOT_EVICTABLE.fill(name=PREFER_NO_EVICTION),
            lambda one: one.annotations.get(PREFER_NO_EVICTION, "false") != "false",
        ),
        Refusal(messages.POD_IN_QUEUE, lambda one: QUEUE in one.labels),
    ),
}


def list_refusals(kind: WorkloadKind) -> Iterator[Refusal]:
    """In the order in which they are tried; the reference page lists them too."""
    yield from REFUSALS.get((kind.group, kind.name), ())
    if kind.finished:  # a suspend would be accepted, and have no effect
        yield Refusal(messages.FINISHED, lambda one: one.has_condition(*kind.finished))
    if kind.managers:
        yield Refusal(
            messages.MANAGED_BY, lambda one: (one.read(kind.managed_by) or kind.managers[0]) not in kind.managers
        )


def find_refusal(kind: WorkloadKind, one: KubeObject) -> Message | None:
    """Why this very object must not be touched; None: it may be."""
    found = next((each for each in list_refusals(kind) if each.applies(one)), None)
    return found and found.text.fill(
        kind=one.kind,
        name=one.name,
        manager=one.read(kind.managed_by),
        node=one.spec.get("nodeName", ""),
        phase=one.read(PHASE),
        queue=one.labels.get(QUEUE),
    )


def is_stopped(one: KubeObject) -> bool:
    """Whether a Job of Volcano is aborted, or is being aborted.

    Volcano's controller deletes a Command, then carries it out from memory: deletes the pods, then writes phase
    Aborting. Between the two nothing shows that the job is being aborted. If the controller ends there, the Command is
    lost; if it is away, the Command waits, and is carried out when it comes back.
    """
    return one.read(PHASE) in ("Aborting", "Aborted")
