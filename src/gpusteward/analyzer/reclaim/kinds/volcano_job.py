"""Job of Volcano: no field suspends it. A Command that refers to it aborts it, another one resumes it."""

from gpusteward.analyzer.reclaim.kinds.kind import Command, Kind, Right, patch_right
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim_kinds as messages

GROUP = "batch.volcano.sh"
COMMANDS = "bus.volcano.sh/v1alpha1"
STOPPED_PHASES = ("Aborting", "Aborted")


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
