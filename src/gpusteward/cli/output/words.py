"""Words and texts that several commands print."""

from collections.abc import Mapping

from gpusteward.core.messages import Message

MODES: Mapping[str, Message] = {
    "off": Message("off", "关闭"),
    "observe": Message("observe (dry run)", "仅观察（试运行）"),
    "enforce": Message("enforce", "执行"),
}
WORKLOAD = Message("workload", "工作负载")
GPUS = Message("gpus", "GPU")
POLICY = Message("policy", "策略")
ACTION = Message("action", "动作")
WHY = Message("why", "原因")
STATE = Message("state", "状态")
MODE_OFF = Message(
    "reclaim is off (reclaim.mode); docs/how-to/reclaim.md says how to switch it on",
    "回收功能未启用（reclaim.mode）；启用方法见 docs/zh-CN/how-to/reclaim.md",
)
STOPPED = Message("Nothing is done: {reason}", "不会执行任何操作：{reason}")
READING = Message("reading ...", "正在读取 ...")
FIRST_ROWS = Message("first {shown} of {total} {total:|row|rows}", "前 {shown} 行，共 {total} 行")
ALL_ROWS = Message("{total} {total:|row|rows}", "共 {total} 行")
CORE = Message("core", "核心")
MEMORY = Message("memory", "显存")
NO_PROCESSES = Message("No processes on its GPUs.", "其 GPU 上没有进程。")
PROOF = Message("proof", "测量方式")
NEXT = Message("next", "后续")
VERDICT = Message("verdict", "结论")
USER = Message("user", "用户")
MODEL = Message("model", "型号")
