"""InferenceService of KServe: suspended by the annotation `serving.kserve.io/stop`.

Knative mode knows it from 0.15.1, Standard mode (RawDeployment) from 0.16.0. An older controller ignores it: then the
pods stay, and the action ends as failed and is undone. `minReplicas: 0` has no effect in Standard mode with an HPA.
"""

from gpusteward.analyzer.reclaim.kinds.kind import Kind, patch_right
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject, annotation
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim_kinds as messages

STOP = "serving.kserve.io/stop"
MODE = "serving.kserve.io/deploymentMode"


def is_stopped(one: KubeObject) -> Message | None:
    """The controller compares the value case-insensitively."""
    is_so = one.annotations.get(STOP, "").lower() == "true"
    return messages.ALREADY_SUSPENDED.fill(kind=one.kind, name=one.name) if is_so else None


def shares_pods(one: KubeObject) -> Message | None:
    mode = one.status.get("deploymentMode") or one.annotations.get(MODE, "")
    return messages.MODEL_MESH if mode == "ModelMesh" else None


INFERENCE_SERVICE = Kind(
    "serving.kserve.io",
    "InferenceService",
    {annotation(STOP): "true"},
    messages.LOST_SERVICE,
    refusals=(is_stopped, shares_pods),
    stopped_conditions=("Stopped",),
    rights=(patch_right("serving.kserve.io", "InferenceService"),),
)
