"""Texts of reports: titles, labels and notes, on the HTML page and in the terminal."""

from collections.abc import Mapping

from gpusteward.core.messages import Message

TITLE = Message("GPU report {by}", "GPU 用量报表（{by}）")
HOURS_BY = Message("GPU-hours {by} ({currency})", "GPU 小时（{by}，{currency}）")
VERSUS_PREVIOUS = Message("{change} vs. previous period", "较上期 {change}")

GROUP_TITLES: Mapping[str, Message] = {
    "cluster": Message("Cluster", "集群"),
    "namespace": Message("Namespace", "命名空间"),
    "workload": Message("Workload", "工作负载"),
    "model": Message("Model", "GPU 型号"),
    "node": Message("Node", "节点"),
    "user": Message("User", "用户"),
    "team": Message("Team", "团队"),
    "day": Message("Day (UTC)", "日期（UTC）"),
}
"""By grouping."""
GROUPED_BY: Mapping[str, Message] = {
    "cluster": Message("by cluster", "按集群"),
    "namespace": Message("by namespace", "按命名空间"),
    "workload": Message("by workload", "按工作负载"),
    "model": Message("by model", "按型号"),
    "node": Message("by node", "按节点"),
    "user": Message("by user", "按用户"),
    "team": Message("by team", "按团队"),
    "day": Message("by day", "按天"),
}


BY_LABEL = Message("by label {key}", "按标签 {key}")


def name_label(key: str) -> Message:
    """`by label team`."""
    return BY_LABEL.fill(key=key)


CLUSTERS = Message("Clusters", "集群")
NAMESPACES = Message("Namespaces", "命名空间")

ALLOCATED = Message("Allocated", "已分配")
ACTIVE = Message("Active", "使用中")
EFFECTIVE = Message("Effective", "有效")
EFFECTIVE_AT_MOST = Message("Effective, at most", "有效（上限）")
INEFFECTIVE = Message("Ineffective", "无效")
IDLE = Message("Idle", "空闲")
UNKNOWN = Message("Unknown", "未知")
UNALLOCATED = Message("Unallocated", "未分配")
TIME_LABELS: Mapping[str, Message] = {
    "active": ACTIVE,
    "idle": IDLE,
    "unknown": UNKNOWN,
    "unallocated": UNALLOCATED,
}
"""The layers of the chart, from the bottom up."""
IDLE_SHARE = Message("Idle %", "空闲占比")
UNALLOCATED_COST = Message("Unallocated cost", "未分配费用")
COST = Message("Cost", "费用")
IDLE_COST = Message("Idle cost", "空闲费用")
TOKEN_COST = Message("Per M tokens", "每百万 token")
NO_TOKENS = Message("no tokens", "无 token")
ELECTRICITY = Message("Electricity", "电费")
SCORE = Message("Score", "评分")
MEAN_SCORE = Message("Mean score", "平均评分")
IDLE_TREND = Message("Idle trend", "空闲趋势")
GPU_HOURS = Message("GPU-hours", "GPU 小时")
GPUS = Message("GPUs", "GPU 数")
PER_DAY = Message("GPU-hours per day", "每日 GPU 小时")
PER_HOUR = Message("GPU-hours per hour", "每小时 GPU 小时")
TOTAL = Message("Total", "合计")
SEPARATOR = Message("; ", "；")
"""Between the totals of one line."""
WORKLOAD = Message("Workload", "工作负载")
MODEL = GROUP_TITLES["model"]
USER = GROUP_TITLES["user"]

WASTERS = Message("Most wasteful workloads", "浪费最多的工作负载")
NO_WASTERS = Message("No workload had an idle GPU.", "没有工作负载的 GPU 出现空闲。")
FINDINGS = Message("Right-sizing", "规格建议")
NO_FINDINGS = Message(
    "No workload that holds whole GPUs is certain to fit into a part of one.",
    "没有占用整卡的工作负载确定可以改用更小的规格。",
)
WOULD_FIT = Message("Would fit", "可改用")
SHARED_PART = Message("{part} share", "共享 {part}")
PEAKS = Message("Peak memory, compute", "显存、算力峰值")
SAVING = Message("Saving", "可节省")

PERIOD = Message("{since} – {until} UTC", "{since} – {until}（UTC）")
PERIOD_UNTIL_NOW = Message("{since} – {until} UTC (now)", "{since} – {until}（UTC，当前）")
AS_OF = Message("as of {clock} UTC", "截至 {clock}（UTC）")
RECORDED_UNTIL = Message(
    "recorded until {clock} UTC: no later cycle is in the ledger",
    "记录截至 {clock}（UTC）：账本中没有更晚的分析周期",
)
WASTED = Message("Wasted: {amount} ({share} of allocated time)", "浪费：{amount}（占已分配时间的 {share}）")
NOTHING_WASTED = Message("Wasted: nothing, no allocated GPU was idle.", "浪费：无，已分配的 GPU 均未空闲。")
WASTED_BY = Message("Most wasted by: {names}", "浪费最多：{names}")
IDLE_HOURS = Message("{hours} idle GPU-hours", "{hours} 空闲 GPU 小时")
UNALLOCATED_TIME = Message("Unallocated: {amount}", "未分配：{amount}")
HOURS = Message("{hours} GPU-hours", "{hours} GPU 小时")
COMMA = Message(", ", "，")
PARTIAL_MARK = " *"
"""After a day or an hour that is recorded only in part."""
PARTIAL = Message("(partial)", "（不完整）")

UNUSED = Message(
    "{unused} of {gpus} {gpus:|GPU|GPUs} unused ({idle} idle, {unallocated} unallocated; hour from {when} UTC)",
    "{gpus} 张 GPU 中有 {unused} 张未使用（{idle} 张空闲、{unallocated} 张未分配；{when} UTC 起一小时）",
)
UNUSED_IDLE = Message(
    "{unused} of {gpus} {gpus:|GPU|GPUs} unused ({idle} idle; hour from {when} UTC)",
    "{gpus} 张 GPU 中有 {unused} 张未使用（{idle} 张空闲；{when} UTC 起一小时）",
)
"""Where the number of unallocated GPUs is unknown."""
OTHERS = Message("{number} {number:|other|others}", "其他 {number} 项")
NO_NAME = Message("(none)", "（无）")
NO_NAMES: Mapping[str, Message] = {
    "team": Message("(no team)", "（无团队）"),
    "label": Message("(unlabelled)", "（无此标签）"),
}
"""By grouping, where it is not `NO_NAME`."""
NOTHING = Message("The ledger has no records for this period.", "账本在该时段内没有记录。")
MADE = Message("gpusteward, generated {at} UTC", "gpusteward，生成于 {at}（UTC）")

NOTES = Message("Notes", "说明")
NOTE_RANGE = Message(
    "Covers {since} to {until} UTC; periods begin at a full hour, because the ledger records whole hours.",
    "统计范围为 {since} 至 {until}（UTC）；账本以小时为单位，统计从整点开始。",
)
NOTE_WIDENED = Message(
    "For older data only whole days (UTC) are kept: the range was widened to whole days.",
    "较早的数据仅按整天（UTC）保留，统计范围已扩展到整天。",
)
NOTE_PARTIAL = Message("* Recorded only in part.", "* 仅有部分记录。")
NOTE_UNALLOCATED_COST = Message(
    "Unallocated time is priced at the current list price of the model, without discounts.",
    "未分配时间按型号的当前单价计算，不含折扣。",
)
NOTE_BEGIN = Message("The ledger begins at {first} UTC.", "账本自 {first}（UTC）起有记录。")
NOTE_UNPRICED = Message(
    "{hours} GPU-hours have no price; set one with `prices.per_gpu_hour`.",
    "{hours} GPU 小时没有单价，可通过 `prices.per_gpu_hour` 设置。",
)
NOTE_UNKNOWN = Message(
    "Unknown: allocated, but utilization could not be measured. Unknown time counts as neither used nor idle.",
    "未知：已分配，但无法测得利用率。未知时间既不算使用也不算空闲。",
)
NOTE_EFFECTIVE = Message(
    "Effective: active time without that of stalled workloads and of proven keep-alive programs. It is an upper bound, "
    "and says nothing about how fast the work was.",
    "有效：使用时间中除去疑似空转和已证实占卡的部分。它是上限，不反映计算的快慢。",
)
NOTE_NO_FLEET = Message(
    "Unallocated time is unknown: no source reports the number of GPUs.", "未分配时间未知：没有数据源上报 GPU 总数。"
)
NOTE_PART_FLEET = Message(
    "The number of GPUs was known for {share} of this period; unallocated time covers only that part.",
    "GPU 总数仅在该时段的 {share} 内已知，未分配时间只统计这一部分。",
)
NOTE_CURRENCIES = Message(
    "Costs are not added up: the currency changed from {before} to {after} at {at} UTC. "
    "Select a period before or after that.",
    "货币在 {at}（UTC）由 {before} 改为 {after}，因此费用不相加。请选择此前或此后的时段。",
)
NOTE_PART_ENERGY = Message(
    "Electricity covers {share} of the allocated time; for the rest the power is unknown.",
    "电费仅覆盖已分配时间的 {share}，其余时间功率未知。",
)
NOTE_RIGHT_SIZING = Message(
    "Right-sizing keeps a margin of 20% above peak memory and peak compute. A saving assumes that other workloads "
    "use the rest of the GPU.",
    "规格建议在显存与算力峰值之上保留 20% 余量；节省的前提是其他工作负载使用 GPU 的剩余部分。",
)
NOTE_TREND = Message(
    "Compared with {since} to {until} UTC, per hour.", "与 {since} 至 {until}（UTC）按每小时的量对比。"
)
