"""Verdicts in words: the names of states, activities, signatures and steps, and the reasons of a verdict."""

from collections.abc import Iterable, Mapping

from gpusteward.core.messages import Message
from gpusteward.core.usages import Measure
from gpusteward.core.verdicts import Activity, Doubt, Proof, Signature, State, Step, VerdictName

WORDS: Mapping[str, Message] = {
    # activities, and the status that a second opinion gives
    "active": Message("active", "使用中"),
    "idle": Message("idle", "空闲"),
    "suspicious": Message("suspicious", "可疑"),
    "unknown": Message("unknown", "未知"),
    # states
    "low": Message("low", "偏低"),
    "normal": Message("normal", "正常"),
    "high": Message("high", "高"),
    # signatures
    "empty": Message("empty", "空占"),
    "parked": Message("parked", "仅占显存"),
    "no-requests": Message("no requests", "无请求"),
    "asleep": Message("asleep", "休眠"),
    "starved": Message("starved", "等待数据"),
    "hung": Message("hung", "疑似卡死"),
    "bursty": Message("bursty", "间歇"),
    "keep-alive": Message("keep-alive", "疑似占卡"),
    "health-check": Message("health check", "仅健康检查"),
    "stalled": Message("stalled", "疑似空转"),
    "steady": Message("steady", "稳定"),
    "starting": Message("starting", "启动中"),
    # how it was proven
    "integrated": Message("integrated", "累计测量"),
    "sampled": Message("sampled", "仅采样"),
    # the highest step
    "nothing": Message("nothing", "不处理"),
    "notice": Message("notice", "仅通知"),
    "reclaim": Message("reclaim", "可回收"),
}
"""The words of the API: each has one translation wherever people read it."""


def _pick(words: Iterable[str]) -> Mapping[str, Message]:
    return {str(word): WORDS[word] for word in words}


ACTIVITIES = _pick(Activity)
VERDICTS = _pick(VerdictName)
STATES = _pick(State)
SIGNATURES = _pick(Signature)
STEPS = _pick(Step)
PROOFS = _pick(Proof)
STATUSES = _pick(("active", "idle", "suspicious"))

# Why the activity is what it is.

WORKED = Message(
    "Core utilization was {mean:.1%} on average and {peak:.0%} at its peak over {minutes:.0f} "
    "{minutes:|minute|minutes}.",
    "{minutes:.0f} 分钟内核心利用率平均 {mean:.1%}，峰值 {peak:.0%}。",
)
WORKED_ELSEWHERE = Message(
    "{signal} reached {peak:.1%}: the GPU is in use, although core utilization does not show it.",
    "{signal} 峰值为 {peak:.1%}：GPU 在使用，只是核心利用率没有体现。",
)
MOVED_DATA = Message(
    "{signal} reached {rate:,.0f} MB/s: the GPU is in use, although core utilization does not show it.",
    "{signal} 峰值为 {rate:,.0f} MB/s：GPU 在使用，只是核心利用率没有体现。",
)
WORK_SIGNALS: Mapping[Measure, Message] = {
    Measure.CORE: Message("Core utilization", "核心利用率"),
    Measure.MEMORY_COPY: Message("Memory copy utilization", "显存读写利用率"),
    Measure.ENGINE: Message("Engine activity", "引擎活跃度"),
    Measure.TENSOR: Message("Tensor pipe activity", "Tensor 流水线活跃度"),
    Measure.DRAM: Message("Memory interface activity", "显存接口活跃度"),
    Measure.ENCODER: Message("Encoder utilization", "编码器利用率"),
    Measure.DECODER: Message("Decoder utilization", "解码器利用率"),
    Measure.VIDEO: Message("Utilization of the video engines", "视频引擎利用率"),
    Measure.SM_ACTIVE: Message("SM activity", "SM 活跃度"),
    Measure.PIPES: Message("Activity of an arithmetic pipe", "运算流水线活跃度"),
    Measure.PCIE: Message("PCIe traffic", "PCIe 流量"),
    Measure.NVLINK: Message("NVLink traffic", "NVLink 流量"),
}
"""The signals that prove work."""
PAUSED = Message(
    "No work in the last {minutes:.0f} {minutes:|minute|minutes}, but some shortly before ({worked_at}): this still "
    "counts as a pause.",
    "最近 {minutes:.0f} 分钟没有活动，但此前不久（{worked_at}）有过活动，目前仍视为停顿。",
)
IDLE = Message(
    "No work: every activity signal peaked at 0 over {minutes:.0f} {minutes:|minute|minutes}, with {coverage:.0%} of "
    "the samples present.",
    "没有活动：{minutes:.0f} 分钟内所有活动信号的峰值均为 0，采样覆盖率 {coverage:.0%}。",
)
IDLE_BUT_WORKED = Message(
    "The GPU works {busy:.2%} of the time, but its inference server had no request over {minutes:.0f} "
    "{minutes:|minute|minutes}: health checks or timers of the server, so the highest step is a notice.",
    "GPU 有 {busy:.2%} 的时间在工作，但推理服务 {minutes:.0f} 分钟内没有请求：应为健康检查或服务自身的定时任务，"
    "因此最多只发通知。",
)
IDLE_BUT_PAUSED = Message(
    "The GPU worked until {worked_at}, less than 1% of the time, but its inference server has had no request: health "
    "checks or timers of the server.",
    "GPU 在 {worked_at} 之前有过活动，但只占不到 1% 的时间，且推理服务没有请求：应为健康检查或服务自身的定时任务。",
)
IDLE_SINCE = Message("Idle since {idle_since}.", "自 {idle_since} 起空闲。")
PROVEN: Mapping[Proof, Message] = {
    Proof.INTEGRATED: Message(
        "Signals that include all of the time show no work.", "覆盖全部时间的累计信号显示没有活动。"
    ),
    Proof.SAMPLED: Message(
        "Only samples show this. Work between two samples is not seen, so the highest step is a notice; gpusteward's "
        "agent or DCGM_FI_PROF_GR_ENGINE_ACTIVE measure all of the time.",
        "仅凭采样得出：两次采样之间的活动无法看到，因此最多只发通知；gpusteward agent 或 DCGM_FI_PROF_GR_ENGINE_ACTIVE "
        "可以测量全部时间。",
    ),
}
NOT_PROVEN_BY_ENERGY = Message(
    "The energy counter does not contradict it, but cannot prove it: short or regular work adds less than an idle GPU "
    "varies.",
    "能耗计数器与之不矛盾，但也不能证明空闲：短暂或规律的活动增加的能耗，小于空闲 GPU 自身的波动。",
)
SCRAPED_TOO_RARELY = Message(
    "Engine activity was not scraped for up to {step:.0f} s at a time, and DCGM averages it over {collected:.0f} s: a "
    "scrape that is not clearly sooner can skip such an average, so the highest step is a notice. Scrape every "
    "{advised:.0f} s, or set judge.proof.dcgm_interval_seconds to the interval of dcgm-exporter (-c).",
    "引擎活跃度的抓取间隔最长达 {step:.0f} 秒，而 DCGM 只对 {collected:.0f} 秒求平均：抓取若不明显更快，就可能跳过一个"
    "平均值，因此最多只发通知。请每 {advised:.0f} 秒抓取一次，或把 judge.proof.dcgm_interval_seconds 设为 "
    "dcgm-exporter 的采集间隔（-c）。",
)
COLLECTED_TOO_OFTEN = Message(
    "Power or energy have a new value every {renewed:.0f} s, so DCGM averages engine activity over less than the "
    "{collected:.0f} s of judge.proof.dcgm_interval_seconds: work in between is not seen, and the highest step is a "
    "notice.",
    "功率或能耗每 {renewed:.0f} 秒就有新值，说明 DCGM 求平均的时间短于 judge.proof.dcgm_interval_seconds 的 "
    "{collected:.0f} 秒，其间的活动无法看到，因此最多只发通知。",
)
COLLECTION_UNKNOWN = Message(
    "How often power and energy have a new value could not be read, so it is not known over which time DCGM averages "
    "engine activity, and the highest step is a notice.",
    "未能读取功率和能耗多久更新一次，因此不知道 DCGM 对多长时间求平均，最多只发通知。",
)
WINDOWS_APART = Message(
    "Its busy time is counted within windows of {minutes:g} {minutes:|minute|minutes}, and a new one begins every "
    "{cycle:g}: work between two of them may be in neither, so the highest step is a notice. scheduler.interval must "
    "be shorter than prometheus.time_window_min by a scrape interval or more.",
    "繁忙时间按 {minutes:g} 分钟的窗口累计，而每 {cycle:g} 分钟才开始新窗口：落在两个窗口之间的活动可能都统计不到，"
    "因此最多只发通知。scheduler.interval 必须比 prometheus.time_window_min 至少短一个抓取间隔。",
)
NO_VIDEO_SIGNAL = Message(
    "The use of video engines is not exported (DCGM_FI_DEV_ENC_UTIL and DCGM_FI_DEV_DEC_UTIL; on a MIG instance "
    "DCGM_FI_PROF_NVDEC*_ACTIVE): they may have worked unseen, so the highest step is a notice.",
    "没有导出视频引擎的使用情况（DCGM_FI_DEV_ENC_UTIL 和 DCGM_FI_DEV_DEC_UTIL；MIG 实例为 "
    "DCGM_FI_PROF_NVDEC*_ACTIVE）：视频引擎可能在未被看到时工作，因此最多只发通知。",
)
VIDEO_IS_SAMPLED = Message(
    "The use of video engines is only sampled, and it has used one or is observed for less than {minutes:.0f} "
    "{minutes:|minute|minutes}: they may work between two samples, so the highest step is a notice.",
    "视频引擎的使用只有采样值，而它用过视频引擎，或观测时间不足 {minutes:.0f} 分钟：两次采样之间可能有视频活动，"
    "因此最多只发通知。",
)
PROVEN_BY_KERNEL = Message(
    "HAMi records when kernels are launched: the last one of this container at {launched_at}.",
    "HAMi 记录 kernel 的启动时间：该容器最后一次启动是在 {launched_at}。",
)
LAUNCHED_KERNEL = Message(
    "A kernel was launched at {launched_at}, as HAMi recorded; no sample of the utilization saw it.",
    "HAMi 记录到在 {launched_at} 启动过 kernel，利用率采样没有捕捉到。",
)

DOUBTS: Mapping[Doubt, Message] = {
    Doubt.STALE: Message(
        "The newest data is older than the window of {minutes:.0f} {minutes:|minute|minutes}.",
        "最新数据早于 {minutes:.0f} 分钟的窗口。",
    ),
    Doubt.SOURCE: Message("Not judged: {why}.", "未作判断：{why}。"),
    Doubt.NO_DATA: Message("Core utilization could not be measured.", "无法测得核心利用率。"),
    Doubt.COVERAGE: Message(
        "No work was seen, but only {coverage:.0%} of the samples are present; idle requires {needed:.0%}. A gap in "
        "the data is not idleness.",
        "未见活动，但采样覆盖率只有 {coverage:.0%}，判定空闲需要 {needed:.0%}：数据缺口不等于空闲。",
    ),
    Doubt.SPARSE: Message(
        "No work was seen, but only in {samples:.0f} {samples:|sample|samples}; idle requires {least:.0f} in "
        "{minutes:.0f} {minutes:|minute|minutes}.",
        "未见活动，但 {minutes:.0f} 分钟内只有 {samples:.0f} 个样本，判定空闲至少需要 {least:.0f} 个。",
    ),
    Doubt.PARTIAL: Message(
        "An activity signal has a mean but no peak, and only the peak can prove idleness.",
        "某个活动信号只有均值没有峰值，而只有峰值才能证明空闲。",
    ),
    Doubt.POWER: Message(
        "Utilization reads 0, but the GPU draws {power:.0f} W: the signals contradict each other.",
        "利用率读数为 0，但功率为 {power:.0f} W：信号互相矛盾。",
    ),
    Doubt.ENERGY: Message(
        "No work was seen in the samples, but the energy counter shows a minute that exceeds the quiet minutes of the "
        "hour by {excess:.1f} W more than they vary: something ran between two samples.",
        "采样中未见活动，但能耗计数器显示某一分钟的功耗比该小时内平静的分钟高出 {excess:.1f} W，超过其自身波动："
        "两次采样之间有活动。",
    ),
}
"""Why the activity is unknown."""

LATE_SAMPLES = Message(
    "All samples arrive {seconds:.0f} s late: everything here ends at the newest one.",
    "所有样本都晚 {seconds:.0f} 秒到达：以上内容截至最新的样本。",
)

# What the signature means, and what limits the highest step.

SIGNATURE_REASONS: Mapping[Signature, Message] = {
    Signature.EMPTY: Message("The GPU has no process and no memory in use.", "GPU 上没有进程，也没有占用显存。"),
    Signature.PARKED: Message(
        "{memory:.1f} GiB of memory is held but not used.", "占用 {memory:.1f} GiB 显存，但没有使用。"
    ),
    Signature.NO_REQUESTS: Message(
        "Its inference server had no request: in the whole window no counter of requests or tokens grew, and nothing "
        "was running or waiting.",
        "推理服务没有请求：整个窗口内请求数和 token 数都没有增长，也没有正在处理或排队的请求。",
    ),
    Signature.ASLEEP: Message(
        "Its inference server says that it sleeps, and only {memory:.1f} GiB of memory is held.",
        "推理服务上报为休眠，且仅占用 {memory:.1f} GiB 显存。",
    ),
    Signature.STARVED: Message(
        "Utilization is low for a {kind}, which should run without pauses: it is probably waiting for input data.",
        "对本应持续运行的 {kind} 来说利用率偏低，很可能在等待数据。",
    ),
    Signature.HUNG: Message(
        "A {kind} should run without pauses; this one worked until about {worked_at}, then stopped and still holds "
        "its memory. It may be hung.",
        "{kind} 本应持续运行；该工作负载在 {worked_at} 前后停止活动，且仍占用显存，疑似卡死。",
    ),
    Signature.BURSTY: Message("It works in bursts, with pauses between them.", "间歇性地工作，中间有停顿。"),
    Signature.KEEP_ALIVE: Message(
        "Constant at {mean:.1%} (standard deviation {spread:.2%}) for {flat:.0f} {flat:|minute|minutes} or more, with "
        "almost no memory traffic: this looks like an artificial load that keeps the GPU occupied.",
        "利用率恒定在 {mean:.1%}（标准差 {spread:.2%}）已至少 {flat:.0f} 分钟，且几乎没有显存读写：疑似人为占卡。",
    ),
    Signature.HEALTH_CHECK: Message(
        "It works {busy:.2%} of the time, in short and regular blips for {blips:.0f} {blips:|minute|minutes} or more, "
        "and its memory does not change: this looks like the health checks of a server that nobody uses.",
        "工作时间只占 {busy:.2%}，短促而有规律，已至少持续 {blips:.0f} 分钟，且显存不变：看起来只有健康检查，"
        "没有人使用该服务。",
    ),
    Signature.STALLED: Message(
        "Busy without doing anything since {since}, for {frozen:.0f} {frozen:|minute|minutes}.",
        "自 {since} 起显示繁忙但没有实际工作，已持续 {frozen:.0f} 分钟。",
    ),
    Signature.STEADY: Message("It works steadily.", "持续稳定地工作。"),
    Signature.STARTING: Message(
        "The pod is {age:.0f} {age:|minute|minutes} old and may still be starting; the grace period is {grace:.0f} "
        "{grace:|minute|minutes}.",
        "Pod 仅运行了 {age:.0f} 分钟，可能仍在启动中；宽限期为 {grace:.0f} 分钟。",
    ),
    Signature.UNKNOWN: Message("The kind of use cannot be determined.", "无法判断使用类型。"),
}
NO_REQUESTS_SPINNING = Message(
    "A kernel runs all the time, but its inference server has had no request since {since}, and nothing shows work: "
    "its ranks wait for each other. This time is ineffective.",
    "GPU 一直在执行 kernel，但推理服务自 {since} 起没有请求，且没有任何信号表明在工作：各 rank 只是在互相等待。"
    "这段时间计为无效。",
)
KEEP_ALIVE_HELD = Message(
    "Constant at {mean:.1%} since {since}, through the night, with constant power and memory and one process, while "
    "its pods neither read nor wrote for a day: this looks like an artificial load that keeps the GPU occupied.",
    "自 {since} 起利用率一直恒定在 {mean:.1%}（包括夜间），功率和显存不变，只有一个进程，且 Pod 一天内没有读写："
    "疑似人为占卡。",
)
MAY_HANG = Message(
    "At {mean:.0%} in every sample since {since}, through the night, at {power:.0f} W, which shows no computing, with "
    "one process and constant memory, while its pods neither read nor wrote for a day: a kernel that waits or never "
    "ends, or a load that only keeps the GPU busy. Look at the process before you ask its owner: py-spy dump --pid PID "
    "in the container.",
    "自 {since} 起每次采样利用率都是 {mean:.0%}（包括夜间），功率 {power:.0f} W，看不出在计算，只有一个进程，显存不变，"
    "且 Pod 一天内没有读写：可能是一直等待或永不结束的 kernel，也可能只是让 GPU 保持繁忙。询问负责人之前请先查看进程："
    "在容器内执行 py-spy dump --pid PID。",
)
STALLED_SERVER = Message(
    "Requests run in every sample ({running:.0f} or more), and no token came within {minutes:.0f} "
    "{minutes:|minute|minutes}: it has probably frozen.",
    "每次采样都有请求在处理（至少 {running:.0f} 个），但 {minutes:.0f} 分钟内没有产出任何 token：很可能已卡住。",
)
STALLED_GANG = Message(
    "Every GPU of the workload either runs a kernel all the time or does nothing, and nothing shows work: they "
    "probably wait for each other in a collective. Utilization does not tell a kernel that waits from one that "
    "computes.",
    "该工作负载的每张 GPU 要么一直在执行 kernel，要么完全没有活动，且没有任何信号表明在工作：很可能在集合通信中互相"
    "等待。仅看利用率无法区分等待中的 kernel 和计算中的 kernel。",
)
STALLED_POWER = Message(
    "Power was {power:.0f} W of {limit:.0f} W on average.", "平均功率为 {power:.0f} W（上限 {limit:.0f} W）。"
)
STALLED_SIGNAL = Message("{signal} was {peak:.1%} at its peak.", "{signal}峰值为 {peak:.1%}。")
STALLED_HOST = Message(
    "No pod of it read or wrote anything worth mentioning: at most {disk:.1f} kB/s on disks and {network:.1f} kB/s "
    "over the network.",
    "它的所有 Pod 几乎没有读写：磁盘最多 {disk:.1f} kB/s，网络最多 {network:.1f} kB/s。",
)
STALLED_HOST_UNKNOWN = Message(
    "Disk and network of its pods are not measured, or not still, so this took {hours:g} {hours:|hour|hours} to say.",
    "它的 Pod 的磁盘和网络未被测量或仍有读写，因此持续 {hours:g} 小时后才作出判断。",
)
STALLED_SINCE = Message(
    "Busy without doing anything since {since}: {hours:,.1f} {hours:|GPU-hour|GPU-hours} so far.",
    "自 {since} 起显示繁忙但没有实际工作：至今已耗费 {hours:,.1f} GPU 小时。",
)
STALLED_ODD = Message(
    "{spinning} {spinning:|GPU|GPUs} of it {spinning:|runs|run} a kernel and {silent} {silent:|is|are} silent. Look at "
    "the fewer first: {ranks}.",
    "其中 {spinning} 张 GPU 在执行 kernel，{silent} 张没有活动。请先检查数量较少的一方：{ranks}。",
)
STALLED_NO_ODD = Message(
    "All {spinning} {spinning:|GPU|GPUs} of it {spinning:|runs|run} a kernel: none differs from the others.",
    "全部 {spinning} 张 GPU 都在执行 kernel，没有与众不同的一张。",
)
STALLED_COMMAND = Message(
    "To see where a rank stands: {command}, where PID is its Python process in the container. PyTorch's flight "
    "recorder and NCCL's ncclras tell which rank is behind.",
    "查看某个 rank 卡在哪里：{command}，其中 PID 为容器内的 Python 进程。PyTorch 的 flight recorder 和 NCCL 的 ncclras "
    "可以看出哪个 rank 落后。",
)
REQUESTS = Message(
    "Its inference server finished {requests:,.0f} {requests:|request|requests} in the last {minutes:.0f} "
    "{minutes:|minute|minutes}.",
    "推理服务最近 {minutes:.0f} 分钟内完成了 {requests:,.0f} 个请求。",
)
SILENT_SINCE = Message("No request since {silent_since}.", "自 {silent_since} 起没有请求。")
LAST_REQUEST = Message("The last request was at about {requested_at}.", "最近一次请求在 {requested_at} 前后。")
REQUESTED = Message(
    "Requests contradict that nobody uses it, so the highest step is a notice.",
    "有请求说明仍有人使用，因此最多只发通知。",
)
WAITING_REQUESTS = Message(
    "Up to {waiting:.0f} {waiting:|request waits|requests wait} at its inference server and nobody serves "
    "{waiting:|it|them}, so the highest step is a notice.",
    "推理服务有最多 {waiting:.0f} 个请求在排队却无人处理，因此最多只发通知。",
)
STARTING_LOADS = Message(
    "It has not worked yet and its memory grew a short time ago: it is still loading.",
    "尚未开始工作，且显存不久前仍在增长：仍在加载。",
)
NEVER_WORKED = Message(
    "No work of this {kind} has been seen: it may still be loading data, so the highest step is a notice.",
    "尚未见到该 {kind} 的活动，可能仍在加载数据，因此最多只发通知。",
)
NEVER_WORKED_UNKNOWN = Message(
    "No work of it has been seen and its owner is unknown: it may be a job that is still loading data, so the highest "
    "step is a notice.",
    "尚未见到它的活动，且属主未知：可能是仍在加载数据的任务，因此最多只发通知。",
)
PARKED_OTHERS = Message(
    "It has no process of its own on the GPU; there is one of somebody who does not hold the GPU, which does no work.",
    "它在该 GPU 上没有自己的进程；GPU 上有不属于占用者的进程，但没有执行任何工作。",
)
PARKED_SHARED = Message(
    "{memory:.1f} GiB of the memory of the GPU is held but not used, by it or by others who share the GPU: nothing "
    "says whose it is.",
    "该 GPU 上占用 {memory:.1f} GiB 显存，但没有使用；占用者是它还是共享该 GPU 的其他容器，没有数据可以区分。",
)
PARKED_PROCESS = Message("A process is on the GPU but does no work.", "GPU 上有进程，但没有执行任何工作。")
HUNG_UNSEEN = Message(
    "A {kind} should run without pauses, but this one does nothing and holds memory. It may have worked before it was "
    "first observed, and may be hung.",
    "{kind} 本应持续运行，但该工作负载没有活动且占用显存；它可能在开始观测之前工作过，疑似卡死。",
)
OWNER_UNKNOWN = Message(
    "The owner is unknown: this may be a hung job, so the highest step is a notice.",
    "属主未知：可能是卡死的任务，因此最多只发通知。",
)
OWNER_OF_A_JOB = Message(
    "A {kind} may belong to a job, and that job may be hung, so the highest step is a notice.",
    "{kind} 可能属于某个任务，而任务可能已卡死，因此最多只发通知。",
)

SCORE = Message(
    "gpu-oour's score is {score:.1f} of 100, in its band {state}. It is no verdict.",
    "gpu-oour 评分为 {score:.1f}（满分 100），档位为{state}；评分不是结论。",
)
SCORE_CORRECTED = Message(
    "gpu-oour's score is {score:.1f} of 100, in its band {range}, because held memory counts as use. It is no verdict: "
    "no work was seen, so its band is shown as idle.",
    "gpu-oour 评分为 {score:.1f}（满分 100），因占用的显存也计入评分，仅看评分档位为{range}；评分不是结论："
    "由于没有观测到活动，档位显示为空闲。",
)
OBJECTION = Message(
    "A second opinion ({confidence:.0%} confident) calls it {status}, so the highest step is a notice: {why}",
    "第二意见（置信度 {confidence:.0%}）认为是{status}，因此最多只发通知：{why}",
)

# Workloads.

FINDING = Message("{idle} of {gpus} {gpus:|GPU|GPUs} unused", "{gpus} 张 GPU 中有 {idle} 张未使用")
WORKLOADS: Mapping[VerdictName, Message] = {
    VerdictName.IDLE: Message(
        "{gpus:|The|All} {gpus} {gpus:|GPU|GPUs} of this workload {gpus:|is|are} idle.",
        "该工作负载的 {gpus} 张 GPU 全部空闲。",
    ),
    VerdictName.ACTIVE: Message(
        "{active} of {gpus} {gpus:|GPU|GPUs} of this workload {active:|is|are} in use.",
        "该工作负载的 {gpus} 张 GPU 中有 {active} 张使用中。",
    ),
    VerdictName.SUSPICIOUS: Message(
        "{active} of {gpus} {gpus:|GPU|GPUs} of this workload {active:|looks|look} busy but probably {active:|is|are} "
        "not.",
        "该工作负载的 {gpus} 张 GPU 中有 {active} 张看似繁忙，很可能没有实际工作。",
    ),
    VerdictName.UNKNOWN: Message(
        "{unknown} of {gpus} {gpus:|GPU|GPUs} of this workload {unknown:|is|are} unknown, so it does not "
        "count as idle.",
        "该工作负载的 {gpus} 张 GPU 中有 {unknown} 张状态未知，因此不能判定为空闲。",
    ),
}
WORKLOAD_OBJECTION = Message(
    "A second opinion doubts that {doubted} of {gpus} {gpus:|GPU|GPUs} of this workload {doubted:|is|are} idle, so the "
    "highest step is a notice.",
    "第二意见认为该工作负载的 {gpus} 张 GPU 中有 {doubted} 张可能并非空闲，因此最多只发通知。",
)
