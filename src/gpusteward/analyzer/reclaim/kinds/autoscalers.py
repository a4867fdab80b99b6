"""What scales an owner besides us.

ScaledObject of KEDA: suspended by the annotation `autoscaling.keda.sh/paused-replicas: "0"`. KEDA would scale an owner
up again, so it is told to keep it at 0; without the annotation it scales by its triggers.

HorizontalPodAutoscaler: leaves an owner with 0 replicas alone, and would change back any other number that we set.
"""

from collections.abc import Sequence

from gpusteward.analyzer.reclaim.kinds.kind import Kind, Right, patch_right
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject, annotation
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim_kinds as messages

KEDA, SCALED_OBJECTS = "keda.sh", "keda.sh/v1alpha1"
AUTOSCALING, AUTOSCALERS = "autoscaling", "autoscaling/v2"
AUTOSCALER_RIGHT = Right(AUTOSCALING, "horizontalpodautoscalers", ("list",))
PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
PAUSES = (PAUSED_REPLICAS, "autoscaling.keda.sh/paused", "autoscaling.keda.sh/paused-scale-in")


def is_paused(one: KubeObject) -> Message | None:
    is_so = any(name in one.annotations for name in PAUSES)
    return messages.SCALED_OBJECT_PAUSED.fill(name=one.name) if is_so else None


SCALED_OBJECT = Kind(
    KEDA,
    "ScaledObject",
    {annotation(PAUSED_REPLICAS): "0"},
    messages.LOST_REPLICAS,
    refusals=(is_paused,),
    rights=(patch_right(KEDA, "ScaledObject"),),
)


def select_scaling(target: KubeObject, found: Sequence[KubeObject]) -> list[KubeObject]:
    """Those of these ScaledObjects or autoscalers that scale an object; without a kind they mean a Deployment."""
    return [one for one in found if _is_scaled(target, one.spec.get("scaleTargetRef") or {})]


def _is_scaled(target: KubeObject, reference: dict[str, str]) -> bool:
    return reference.get("name") == target.name and reference.get("kind", "Deployment") == target.kind
