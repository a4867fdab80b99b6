"""Texts of the page behind a snooze link."""

from gpusteward.core.messages import Message

TITLE = Message("Snooze a workload", "暂缓处理工作负载")
QUESTION = Message(
    "{workload} holds GPUs and does not use them. While it is snoozed, its GPUs are not given back, and no notices "
    "about it are sent.",
    "{workload} 占用 GPU 但未使用。暂缓期间不会归还其 GPU，也不会发送相关通知。",
)
LIMIT = Message("At most {hours} h are allowed by its policy.", "其策略最多允许 {hours} 小时。")
CONFIRM = Message("Snooze for {hours} h", "暂缓 {hours} 小时")
DONE = Message("{workload} is snoozed until {until}.", "{workload} 已暂缓至 {until}。")
HOW_TO_END = Message(
    "To end it earlier, use the web UI or: gpusteward snooze --end {workload}",
    "如需提前结束，请使用网页界面，或执行：gpusteward snooze --end {workload}",
)
INVALID = Message(
    "This link is not valid. It may be incomplete, or the analyzer was restarted without reclaim.signing_key.",
    "该链接无效。链接可能不完整，或 analyzer 在未设置 reclaim.signing_key 的情况下重启过。",
)
EXPIRED = Message(
    "This link has expired. The next warning has a new one; the web UI and gpusteward snooze work at any time.",
    "该链接已过期。下一次警告会附带新的链接；也可随时使用网页界面或 gpusteward snooze。",
)
FAILED = Message("It could not be stored: {reason}", "无法保存：{reason}")
REASON = Message("by the link in a notice", "通过通知中的链接")
