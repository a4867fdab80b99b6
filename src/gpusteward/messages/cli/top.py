"""Texts of the terminal UI."""

from gpusteward.core.messages import Message

# Bars above and below the table

READING = Message("reading ...", "正在读取 ...")
CONNECTION_LOST = Message("no data: {error}", "没有数据：{error}")
NO_NEWER_RESULT = Message("no newer result: the engine does not answer", "没有更新的结果：引擎没有响应")
FIRST_ROWS = Message("first {shown} of {total} {total:|row|rows}", "前 {shown} 行，共 {total} 行")
ALL_ROWS = Message("{total} {total:|row|rows}", "共 {total} 行")
TENANT = Message("tenant {name}", "租户 {name}")

# Summary of a cluster or a node

ANALYZER_STATUS = Message("analyzer {status}", "analyzer {status}")
FLEET = Message(
    "{count} {count:|GPU|GPUs}: {idle} idle, {unallocated} unallocated",
    "{count} 张 GPU：空闲 {idle}，未分配 {unallocated}",
)
HELD = Message("{count} {count:|GPU|GPUs} held: {idle} idle", "占用 {count} 张 GPU：空闲 {idle}")
IDLE_COST = Message("idle: {cost} per hour", "空闲费用每小时 {cost}")
GPUS = Message("{count} {count:|GPU|GPUs}", "{count} 张 GPU")
ALLOCATIONS = Message("{count} {count:|allocation|allocations}", "{count} 个分配")
WORKLOADS = Message("{count} {count:|workload|workloads}", "{count} 个工作负载")
PROCESSES = Message("{count} {count:|process|processes}", "{count} 个进程")
COVERAGE = Message("sample coverage {coverage}", "采样覆盖率 {coverage}")
FREE_GPUS = Message("{count} {count:|GPU|GPUs}", "{count} 张")

# Columns

IDLE_GPUS = Message("idle GPUs", "空闲 GPU")
ACTIVE_GPUS = Message("active GPUs", "使用中 GPU")
UNKNOWN_GPUS = Message("unknown GPUs", "未知 GPU")
COST_PER_HOUR = Message("cost/hour", "每小时费用")
COST_OF_SPELL = Message("this spell", "本次空闲")
COST_7D = Message("last 7 days", "近 7 天")

# An opened workload

CHART_TITLE = Message("charts of the last {length}", "最近 {length} 的图表")
NO_CHART = Message("no data", "没有数据")
CORE = Message("core", "核心")
MEMORY = Message("memory", "显存")
POWER = Message("power", "功率")
SM = Message("SM", "SM")
HOLDS = Message("holds", "占用")
HOLDS_NOTHING = Message("It no longer holds a GPU here.", "该工作负载在此已不再占用 GPU。")
PROCESS_TITLE = Message("processes", "进程")
NO_PROCESSES = Message("No processes on its GPUs.", "其 GPU 上没有进程。")
PROCESS = Message(
    "{pid} {name} on {place}: SM {sm}, {memory}{note}", "{pid} {name}（{place}）：SM {sm}，显存 {memory}{note}"
)
HOLDS_ANOTHER_GPU = Message(" (another GPU is allocated to it)", "（分配的是另一张 GPU）")
USED_BY_POD = Message(" (used by {pod})", "（由 {pod} 使用）")
MORE_PROCESSES = Message("and {count} more", "另有 {count} 个")
PODS_WITHOUT_AGENT = Message(
    "Processes of {count} {count:|pod|pods} are unknown: no gpusteward agent reports them.",
    "{count} 个 Pod 的进程未知：没有 gpusteward agent 上报。",
)
MORE_PODS = Message("{count} more {count:|pod is|pods are} not listed.", "另有 {count} 个 Pod 未列出。")
DETAIL_FOOTER = Message(
    " Esc back   j k scroll   t time range   r refresh   q quit",
    " Esc 返回   j k 滚动   t 时间范围   r 刷新   q 退出",
)

# Commands and notifications

UNKNOWN_COMMAND = Message("unknown command {word!r}{suggestion}", "未知命令 {word!r}{suggestion}")
NO_VERDICTS = Message("an agent has no verdicts: use --server", "agent 不提供结论：请用 --server")
NOT_HELD = Message("no workload holds this GPU", "没有工作负载占用该 GPU")
