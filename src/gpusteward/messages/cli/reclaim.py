"""Output texts of `plan`, `actions`, `reclaim` and `restore`."""

from collections.abc import Mapping

from gpusteward.core.messages import Message

REFUSED = Message("not reclaimed", "不回收")
"""Before the answer of a guard that refuses, beside a verdict."""
PLANNED = Message("reclaim", "回收")
"""Before what an action stops besides, beside a verdict."""
OUTCOMES: Mapping[str, Message] = {
    "act": Message("act", "执行"),
    "warn": Message("warn", "警告"),
    "wait": Message("wait", "等待"),
    "refuse": Message("refuse", "拒绝"),
    "nothing": Message("nothing", "无操作"),
}
MODES: Mapping[str, Message] = {
    "off": Message("off", "关闭"),
    "observe": Message("observe (dry run)", "仅观察（试运行）"),
    "enforce": Message("enforce", "执行"),
}
WORKLOAD = Message("workload", "工作负载")
GPUS = Message("gpus", "GPU")
IDLE = Message("idle for", "已空闲")
POLICY = Message("policy", "策略")
ACTION = Message("action", "动作")
OUTCOME = Message("outcome", "结果")
WHEN = Message("when", "时间")
WHY = Message("why", "原因")
STATE = Message("state", "状态")
MODE = Message("mode", "模式")
AT = Message("at", "时间")
BY = Message("by", "操作者")
ID = Message("id", "编号")
CHANGE = Message("change", "修改")
YES, NO, NOT_ASKED = Message("yes", "是"), Message("no", "否"), Message("-", "-")
NOW = Message("now", "现在")
IN_TIME = Message("in {duration}", "{duration} 后")
NO_PLAN = Message(
    "no plan yet: the first cycle has not finished, or another replica acts",
    "尚无计划：第一个分析周期未完成，或由其他副本执行",
)
MODE_OFF = Message(
    "reclaim is off (reclaim.mode); docs/how-to/reclaim.md says how to switch it on",
    "回收功能未启用（reclaim.mode）；启用方法见 docs/zh-CN/how-to/reclaim.md",
)
NO_POLICIES = Message(
    "the policy file has no policies: idle workloads are at most notified",
    "策略文件中没有策略：空闲的工作负载最多只通知",
)
WINDOW, GRACE = Message("window", "空闲窗口"), Message("grace", "宽限期")
MATCH = Message("match", "匹配")
NOTHING_PLANNED = Message("nothing is planned", "没有计划")
STOPPED = Message("Nothing is done: {reason}", "不会执行任何操作：{reason}")
SUMMARY = Message("mode {mode}; {counts}", "模式 {mode}；{counts}")
NO_ACTIONS = Message("no actions", "没有操作记录")
DRY_RUN = Message("{state} (dry run)", "{state}（试运行）")
SWITCH = Message("switch", "开关")
SWITCH_ON = Message("on", "开")
SWITCH_OFF = Message("off, by {by} at {at}: {reason}", "关，由 {by} 于 {at} 关闭：{reason}")
STILL_SUSPENDED = Message(
    "{count} {count:|object is|objects are} still suspended; `gpusteward restore --all` restores them",
    "仍有 {count} 个对象处于暂停状态；执行 `gpusteward restore --all` 可全部恢复",
)
NO_REASON = Message("no reason given", "未说明原因")
SWITCHED_OFF = Message(
    "reclaim is switched off: no action begins until `{command}`; what was suspended stays so",
    "回收已关闭：在执行 `{command}` 之前不会有新的操作；已暂停的工作负载保持暂停",
)
SWITCHED_ON = Message("reclaim is switched on again; its mode is {mode}", "回收已重新打开；模式为 {mode}")
RESTORED = Message("{workload}: {state}", "{workload}：{state}")
NOTHING_TO_RESTORE = Message("nothing to restore", "没有可恢复的操作")
NOT_RESTORED = Message("{workload}: not restored: {reason}", "{workload}：未恢复：{reason}")
