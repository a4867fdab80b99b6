"""Texts of the page behind a link in a notice."""

from gpusteward.core.messages import Message
from gpusteward.core.verdicts import Activity

TITLE = Message("A workload of yours", "您的工作负载")
HOLDS = Message("GPUs held: {gpus} ({models})", "占用 GPU：{gpus} 张（{models}）")
NOT_HELD = Message("It holds no GPU now: it has ended, or was suspended.", "它现在不占用 GPU：已经结束，或已被暂停。")
NOT_READY = Message(
    "The analyzer has no result yet; try again in a few minutes.", "analyzer 还没有结果，请几分钟后再试。"
)

IDLE_SINCE = Message("Idle since", "空闲自")
SINCE = Message("{time} ({duration})", "{time}（{duration}）")
WORKS = Message(
    "It is not idle now. GPUs that work or are not known: {gpus} of {total}.",
    "它现在并不空闲。使用中或未知的 GPU：{total} 张中的 {gpus} 张。",
)
NEXT = Message("What happens", "接下来")
DUE = Message(
    "At {time} it is suspended by the policy {policy}, unless it works again or you keep it.",
    "策略 {policy} 将在 {time} 暂停它，除非它重新工作或您保留它。",
)
DUE_SOON = Message(
    "It is suspended by the policy {policy} as soon as possible, unless it works again or you keep it.",
    "策略 {policy} 会尽快暂停它，除非它重新工作或您保留它。",
)
WAITS = Message("The policy {policy} waits: {reason}.", "策略 {policy} 在等待：{reason}。")
NOTHING = Message("Nothing is stopped.", "不会停止任何东西。")
ONLY_OBSERVED = Message("Nothing is stopped: policies are only tried out here.", "不会停止任何东西：目前只是试算策略。")
KEPT = Message("It is kept until {until}: not touched, and no notices.", "保留至 {until}：不会被处理，也不发送通知。")
COST = Message("Cost of this idle time", "这段空闲的费用")
WHY = Message("Why", "依据")
DAY = Message("The last 24 hours", "最近 24 小时")
PARTS = {
    Activity.ACTIVE: Message("{duration} active", "使用中 {duration}"),
    Activity.IDLE: Message("{duration} idle", "空闲 {duration}"),
    Activity.UNKNOWN: Message("{duration} unknown", "未知 {duration}"),
}

KEEP = Message("Keep it", "保留")
KEEP_EFFECT = Message(
    "Until then its GPUs are not given back, and no notices about it are sent.",
    "在此之前不会释放它的 GPU，也不会发送相关通知。",
)
CONFIRM = Message("Keep for {hours} h", "保留 {hours} 小时")
LIMIT = Message("At most {hours} h are allowed by its policy.", "其策略最多允许 {hours} 小时。")
DETAILS = Message("All details in the web UI", "在 Web 界面查看全部详情")
RELEASE = Message("Give it back", "释放")
RELEASE_BY_HAND = Message(
    "If you do not need it any more, stop it as you always do, for example:", "如果不再需要，请像平时一样停止它，例如："
)

DONE = Message("{workload} is kept until {until}.", "{workload} 已保留至 {until}。")
HOW_TO_END = Message(
    "To end it earlier, use the web UI or: gpusteward snooze --end {workload}",
    "如需提前结束，请使用 Web 界面，或执行：gpusteward snooze --end {workload}",
)
INVALID = Message(
    "This link is not valid. It may be incomplete, or the analyzer was restarted without reclaim.signing_key.",
    "该链接无效。链接可能不完整，或 analyzer 在未设置 reclaim.signing_key 的情况下重启过。",
)
EXPIRED = Message(
    "This link has expired. The next warning has a new one; the web UI and gpusteward snooze work at any time.",
    "该链接已过期。下一次警告会附带新的链接；也可随时使用 Web 界面或 gpusteward snooze。",
)
FAILED = Message("It could not be stored: {reason}", "无法保存：{reason}")
REASON = Message("by the link in a notice", "通过通知中的链接")

GIVE_BACK = Message("Give it back now…", "现在释放…")
GIVE_BACK_EFFECT = Message(
    "If you do not need it now: it is suspended at once, and can be restored from here.",
    "如果现在不需要：它会立即被暂停，之后可以在这里恢复。",
)
STOPS = Message("What stops", "会停止什么")
OTHER_PODS = Message("Also pods without GPUs: {pods}", "以及不占用 GPU 的 Pod：{pods}")
LOSS = Message(
    "Its processes end, and what is only in their memory is lost. Its volumes and its object stay.",
    "其进程会结束，只存在于内存中的内容会丢失；卷和对象会保留。",
)
COMES_BACK = Message("How it comes back", "如何恢复")
BY_LINK = Message(
    "As it is now, by the button on the next page until {time}, or: gpusteward restore {workload}",
    "恢复为现在的样子：{time} 之前可用下一页的按钮，或执行：gpusteward restore {workload}",
)
GIVE_BACK_NOW = Message("Suspend it now", "立即暂停")
GIVEN_BACK = Message("{workload} is suspended, and its GPUs are free.", "{workload} 已暂停，GPU 已释放。")
NOT_OFFERED = Message(
    "Links of this kind may not suspend this workload. Stop it as you always do.",
    "此类链接不能暂停该工作负载，请像平时一样停止它。",
)
USED = Message("This link has suspended the workload once already.", "该链接已经暂停过一次该工作负载。")
REFUSED = Message("Nothing was changed: {reason}", "没有任何改动：{reason}")
RESTORE = Message("Restore it", "恢复")
RESTORE_QUESTION = Message("{workload} was suspended by this link.", "{workload} 由该链接暂停。")
NOTHING_TO_RESTORE = Message("Nothing that this link has suspended is left to restore.", "该链接没有可以恢复的暂停。")
RESTORED = Message(
    "{workload} is restored: it starts as soon as its GPUs are free.", "{workload} 已恢复：GPU 可用后即会启动。"
)
