"""How people use a workload, by the kind of its owner."""

from gpusteward.analyzer.judge.signatures.evidence import RUN_THROUGH_KINDS
from gpusteward.analyzer.reclaim.policies.policy import WorkloadClass

INTERACTIVE_KINDS = ("Notebook", "Workspace", "Pod", "RayCluster")
SERVING_KINDS = (
    *("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "Rollout", "DaemonSet"),
    *("InferenceService", "LeaderWorkerSet", "RayService", "Service", "CloneSet"),
)
POOL_KINDS = ("Deployment", "ReplicaSet", "InferenceService", "LeaderWorkerSet", "Rollout")
"""Kinds whose replicas can be interchangeable. Those of a StatefulSet have an identity each."""


def find_class(kind: str) -> WorkloadClass:
    """A kind that is not known counts as a job: the longest window."""
    if kind in INTERACTIVE_KINDS:
        return WorkloadClass.INTERACTIVE
    if kind in SERVING_KINDS:
        return WorkloadClass.SERVING
    return WorkloadClass.BATCH


def list_kinds() -> dict[WorkloadClass, tuple[str, ...]]:
    """For the reference page."""
    return {
        WorkloadClass.INTERACTIVE: INTERACTIVE_KINDS,
        WorkloadClass.BATCH: tuple(RUN_THROUGH_KINDS),
        WorkloadClass.SERVING: SERVING_KINDS,
    }
