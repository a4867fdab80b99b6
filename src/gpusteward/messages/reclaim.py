"""Answers of the guards of reclaim, and what happened to an action."""

from collections.abc import Mapping

from gpusteward.core.messages import Message
from gpusteward.core.usages import Measure
from gpusteward.messages.verdicts import WORK_SIGNALS

STATES: Mapping[str, Message] = {
    "planned": Message("planned", "计划"),
    "warned": Message("warned", "已警告"),
    "acting": Message("acting", "执行中"),
    "acted": Message("acted", "已执行"),
    "verified": Message("verified", "已确认"),
    "failed": Message("failed", "失败"),
    "restoring": Message("restoring", "恢复中"),
    "restored": Message("restored", "已恢复"),
    "refused": Message("refused", "已拒绝"),
    "reverted": Message("reverted", "被还原"),
    "ended": Message("ended", "已结束"),
}
RESTORED_WAITING = Message("restored, waiting for {gpus} {gpus:|GPU|GPUs}", "已恢复，正在等待 {gpus} 张 GPU")

# Guards: what each of them says when it passes, and when it does not.
IS_IDLE = Message("all of its GPUs ({gpus}) are idle", "全部 {gpus} 张 GPU 均空闲")
NOT_IDLE = Message("GPUs that are not idle: {active} of {gpus}", "{gpus} 张 GPU 中有 {active} 张不空闲")
SURPLUS = Message(
    "surplus replicas: {count} of {replicas}, kept: {keep}",
    "{replicas} 个副本中有 {count} 个多余：保留 {keep} 个",
)
NO_POOL = Message("it is no pool", "不是副本池")
LASTED = Message("there have been surplus replicas for {minutes:.0f} min", "已有 {minutes:.0f} 分钟存在多余的副本")
NOT_LASTED = Message(
    "there have been surplus replicas for {minutes:.0f} of {patience:.0f} min",
    "存在多余的副本 {minutes:.0f} 分钟，需要 {patience:.0f} 分钟",
)
NO_SURPLUS = Message(
    "no replica is surplus; kept: {keep} of {replicas}", "没有多余的副本：{replicas} 个中保留 {keep} 个"
)
MAY_RECLAIM = Message("signature {signature} may be reclaimed", "特征“{signature}”允许回收")
LIMITED = Message("the highest step is {step}, signature {signature}", "处置上限为“{step}”，特征为“{signature}”")
INTEGRATED = Message("idleness is proven by signals that include all time", "空闲由覆盖全部时间的信号证明")
SAMPLED = Message(
    "idleness is proven by sampled gauges only: work between two samples is not seen",
    "空闲仅由采样的瞬时值证明：两次采样之间的活动看不到",
)
COVERED = Message("{coverage:.0%} of the samples are there", "已有 {coverage:.0%} 的样本")
NOT_COVERED = Message(
    "only {coverage:.0%} of the samples are there, {least:.0%} are needed",
    "仅有 {coverage:.0%} 的样本，需要 {least:.0%}",
)
SEEN = Message("seen in {cycles} {cycles:|cycle|cycles}", "已在 {cycles} 个分析周期中见到")
SEEN_TOO_RARELY = Message(
    "seen idle in {cycles} {cycles:|cycle|cycles} of this process; {least} are needed",
    "本进程仅在 {cycles} 个分析周期中见到其空闲；需要 {least} 个",
)
FRESH = Message("the verdict is {seconds:.0f} s old", "结论产生于 {seconds:.0f} 秒前")
STALE = Message(
    "the verdict is {seconds:.0f} s old; {most:.0f} s are allowed",
    "结论产生于 {seconds:.0f} 秒前；最多允许 {most:.0f} 秒",
)
OWNER_READ = Message("the owner was read, uid {uid}", "所有者已读取，uid {uid}")
OWNER_NOT_READ = Message(
    "the owner is not known for certain ({evidence}): it is never acted on",
    "所有者不确定（{evidence}）：绝不对其操作",
)
LONG_ENOUGH = Message(
    "idle for {minutes:.0f} min, the window is {window:.0f} min", "已空闲 {minutes:.0f} 分钟，窗口为 {window:.0f} 分钟"
)
TOO_SHORT = Message(
    "idle for {minutes:.0f} min; the window of {window:.0f} min is not over",
    "已空闲 {minutes:.0f} 分钟；{window:.0f} 分钟的窗口尚未结束",
)
REQUESTS_NOT_COUNTED = Message(
    "the policy does not let time without requests stand for idle time", "策略没有把无请求时间视为空闲时间"
)
NO_REQUEST_COUNTERS = Message(
    "no_requests_for does nothing: no counters of inference servers prove that there were no requests",
    "no_requests_for 不起作用：没有推理服务的计数器能证明没有请求",
)
IDLE_ANYWAY = Message("its idle time is looked at, not its requests", "以空闲时间为准，不看请求")
SILENT_LONG_ENOUGH = Message(
    "no request for {minutes:.0f} min, which stands for the window after {window:.0f} min",
    "已有 {minutes:.0f} 分钟没有请求，满 {window:.0f} 分钟即视为空闲窗口",
)
NOT_SILENT_LONG_ENOUGH = Message(
    "no request for {minutes:.0f} min; this stands for the window after {window:.0f} min",
    "已有 {minutes:.0f} 分钟没有请求；满 {window:.0f} 分钟才视为空闲窗口",
)
POLICY_ACTS = Message("policy {policy}: {action}", "策略 {policy}：{action}")
POLICY_ONLY_TELLS = Message("policy {policy} only tells: {action}", "策略 {policy} 只通知：{action}")
NO_POLICY = Message("no policy was looked up", "未查找策略")
NO_POLICY_MATCHES = Message(
    "no policy of the file matches it: a notice at most", "策略文件中没有匹配它的策略：最多只通知"
)
POLICY_FILE_VALID = Message("the policy file is valid", "策略文件有效")
CHANCE_LOW = Message(
    "work comes back within 30 min: chance {chance:.0%} ({spells} {spells:|spell|spells}), allowed: {most:.0%}",
    "30 分钟内恢复工作的概率为 {chance:.0%}（{spells} 个空闲段），允许 {most:.0%}",
)
CHANCE_ANY = Message("the policy allows any chance of resumption", "策略允许任何恢复概率")
CHANCE_HIGH = Message(
    "work comes back within 30 min: chance {chance:.0%} ({spells} {spells:|spell|spells}); allowed: {most:.0%}",
    "30 分钟内恢复工作的概率为 {chance:.0%}（{spells} 个空闲段）；最多允许 {most:.0%}",
)
CHANCE_UNKNOWN = Message(
    "the chance that work comes back is unknown ({spells} {spells:|spell|spells}), and the policy sets a limit",
    "恢复工作的概率未知（{spells} 个空闲段），而策略设有上限",
)
NOT_KEPT = Message("nobody asked to keep it", "没有人要求保留")
KEPT = Message("gpusteward.io/keep: {until}", "gpusteward.io/keep：{until}")
FOR_EVER = Message("for ever", "永久")
NOT_SNOOZED = Message("not snoozed", "未暂缓")
SNOOZED = Message("snoozed until {until}", "已暂缓至 {until}")
NOT_LEFT_OUT = Message(
    "reclaim.namespaces does not leave namespace {namespace} out", "reclaim.namespaces 未排除命名空间 {namespace}"
)
LEFT_OUT = Message(
    "namespace {namespace} is not in reclaim.namespaces: a notice at most",
    "命名空间 {namespace} 不在 reclaim.namespaces 中：最多只通知",
)
NOT_PROTECTED = Message("namespace {namespace} is not protected", "命名空间 {namespace} 未受保护")
PROTECTED = Message("namespace {namespace} is protected", "命名空间 {namespace} 受保护")
IN_HOURS = Message("within the hours of the policy", "在策略规定的时段内")
OUT_OF_HOURS = Message("outside of the working hours of the policy", "不在策略的工作时段内")
QUIET = Message("within the quiet hours of the policy", "处于策略的安静时段")
NO_PRESSURE_NEEDED = Message("the policy does not wait for pending pods", "策略不等待 Pending 的 Pod")
PRESSURE = Message("a pending pod needs these GPUs", "有 Pending 的 Pod 需要这些 GPU")
NO_PRESSURE = Message(
    "no pending pod could start with the GPUs of the longest idle workloads",
    "没有 Pending 的 Pod 能靠空闲最久的工作负载的 GPU 启动",
)
IN_BUDGET = Message("within the limits of the policy", "在策略的限额内")
OVER_BUDGET = Message(
    "a limit of the policy is reached: {limit} ({count} of {most})", "已达到策略的限额：{limit}（{count}/{most}）"
)
NEVER_REVERTED = Message("reverted {count} {count:|time|times} so far", "迄今被还原 {count} 次")
REVERTED = Message(
    "something else has changed it back {count} {count:|time|times}: it is not touched any more",
    "已被其他组件还原 {count} 次：不再触碰",
)
COOLED_DOWN = Message("not restored recently", "近期没有恢复过")
COOLING_DOWN = Message("restored or changed back; left alone until {until}", "已恢复或被还原；在 {until} 之前不再触碰")
NOT_OPEN = Message("no action on it is under way", "没有正在进行的操作")
OPEN = Message("action {action} on it is {state}", "对它的操作 {action} 处于 {state} 状态")
WARNED = Message(
    "{count} {count:|warning|warnings} delivered, the last one {minutes:.0f} min ago",
    "已送达 {count} 次警告，最近一次在 {minutes:.0f} 分钟前",
)
NOT_WARNED = Message(
    "warnings delivered for this idle spell: {count} of {least}", "本空闲段已送达 {count}/{least} 次警告"
)
IN_GRACE = Message(
    "the last warning was delivered {minutes:.0f} min ago; the grace period of {grace:.0f} min is not over",
    "最近一次警告于 {minutes:.0f} 分钟前送达；{grace:.0f} 分钟的宽限期尚未结束",
)
LEADER = Message("this analyzer holds the Lease", "本 analyzer 拥有 Lease")
SWITCH_ON = Message("the switch is on", "开关已打开")
KIND_KNOWN = Message("{kind}/{name} can be changed: {text}", "可以修改 {kind}/{name}：{text}")
NOT_INSPECTED = Message("not looked at: another guard already says no", "未检查：其他检查项已拒绝")
SAME_OWNER = Message("the owner is still the same, uid {uid}", "所有者未变，uid {uid}")
OTHER_OWNER = Message(
    "the owner is another one by now: {found} instead of {expected}", "所有者已变为另一个：{found}，而不是 {expected}"
)
COMPLETE = Message(
    "all of its pods with GPUs ({count}) are in the verdict", "全部 {count} 个占用 GPU 的 Pod 均在结论中"
)
PODS_KNOWN = Message("uid and start of its pods ({count}) are known", "其 {count} 个 Pod 的 uid 和启动时间已知")
POD_UNKNOWN = Message(
    "uid or start of pod {pod} is not known: it may be another one than before, so a notice at most is allowed",
    "Pod {pod} 的 uid 或启动时间未知：它可能已不是之前的那个，因此最多只允许通知",
)
INCOMPLETE = Message("pod {pod} holds GPUs that are not in the verdict", "Pod {pod} 占用的 GPU 中有不在结论中的")
CLAIM_UNKNOWN = Message(
    "which GPUs pod {pod} holds is not known: its ResourceClaim {claim} does not exist or has no allocation",
    "无法得知 Pod {pod} 占用哪些 GPU：其 ResourceClaim {claim} 不存在或尚未分配",
)
CLAIMS_UNREADABLE = Message(
    "which GPUs pod {pod} holds is not known: its ResourceClaims cannot be read: {reason}",
    "无法得知 Pod {pod} 占用哪些 GPU：无法读取其 ResourceClaim：{reason}",
)
NO_OTHER_PODS = Message("no pod without GPUs is stopped", "不会停止未占用 GPU 的 Pod")
STOPS_OTHER_PODS = Message(
    "also stops {count} {count:|pod|pods} without GPUs, as policy {policy} allows: {pods}",
    "还会停止 {count} 个未占用 GPU 的 Pod（策略 {policy} 允许）：{pods}",
)
WOULD_STOP_OTHER_PODS = Message(
    "it would also stop {count} {count:|pod|pods} without GPUs: {pods}; policy {policy} does not have "
    "stops_other_pods: true",
    "还会停止 {count} 个未占用 GPU 的 Pod：{pods}；策略 {policy} 未设置 stops_other_pods: true",
)
WARNING_OTHER_PODS = Message(
    "{text}; this also stops {count} {count:|pod|pods} without GPUs: {pods}",
    "{text}；同时会停止 {count} 个未占用 GPU 的 Pod：{pods}",
)

HOST_NOT_READ = Message(
    "CPU, disk and network of its pods are read before a warning and before an action",
    "警告前和操作前会读取其 Pod 的 CPU、磁盘和网络用量",
)
HOST_UNREADABLE = Message(
    "CPU, disk and network of its pods could not be read, so nothing is done in this cycle: {reason}",
    "无法读取其 Pod 的 CPU、磁盘和网络用量，因此本周期不做任何操作：{reason}",
)
HOST_WORKS = Message(
    "its pods work on their hosts (means over {minutes:.0f} min): {signals}",
    "其 Pod 在主机上有活动（{minutes:.0f} 分钟平均值）：{signals}",
)
HOST_QUIET = Message(
    "its pods do not work on their hosts (means over {minutes:.0f} min): {signals}",
    "其 Pod 在主机上没有明显活动（{minutes:.0f} 分钟平均值）：{signals}",
)
HOST_WORK: Mapping[str, Message] = {
    "cpu": Message(
        "CPU: {amount:.2f} cores, most of it in pod {pod}; {least:g} {least:|core is|cores are} work",
        "CPU {amount:.2f} 核，其中 Pod {pod} 最多；达到 {least:g} 核即视为活动",
    ),
    "disk": Message(
        "disk: {amount:.2f} MB/s, most of it by pod {pod}; {least:g} MB/s are work",
        "磁盘 {amount:.2f} MB/s，其中 Pod {pod} 最多；达到 {least:g} MB/s 即视为活动",
    ),
    "network": Message(
        "network: {amount:.2f} MB/s, most of it by pod {pod}; {least:g} MB/s are work",
        "网络 {amount:.2f} MB/s，其中 Pod {pod} 最多；达到 {least:g} MB/s 即视为活动",
    ),
}
"""By signal."""
HOST_AMOUNTS: Mapping[str, Message] = {
    "cpu": Message("CPU: {amount:.2f} cores", "CPU {amount:.2f} 核"),
    "disk": Message("disk: {amount:.2f} MB/s", "磁盘 {amount:.2f} MB/s"),
    "network": Message("network: {amount:.2f} MB/s", "网络 {amount:.2f} MB/s"),
}
HOST_SIGNALS: Mapping[str, Message] = {
    "cpu": Message("CPU", "CPU"),
    "disk": Message("disk", "磁盘"),
    "network": Message("network", "网络"),
}
HOST_NO_SIGNAL = Message("{signal}: unknown, no signal", "{signal}：未知，没有信号")
POD_USE = Message("{pod} ({signals})", "{pod}（{signals}）")
HOST_PARTLY = Message(
    "{text} (unknown of {count} of {pods} {pods:|pod|pods})", "{text}（{pods} 个 Pod 中有 {count} 个未知）"
)

# The panic switch.
SWITCHED_OFF = Message("reclaim is switched off by {by}: {reason}", "回收已被 {by} 关闭：{reason}")
SWITCHED_OFF_BY_ANNOTATION = Message(
    "annotation {annotation} of namespace {namespace} switches reclaim off",
    "命名空间 {namespace} 的注解 {annotation} 已关闭回收",
)
SWITCH_UNREADABLE = Message(
    "the switch cannot be read, so nothing is done: {reason}", "无法读取开关，因此不做任何操作：{reason}"
)

# Steps of an action.
WARNING_SENT = Message("warning sent", "警告已发送")
WARNING_DELIVERED = Message("warning delivered", "警告已送达")
DRY_RUN_ACCEPTED = Message("dry run: accepted", "试运行：已接受")
DRY_RUN_FAILED = Message("dry run: {reason}", "试运行：{reason}")

# Failures.
NO_JOURNAL = Message("reclaim needs the ledger (ledger.enabled)", "回收需要账本（ledger.enabled）")
CLUSTER_UNKNOWN = Message(
    "namespace kube-system, whose uid tells this cluster from others, cannot be read, so nothing is done and nothing "
    "can be restored: {reason}; to undo by hand, put back what the annotations gpusteward.io/original-* of an object "
    "say",
    "无法读取命名空间 kube-system（其 uid 用于区分集群），因此不做任何操作，也无法恢复：{reason}；如需手动恢复，"
    "请按对象的注解 gpusteward.io/original-* 改回",
)
JOURNAL_UNREADABLE = Message("the journal of reclaim: {reason}", "回收日志：{reason}")
ACTION_MOVED = Message("action {action} is in another state by now", "操作 {action} 已处于其他状态")
POD_GONE = Message("pod {pod} is gone, or another one by now", "Pod {pod} 已不存在，或已是另一个")
SEVERAL_ROOTS = Message("its pods have different owners ({count})", "其 Pod 有 {count} 个不同的所有者")
OWNER_UNREADABLE = Message(
    "{kind}/{name} cannot be read, or is another one by now", "{kind}/{name} 无法读取，或已是另一个"
)
WORK_SEEN = Message("work was seen on GPU {gpu} of pod {pod} a moment ago", "刚刚在 Pod {pod} 的 GPU {gpu} 上见到活动")
REQUESTS_SEEN = Message(
    "pod {pod} may have had a request a moment ago: its servers do not prove that there was none",
    "Pod {pod} 刚刚可能有请求：推理服务不能证明没有请求",
)
USAGE_UNREADABLE = Message("usage could not be read again: {reason}", "无法再次读取用量：{reason}")
NO_USAGE_SOURCE = Message("there is no source of usage", "没有用量数据源")
USAGE_SLOW = Message(
    "usage was read again in {seconds:.0f} s; {most:.0f} s are allowed before an action",
    "再次读取用量耗时 {seconds:.0f} 秒；操作前最多允许 {most:.0f} 秒",
)
USE_BY_OTHERS_SEEN = Message(
    "GPU {gpu} of pod {pod} was used a moment ago by somebody who does not hold it",
    "刚刚有不占用 Pod {pod} 的 GPU {gpu} 的进程在使用它",
)
SIGNALS: Mapping[Measure, Message] = {
    **WORK_SIGNALS,
    Measure.BUSY: Message("Busy time", "繁忙时间"),
    Measure.LAST_KERNEL: Message("Time of the last kernel", "最后一次 kernel 的时间"),
    Measure.OUTSIDE: Message("Use by others", "其他进程的使用"),
}
"""What is read right before an action."""
NO_SAMPLE = Message(
    "waits for a fresh sample: there is none of GPU {gpu} of pod {pod} ({signal})",
    "等待新样本：Pod {pod} 的 GPU {gpu} 没有样本（{signal}）",
)
WAITS_FOR_SAMPLE = Message(
    "waits for a fresh sample: the newest one of GPU {gpu} of pod {pod} is {seconds:.0f} s old ({signal}), at most "
    "{most:.0f} s are allowed; where samples always arrive later than that, nothing is ever done",
    "等待新样本：Pod {pod} 的 GPU {gpu} 的最新样本（{signal}）产生于 {seconds:.0f} 秒前，最多允许 {most:.0f} 秒；"
    "如果样本总是更晚到达，则永远不会执行操作",
)
SAMPLE_OF_FUTURE = Message(
    "the newest sample of GPU {gpu} of pod {pod} is from {seconds:.0f} s in the future ({signal}): the clock of what "
    "scrapes it is ahead, so that nobody knows how old its samples are; set the clocks",
    "Pod {pod} 的 GPU {gpu} 的最新样本（{signal}）的时间在未来 {seconds:.0f} 秒：抓取方的时钟偏快，无法得知样本实际"
    "产生于何时；请校准时钟",
)
USAGE_FRESH = Message(
    "read again, no GPU has begun to work, and all samples are fresh",
    "再次读取：没有 GPU 开始工作，且所有样本都是最新的",
)
NOT_READ_AGAIN = Message("usage is read again right before the action", "操作前会再次读取用量")
LEASE_LOST = Message("the Lease was lost in the middle: {holder} holds it", "操作中途失去 Lease：现由 {holder} 占用")
LEASE_EXPIRED = Message("the Lease ran out while usage was read again", "再次读取用量期间 Lease 已过期")
FACTS_OLD = Message(
    "pods, snoozes and policies were read {seconds:.0f} s ago, which is longer than {most:.0f} s: they are read again "
    "in the next cycle",
    "Pod、保留设置和策略是 {seconds:.0f} 秒前读取的，超过了 {most:.0f} 秒：将在下一个周期重新读取",
)
NOT_CHANGED = Message(
    "the server accepted the change and dropped it: the field {field} does not exist in this version",
    "服务器接受了修改但将其丢弃：此版本没有字段 {field}",
)
INTERRUPTED = Message("interrupted before the change; nothing was done", "在修改之前中断；没有做任何操作")
NO_EFFECT = Message(
    "the pods were still there after {minutes:.0f} min; the change is undone",
    "{minutes:.0f} 分钟后 Pod 仍然存在；已撤销修改",
)
CHANGED_BACK = Message("somebody else changed it back: {text}", "已被他人改回：{text}")
OBJECT_GONE = Message("the object does not exist any more", "对象已不存在")
POLICY_CHANGED = Message(
    "the action of its policy has changed from {before} to {now}", "其策略的动作已从 {before} 变为 {now}"
)
PODS_REPLACED = Message(
    "its pods are others by now: they were not warned about", "其 Pod 已不是之前的那些：没有就它们发出过警告"
)
SPELL_ENDED = Message("work came back", "已恢复工作")
NEEDED_AGAIN = Message("replicas that are needed again: {keep} in all", "需要的副本增加到 {keep} 个")

# What people ask for.
NO_SUCH_ACTION = Message("there is no action {action}", "没有操作 {action}")
NOT_RESTORABLE = Message(
    "action {action} is {state}: there is nothing to restore", "操作 {action} 处于 {state} 状态：没有可恢复的内容"
)
NOT_RESTORABLE_KIND = Message("an evicted pod cannot be restored", "被驱逐的 Pod 无法恢复")
NOT_DONE_YET = Message(
    "action {action} was begun {seconds:.0f} s ago, and its change is not there; it may still come: try again later",
    "操作 {action} 于 {seconds:.0f} 秒前开始，其修改尚未生效，但仍可能生效：请稍后重试",
)
NOT_STOPPED_YET = Message(
    "Volcano has not carried out the command that stops it yet; it is restored when that has happened. A command that "
    "still waits can be withdrawn by hand: {command}",
    "Volcano 尚未执行停止它的命令；执行之后会将其恢复。仍在等待的命令可以手动撤回：{command}",
)
NOT_OURS = Message(
    "its value is not ours any more: it is left as it is ({text})", "其值已不是我们设置的：保持原样（{text}）"
)
NO_SUCH_WORKLOAD = Message("the last result has no workload {workload}", "最近的结果中没有工作负载 {workload}")
NOT_ON = Message("reclaim.mode is {mode}; enforce is needed to act", "reclaim.mode 为 {mode}；需要 enforce 才能操作")
RESTORE_BY_HAND = Message(
    "it could not be restored: {reason}. Whoever has the right can undo it by hand: {command}",
    "无法恢复：{reason}。有权限的人可以手动撤销：{command}",
)
REFUSED = Message("refused: {reason}", "已拒绝：{reason}")
BUSY = Message("reclaim is busy; try again", "回收正忙；请重试")

# Events on objects.
EVENT_ACTED = Message(
    "gpusteward gave {gpus} idle {gpus:|GPU|GPUs} back ({text}); idle since {since}. Undo: gpusteward restore {action}",
    "gpusteward 归还了 {gpus} 张空闲 GPU（{text}）；自 {since} 起空闲。撤销：gpusteward restore {action}",
)
EVENT_RESTORED = Message(
    "gpusteward restored the original ({text}), asked by {by}", "gpusteward 已恢复原值（{text}），由 {by} 请求"
)
WAITS_AFTER_RESTORE = Message(
    "{text}; waiting for {gpus} {gpus:|GPU|GPUs} until its pods run", "{text}；正在等待 {gpus} 张 GPU，直到其 Pod 运行"
)
NOT_WAITING = Message("its pods run, or are not expected any more", "其 Pod 已运行，或不再需要等待")
REASON = Message("no GPU work since {since}, policy {policy}", "自 {since} 起 GPU 无活动，策略 {policy}")
POOL_ROLLS_OUT = Message(
    "its pods belong to several ReplicaSets, as during a rollout: which of them would go is not certain",
    "其 Pod 属于多个 ReplicaSet（例如正在滚动更新）：无法确定会删除哪些",
)
HELD_FOR_POD = Message(
    "pod {pod} holds its GPU for pod {other}, in which the server is (label dual-pods.llm-d.ai/dual)",
    "Pod {pod} 为 Pod {other} 占用 GPU，推理服务在后者中运行（标签 dual-pods.llm-d.ai/dual）",
)
REPLICA_NOT_READY = Message(
    "replica {pod} is not ready: Kubernetes would remove it before the idle ones",
    "副本 {pod} 未就绪：Kubernetes 会先删除它，而不是空闲的副本",
)
REPLICAS_DIFFER = Message(
    "the number of replicas ({replicas}) is not that of its pods with GPUs ({pods})",
    "副本数（{replicas}）与占用 GPU 的 Pod 数（{pods}）不一致",
)
