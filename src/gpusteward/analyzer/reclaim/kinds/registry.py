"""The table of kinds; which objects to act on for a workload; the rights that reclaim needs.

Owner references are followed from the pod to the root, each owner read with its uid. The root decides: a kind that is
not in the table is refused, since it would start again what is stopped below it. Two exceptions: of a CronJob its
running Jobs are suspended, and what is in a queue of Kueue is stopped through its Workload.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpusteward.analyzer.reclaim.kinds import (
    autoscalers,
    bare_pod,
    inference_service,
    job,
    job_sets,
    kueue,
    notebook,
    ray,
    replicated,
    stateful_set,
    training,
    volcano_job,
    workspace,
)
from gpusteward.analyzer.reclaim.kinds.kind import Kind, Right
from gpusteward.analyzer.reclaim.kinds.objects import ACTION, KubeObject
from gpusteward.analyzer.reclaim.kinds.resource_claims import CLAIM_RIGHT
from gpusteward.analyzer.reclaim.policies.policy import ReclaimAction
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim_kinds as messages

KINDS: Mapping[tuple[str, str], Kind] = {
    (kind.group, kind.name): kind
    for kind in (
        replicated.DEPLOYMENT,
        replicated.REPLICA_SET,
        stateful_set.STATEFUL_SET,
        job.JOB,
        notebook.NOTEBOOK,
        workspace.WORKSPACE,
        inference_service.INFERENCE_SERVICE,
        ray.RAY_CLUSTER,
        ray.RAY_JOB,
        ray.RAY_SERVICE,
        *training.TRAINING_JOBS,
        job_sets.TRAIN_JOB,
        job_sets.JOB_SET,
        replicated.LEADER_WORKER_SET,
        replicated.ROLLOUT,
        kueue.WORKLOAD,
        autoscalers.SCALED_OBJECT,
        volcano_job.VOLCANO_JOB,
        bare_pod.BARE_POD,
    )
}
CRON_JOB = ("batch", "CronJob")
_SCALED_BY_KEDA = (replicated.DEPLOYMENT, stateful_set.STATEFUL_SET, replicated.ROLLOUT)

SHARED_RIGHTS = (
    Right("", "pods", ("patch",)),  # the deletion cost of surplus replicas
    Right("", "events", ("create",)),
)
"""Beyond the kinds."""
OWN_NAMESPACE_RIGHTS = (Right("coordination.k8s.io", "leases", ("get", "create", "patch")),)
"""In the analyzer's own namespace only."""
OBSERVE_RIGHTS = (
    Right("", "pods", ("get", "list")),  # which pods are there and wait
    # Annotations: keep, and the switch that stops all actions. The uid of kube-system tells clusters apart.
    Right("", "namespaces", ("get",)),
    CLAIM_RIGHT,  # which devices a pod holds through dynamic resource allocation
    Right(kueue.GROUP, "workloads", ("get", "list")),
    Right(autoscalers.KEDA, "scaledobjects", ("get", "list")),
    autoscalers.AUTOSCALER_RIGHT,
)
"""What reclaim reads in every mode, in the whole cluster, beyond pods and their owners. A dry run needs the right to
write: without it, it shows the 403 that enforce would meet."""


def list_enforce_rights() -> list[Right]:
    """What mode enforce may change, in the whole cluster or in the namespaces of `reclaim.namespaces`."""
    return list(dict.fromkeys((*SHARED_RIGHTS, *(right for kind in KINDS.values() for right in kind.rights))))


ListObjects = Callable[[str, str, str], Sequence[KubeObject]]
"""Version, kind, namespace -> all objects; none where the cluster does not have the kind. May raise SourceError."""


@dataclass(frozen=True)
class WorkloadObjects:
    """The pods of a workload with everything above them, as they are now."""

    root: KubeObject
    pods: Sequence[KubeObject]
    chains: Sequence[Sequence[KubeObject]]  # of each pod: its owners, the nearest first, the root last

    @property
    def owners(self) -> list[KubeObject]:
        """Every owner once."""
        return list({one.uid: one for chain in self.chains for one in chain}.values())

    def list_pods_below(self, uid: str) -> set[str]:
        """The names of its pods that have an owner with this uid, or have it themselves."""
        pairs = zip(self.pods, self.chains, strict=True)
        return {pod.name for pod, chain in pairs if uid in (pod.uid, *(one.uid for one in chain))}


class Chosen(NamedTuple):
    """An object to act on."""

    kind: Kind
    object: KubeObject


def choose_targets(
    objects: WorkloadObjects, action: ReclaimAction, list_objects: ListObjects
) -> tuple[list[Chosen], Message | None]:
    """The objects to act on, or why there are none. `list_objects` may raise SourceError."""
    root = objects.root
    if kueue.is_dispatched(objects.owners):
        return [], messages.MULTIKUEUE
    if queued := kueue.find_queued(objects.owners):
        chosen, reason = _choose_workload(queued, list_objects)
    elif (root.group, root.kind) == CRON_JOB:
        chosen, reason = _choose_jobs(objects)
    else:
        chosen, reason = _choose_root(root, action, list_objects)
    return (chosen, None) if reason is None else ([], reason)


def _choose_root(
    root: KubeObject, action: ReclaimAction, list_objects: ListObjects
) -> tuple[list[Chosen], Message | None]:
    kind = KINDS.get((root.group, root.kind))
    if kind is None:
        return [], messages.UNKNOWN_KIND.fill(kind=root.kind, group=root.group or "v1")
    if root.controller is not None and not kind.is_evicted:
        return [], messages.OWNED_BY_UNKNOWN.fill(kind=root.controller["kind"], name=root.controller["name"])
    if kind.is_evicted != (action is ReclaimAction.EVICT):
        is_pod = kind.is_evicted
        return [], messages.EVICTION_NOT_CHOSEN if is_pod else messages.EVICTION_FOR_BARE_PODS.fill(kind=root.kind)
    if action is ReclaimAction.SCALE_TO_KEEP and not kind.is_pool:
        return [], messages.NOT_A_POOL.fill(kind=root.kind)
    if action is ReclaimAction.SCALE_TO_KEEP and autoscalers.select_scaling(
        root, list_objects(autoscalers.AUTOSCALERS, "HorizontalPodAutoscaler", root.namespace)
    ):
        return [], messages.POOL_SCALED_BY_OTHERS
    if kind in _SCALED_BY_KEDA:
        found = autoscalers.select_scaling(
            root, list_objects(autoscalers.SCALED_OBJECTS, "ScaledObject", root.namespace)
        )
        if len(found) > 1:
            return [], messages.SEVERAL_SCALED_OBJECTS.fill(count=len(found))
        if found and action is ReclaimAction.SCALE_TO_KEEP:
            return [], messages.POOL_SCALED_BY_OTHERS
        if found:
            return _check([Chosen(autoscalers.SCALED_OBJECT, found[0])])
    return _check([Chosen(kind, root)])


def _choose_workload(queued: KubeObject, list_objects: ListObjects) -> tuple[list[Chosen], Message | None]:
    for version in kueue.VERSIONS:
        found = kueue.select_workloads(queued, list_objects(f"{kueue.GROUP}/{version}", "Workload", queued.namespace))
        if len(found) == 1:
            return _check([Chosen(kueue.WORKLOAD, found[0])])
        if found:
            break
    return [], messages.QUEUE_WITHOUT_WORKLOAD.fill(queue=queued.labels[kueue.QUEUE], count=len(found))


def _choose_jobs(objects: WorkloadObjects) -> tuple[list[Chosen], Message | None]:
    jobs = [one for one in objects.owners if (one.group, one.kind) == ("batch", "Job")]
    return _check([Chosen(job.JOB, one) for one in jobs]) if jobs else ([], messages.NO_RUNNING_JOB)


def list_stopped(objects: WorkloadObjects, chosen: Sequence[Chosen]) -> list[KubeObject]:
    """The owners all of whose pods stop when these are changed. What is changed need not own them: a Workload of Kueue
    stops a job, a ScaledObject a Deployment."""
    if queued := kueue.find_queued(objects.owners):
        return [queued]
    is_cron = (objects.root.group, objects.root.kind) == CRON_JOB
    return [each.object for each in chosen] if is_cron else [objects.root]


def _check(chosen: Sequence[Chosen]) -> tuple[list[Chosen], Message | None]:
    for kind, one in chosen:
        about = {"kind": one.kind, "name": one.name}
        if one.is_deleted:
            return [], messages.BEING_DELETED.fill(**about)
        if ACTION in one.annotations:  # the original that it kept must not be overwritten
            return [], messages.CHANGED_BEFORE.fill(**about, annotation=ACTION, action=one.annotations[ACTION])
        if (reason := kind.find_refusal(one)) is not None:
            return [], reason
        if kind.is_suspended(one):
            return [], messages.ALREADY_SUSPENDED.fill(**about)
    return list(chosen), None


def find_kind(path: str, kind: str) -> Kind | None:
    """The kind of the object at a path of the API."""
    group = path.split("/")[2] if path.startswith("/apis/") else ""
    return KINDS.get((group, kind))
