"""The verdict on a workload as paragraphs, for `explain` and `top`; a workload that has ended; the time and age of a
result, for `idle` too. The words of a verdict are in `messages.verdicts`."""

import sys
import time
from collections.abc import Iterator, Mapping

from gpusteward.cli.json_access import (
    Row,
    get_count,
    get_number,
    get_object,
    get_objects,
    get_text,
    get_texts,
    get_time,
    list_numbers,
)
from gpusteward.cli.output import quantities, words
from gpusteward.cli.output.terminal_text import Line, clean
from gpusteward.core.messages import Language, Message
from gpusteward.core.verdicts import Activity
from gpusteward.messages.verdicts import ACTIVITIES, PROOFS, SIGNATURES, STATUSES, STEPS

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
VERDICT_WITH_SCORE = Message("{verdict}; score {score} of 100", "{verdict}；评分 {score}（满分 100）")
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


def describe_workload(detail: Row, language: Language) -> Iterator[Line]:
    yield from describe_verdict(detail, language)
    yield from describe_evidence(detail, language)


def describe_time(at: float, language: Language, *, now: float, has_age: bool = False) -> str:
    """`as of 14:13:20`. A time in the future is taken for now: the clock of the server is ahead."""
    now = max(now, at)
    message = AS_OF_WITH_AGE if has_age else Message("as of {clock}", "截至 {clock}")
    clock, age = quantities.clock_time(at, now=now), quantities.duration(now - at)
    return message.text(language, clock=clock, age=age)


def describe_result_time(stamp: Row, language: Language) -> str:
    """The time of a result; of a stale one also its age and why there is no newer one. `stamp`: `result` of a
    response; the text is empty without one."""
    at, age = get_time(stamp, "at"), get_number(stamp, "age_seconds")
    if at is None:
        return ""
    as_of = describe_time(at, language, now=time.time() if age is None else at + age, has_age=is_stale(stamp))
    if not is_stale(stamp):
        return as_of
    reason = clean(get_text(stamp, "last_error"))
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
    yield from _describe_values(get_object(detail, "evidence"), language)
    judged = get_objects(detail, "allocations")
    for one in judged:
        yield Line("")
        yield from describe_allocation(one, language)
    hidden = get_count(detail, "allocations_total") - len(judged)
    if hidden > 0:
        yield Line(MORE_ALLOCATIONS.text(language, count=hidden))


def describe_verdict(detail: Row, language: Language) -> Iterator[Line]:
    """With its reasons."""
    workload, stamp = get_object(detail, "workload"), get_object(detail, "result")
    yield Line(_verdict(workload, language), words.VERDICT.text(language), get_text(workload, "activity"))
    counts = {key: quantities.gpus(get_number(workload, f"{key}_gpus")) for key in ("idle", "unknown")}
    yield Line(
        GPU_COUNTS.text(language, gpus=quantities.gpus(get_number(workload, "gpus")), **counts),
        Message("GPUs", "GPU").text(language),
    )
    began, at = get_time(workload, "idle_since"), get_time(stamp, "at")
    if began is not None:
        length = quantities.duration(at - began) if at is not None else quantities.UNKNOWN
        since = IDLE_SINCE_TEXT.text(language, at=quantities.local_time(began), length=length)
        yield Line(since, Message("idle since", "空闲始于").text(language))
    if requests := get_object(workload, "requests"):
        yield Line(describe_requests(requests, language, at=at), Message("requests", "请求").text(language))
    if resumption := get_object(workload, "resumption"):
        yield Line(describe_resumption(resumption, language), RESUMPTION.text(language))
    if get_text(detail, "finding"):
        yield Line(get_text(detail, "finding"), Message("finding", "发现").text(language))
    if get_text(workload, "activity") != Activity.UNKNOWN:
        yield Line(translate(PROOFS, get_text(workload, "proof"), language), words.PROOF.text(language))
    yield Line(translate(STEPS, get_text(workload, "highest_step"), language), HIGHEST_STEP.text(language))
    if owner := UNREAD_OWNERS.get(get_text(workload, "owner_evidence")):
        yield Line(owner.text(language), Message("owner", "属主").text(language))
    yield Line(", ".join(get_texts(detail, "nodes")) or quantities.UNKNOWN, NODES.text(language))
    window = quantities.duration(get_number(stamp, "window_seconds"))
    yield Line(WINDOW_TEXT.text(language, length=window, at=quantities.local_time(at)), WINDOW.text(language))
    yield Line(describe_result_time(stamp, language), word="warn" if is_stale(stamp) else "")
    reasons = get_texts(detail, "reasons")
    if reasons:
        yield Line("")
        yield Line(Message("reasons", "原因").text(language), is_title=True)
        yield from (Line(reason, is_bullet=True) for reason in reasons)


def describe_requests(requests: Row, language: Language, *, at: float | None) -> str:
    """What inference servers count; since when there is none, where that is proven."""
    silent, last = get_time(requests, "silent_since"), get_time(requests, "last_at")
    if silent is not None:
        length = quantities.duration(at - silent) if at is not None else quantities.UNKNOWN
        return SILENT_TEXT.text(language, at=quantities.local_time(silent), length=length)
    counts = (quantities.whole(get_number(requests, key)) for key in ("per_hour", "tokens_per_hour"))
    text = REQUESTS_TEXT.text(language, **dict(zip(("requests", "tokens"), counts, strict=True)))
    if last is None or get_number(requests, "per_hour"):
        return text
    return LAST_REQUEST_TEXT.text(language, text=text, at=quantities.local_time(last))


def describe_resumption(resumption: Row, language: Language) -> str:
    """The chance that work comes back, and what it is based on."""
    first = get_object(resumption, "within_30_minutes")
    if get_number(first, "probability") is None:
        return TOO_FEW.text(language, spells=get_count(first, "spells"))
    names = {"half_hour": "within_30_minutes", "two_hours": "within_2_hours", "morning": "until_morning"}
    chances = {
        key: quantities.chance(get_number(get_object(resumption, name), "probability")) for key, name in names.items()
    }
    of = Message("this workload", "该工作负载") if get_text(first, "of") == "workload" else OF_KIND
    return RESUMPTION_TEXT.text(language, **chances, spells=get_count(first, "spells"), of=of)


def _verdict(judged: Row, language: Language) -> str:
    """`unknown` is not repeated as signature. The range of the score is left to the reasons: it may differ."""
    activity, signature = get_text(judged, "activity"), get_text(judged, "signature")
    verdict, score = translate(ACTIVITIES, activity, language), get_number(judged, "score")
    if signature != activity:
        verdict = Message("{activity}, {signature}", "{activity}，{signature}").text(
            language, activity=verdict, signature=translate(SIGNATURES, signature, language)
        )
    if score is None:
        return verdict if activity == Activity.UNKNOWN else VERDICT_WITHOUT_SCORE.text(language, verdict=verdict)
    return VERDICT_WITH_SCORE.text(language, verdict=verdict, score=quantities.score(score))


def _describe_values(evidence: Row, language: Language) -> Iterator[Line]:
    shown = [
        Line(quantities.evidence(name, value), translate(MEASURES, name, language))
        for name, value in list_numbers(evidence)
    ]
    if shown:
        yield Line("")
        yield Line(Message("evidence", "依据").text(language), is_title=True)
        yield from shown


def describe_allocation(judged: Row, language: Language) -> Iterator[Line]:
    allocation = get_object(judged, "allocation")
    device = " ".join(
        filter(None, (get_text(allocation, "node"), get_text(allocation, "gpu"), get_text(allocation, "model")))
    )
    pod = f"{get_text(allocation, 'namespace')}/{get_text(allocation, 'pod')}/{get_text(allocation, 'container')}"
    yield Line(f"{device}  {pod}", is_title=True)
    yield Line(_verdict(allocation, language), word=get_text(allocation, "activity"), indent=2)
    yield Line(_describe_usage(allocation, language), indent=2)
    yield from (Line(reason, is_bullet=True, indent=2) for reason in get_texts(judged, "reasons"))
    yield from _describe_opinion(get_object(judged, "opinion"), language)


def _describe_usage(allocation: Row, language: Language) -> str:
    used, total = get_number(allocation, "memory_used_bytes"), get_number(allocation, "memory_total_bytes")
    mean, peak = (quantities.percent(get_number(allocation, f"core_{stat}_ratio")) for stat in ("mean", "peak"))
    memory = f"{quantities.memory(used)} / {quantities.memory(total)}"
    coverage = quantities.percent(get_number(allocation, "coverage"))
    power = quantities.watts(get_number(allocation, "power_watts"))
    return ALLOCATION_VALUES.text(language, mean=mean, peak=peak, memory=memory, power=power, coverage=coverage)


def _describe_opinion(opinion: Row, language: Language) -> Iterator[Line]:
    if not opinion:
        return
    status = get_text(opinion, "status")
    text = Message("{status}, confidence {confidence}: {reason}", "{status}，置信度 {confidence}：{reason}").text(
        language,
        status=translate(STATUSES, status, language),
        confidence=quantities.percent(get_number(opinion, "confidence")),
        reason=get_text(opinion, "reason") or quantities.UNKNOWN,
    )
    yield Line(OPINION.text(language, model=get_text(opinion, "model")), indent=2, is_title=True)
    yield Line(text, word=status, indent=4)
    if get_text(opinion, "recommendation"):
        yield Line(get_text(opinion, "recommendation"), indent=4)


HOUR_MS = 3_600_000


def describe_ended(ended: Row, language: Language, *, now: float) -> Iterator[Line]:
    amounts, first, end = get_object(ended, "amounts"), _seconds(ended, "first_ms"), _seconds(ended, "ended_ms")
    ended_text = END_NOT_RECORDED.text(language)
    if end is not None:
        length = quantities.duration(now - end)
        ended_text = ENDED_TEXT.text(language, at=quantities.local_time(end), length=length)
    yield Line(ended_text, Message("ended", "结束于").text(language))
    length = quantities.UNKNOWN if first is None or end is None else quantities.duration(end - first)
    held = HELD_TEXT.text(language, devices=get_count(ended, "devices"), at=quantities.local_time(first), length=length)
    yield Line(held, Message("held", "占用").text(language))
    gpu_hours = {key: _hours(amounts, key) for key in ("allocated", "active", "idle", "unknown")}
    allocated, idle = gpu_hours["allocated"], gpu_hours["idle"]
    ratio = quantities.percent(idle / allocated if allocated and idle is not None else None)
    hours = {key: quantities.hours(each) for key, each in gpu_hours.items()}
    yield Line(GPU_HOURS_TEXT.text(language, ratio=ratio, **hours), Message("GPU-hours", "GPU 小时").text(language))
    yield Line(_describe_cost(amounts, get_text(ended, "currency"), language), Message("cost", "费用").text(language))
    for key, title in (("users", words.USER), ("models", words.MODEL), ("nodes", NODES)):
        yield Line(", ".join(get_texts(ended, key)) or quantities.UNKNOWN, title.text(language))


def _describe_cost(amounts: Row, currency: str, language: Language) -> str:
    parts = [get_number(amounts, f"{key}_cost_micros") for key in ("active", "idle", "unknown")]
    if any(part is None for part in parts):
        return quantities.UNKNOWN
    total, idle = (quantities.money(amount, currency) for amount in (sum(part or 0 for part in parts), parts[1]))
    return Message("{total}, of which {idle} idle", "{total}，其中空闲 {idle}").text(language, total=total, idle=idle)


def _seconds(row: Row, key: str) -> float | None:
    at = get_number(row, key)
    return None if at is None else at / 1000


def _hours(amounts: Row, key: str) -> float | None:
    gpu_ms = get_number(amounts, f"{key}_gpu_ms")
    return None if gpu_ms is None else gpu_ms / HOUR_MS
