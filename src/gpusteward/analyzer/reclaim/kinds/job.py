"""Job of batch/v1, also as the running Job of a CronJob: suspended by `spec.suspend`.

The controller deletes the active pods and keeps what is completed; resumed, it starts new pods. `suspend` of a CronJob
only blocks future runs, so it is not touched.
"""

from gpusteward.analyzer.reclaim.kinds.kind import Kind, patch_right
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim_kinds as messages

SUSPEND = "/spec/suspend"
JOB_CONTROLLER = "kubernetes.io/job-controller"


def is_finished(one: KubeObject) -> Message | None:
    """A suspend would be accepted, and have no effect."""
    if one.has_condition("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"):
        return messages.FINISHED.fill(kind=one.kind, name=one.name)
    return None


def has_other_manager(one: KubeObject) -> Message | None:
    manager = one.spec.get("managedBy") or JOB_CONTROLLER
    return None if manager == JOB_CONTROLLER else messages.MANAGED_BY.fill(manager=manager)


JOB = Kind(
    "batch",
    "Job",
    {SUSPEND: True},
    messages.LOST_JOB,
    refusals=(is_finished, has_other_manager),
    stopped_conditions=("Suspended",),
    rights=(patch_right("batch", "Job"),),
)
