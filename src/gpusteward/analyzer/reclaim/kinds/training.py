"""PyTorchJob and its siblings of the training operator (1.7 and newer): suspended by `spec.runPolicy.suspend`.

All pods of a job are deleted together and start from the beginning when it is resumed; one worker alone is never
evicted.
"""

from gpusteward.analyzer.reclaim.kinds.kind import Kind, patch_right
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim_kinds as messages

GROUP = "kubeflow.org"
SUSPEND = "/spec/runPolicy/suspend"
CONTROLLER = "kubeflow.org/training-operator"
NAMES = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")


def is_finished(one: KubeObject) -> Message | None:
    is_so = one.has_condition("Succeeded", "Failed")
    return messages.FINISHED.fill(kind=one.kind, name=one.name) if is_so else None


def has_other_manager(one: KubeObject) -> Message | None:
    """The MPI operator has a name of its own for itself."""
    manager = one.read("/spec/runPolicy/managedBy") or CONTROLLER
    return None if manager in (CONTROLLER, "kubeflow.org/mpi-operator") else messages.MANAGED_BY.fill(manager=manager)


TRAINING_JOBS = tuple(
    Kind(
        GROUP,
        name,
        {SUSPEND: True},
        messages.LOST_TRAINING,
        refusals=(is_finished, has_other_manager),
        stopped_conditions=("Suspended",),
        rights=(patch_right(GROUP, name),),
    )
    for name in NAMES
)
