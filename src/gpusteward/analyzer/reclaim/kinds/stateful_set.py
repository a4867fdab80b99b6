"""StatefulSet: suspended by replicas 0, refused where that would delete its volumes."""

from gpusteward.analyzer.reclaim.kinds.kind import Kind, patch_right
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.analyzer.reclaim.kinds.replicated import REPLICAS
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim_kinds as messages


def loses_volumes(one: KubeObject) -> Message | None:
    policy = one.spec.get("persistentVolumeClaimRetentionPolicy") or {}
    return messages.LOSES_VOLUMES if policy.get("whenScaled") == "Delete" else None


STATEFUL_SET = Kind(
    "apps",
    "StatefulSet",
    {REPLICAS: 0},
    messages.LOST_STATEFUL,
    refusals=(loses_volumes,),
    replicas=REPLICAS,
    rights=(patch_right("apps", "StatefulSet"),),
)
