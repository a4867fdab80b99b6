"""Deployment, ReplicaSet, Rollout of Argo, LeaderWorkerSet: suspended by replicas 0.

The object itself is patched, not its `/scale`: a patch there leaves nobody owning `spec.replicas`, and its annotations
are dropped. An HPA leaves an owner with 0 replicas alone (ScalingDisabled) until it has more again. A scale-down does
not respect PodDisruptionBudgets.
"""

from gpusteward.analyzer.reclaim.kinds.kind import Kind, patch_right
from gpusteward.messages import reclaim_kinds as messages

REPLICAS = "/spec/replicas"


def _replicated(group: str, name: str, *, is_pool: bool) -> Kind:
    return Kind(
        group,
        name,
        {REPLICAS: 0},
        messages.LOST_REPLICAS,
        is_pool=is_pool,
        replicas=REPLICAS,
        rights=(patch_right(group, name),),
    )


DEPLOYMENT = _replicated("apps", "Deployment", is_pool=True)
REPLICA_SET = _replicated("apps", "ReplicaSet", is_pool=True)
ROLLOUT = _replicated("argoproj.io", "Rollout", is_pool=True)
LEADER_WORKER_SET = _replicated("leaderworkerset.x-k8s.io", "LeaderWorkerSet", is_pool=False)
"""Its groups are removed from the highest index down, whatever they do."""
