"""Output texts of `replay` and `lend`."""

from gpusteward.core.messages import Message

POLICY = Message("POLICY", "策略")
RELEASES = Message("RELEASES", "归还次数")
REGRETTED = Message("REGRETTED", "后悔次数")
REGRET = Message("REGRET", "后悔率")
GPU_HOURS = Message("GPU-HOURS", "GPU 小时")
COST = Message("SAVED {currency}", "节省 {currency}")
SHARE = Message("OF POSSIBLE", "占可节省量")
UNMET = Message("UNMET GPU-HOURS", "未满足 GPU 小时")
WORKLOAD = Message("WORKLOAD", "工作负载")
RELEASED_AT = Message("RELEASED AT", "归还时间")
NEEDED_AFTER = Message("NEEDED AFTER", "多久后又需要")
GPUS = Message("GPUS", "GPU 数")
PERIOD = Message(
    "{since} to {until}: {spells} idle spells; a release is regretted if work comes back within {minutes:g} min.",
    "{since} 至 {until}：{spells} 段空闲；归还后 {minutes:g} 分钟内又有工作即视为后悔。",
)
REGRETTED_TITLE = Message("Regretted releases of the policy", "该策略中会后悔的归还")
FRONTIER_TITLE = Message("The policy with other windows", "该策略使用其他窗口时")
NONE_REGRETTED = Message("No release would have been regretted.", "没有会后悔的归还。")
MORE_REGRETTED = Message("and {count} more; -o json lists all", "另有 {count} 条；-o json 列出全部")
PAGE_TITLE = Message("Replay of a reclaim policy", "回收策略回放")
PRESENT = Message("present policy", "当前策略")
THIS_POLICY = Message("policy", "该策略")
FIXED = Message("fixed {minutes} min", "固定 {minutes} 分钟")
HORIZON = Message("FOR", "时长")
HORIZONS = {
    "1h": Message("1 hour", "1 小时"),
    "4h": Message("4 hours", "4 小时"),
    "morning": Message("until morning", "到早上"),
}
MODEL = Message("MODEL", "型号")
LENDABLE = Message("LENDABLE GPUS", "可出借 GPU")
PROBABILITY = Message("PROBABILITY", "概率")
EXPECTED = Message("EXPECTED FREE", "预期空闲")
UNKNOWN_GPUS = Message("UNKNOWN", "未知")
FROM = Message("FROM", "来自")
NOTHING_LENDABLE = Message(
    "No GPU is idle with a proof that would allow lending it.", "没有空闲且有充分证明、可以出借的 GPU。"
)
CHANCE = Message("CHANCE 30M", "30 分钟内恢复")
RESUMPTION = Message("chance of work", "恢复工作的概率")
RESUMPTION_TEXT = Message(
    "{half_hour} within 30 min, {two_hours} within 2 h, {morning} until morning ({spells} idle spells of {of})",
    "30 分钟内 {half_hour}，2 小时内 {two_hours}，到早上 {morning}（依据{of}的 {spells} 段空闲）",
)
OF_WORKLOAD = Message("this workload", "该工作负载")
OF_KIND = Message("its kind", "同类工作负载")
TOO_FEW = Message("unknown: only {spells} comparable idle spells", "未知：可比的空闲只有 {spells} 段")
