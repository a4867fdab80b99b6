"""Workload of Kueue: suspended by `spec.active: false`. A job in a queue is stopped only through it.

Kueue suspends the job, and does not queue it again until it is active; then it may wait. If the job itself were
suspended, Kueue would resume it. Deployments and ReplicaSets in a queue are different: each of their pods has a
Workload, and a pod that is stopped is created again; they are scaled as usual.
"""

from collections.abc import Iterable, Sequence

from gpusteward.analyzer.reclaim.kinds.kind import Kind, patch_right
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim_kinds as messages

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")
QUEUE = "kueue.x-k8s.io/queue-name"
JOB_UID = "kueue.x-k8s.io/job-uid"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
SCALED_KINDS = (("apps", "Deployment"), ("apps", "ReplicaSet"))


def is_inactive(one: KubeObject) -> Message | None:
    is_so = one.has_condition("Finished") or one.spec.get("active") is False
    return messages.WORKLOAD_FINISHED if is_so else None


WORKLOAD = Kind(
    GROUP,
    "Workload",
    {"/spec/active": False},
    messages.LOST_QUEUED,
    refusals=(is_inactive,),
    rights=(patch_right(GROUP, "Workload"),),
)


def find_queued(chain: Iterable[KubeObject]) -> KubeObject | None:
    """The object of these that is in a queue, and that Kueue starts and stops as a whole."""
    return next((one for one in chain if QUEUE in one.labels and (one.group, one.kind) not in SCALED_KINDS), None)


def is_dispatched(chain: Iterable[KubeObject]) -> bool:
    """Whether MultiKueue runs it in another cluster."""
    return any(
        MULTIKUEUE in (one.spec.get("managedBy"), (one.spec.get("runPolicy") or {}).get("managedBy")) for one in chain
    )


def select_workloads(queued: KubeObject, workloads: Sequence[KubeObject]) -> list[KubeObject]:
    """Those that belong to an object, by its uid."""
    return [
        one
        for one in workloads
        if one.labels.get(JOB_UID) == queued.uid or any(each.get("uid") == queued.uid for each in one.owners)
    ]
