"""Job of Volcano: no field suspends it. A Command that refers to it aborts it, another one resumes it.

Volcano's controller deletes a Command, then carries it out from memory: deletes the pods, then writes phase Aborting.
Between the two nothing shows that the job is being aborted. If the controller ends there, the Command is lost; if it is
away, the Command waits, and is carried out when it comes back.
"""

from gpusteward.analyzer.reclaim.kinds.kind import Command, Kind, Right, patch_right
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim_kinds as messages

GROUP = "batch.volcano.sh"
COMMANDS = "bus.volcano.sh/v1alpha1"


def is_stopped(one: KubeObject) -> bool:
    """Whether it is aborted, or is being aborted."""
    return one.read("/status/state/phase") in ("Aborting", "Aborted")


def is_not_running(one: KubeObject) -> Message | None:
    phase = (one.status.get("state") or {}).get("phase", "")
    return None if phase in ("", "Pending", "Running") else messages.VOLCANO_NOT_RUNNING.fill(phase=phase)


VOLCANO_JOB = Kind(
    GROUP,
    "Job",
    {},
    messages.LOST_TRAINING,
    refusals=(is_not_running,),
    stop=Command(COMMANDS, "Command", "AbortJob"),
    resume=Command(COMMANDS, "Command", "ResumeJob"),
    rights=(patch_right(GROUP, "Job"), Right("bus.volcano.sh", "commands", ("create",))),
)
