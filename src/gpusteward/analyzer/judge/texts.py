"""The words of a verdict, by reason code, in English and Chinese. Numbers are filled in by name."""

from collections.abc import Mapping

from gpusteward.core.messages import format_text
from gpusteward.messages.unknown_reasons import CHINESE as CHINESE_REASONS
from gpusteward.messages.verdict_words import CHINESE

LANGUAGES = ("en", "zh")
_WORDS = ("state", "status")  # words of the API among the numbers

TEXTS: Mapping[str, tuple[str, str]] = {
    # what was seen
    "worked": (
        "Core utilization was {mean:.1%} on average and {peak:.0%} at its peak over {minutes:.0f} "
        "{minutes:|minute|minutes}.",
        "{minutes:.0f} 分钟内核心利用率平均 {mean:.1%}，峰值 {peak:.0%}。",
    ),
    "worked-elsewhere": (
        "{signal} was up to {peak:.1%}, which is work, though core utilization says nothing of it.",
        "{signal} 峰值 {peak:.1%}，说明有活动，尽管核心利用率没有体现。",
    ),
    "paused": (
        "No work in the last {minutes:.0f} {minutes:|minute|minutes}, but some shortly before, seen at {worked_at}: a "
        "pause so far.",
        "最近 {minutes:.0f} 分钟没有活动，但此前不久（{worked_at}）仍有活动，目前只算暂停。",
    ),
    "idle": (
        "No work at all: every activity signal peaked at 0 over {minutes:.0f} {minutes:|minute|minutes}, "
        "{coverage:.0%} of the time seen.",
        "完全没有活动：{minutes:.0f} 分钟内所有活动信号的峰值均为 0，采样覆盖率 {coverage:.0%}。",
    ),
    "idle-since": ("Idle since {idle_since}.", "自 {idle_since} 起空闲。"),
    # why it is unknown
    "doubt-stale": (
        "The newest data is older than the window of {minutes:.0f} {minutes:|minute|minutes}.",
        "最新数据早于 {minutes:.0f} 分钟的窗口。",
    ),
    "doubt-source": ("Not judged: {why}.", "未作判断：{why}。"),
    "doubt-no-data": ("Core utilization could not be measured.", "无法测得核心利用率。"),
    "doubt-coverage": (
        "No work was seen, but only {coverage:.0%} of the samples are there; idle needs {needed:.0%}. A gap is not "
        "idleness.",
        "未见活动，但采样覆盖率只有 {coverage:.0%}，判定空闲需要 {needed:.0%}：数据缺口不等于空闲。",
    ),
    "doubt-sparse": (
        "No work was seen, but in {samples:.0f} {samples:|sample|samples} only; idle needs {least:.0f} in "
        "{minutes:.0f} {minutes:|minute|minutes}.",
        "未见活动，但 {minutes:.0f} 分钟内只有 {samples:.0f} 个样本，判定空闲至少需要 {least:.0f} 个。",
    ),
    "doubt-partial": (
        "An activity signal has a mean but no peak, and only the peak proves idleness.",
        "某个活动信号只有均值没有峰值，而只有峰值才能证明空闲。",
    ),
    "doubt-power": (
        "Utilization reads 0, yet the GPU draws {power:.0f} W: the signals contradict each other.",
        "利用率读数为 0，但功率为 {power:.0f} W：信号互相矛盾。",
    ),
    # what kind it is
    "empty": ("Nothing is on it: no process and no memory in use.", "卡上没有任何东西：没有进程，也没有占用显存。"),
    "parked": ("{memory:.1f} GiB of memory are held and not used.", "占用 {memory:.1f} GiB 显存但没有使用。"),
    "parked-process": ("A process sits on it and does nothing.", "卡上有进程，但什么也没做。"),
    "owner-unknown": (
        "Whose it is, is not known: it may be a job that hangs, so nothing here goes beyond a notice.",
        "不清楚归属：可能是卡死的任务，因此最多只发通知。",
    ),
    "owner-of-a-job": (
        "A {kind} may belong to a job, and that may hang, so nothing here goes beyond a notice.",
        "{kind} 可能属于某个任务，而任务可能已卡死，因此最多只发通知。",
    ),
    "hung": (
        "A {kind} should run through; this one worked until about {worked_at} and stands still with its memory held. "
        "It may hang.",
        "{kind} 本应持续运行；它在约 {worked_at} 之前有活动，之后停滞且仍占用显存，疑似卡死。",
    ),
    "hung-unseen": (
        "A {kind} should run through, but this one stands still with its memory held. It may have worked before "
        "anybody looked, and hang.",
        "{kind} 本应持续运行，但处于停滞且仍占用显存；在开始观察之前它可能工作过，疑似卡死。",
    ),
    "starved": (
        "Low for a {kind}, which should run through: it probably waits for its input.",
        "对本应持续运行的 {kind} 来说利用率偏低，很可能在等待数据。",
    ),
    "bursty": ("It works in bursts, with pauses.", "间歇性工作，时有停顿。"),
    "keep-alive": (
        "Flat at {mean:.1%} (deviation {spread:.2%}) for {flat:.0f} {flat:|minute|minutes} or more, moving no data: "
        "this looks like work made up to keep the GPU.",
        "利用率恒定在 {mean:.1%}（标准差 {spread:.2%}）已至少 {flat:.0f} 分钟，且几乎不搬运数据，疑似占卡。",
    ),
    "steady": ("It works steadily.", "持续稳定地工作。"),
    "starting": (
        "The pod is {age:.0f} {age:|minute|minutes} old and may still be starting: it has {grace:.0f} "
        "{grace:|minute|minutes}.",
        "Pod 启动仅 {age:.0f} 分钟，可能仍在启动中：宽限期为 {grace:.0f} 分钟。",
    ),
    "unknown": ("What kind of use it is cannot be said.", "无法判断属于哪类使用情况。"),
    # the score
    "score": ("Score {score:.1f} of 100: {state}.", "评分 {score:.1f}（满分 100）：{state}。"),
    "corrected": (
        "The score of {score:.1f} alone would not say idle: it counts held memory as use.",
        "仅凭评分 {score:.1f} 不会判定为空闲：评分把占用的显存也算作使用。",
    ),
    # what a second opinion has against it
    "objection": (
        "A second opinion, {confidence:.0%} sure, calls it {status}, so nothing here goes beyond a notice: {why}",
        "第二意见（置信度 {confidence:.0%}）认为是{status}，因此最多只发通知：{why}",
    ),
    # workloads
    "finding": ("{idle} of {gpus} {gpus:|GPU|GPUs} unused", "{gpus} 张 GPU 中有 {idle} 张未使用"),
    "workload-idle": (
        "{gpus:|The|All} {gpus} {gpus:|GPU|GPUs} of this workload {gpus:|is|are} idle.",
        "该工作负载的 {gpus} 张 GPU 全部空闲。",
    ),
    "workload-active": (
        "{active} of {gpus} {gpus:|GPU|GPUs} of this workload {active:|works|work}.",
        "该工作负载的 {gpus} 张 GPU 中有 {active} 张使用中。",
    ),
    "workload-unknown": (
        "Of its {gpus} {gpus:|GPU|GPUs}, {unknown} {unknown:|is|are} unknown, so the workload is not idle.",
        "其 {gpus} 张 GPU 中有 {unknown} 张状态未知，因此不能判定为空闲。",
    ),
    "workload-objection": (
        "Of its {gpus} {gpus:|GPU|GPUs} a second opinion doubts that {doubted} {doubted:|is|are} unused: nothing here "
        "goes beyond a notice.",
        "第二意见怀疑其 {gpus} 张 GPU 中有 {doubted} 张并非空闲：因此最多只发通知。",
    ),
}


def render(code: str, values: Mapping[str, object], *, language: str) -> str:
    """One reason in words. Raises KeyError for an unknown code, ValueError for an unknown language."""
    if language == "zh":
        values = {name: _translate(name, value) for name, value in values.items()}
    return format_text(TEXTS[code][LANGUAGES.index(language)], values)


def _translate(name: str, value: object) -> object:
    """What is told in other words than those of this program stays as it is."""
    known = CHINESE if name in _WORDS else CHINESE_REASONS if name == "why" else {}
    return known.get(str(value), value)
