"""A pod without an owner: evicted, only where a policy says `action: evict`. Nothing starts it again.

A PodDisruptionBudget may refuse that (429): then it is tried again in a later cycle, and never deleted instead.
"""

from gpusteward.analyzer.reclaim.kinds.kind import Kind, Right
from gpusteward.analyzer.reclaim.kinds.kueue import QUEUE
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim_kinds as messages

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
MIRROR = "kubernetes.io/config.mirror"


def is_of_jupyterhub(one: KubeObject) -> Message | None:
    labels = one.labels
    is_so = "hub.jupyter.org/username" in labels or labels.get("component") == "singleuser-server"
    return messages.JUPYTERHUB_POD if is_so else None


def is_static(one: KubeObject) -> Message | None:
    is_so = MIRROR in one.annotations or any(each.get("kind") == "Node" for each in one.owners)
    return messages.STATIC_POD.fill(node=one.spec.get("nodeName", "")) if is_so else None


def forbids_eviction(one: KubeObject) -> Message | None:
    if one.annotations.get(SAFE_TO_EVICT) == "false":
        return messages.POD_NOT_EVICTABLE.fill(name=SAFE_TO_EVICT)
    is_so = one.annotations.get(PREFER_NO_EVICTION, "false") != "false"
    return messages.POD_NOT_EVICTABLE.fill(name=PREFER_NO_EVICTION) if is_so else None


def is_in_queue(one: KubeObject) -> Message | None:
    queue = one.labels.get(QUEUE)
    return None if queue is None else messages.POD_IN_QUEUE.fill(queue=queue)


BARE_POD = Kind(
    "",
    "Pod",
    {},
    messages.LOST_POD,
    refusals=(is_of_jupyterhub, is_static, forbids_eviction, is_in_queue),
    is_evicted=True,
    rights=(Right("", "pods/eviction", ("create",)),),
)
