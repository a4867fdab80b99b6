"""JobSet, and TrainJob of Kubeflow Trainer v2, which makes one: both suspended by `spec.suspend`."""

from gpusteward.analyzer.reclaim.kinds.job import SUSPEND
from gpusteward.analyzer.reclaim.kinds.kind import FindRefusal, Kind, patch_right
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim_kinds as messages


def is_finished(one: KubeObject) -> Message | None:
    """A JobSet completes as Completed, a TrainJob as Complete."""
    is_so = one.has_condition("Completed", "Complete", "Failed") or bool(one.status.get("terminalState"))
    return messages.FINISHED.fill(kind=one.kind, name=one.name) if is_so else None


def refuse_other_managers(controller: str) -> FindRefusal:
    def has_other_manager(one: KubeObject) -> Message | None:
        manager = one.spec.get("managedBy") or controller
        return None if manager == controller else messages.MANAGED_BY.fill(manager=manager)

    return has_other_manager


def _suspendable(group: str, name: str, controller: str) -> Kind:
    return Kind(
        group,
        name,
        {SUSPEND: True},
        messages.LOST_TRAINING,
        refusals=(is_finished, refuse_other_managers(controller)),
        stopped_conditions=("Suspended",),
        rights=(patch_right(group, name),),
    )


JOB_SET = _suspendable("jobset.x-k8s.io", "JobSet", "jobset.sigs.k8s.io/jobset-controller")
TRAIN_JOB = _suspendable("trainer.kubeflow.org", "TrainJob", "trainer.kubeflow.org/trainjob-controller")
