"""RayCluster, RayJob, RayService of KubeRay: suspended by `spec.suspend`.

A RayCluster is suspended as a whole, head and workers; suspending one worker group is not for users. One that a RayJob
or a RayService owns is left to its owner.
"""

from gpusteward.analyzer.reclaim.kinds.job import SUSPEND
from gpusteward.analyzer.reclaim.kinds.kind import Kind, patch_right
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim_kinds as messages

GROUP = "ray.io"


def is_finished(one: KubeObject) -> Message | None:
    is_so = one.status.get("jobDeploymentStatus") in ("Complete", "Failed")
    return messages.FINISHED.fill(kind=one.kind, name=one.name) if is_so else None


def uses_foreign_cluster(one: KubeObject) -> Message | None:
    return messages.USES_FOREIGN_CLUSTER if one.spec.get("clusterSelector") else None


RAY_CLUSTER = Kind(
    GROUP,
    "RayCluster",
    {SUSPEND: True},
    messages.LOST_RAY,
    stopped_conditions=("RayClusterSuspended",),
    rights=(patch_right(GROUP, "RayCluster"),),
)
RAY_JOB = Kind(
    GROUP,
    "RayJob",
    {SUSPEND: True},
    messages.LOST_RAY_JOB,
    refusals=(is_finished, uses_foreign_cluster),
    rights=(patch_right(GROUP, "RayJob"),),
)
RAY_SERVICE = Kind(
    GROUP, "RayService", {SUSPEND: True}, messages.LOST_SERVICE, rights=(patch_right(GROUP, "RayService"),)
)
