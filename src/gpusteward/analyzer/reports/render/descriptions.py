"""What a report says in words, in both languages."""

from collections.abc import Mapping
from typing import Literal

from gpusteward.analyzer.reports.render import quantities
from gpusteward.analyzer.reports.report import Amounts, Finding, Group, Report, Unused, Waster
from gpusteward.core.messages import format_text

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
WELL_KNOWN_RATIO = 0.99
"""What is known for less of the time is said to be so."""

_WORDS: Mapping[str, tuple[str, str]] = {
    "title": ("GPU report {by}", "GPU 用量报表（{by}）"),
    "hours_by": ("GPU-hours {by} ({currency})", "GPU 小时（{by}，{currency}）"),
    "versus": ("{change} vs. before", "较上期 {change}"),
    "namespace": ("Namespace", "命名空间"),
    "owner": ("Owner", "工作负载"),
    "model": ("Model", "GPU 型号"),
    "node": ("Node", "节点"),
    "user": ("User", "用户"),
    "by.namespace": ("by namespace", "按命名空间"),
    "by.owner": ("by owner", "按工作负载"),
    "by.model": ("by model", "按型号"),
    "by.node": ("by node", "按节点"),
    "by.user": ("by user", "按用户"),
    "namespaces": ("Namespaces", "命名空间"),
    "allocated": ("Allocated", "已分配"),
    "active": ("Active", "使用中"),
    "idle": ("Idle", "空闲"),
    "unknown": ("Unknown", "未知"),
    "unallocated": ("Unallocated", "未分配"),
    "idle_share": ("Idle %", "空闲率"),
    "cost": ("Cost", "费用"),
    "idle_cost": ("Idle cost", "空闲费用"),
    "unknown_cost": ("Unknown cost", "未知费用"),
    "electricity": ("Electricity", "电费"),
    "energy": ("Energy", "能耗"),
    "score": ("Score", "评分"),
    "mean_score": ("Mean score", "平均评分"),
    "idle_trend": ("Idle trend", "空闲趋势"),
    "gpu_hours": ("GPU-hours", "GPU 小时"),
    "gpus": ("GPUs", "GPU 数"),
    "per_day": ("GPU-hours per day", "每日 GPU 小时"),
    "per_hour": ("GPU-hours per hour", "每小时 GPU 小时"),
    "total": ("Total", "合计"),
    "workload": ("Workload", "工作负载"),
    "wasters": ("Top wasters", "浪费最多的工作负载"),
    "findings": ("Right-sizing", "规格建议"),
    "fits": ("Would fit", "可改用"),
    "evidence": ("Peak memory, compute", "显存、算力峰值"),
    "saving": ("Saving", "可节省"),
    "unused": ("GPUs unused", "未使用的 GPU"),
    "unused_of": (
        "{unused} of {gpus} {gpus:|GPU|GPUs} unused ({parts}; in the hour from {when} UTC)",
        "{gpus} 张 GPU 中有 {unused} 张未使用（{parts}；{when} UTC 起一小时）",
    ),
    "others": ("{number} {number:|other|others}", "其他 {number} 项"),
    "none": ("(none)", "（无）"),
    "nothing": ("Nothing is in the books for this time.", "该时段内账本中没有记录。"),
    "no_wasters": ("No workload held a GPU idle.", "没有工作负载占用空闲 GPU。"),
    "no_findings": (
        "No workload that holds a whole GPU would surely fit into a part of one.",
        "没有整卡工作负载可以确定地改用更小的规格。",
    ),
    "made": ("made", "生成于"),
    "notes": ("Notes", "说明"),
}

_NOTES: Mapping[str, tuple[str, str]] = {
    "range": (
        "Covers {since} to {until} UTC; the books are kept by the hour.",
        "统计范围为 {since} 至 {until}（UTC），账本以小时为单位。",
    ),
    "widened": (
        "Of the older time only whole days (UTC) are kept: the range was widened to them.",
        "较早的数据仅按整天（UTC）保留，统计范围已扩展到整天。",
    ),
    "books": ("The books begin at {first} UTC.", "账本自 {first}（UTC）起有记录。"),
    "behind": ("The books end at {last} UTC.", "账本记录截至 {last}（UTC）。"),
    "unpriced": (
        "{hours} GPU-hours have no price: `prices.per_gpu_hour` or `prices.default` gives them one.",
        "{hours} GPU 小时没有价格，可通过 prices.per_gpu_hour 或 prices.default 设置。",
    ),
    "unknown": (
        "Unknown: held, but what was done could not be measured. It counts neither as use nor as waste.",
        "未知：已占用但无法测量，既不算使用也不算浪费。",
    ),
    "no_fleet": (
        "Unallocated time is not known: no source tells how many GPUs there are.",
        "未分配时间未知：数据源没有提供 GPU 总数。",
    ),
    "part_fleet": (
        "How many GPUs there are was known for {share} of this time: unallocated time is that of this part only.",
        "GPU 总数仅在该时段的 {share} 内已知，未分配时间只统计这一部分。",
    ),
    "currencies": (
        "Amounts are not added up: the currency changed from {before} to {after} at {at} UTC."
        " Ask for a time before or after that.",
        "货币在 {at}（UTC）由 {before} 改为 {after}，费用不予相加。请分别查询此前或此后的时段。",
    ),
    "no_energy": ("Electricity covers {share} of the allocated time: elsewhere the power is not known.",
                  "电费仅覆盖已分配时间的 {share}，其余时间功率未知。"),
    "right_sizing": (
        "Right-sizing leaves a fifth over the peak memory and the peak share of busy time; a saving assumes that"
        " somebody uses the rest of the GPU.",
        "规格建议在显存与算力峰值之上保留五分之一余量；节省的前提是剩余部分被他人使用。",
    ),
    "trend": ("Compared with {since} to {until} UTC, per hour.", "与 {since} 至 {until}（UTC）按小时均值对比。"),
}  # fmt: skip


def say(key: str, language: Language, **facts: object) -> str:
    text = _WORDS[key][LANGUAGES.index(language)]
    return format_text(text, facts) if facts else text


def name_group(group: Group, language: Language) -> str:
    """An owner by its full name; what has no name is said to have none."""
    if group.kind == "others":
        return say("others", language, number=int(group.name))
    return name_workload(group.kind, group.namespace, group.name) if group.kind else group.name or say("none", language)


def name_workload(kind: str, namespace: str, name: str) -> str:
    return f"{namespace}/{kind}/{name}"


def name_holder(one: Waster | Finding) -> str:
    return name_workload(one.kind, one.namespace, one.name)


def describe_unused(unused: Unused, language: Language) -> str:
    """`37 of 320 GPUs unused`, and of what they are made up."""
    parts = [f"{unused.idle} {say('idle', language).lower()}"]
    if unused.unallocated is not None:
        parts.append(f"{unused.unallocated} {say('unallocated', language).lower()}")
    when = quantities.moment(unused.hour_ms)
    made_up = ("、" if language == "zh" else ", ").join(parts)
    return say("unused_of", language, gpus=unused.gpus, unused=unused.unused, parts=made_up, when=when)


def describe_total(total: Amounts, currency: str, language: Language) -> str:
    """What the table may have no room for."""
    told = {
        "cost": _money(total.cost_micros, currency),
        "electricity": _money(total.electricity_micros, currency),
        "unallocated": f"{quantities.hours(total.unallocated_gpu_ms)} {say('gpu_hours', language)}",
        "mean_score": quantities.score(total.mean_score),
    }
    known = {key: text for key, text in told.items() if quantities.UNKNOWN not in text.split()}
    return "; ".join(f"{say(key, language)} {text}" for key, text in known.items())


def _money(micros: int | None, currency: str) -> str:
    return f"{quantities.money(micros)} {currency}"


def describe_profile(finding: Finding, language: Language) -> str:
    if finding.part == "mig":
        return f"MIG {finding.profile}"
    return f"共享 {finding.profile}" if language == "zh" else f"{finding.profile} share"


def describe_evidence(finding: Finding) -> str:
    used, total = quantities.gibibytes(finding.memory_peak_bytes), quantities.gibibytes(finding.memory_total_bytes)
    return f"{used.removesuffix(' GiB')} / {total}, {quantities.percent(finding.core_peak_ratio)}"


def list_notes(report: Report, language: Language) -> list[str]:
    """What a reader must know to read the numbers right."""
    told = [_note("range", language, since=_at(report.range.since_ms), until=_at(report.range.until_ms))]
    told += _note_edges(report, language)
    total = report.total
    told += _note_currencies(report, language)
    if total.unpriced_gpu_ms and not report.currency_changes:
        told.append(_note("unpriced", language, hours=quantities.hours(total.unpriced_gpu_ms)))
    if total.unknown_gpu_ms:
        told.append(_note("unknown", language))
    if total.unallocated_gpu_ms is None and report.groups and not report.namespaces:
        told.append(_note("no_fleet", language))
    elif report.fleet_coverage_ratio is not None and report.fleet_coverage_ratio < WELL_KNOWN_RATIO:
        told.append(_note("part_fleet", language, share=quantities.percent(report.fleet_coverage_ratio)))
    if total.electricity_micros is not None and total.energy_gpu_ms < total.allocated_gpu_ms:
        share = quantities.percent(total.energy_gpu_ms / total.allocated_gpu_ms)
        told.append(_note("no_energy", language, share=share))
    if report.trend:
        told.append(_note("trend", language, since=_at(report.trend.since_ms), until=_at(report.trend.until_ms)))
    if report.findings:
        told.append(_note("right_sizing", language))
    return told


def _note_currencies(report: Report, language: Language) -> list[str]:
    return [
        _note("currencies", language, before=each.before, after=each.after, at=_at(each.at_ms))
        for each in report.currency_changes
    ]


def _note_edges(report: Report, language: Language) -> list[str]:
    covered = report.range
    told = [_note("widened", language)] if covered.is_widened else []
    if covered.first_ms is not None and covered.first_ms > covered.since_ms:
        told.append(_note("books", language, first=_at(covered.first_ms)))
    if covered.last_ms is not None and covered.last_ms < covered.until_ms:
        told.append(_note("behind", language, last=_at(covered.last_ms)))
    return told


def _note(key: str, language: Language, **facts: str) -> str:
    return _NOTES[key][LANGUAGES.index(language)].format(**facts)


def _at(at_ms: int) -> str:
    return quantities.moment(at_ms)
