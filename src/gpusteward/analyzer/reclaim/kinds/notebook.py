"""Notebook of Kubeflow (v1): suspended by the annotation `kubeflow-resource-stopped`.

Its presence counts, not its value. Its StatefulSet and pod are never touched: the controller puts them back. On
OpenShift AI one value is a lock of a webhook.
"""

from gpusteward.analyzer.reclaim.kinds.kind import NOW, Kind, patch_right
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject, annotation
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim_kinds as messages

STOPPED = "kubeflow-resource-stopped"
LOCK = "odh-notebook-controller-lock"


def is_stopped(one: KubeObject) -> Message | None:
    value = one.annotations.get(STOPPED)
    if value is None:
        return None
    return messages.NOTEBOOK_LOCKED.fill(value=LOCK) if value == LOCK else messages.NOTEBOOK_STOPPED


NOTEBOOK = Kind(
    "kubeflow.org",
    "Notebook",
    {annotation(STOPPED): NOW},
    messages.LOST_NOTEBOOK,
    refusals=(is_stopped,),
    rights=(patch_right("kubeflow.org", "Notebook"),),
)
