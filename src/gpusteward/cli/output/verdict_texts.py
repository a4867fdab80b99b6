"""The verdict of a workload in words: for `explain`, and for a workload opened in `top`."""

from collections.abc import Iterator

from gpusteward.cli.json_access import Row, count, each, inner, moment, number, numbers, text, texts
from gpusteward.cli.output import quantities
from gpusteward.cli.output.paragraphs import Line
from gpusteward.cli.output.verdict_labels import MEASURES, translate
from gpusteward.core.messages import Language, Message
from gpusteward.core.verdicts import Activity
from gpusteward.messages.verdicts import ACTIVITIES, SIGNATURES, STATES, STATUSES, STEPS

VERDICT = Message("verdict", "结论")
SIGNED = Message("{activity}, {signature}", "{activity}，{signature}")
SCORED = Message("{verdict}; score {score} ({state})", "{verdict}；评分 {score}（{state}）")
UNSCORED = Message("{verdict}; no score", "{verdict}；没有评分")
GPUS = Message("GPUs", "GPU")
GPUS_TEXT = Message("{gpus} held, {idle} idle, {unknown} unknown", "占用 {gpus}，空闲 {idle}，未知 {unknown}")
IDLE = Message("idle since", "空闲始于")
FINDING = Message("finding", "发现")
STEP = Message("highest action", "处置上限")
NODES = Message("nodes", "节点")
WINDOW = Message("window", "窗口")
WINDOW_TEXT = Message("{length} until {at}", "截至 {at} 的 {length}")
REASONS = Message("reasons", "理由")
EVIDENCE = Message("evidence", "依据")
OPINION = Message("language model ({model})", "语言模型（{model}）")
OPINION_TEXT = Message("{status}, {confidence} sure: {reason}", "{status}，置信度 {confidence}：{reason}")
FIGURES = Message(
    "core {mean} mean, {peak} peak; memory {memory}; power {power}; coverage {coverage}",
    "核心利用率平均 {mean}、峰值 {peak}；显存 {memory}；功率 {power}；采样覆盖率 {coverage}",
)
MORE = Message("and {count} more; --output json has them", "另有 {count} 个；--output json 可查看")


def describe_workload(detail: Row, language: Language) -> Iterator[Line]:
    yield from describe_judgement(detail, language)
    yield from describe_grounds(detail, language)


def describe_judgement(detail: Row, language: Language) -> Iterator[Line]:
    """The verdict and why."""
    yield from describe_verdict(detail, language)
    yield from describe_reasons(detail, language)


def describe_grounds(detail: Row, language: Language) -> Iterator[Line]:
    """What it rests on: the evidence, and each allocation."""
    yield from _describe_evidence(inner(detail, "evidence"), language)
    judged = each(detail, "allocations")
    for one in judged:
        yield Line("")
        yield from describe_allocation(one, language)
    hidden = count(detail, "allocations_total") - len(judged)
    if hidden > 0:
        yield Line(MORE.text(language, count=hidden))


def describe_verdict(detail: Row, language: Language) -> Iterator[Line]:
    workload, stamp = inner(detail, "workload"), inner(detail, "result")
    yield Line(_verdict(workload, language), VERDICT.text(language), text(workload, "activity"))
    counts = {key: count(workload, f"{key}_gpus") for key in ("idle", "unknown")}
    yield Line(GPUS_TEXT.text(language, gpus=count(workload, "gpus"), **counts), GPUS.text(language))
    began, at = moment(workload, "idle_since"), moment(stamp, "at")
    if began is not None:
        length = quantities.span(at - began) if at is not None else quantities.UNKNOWN
        yield Line(f"{quantities.clock(began)} ({length})", IDLE.text(language))
    if text(detail, "finding"):
        yield Line(text(detail, "finding"), FINDING.text(language))
    yield Line(translate(STEPS, text(workload, "highest_step"), language), STEP.text(language))
    yield Line(", ".join(texts(detail, "nodes")) or quantities.UNKNOWN, NODES.text(language))
    window = quantities.span(number(stamp, "window_seconds"))
    yield Line(WINDOW_TEXT.text(language, length=window, at=quantities.clock(at)), WINDOW.text(language))


def _verdict(judged: Row, language: Language) -> str:
    """What is unknown altogether is said to be so once."""
    activity, signature = text(judged, "activity"), text(judged, "signature")
    said, score = translate(ACTIVITIES, activity, language), number(judged, "score")
    if signature != activity:
        said = SIGNED.text(language, activity=said, signature=translate(SIGNATURES, signature, language))
    if score is None:
        return said if activity == Activity.UNKNOWN else UNSCORED.text(language, verdict=said)
    state = translate(STATES, text(judged, "state"), language)
    return SCORED.text(language, verdict=said, score=quantities.score(score), state=state)


def describe_reasons(detail: Row, language: Language) -> Iterator[Line]:
    reasons = texts(detail, "reasons")
    if reasons:
        yield Line("")
        yield Line(REASONS.text(language), is_title=True)
        yield from (Line(reason, is_bullet=True) for reason in reasons)


def _describe_evidence(evidence: Row, language: Language) -> Iterator[Line]:
    shown = [
        Line(quantities.measured(name, value), translate(MEASURES, name, language)) for name, value in numbers(evidence)
    ]
    if shown:
        yield Line("")
        yield Line(EVIDENCE.text(language), is_title=True)
        yield from shown


def describe_allocation(judged: Row, language: Language) -> Iterator[Line]:
    allocation = inner(judged, "allocation")
    place = " ".join(filter(None, (text(allocation, "node"), text(allocation, "gpu"), text(allocation, "model"))))
    pod = f"{text(allocation, 'namespace')}/{text(allocation, 'pod')}/{text(allocation, 'container')}"
    yield Line(f"{place}  {pod}", is_title=True)
    yield Line(_verdict(allocation, language), word=text(allocation, "activity"), indent=2)
    yield Line(_figures(allocation, language), indent=2)
    yield from (Line(reason, is_bullet=True, indent=2) for reason in texts(judged, "reasons"))
    yield from _describe_opinion(inner(judged, "opinion"), language)


def _figures(allocation: Row, language: Language) -> str:
    used, total = number(allocation, "memory_used_bytes"), number(allocation, "memory_total_bytes")
    mean, peak = (quantities.percent(number(allocation, f"core_{stat}_ratio")) for stat in ("mean", "peak"))
    memory = f"{quantities.memory(used)} / {quantities.memory(total)}"
    coverage = quantities.percent(number(allocation, "coverage"))
    power = quantities.watts(number(allocation, "power_watts"))
    return FIGURES.text(language, mean=mean, peak=peak, memory=memory, power=power, coverage=coverage)


def _describe_opinion(opinion: Row, language: Language) -> Iterator[Line]:
    if not opinion:
        return
    status = text(opinion, "status")
    said = OPINION_TEXT.text(
        language,
        status=translate(STATUSES, status, language),
        confidence=quantities.percent(number(opinion, "confidence")),
        reason=text(opinion, "reason") or quantities.UNKNOWN,
    )
    yield Line(OPINION.text(language, model=text(opinion, "model")), indent=2, is_title=True)
    yield Line(said, word=status, indent=4)
    if text(opinion, "recommendation"):
        yield Line(text(opinion, "recommendation"), indent=4)
