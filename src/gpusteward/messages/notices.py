"""Texts of notices: idle workloads, outages of the source, the weekly digest. Names are made safe before they go in."""

from gpusteward.core.messages import Message

IDLE_TITLE = Message("Idle GPUs: {where}", "GPU 空闲通知：{where}")
NAMESPACES = Message("{number} {number:|namespace|namespaces}", "{number} 个命名空间")

AS_OF = Message("As of {time}", "截至 {time}")
"""The second line of every notice: it may have waited for its receiver."""

IDLE_WORKLOAD = Message(
    "{workload} holds {gpus} {gpus:|GPU and has not used it|GPUs and has not used any of them} since {since} "
    "({duration}).",
    "{workload} 占用 {gpus} 张 GPU，自 {since} 起一直未使用（已空闲 {duration}）。",
)
GPUS = Message("GPUs: {gpus}", "GPU：{gpus}")
MORE_GPUS = Message("and {number} more", "另有 {number} 个")
CORE_PEAK = Message(
    "Peak GPU core utilization in the last {minutes} min: {peak}", "最近 {minutes} 分钟 GPU 核心利用率峰值：{peak}"
)
SILENT = Message("Its inference server has had no request since {since}", "推理服务自 {since} 起没有请求")
REQUESTS = Message(
    "Requests of its inference server per hour: {requests:,.0f}", "推理服务每小时请求数：{requests:,.0f}"
)
SAMPLED = Message(
    "Only samples show this: short work between two samples is not seen.",
    "仅凭采样得出：两次采样之间的短暂活动无法看到。",
)
MEMORY = Message("GPU memory in use: {memory}", "占用显存：{memory}")
COST = Message("Cost of the idle time so far: {cost}", "空闲期间累计费用：{cost}")

IDLE_WORKLOADS = Message(
    "{workloads} {workloads:|workload holds|workloads hold} {gpus} "
    "{gpus:|GPU without using it|GPUs without using any of them}.",
    "{workloads} 个工作负载占用 {gpus} 张 GPU，全部未使用。",
)
NAMESPACE = Message("{namespace}:", "{namespace}：")
LINE = Message(
    "- {workload}: {gpus} {gpus:|GPU|GPUs}, idle for {duration} since {since}{details}",
    "- {workload}：{gpus} 张 GPU，自 {since} 起已空闲 {duration}{details}",
)
LINE_PEAK = Message(", peak utilization {peak}", "，利用率峰值 {peak}")
LINE_MEMORY = Message(", {memory} of GPU memory in use", "，占用显存 {memory}")
LINE_COST = Message(", cost so far {cost}", "，累计费用 {cost}")
LINE_GPUS = Message("; on {gpus}", "；位于 {gpus}")
MORE_WORKLOADS = Message(
    "- and {number} more with {gpus} {gpus:|GPU|GPUs}", "- 另有 {number} 个工作负载，共 {gpus} 张 GPU"
)
TOTAL_COST = Message("Total cost of the idle time so far: {cost}", "空闲期间累计费用合计：{cost}")

NEXT_NOTICE = Message(
    "This notice stops nothing. If the GPUs stay idle, the next one follows in {repeat}.",
    "此通知不会停止任何工作负载；如继续空闲，{repeat}后将再次通知。",
)
WHAT_TO_DO = Message(
    "Use the GPUs, or release them: scale the workload down or delete it.",
    "请恢复使用；如不再需要，请缩容或删除该工作负载，以释放 GPU。",
)

STALLED_TITLE = Message("GPUs that are busy without doing anything: {where}", "GPU 疑似空转通知：{where}")
STALLED_WORKLOAD = Message(
    "{workload} holds {gpus} {gpus:|GPU, which looks|GPUs, which look} busy and {gpus:|has|have} done nothing for "
    "{duration}.",
    "{workload} 占用 {gpus} 张 GPU，看似繁忙，但已有 {duration} 没有实际工作。",
)
STALLED_COST = Message("Cost of this time so far: {cost}", "期间累计费用：{cost}")
STALLED_NEXT = Message(
    "Look at it before you restart it from its last checkpoint. This notice stops nothing; if it stays so, the next "
    "one follows in {repeat}.",
    "请先查看现场，再从最近的检查点重启。此通知不会停止任何工作负载；如持续如此，{repeat}后将再次通知。",
)
OUTAGE_TITLE = Message("gpusteward cannot read GPU usage", "gpusteward 无法读取 GPU 使用数据")
OUTAGE = Message(
    "No data has been read since {since} ({duration}). Reason: {reason}",
    "自 {since} 起无法读取数据（已持续 {duration}）。原因：{reason}",
)
OUTAGE_EFFECT = Message(
    "Until data is available again, the last verdicts are shown and no idle notices are sent.",
    "数据恢复前仍显示上一次的结论，并暂停发送空闲通知。",
)
RECOVERY_TITLE = Message("gpusteward can read GPU usage again", "gpusteward 已恢复读取 GPU 使用数据")
RECOVERY = Message("Usage data was missing for {duration}.", "使用数据中断了 {duration}。")

DIGEST_TITLE = Message("GPU digest for the week ending {day}", "GPU 周报（截至 {day}）")
DIGEST_TOTAL = Message(
    "{allocated} GPU-hours allocated: {active} used, {idle} idle, {unknown} unknown.",
    "共分配 {allocated} GPU 小时：使用 {active}，空闲 {idle}，未知 {unknown}。",
)
DIGEST_COST = Message("The idle GPU-hours cost {cost}.", "空闲 GPU 小时的费用为 {cost}。")
DIGEST_TREND = Message(
    "Idle GPU-hours compared with the previous week: {change}.", "空闲 GPU 小时与前一周相比：{change}。"
)
DIGEST_TOP = Message("Workloads with the most idle time:", "空闲时间最长的工作负载：")
DIGEST_LINE = Message(
    "- {workload}: {idle} of {allocated} GPU-hours idle{details}",
    "- {workload}：{allocated} GPU 小时中空闲 {idle}{details}",
)
DIGEST_LINE_COST = Message(", cost {cost}", "，费用 {cost}")
DIGEST_NOW = Message(
    "At that time {workloads} {workloads:|workload|workloads} with {gpus} {gpus:|GPU|GPUs} {workloads:|was|were} "
    "completely idle; {partly} more had some unused GPUs.",
    "当时：{workloads} 个工作负载（共 {gpus} 张 GPU）完全空闲；另有 {partly} 个工作负载有部分 GPU 未使用。",
)
DIGEST_EMPTY = Message(
    "No usage was recorded this week: the ledger is disabled or was unavailable.",
    "本周没有使用记录：账本未启用或曾无法访问。",
)

MINUTES = Message("{number} min", "{number} 分钟")
HOURS = Message("{number} h", "{number} 小时")
DAYS = Message("{number} d", "{number} 天")

OUTBOX_UNREADABLE = Message("the outbox cannot be read: {reason}", "无法读取发件箱：{reason}")
CHANNEL_UNUSABLE = Message(
    "notify.channels.{channel}: Apprise does not support this URL; "
    "use a Feishu webhook or a service from Apprise's list",
    "notify.channels.{channel}：Apprise 不支持该 URL，请使用飞书 webhook 或 Apprise 服务列表中的地址",
)

RECLAIM_WARNING_TITLE = Message("Idle GPUs will be given back: {workload}", "空闲 GPU 即将归还：{workload}")
RECLAIM_ACTED_TITLE = Message("Idle GPUs were given back: {workload}", "空闲 GPU 已归还：{workload}")
RECLAIM_RESTORED_TITLE = Message("Restored: {workload}", "已恢复：{workload}")
RECLAIM_REFUSED_TITLE = Message("Idle GPUs are not given back: {workload}", "空闲 GPU 未归还：{workload}")
RECLAIM_IDLE = Message(
    "It holds {gpus} {gpus:|GPU and has not used it|GPUs and has not used any of them} since {since} ({duration}).",
    "占用 {gpus} 张 GPU，自 {since} 起一直未使用（已空闲 {duration}）。",
)
RECLAIM_DUE = Message(
    "Not before {due} gpusteward will change, by policy {policy}: {text}",
    "最早于 {due}，gpusteward 将按策略 {policy} 修改：{text}",
)
RECLAIM_HOW_TO_KEEP = Message(
    'Using the GPUs prevents it. To keep it idle, snooze it, or annotate it with gpusteward.io/keep: "true".',
    '恢复使用 GPU 即可避免。如需继续空闲占用，请暂缓处理，或添加注解 gpusteward.io/keep: "true"。',
)
RECLAIM_UNDONE_LATER = Message(
    "The object and its data stay; it can be restored with one command.", "对象及其数据都会保留，用一条命令即可恢复。"
)
RECLAIM_CHANGED = Message("Changed: {text}", "已修改：{text}")
RECLAIM_HOW_TO_RESTORE = Message("Undo it with: gpusteward restore {name}", "撤销命令：gpusteward restore {name}")
RECLAIM_BY = Message("By: {by}", "操作者：{by}")
RECLAIM_REASON = Message("Reason: {text}", "原因：{text}")
RECLAIM_COOL_DOWN = Message("It is left alone for a while.", "在一段时间内不会再次处理。")
SNOOZE_BUTTON = Message("Snooze for {hours} h", "暂缓 {hours} 小时")
DETAILS_BUTTON = Message("Show details", "查看详情")
