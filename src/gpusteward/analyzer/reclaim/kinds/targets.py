"""Which objects to act on for a workload (pure).

Owner references are followed from the pod to the root, each owner read with its uid. The root decides: a kind that
reclaim does not suspend is refused, since it would start again what is stopped below it. Exceptions: of a CronJob its
running Jobs are suspended; what is in a queue of Kueue is stopped through its Workload; where KEDA scales an owner, its
ScaledObject keeps it at 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpusteward.analyzer.reclaim.kinds.objects import ACTION, KubeObject
from gpusteward.analyzer.reclaim.kinds.refusals import QUEUE, find_refusal
from gpusteward.analyzer.reclaim.policies.policy import ReclaimAction
from gpusteward.core.kinds import KINDS, WorkloadKind
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim_kinds as messages

CRON_JOB, JOB = ("batch", "CronJob"), ("batch", "Job")
WORKLOAD, SCALED_OBJECT = ("kueue.x-k8s.io", "Workload"), ("keda.sh", "ScaledObject")
WORKLOAD_VERSIONS = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")
JOB_UID = "kueue.x-k8s.io/job-uid"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
_QUEUED_BY_POD = (("apps", "Deployment"), ("apps", "ReplicaSet"))
"""Each of their pods has a Workload, and a pod that is stopped is created again: they are scaled as usual."""

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

    @property
    def queued(self) -> KubeObject | None:
        """The owner that is in a queue, and that Kueue starts and stops as a whole."""
        found = (one for one in self.owners if QUEUE in one.labels and (one.group, one.kind) not in _QUEUED_BY_POD)
        return next(found, None)

    def list_pods_below(self, uid: str) -> set[str]:
        """The names of its pods that have an owner with this uid, or have it themselves."""
        pairs = zip(self.pods, self.chains, strict=True)
        return {pod.name for pod, chain in pairs if uid in (pod.uid, *(one.uid for one in chain))}


class Chosen(NamedTuple):
    """An object to act on."""

    kind: WorkloadKind
    object: KubeObject


Targets = tuple[list[Chosen], Message | None]


def choose_targets(
    objects: WorkloadObjects, action: ReclaimAction, list_objects: ListObjects, *, lowered_by: str = ""
) -> Targets:
    """The objects to act on, or why there are none. `lowered_by`: the action that has lowered a pool already.
    `list_objects` may raise SourceError."""
    root, queued = objects.root, objects.queued
    for one in objects.owners:
        if MULTIKUEUE in (one.spec.get("managedBy"), one.read("/spec/runPolicy/managedBy")):
            return [], messages.MULTIKUEUE
    if queued is not None:
        return _choose_workload(queued, list_objects)
    if (root.group, root.kind) == CRON_JOB:
        jobs = [one for one in objects.owners if (one.group, one.kind) == JOB]
        return _check(*(Chosen(KINDS[JOB], one) for one in jobs)) if jobs else ([], messages.NO_RUNNING_JOB)
    return _choose_root(root, action, list_objects, lowered_by=lowered_by)


def _choose_root(root: KubeObject, action: ReclaimAction, list_objects: ListObjects, *, lowered_by: str) -> Targets:
    kind = KINDS.get((root.group, root.kind))
    if kind is None or kind.loss is None:
        return [], messages.UNKNOWN_KIND.fill(kind=root.kind, group=root.group or "v1")
    if root.controller is not None and not kind.is_evicted:
        return [], messages.OWNED_BY_UNKNOWN.fill(kind=root.controller.kind, name=root.controller.name)
    if kind.is_evicted != (action is ReclaimAction.EVICT):
        is_pod = kind.is_evicted
        return [], messages.EVICTION_NOT_CHOSEN if is_pod else messages.EVICTION_FOR_BARE_PODS.fill(kind=root.kind)
    lowers_replicas = action is ReclaimAction.SCALE_TO_KEEP
    if lowers_replicas and not kind.has_deletion_cost:
        return [], messages.NOT_A_POOL.fill(kind=root.kind)
    # An autoscaler leaves an owner with 0 replicas alone, and would change back any other number that we set.
    if lowers_replicas:
        scalers = _list_scaling(root, list_objects("autoscaling/v2", "HorizontalPodAutoscaler", root.namespace))
        if scalers:
            return [], messages.POOL_SCALED_BY_OTHERS.fill(kind=scalers[0].kind, name=scalers[0].name)
    if kind.is_scaled_by_keda:
        found = _list_scaling(root, list_objects("keda.sh/v1alpha1", "ScaledObject", root.namespace))
        if len(found) > 1:
            return [], messages.SEVERAL_SCALED_OBJECTS.fill(count=len(found))
        if found and lowers_replicas:
            return [], messages.POOL_SCALED_BY_OTHERS.fill(kind=found[0].kind, name=found[0].name)
        if found:
            return _check(Chosen(KINDS[SCALED_OBJECT], found[0]))
    return _check(Chosen(kind, root), lowered_by=lowered_by)


def _list_scaling(target: KubeObject, found: Sequence[KubeObject]) -> list[KubeObject]:
    """Those of these ScaledObjects or autoscalers that scale an object; without a kind they mean a Deployment."""
    references = ((one, one.spec.get("scaleTargetRef") or {}) for one in found)
    return [
        one
        for one, reference in references
        if (reference.get("kind", "Deployment"), reference.get("name")) == (target.kind, target.name)
    ]


def _choose_workload(queued: KubeObject, list_objects: ListObjects) -> Targets:
    """The Workload that belongs to an object, by its uid."""
    for version in WORKLOAD_VERSIONS:
        found = [
            one
            for one in list_objects(version, "Workload", queued.namespace)
            if one.labels.get(JOB_UID) == queued.uid or any(each.get("uid") == queued.uid for each in one.owners)
        ]
        if len(found) == 1:
            return _check(Chosen(KINDS[WORKLOAD], found[0]))
        if found:
            break
    return [], messages.QUEUE_WITHOUT_WORKLOAD.fill(queue=queued.labels[QUEUE], count=len(found))


def _check(*chosen: Chosen, lowered_by: str = "") -> Targets:
    for kind, one in chosen:
        about = {"kind": one.kind, "name": one.name}
        if one.is_deleted:
            return [], messages.BEING_DELETED.fill(**about)
        if one.annotations.get(ACTION, lowered_by) != lowered_by:  # the original that it kept must not be overwritten
            return [], messages.CHANGED_BEFORE.fill(**about, annotation=ACTION, action=one.annotations[ACTION])
        if (reason := find_refusal(kind, one)) is not None:
            return [], reason
        if kind.is_suspended(one.read):
            return [], messages.ALREADY_SUSPENDED.fill(**about)
    return list(chosen), None


def list_stopped(objects: WorkloadObjects, chosen: Sequence[Chosen]) -> list[KubeObject]:
    """The owners all of whose pods stop when these are changed. What is changed need not own them: a Workload of Kueue
    stops a job, a ScaledObject a Deployment."""
    if (queued := objects.queued) is not None:
        return [queued]
    is_cron = (objects.root.group, objects.root.kind) == CRON_JOB
    return [each.object for each in chosen] if is_cron else [objects.root]


def find_kind_at(path: str, kind: str) -> WorkloadKind | None:
    """The kind of the object at a path of the API, if reclaim suspends it."""
    found = KINDS.get((path.split("/")[2] if path.startswith("/apis/") else "", kind))
    return found if found is not None and found.loss is not None else None
