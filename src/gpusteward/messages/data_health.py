"""What is wrong with the data of the analyzer, in plain words, for people who look at the web UI."""

from collections.abc import Mapping

from gpusteward.core.messages import Message
from gpusteward.core.verdicts import Doubt

SOURCE_FAILED = Message("GPU usage cannot be read at the moment: {reason}", "目前无法读取 GPU 使用数据：{reason}")
RESULT_OLD = Message(
    "The last result is {minutes} min old; a new one is due every {interval} min.",
    "最近一次结果已过去 {minutes} 分钟；正常情况下每 {interval} 分钟更新一次。",
)
TARGETS_LOST = Message(
    "{lost} of {targets} {targets:|exporter does|exporters do} not respond: their GPUs are missing or unknown.",
    "{targets} 个 exporter 中有 {lost} 个没有响应：其 GPU 缺失或状态未知。",
)
UNKNOWN_GPUS = Message(
    "{gpus} of {total} held {total:|GPU|GPUs} could not be judged. Most frequent reason: {reason}.",
    "占用中的 {total} 张 GPU 里有 {gpus} 张无法判断。最常见的原因：{reason}。",
)
NO_GPUS = Message(
    "No GPU is held by anybody, or the source has no series that names a holder.",
    "没有 GPU 被占用，或数据源中没有标明占用者的序列。",
)
GPUS_NOT_COUNTED = Message(
    "The source does not count free GPUs: only those that are held are shown.",
    "数据源没有统计空闲未分配的 GPU：仅显示已被占用的 GPU。",
)
NO_PRICE = Message("No price is configured (prices): costs are unknown.", "未配置价格（prices），费用未知。")
LEDGER_DISABLED = Message(
    "The ledger is disabled (ledger.enabled: false): there are no trends and no costs of past days.",
    "账本未启用（ledger.enabled: false）：没有趋势，也没有以往的费用。",
)
LEDGER_FAILED = Message(
    "GPU-hours cannot be recorded or read at the moment: {reason}", "目前无法记录或读取 GPU 小时：{reason}"
)
LEDGER_SHORT = Message(
    "GPU-hours are recorded since {since} (UTC): sums over a longer time cover that part only.",
    "GPU 小时自 {since}（UTC）起开始记录：更长时段的合计仅包含这一部分。",
)
DELIVERIES_FAILED = Message("Notices cannot be delivered: {reason}", "通知无法投递：{reason}")

DOUBTS: Mapping[Doubt, Message] = {
    Doubt.STALE: Message("no current data", "没有当前数据"),
    Doubt.SOURCE: Message("the source could not measure them", "数据源无法测量"),
    Doubt.NO_DATA: Message("core utilization is not measured", "没有测得核心利用率"),
    Doubt.COVERAGE: Message("samples are missing in the window", "窗口内缺少样本"),
    Doubt.SPARSE: Message("too few samples in the window", "窗口内样本过少"),
    Doubt.PARTIAL: Message("only a part of the window is known", "窗口只有一部分有数据"),
    Doubt.POWER: Message("zero utilization, but the GPU draws power", "利用率为零，但 GPU 有功耗"),
}
"""Why GPUs could not be judged; every other reason has the word of the API."""
