"""The verdict on a workload as paragraphs, for `explain` and `top`; a workload that has ended; the time and age of a
result, for `idle` too. The words of a verdict are in `messages.verdicts`."""

import sys
import time
from collections.abc import Iterator, Mapping

from gpusteward.cli.json_access import Row
from gpusteward.cli.output import quantities, words
from gpusteward.cli.output.terminal_text import Line, clean
from gpusteward.core.messages import Language, Message
from gpusteward.core.verdicts import Activity
from gpusteward.messages.verdicts import PROOFS, SIGNATURES, STATUSES, STEPS, VERDICTS

RESUMPTION = Message("chance of work", "恢复工作的概率")
RESUMPTION_TEXT = Message(
    "{half_hour} within 30 min, {two_hours} within 2 h, {morning} until morning ({spells} idle spells of {of})",
    "30 分钟内 {half_hour}，2 小时内 {two_hours}，到早上 {morning}（依据{of}的 {spells} 段空闲）",
)
OF_KIND = Message("its kind", "同类工作负载")
TOO_FEW = Message("unknown: only {spells} comparable idle spells", "未知：可比的空闲只有 {spells} 段")
AS_OF_WITH_AGE = Message("as of {clock} ({age} ago)", "截至 {clock}（{age} 前）")
STALE_RESULT = Message(
    "{as_of}: no newer result, the engine has not answered since", "{as_of}：此后引擎没有响应，没有更新的结果"
)
FAILED_SINCE = Message(
    "{as_of}: no newer result, the last cycle failed: {reason}",
    "{as_of}：没有更新的结果，最近一个分析周期失败：{reason}",
)
VERDICT_WITH_SCORE = Message(
    "{verdict}; gpu-oour's score {score} of 100", "{verdict}；gpu-oour 评分 {score}（满分 100）"
)
VERDICT_WITHOUT_SCORE = Message("{verdict}; no score", "{verdict}；没有评分")
GPU_COUNTS = Message("{gpus} held, {idle} idle, {unknown} unknown", "占用 {gpus}，空闲 {idle}，未知 {unknown}")
IDLE_SINCE_TEXT = Message("{at} ({length})", "{at}（{length}）")
REQUESTS_TEXT = Message(
    "{requests} per hour; tokens per hour: {tokens}", "每小时 {requests} 个，每小时 {tokens} 个 token"
)
SILENT_TEXT = Message("none since {at} ({length})", "自 {at} 起没有（{length}）")
LAST_REQUEST_TEXT = Message("{text}; the last one before {at}", "{text}；最近一次在 {at} 之前")
HIGHEST_STEP = Message("highest step", "处置上限")
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
OPINION = Message("language model ({model})", "语言模型（{model}）")
ALLOCATION_VALUES = Message(
    "core {mean} mean, {peak} peak; memory {memory}; power {power}; coverage {coverage}",
    "核心利用率均值 {mean}、峰值 {peak}；显存 {memory}；功率 {power}；采样覆盖率 {coverage}",
)
MORE_ALLOCATIONS = Message("and {count} more; see --output json", "另有 {count} 个；请用 --output json 查看")
ENDED_TEXT = Message("{at} ({length} ago)", "{at}（{length} 前）")
END_NOT_RECORDED = Message(
    "not in the last result; the end is not recorded yet", "不在最近一次结果中；尚未记录结束时间"
)
HELD_TEXT = Message(
    "from {at} ({length}), on {devices} {devices:|GPU or MIG instance|GPUs or MIG instances}",
    "自 {at} 起（{length}），共 {devices} 个 GPU 或 MIG 实例",
)
GPU_HOURS_TEXT = Message(
    "{allocated} allocated: {active} active, {idle} idle ({ratio}), {unknown} unknown",
    "分配 {allocated}：使用 {active}，空闲 {idle}（{ratio}），未知 {unknown}",
)

FREE = Message("free", "未分配")  # a GPU without a holder
MEASURES: Mapping[str, Message] = {
    "core_mean_ratio": Message("core utilization, mean", "核心利用率均值"),
    "core_peak_ratio": Message("core utilization, peak", "核心利用率峰值"),
    "memory_used_bytes": Message("memory in use", "已用显存"),
    "power_watts": Message("power", "功率"),
    "coverage": Message("sample coverage", "采样覆盖率"),
    "window_seconds": Message("window", "窗口"),
}
"""The evidence of a workload."""
HEALTH: Mapping[str, Message] = {
    "healthy": Message("healthy", "正常"),
    "degraded": Message("degraded", "异常"),
    "warning": Message("warning", "警告"),
}


def translate(words: Mapping[str, Message], word: object, language: Language) -> str:
    """An unknown word is not translated: the server may be newer."""
    known = words.get(str(word))
    return known.text(language) if known else str(word or "-")


def describe_time(at: float, language: Language, *, now: float, has_age: bool = False) -> str:
    """`as of 14:13:20`. A time in the future is taken for now: the clock of the server is ahead."""
    now = max(now, at)
    message = AS_OF_WITH_AGE if has_age else Message("as of {clock}", "截至 {clock}")
    clock, age = quantities.clock_time(at, now=now), quantities.duration(now - at)
    return message.text(language, clock=clock, age=age)


def describe_result_time(stamp: Row, language: Language) -> str:
    """The time of a result; of a stale one also its age and why there is no newer one. `stamp`: `result` of a
    response; the text is empty without one."""
    at, age = stamp.time("at"), stamp.number("age_seconds")
    if at is None:
        return ""
    as_of = describe_time(at, language, now=time.time() if age is None else at + age, has_age=is_stale(stamp))
    if not is_stale(stamp):
        return as_of
    reason = clean(stamp.text("last_error"))
    message = FAILED_SINCE if reason else STALE_RESULT
    return message.text(language, as_of=as_of, reason=reason)


def is_stale(stamp: Row) -> bool:
    return stamp.get("stale") is True


def warn_stale(stamp: Row, language: Language) -> None:
    """On standard error: for output that programs read."""
    if is_stale(stamp):
        print(describe_result_time(stamp, language), file=sys.stderr)


def describe_evidence(detail: Row, language: Language) -> Iterator[Line]:
    """The evidence, and each allocation with its own verdict."""
    yield from _describe_values(detail.object("evidence"), language)
    judged = detail.objects("allocations")
    for one in judged:
        yield Line("")
        yield from describe_allocation(one, language)
    hidden = detail.count("allocations_total") - len(judged)
    if hidden > 0:
        yield Line(MORE_ALLOCATIONS.text(language, count=hidden))


def describe_verdict(detail: Row, language: Language) -> Iterator[Line]:
    """With its reasons."""
    workload, stamp = detail.object("workload"), detail.object("result")
    yield Line(_verdict(workload, language), words.VERDICT.text(language), name_verdict(workload))
    counts = {key: quantities.gpus(workload.number(f"{key}_gpus")) for key in ("idle", "unknown")}
    yield Line(
        GPU_COUNTS.text(language, gpus=quantities.gpus(workload.number("gpus")), **counts),
        Message("GPUs", "GPU").text(language),
    )
    began, at = workload.time("idle_since"), stamp.time("at")
    if began is not None:
        length = quantities.duration(at - began) if at is not None else quantities.UNKNOWN
        since = IDLE_SINCE_TEXT.text(language, at=quantities.local_time(began), length=length)
        yield Line(since, Message("idle since", "空闲始于").text(language))
    if requests := workload.object("requests"):
        yield Line(describe_requests(requests, language, at=at), Message("requests", "请求").text(language))
    if resumption := workload.object("resumption"):
        yield Line(describe_resumption(resumption, language), RESUMPTION.text(language))
    if detail.text("finding"):
        yield Line(detail.text("finding"), Message("finding", "发现").text(language))
    if workload.text("activity") != Activity.UNKNOWN:
        yield Line(translate(PROOFS, workload.text("proof"), language), words.PROOF.text(language))
    yield Line(translate(STEPS, workload.text("highest_step"), language), HIGHEST_STEP.text(language))
    if owner := UNREAD_OWNERS.get(workload.text("owner_evidence")):
        yield Line(owner.text(language), Message("owner", "属主").text(language))
    yield Line(", ".join(detail.texts("nodes")) or quantities.UNKNOWN, NODES.text(language))
    window = quantities.duration(stamp.number("window_seconds"))
    yield Line(WINDOW_TEXT.text(language, length=window, at=quantities.local_time(at)), WINDOW.text(language))
    yield Line(describe_result_time(stamp, language), word="warn" if is_stale(stamp) else "")
    reasons = detail.texts("reasons")
    if reasons:
        yield Line("")
        yield Line(Message("reasons", "原因").text(language), is_title=True)
        yield from (Line(reason, is_bullet=True) for reason in reasons)


def describe_requests(requests: Row, language: Language, *, at: float | None) -> str:
    """What inference servers count; since when there is none, where that is proven."""
    silent, last = requests.time("silent_since"), requests.time("last_at")
    if silent is not None:
        length = quantities.duration(at - silent) if at is not None else quantities.UNKNOWN
        return SILENT_TEXT.text(language, at=quantities.local_time(silent), length=length)
    counts = (quantities.whole(requests.number(key)) for key in ("per_hour", "tokens_per_hour"))
    text = REQUESTS_TEXT.text(language, **dict(zip(("requests", "tokens"), counts, strict=True)))
    if last is None or requests.number("per_hour"):
        return text
    return LAST_REQUEST_TEXT.text(language, text=text, at=quantities.local_time(last))


def describe_resumption(resumption: Row, language: Language) -> str:
    """The chance that work comes back, and what it is based on."""
    first = resumption.object("within_30_minutes")
    if first.number("probability") is None:
        return TOO_FEW.text(language, spells=first.count("spells"))
    names = {"half_hour": "within_30_minutes", "two_hours": "within_2_hours", "morning": "until_morning"}
    chances = {key: quantities.chance(resumption.object(name).number("probability")) for key, name in names.items()}
    of = Message("this workload", "该工作负载") if first.text("of") == "workload" else OF_KIND
    return RESUMPTION_TEXT.text(language, **chances, spells=first.count("spells"), of=of)


def name_verdict(row: Row) -> str:
    """The word of the API; an older analyzer has the activity only."""
    return row.text("verdict") or row.text("activity")


def _verdict(judged: Row, language: Language) -> str:
    """`unknown` is not repeated as signature. The range of the score is left to the reasons: it may differ."""
    activity, signature = judged.text("activity"), judged.text("signature")
    verdict, score = translate(VERDICTS, name_verdict(judged), language), judged.number("score")
    if signature != activity:
        verdict = Message("{verdict}, {signature}", "{verdict}，{signature}").text(
            language, verdict=verdict, signature=translate(SIGNATURES, signature, language)
        )
    if score is None:
        return verdict if activity == Activity.UNKNOWN else VERDICT_WITHOUT_SCORE.text(language, verdict=verdict)
    return VERDICT_WITH_SCORE.text(language, verdict=verdict, score=quantities.score(score))


def _describe_values(evidence: Row, language: Language) -> Iterator[Line]:
    shown = [
        Line(quantities.evidence(name, value), translate(MEASURES, name, language))
        for name, value in evidence.numbers()
    ]
    if shown:
        yield Line("")
        yield Line(Message("evidence", "依据").text(language), is_title=True)
        yield from shown


def describe_allocation(judged: Row, language: Language) -> Iterator[Line]:
    allocation = judged.object("allocation")
    device = " ".join(filter(None, (allocation.text("node"), allocation.text("gpu"), allocation.text("model"))))
    pod = f"{allocation.text('namespace')}/{allocation.text('pod')}/{allocation.text('container')}"
    yield Line(f"{device}  {pod}", is_title=True)
    yield Line(_verdict(allocation, language), word=name_verdict(allocation), indent=2)
    yield Line(_describe_usage(allocation, language), indent=2)
    yield from (Line(reason, is_bullet=True, indent=2) for reason in judged.texts("reasons"))
    yield from _describe_opinion(judged.object("opinion"), language)


def _describe_usage(allocation: Row, language: Language) -> str:
    used, total = allocation.number("memory_used_bytes"), allocation.number("memory_total_bytes")
    mean, peak = (quantities.percent(allocation.number(f"core_{stat}_ratio")) for stat in ("mean", "peak"))
    memory = f"{quantities.memory(used)} / {quantities.memory(total)}"
    coverage = quantities.percent(allocation.number("coverage"))
    power = quantities.watts(allocation.number("power_watts"))
    return ALLOCATION_VALUES.text(language, mean=mean, peak=peak, memory=memory, power=power, coverage=coverage)


def _describe_opinion(opinion: Row, language: Language) -> Iterator[Line]:
    if not opinion:
        return
    status = opinion.text("status")
    text = Message("{status}, confidence {confidence}: {reason}", "{status}，置信度 {confidence}：{reason}").text(
        language,
        status=translate(STATUSES, status, language),
        confidence=quantities.percent(opinion.number("confidence")),
        reason=opinion.text("reason") or quantities.UNKNOWN,
    )
    yield Line(OPINION.text(language, model=opinion.text("model")), indent=2, is_title=True)
    yield Line(text, word=status, indent=4)
    if opinion.text("recommendation"):
        yield Line(opinion.text("recommendation"), indent=4)


HOUR_MS = 3_600_000


def describe_ended(ended: Row, language: Language, *, now: float) -> Iterator[Line]:
    amounts = ended.object("amounts")
    first, end = ended.number("first_ms", unit=1000), ended.number("ended_ms", unit=1000)
    ended_text = END_NOT_RECORDED.text(language)
    if end is not None:
        length = quantities.duration(now - end)
        ended_text = ENDED_TEXT.text(language, at=quantities.local_time(end), length=length)
    yield Line(ended_text, Message("ended", "结束于").text(language))
    length = quantities.UNKNOWN if first is None or end is None else quantities.duration(end - first)
    held = HELD_TEXT.text(language, devices=ended.count("devices"), at=quantities.local_time(first), length=length)
    yield Line(held, Message("held", "占用").text(language))
    gpu_hours = {
        key: amounts.number(f"{key}_gpu_ms", unit=HOUR_MS) for key in ("allocated", "active", "idle", "unknown")
    }
    allocated, idle = gpu_hours["allocated"], gpu_hours["idle"]
    ratio = quantities.percent(idle / allocated if allocated and idle is not None else None)
    hours = {key: quantities.hours(each) for key, each in gpu_hours.items()}
    yield Line(GPU_HOURS_TEXT.text(language, ratio=ratio, **hours), Message("GPU-hours", "GPU 小时").text(language))
    yield Line(_describe_cost(amounts, ended.text("currency"), language), Message("cost", "费用").text(language))
    for key, title in (("users", words.USER), ("models", words.MODEL), ("nodes", NODES)):
        yield Line(", ".join(ended.texts(key)) or quantities.UNKNOWN, title.text(language))


def _describe_cost(amounts: Row, currency: str, language: Language) -> str:
    parts = [amounts.number(f"{key}_cost_micros") for key in ("active", "idle", "unknown")]
    if any(part is None for part in parts):
        return quantities.UNKNOWN
    total, idle = (quantities.money(amount, currency) for amount in (sum(part or 0 for part in parts), parts[1]))
    return Message("{total}, of which {idle} idle", "{total}，其中空闲 {idle}").text(language, total=total, idle=idle)
