"""What the commands print about workloads: lists, verdicts, and those that have ended."""

from collections.abc import Mapping

from gpusteward.core.messages import Message

AS_OF = Message("as of {clock}", "截至 {clock}")
AS_OF_WITH_AGE = Message("as of {clock} ({age} ago)", "截至 {clock}（{age} 前）")
STALE_RESULT = Message(
    "{as_of}: no newer result, the engine has not answered since", "{as_of}：此后引擎没有响应，没有更新的结果"
)
FAILED_SINCE = Message(
    "{as_of}: no newer result, the last cycle failed: {reason}",
    "{as_of}：没有更新的结果，最近一个分析周期失败：{reason}",
)
NO_IDLE_WORKLOADS = Message("No idle or suspicious workloads.", "没有空闲或可疑的工作负载。")
NO_IDLE_WORKLOADS_IN = Message("No idle or suspicious workloads in {names}.", "{names} 中没有空闲或可疑的工作负载。")
NO_GPUS_HELD_IN = Message("No GPUs are held in {names} now.", "{names} 目前没有占用 GPU。")
WORKLOAD = Message("workload", "工作负载")
SIGNATURE = Message("signature", "特征")
PROOF = Message("proof", "测量方式")
NODE = Message("node", "节点")
IDLE_GPUS = Message("idle GPUs", "空闲/占用 GPU")
FOR = Message("for", "时长")
SINCE = Message("since", "始于")
SCORE = Message("score", "评分")
NEXT = Message("next", "后续")
COST_PER_HOUR = Message("{currency}/hour", "每小时 {currency}")
COST_OF_SPELL = Message("this spell", "本次空闲")
COST_7D = Message("last 7 days", "近 7 天")
TOTAL_WORKLOADS = Message("{count} {count:|workload|workloads}", "共 {count} 个工作负载")
READING_WORKLOADS = Message("reading workloads", "正在读取工作负载")

# Verdicts: names of facts, and their texts

VERDICT = Message("verdict", "结论")
VERDICT_WITH_SIGNATURE = Message("{activity}, {signature}", "{activity}，{signature}")
VERDICT_WITH_SCORE = Message("{verdict}; score {score} of 100", "{verdict}；评分 {score}（满分 100）")
VERDICT_WITHOUT_SCORE = Message("{verdict}; no score", "{verdict}；没有评分")
GPUS = Message("GPUs", "GPU")
GPU_COUNTS = Message("{gpus} held, {idle} idle, {unknown} unknown", "占用 {gpus}，空闲 {idle}，未知 {unknown}")
IDLE_SINCE = Message("idle since", "空闲始于")
IDLE_SINCE_TEXT = Message("{at} ({length})", "{at}（{length}）")
REQUESTS = Message("requests", "请求")
REQUESTS_TEXT = Message(
    "{requests} per hour; tokens per hour: {tokens}", "每小时 {requests} 个，每小时 {tokens} 个 token"
)
SILENT_TEXT = Message("none since {at} ({length})", "自 {at} 起没有（{length}）")
LAST_REQUEST_TEXT = Message("{text}; the last one before {at}", "{text}；最近一次在 {at} 之前")
REQUESTS_PER_HOUR = Message("requests/hour", "每小时请求")
TOKENS_PER_HOUR = Message("tokens/hour", "每小时 token")
LAST_REQUEST = Message("last request", "最近请求")
FINDING = Message("finding", "发现")
SEEN_NOW = Message("seen now", "当前情况")
XID_OF_GPU = Message("{node} GPU {gpu}: {text}", "{node} GPU {gpu}：{text}")
XIDS_UNKNOWN = Message("The XIDs of {node} could not be read.", "未能读取 {node} 的 XID。")
KNOWN_TOOL = Message(
    "{name} is the name of a tool that keeps GPUs occupied, or contains it. A name proves nothing.",
    "{name} 与已知的占卡工具同名或包含其名称。名称不能作为证据。",
)
PROCESS_OF_GPU = Message(
    "{pod} on {node} GPU {index}: {process}, pid {pid} of the node (there: py-spy dump --pid {pid})",
    "{pod}，{node} GPU {index}：{process}，节点上的 pid 为 {pid}（在节点上执行：py-spy dump --pid {pid}）",
)
HIGHEST_STEP = Message("highest step", "处置上限")
OWNER = Message("owner", "属主")
UNREAD_OWNERS: Mapping[str, Message] = {
    "derived": Message(
        "derived from names or labels of its pods, not read from the API server",
        "由 Pod 的名称或标签推断，未从 API server 读取",
    ),
    "unknown": Message("not known: each pod stands for itself", "未知：每个 Pod 单独计算"),
}
"""Where nobody has read it, and no owner reference names it."""
NODES = Message("nodes", "节点")
WINDOW = Message("window", "窗口")
WINDOW_TEXT = Message("{length} until {at}", "截至 {at} 的 {length}")
REASONS = Message("reasons", "原因")
EVIDENCE = Message("evidence", "依据")
OPINION = Message("language model ({model})", "语言模型（{model}）")
OPINION_TEXT = Message("{status}, confidence {confidence}: {reason}", "{status}，置信度 {confidence}：{reason}")
ALLOCATION_VALUES = Message(
    "core {mean} mean, {peak} peak; memory {memory}; power {power}; coverage {coverage}",
    "核心利用率均值 {mean}、峰值 {peak}；显存 {memory}；功率 {power}；采样覆盖率 {coverage}",
)
MORE_ALLOCATIONS = Message("and {count} more; see --output json", "另有 {count} 个；请用 --output json 查看")

# Workloads that have ended

ENDED = Message("ended", "结束于")
ENDED_TEXT = Message("{at} ({length} ago)", "{at}（{length} 前）")
END_NOT_RECORDED = Message(
    "not in the last result; the end is not recorded yet", "不在最近一次结果中；尚未记录结束时间"
)
HELD = Message("held", "占用")
HELD_TEXT = Message(
    "from {at} ({length}), on {devices} {devices:|GPU or MIG instance|GPUs or MIG instances}",
    "自 {at} 起（{length}），共 {devices} 个 GPU 或 MIG 实例",
)
GPU_HOURS = Message("GPU-hours", "GPU 小时")
GPU_HOURS_TEXT = Message(
    "{allocated} allocated: {active} active, {idle} idle ({ratio}), {unknown} unknown",
    "分配 {allocated}：使用 {active}，空闲 {idle}（{ratio}），未知 {unknown}",
)
COST = Message("cost", "费用")
COST_TEXT = Message("{total}, of which {idle} idle", "{total}，其中空闲 {idle}")
USER = Message("user", "用户")
MODEL = Message("model", "型号")
