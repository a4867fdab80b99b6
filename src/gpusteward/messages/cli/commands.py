"""Errors and output of `ps`, `report` and `snooze`."""

from gpusteward.core.messages import Message

# `ps`

HOLDS_ANOTHER_GPU = Message("{name} (another GPU is allocated to it)", "{name}（分配的是另一张 GPU）")
NO_PROCESSES_OF = Message("{name} (no processes)", "{name}（无进程）")
USED_BY_POD = Message("{name} (used by {pod})", "{name}（由 {pod} 使用）")
USED_BY_POD_WITHOUT_PROCESSES = Message("{name} (used by {pod}, no processes)", "{name}（由 {pod} 使用，无进程）")
ON_HOST = Message("(host)", "（宿主机）")
UNATTRIBUTED = Message("(unknown)", "（未知）")
NO_PROCESSES = Message("No processes on the GPUs of {node}.", "{node} 的 GPU 上没有进程。")

# `report`


# `snooze`

SNOOZE_WORKLOAD = Message("workload", "工作负载")
SNOOZE_UNTIL = Message("snoozed until", "暂缓至")
SNOOZE_WHO = Message("by", "操作者")
SNOOZE_REASON = Message("reason", "原因")
