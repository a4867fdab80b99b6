"""Every sentence of a notice, in English and Chinese. Names are put in only after `names.plain`."""

from collections.abc import Mapping

from gpusteward.core.messages import format_text

LANGUAGES = ("en", "zh")

TEXTS: Mapping[str, tuple[str, str]] = {
    "idle-title": ("GPUs idle: {who}", "GPU 空闲通知：{who}"),
    "idle-one": (
        "{workload} holds {gpus} {gpus:|GPU and has not used it|GPUs and has used none of them} since {since} "
        "({hours}).",
        "{workload} 占用 {gpus} 张 GPU，自 {since} 起全部未使用（已 {hours}）。",
    ),
    "idle-many": (
        "{workloads} {workloads:|workload holds|workloads hold} {gpus} {gpus:|GPU, unused|GPUs, none of them used}.",
        "{workloads} 个工作负载占用 {gpus} 张 GPU，全部未使用。",
    ),
    "idle-line": (
        "- {workload}: {gpus} {gpus:|GPU|GPUs}, idle for {hours} since {since}{extra}",
        "- {workload}：{gpus} 张 GPU，自 {since} 起空闲 {hours}{extra}",
    ),
    "more": ("- and {number} more with {gpus} {gpus:|GPU|GPUs}", "- 另有 {number} 个，共 {gpus} 张 GPU"),
    "namespace": ("{namespace}:", "{namespace}："),
    "gpus": ("GPUs: {gpus}", "GPU：{gpus}"),
    "gpus-more": ("and {number} more", "另有 {number} 张"),
    "peak": ("Peak of the GPU cores in the last {minutes} min: {peak}", "最近 {minutes} 分钟 GPU 核心峰值：{peak}"),
    "memory": ("Memory held: {memory}", "占用显存：{memory}"),
    "cost": ("Cost of the idle time so far: {cost}", "空闲至今的费用：{cost}"),
    "extra-peak": (", peak {peak}", "，核心峰值 {peak}"),
    "extra-memory": (", {memory} of memory held", "，占用显存 {memory}"),
    "extra-cost": (", {cost} so far", "，已花费 {cost}"),
    "extra-gpus": ("; on {gpus}", "；位于 {gpus}"),
    "total-cost": ("Cost of the idle time so far, all together: {cost}", "空闲至今的费用合计：{cost}"),
    "next": (
        "What happens: nothing is stopped. While it stays idle you are told again after {repeat}.",
        "接下来：不会停止任何工作负载；如持续空闲，{repeat}后会再次通知。",
    ),
    "way-out": (
        "To end this: use the GPUs, scale it down, or delete it.",
        "处理办法：恢复使用、缩容或删除该工作负载。",
    ),
    "lost-title": ("gpusteward is blind: no usage could be read", "gpusteward 无法读取 GPU 使用数据"),
    "lost": (
        "Nothing could be read since {since} ({hours}). Reason: {reason}",
        "自 {since} 起无法读取数据（已 {hours}）。原因：{reason}",
    ),
    "lost-next": (
        "What happens: the last verdicts stand and grow old; nobody is told of idle GPUs until data is back.",
        "接下来：沿用上一次结论，不会发送空闲通知，直到数据恢复。",
    ),
    "found-title": ("gpusteward reads again", "gpusteward 数据已恢复"),
    "found": ("Usage is read again; it was missing for {hours}.", "GPU 使用数据已恢复，中断 {hours}。"),
    "digest-title": ("GPU digest of the week to {day}", "GPU 周报（截至 {day}）"),
    "digest-total": (
        "{allocated} GPU-hours held: {active} used, {idle} idle, {unknown} unknown.",
        "共占用 {allocated} GPU 小时：使用中 {active}，空闲 {idle}，未知 {unknown}。",
    ),
    "digest-cost": ("Idle GPU-hours cost {cost}.", "空闲 GPU 小时的费用为 {cost}。"),
    "digest-trend": (
        "Idle hours against the week before: {change}.",
        "与前一周相比，空闲小时数变化 {change}。",
    ),
    "digest-wasters": ("Most idle time:", "空闲最多："),
    "digest-line": (
        "- {workload}: {idle} of {allocated} GPU-hours idle{extra}",
        "- {workload}：{allocated} GPU 小时中空闲 {idle}{extra}",
    ),
    "digest-line-cost": (", {cost}", "，费用 {cost}"),
    "digest-now": (
        "Now: {workloads} {workloads:|workload|workloads} with {gpus} {gpus:|GPU|GPUs} {workloads:|is|are} idle as a "
        "whole; {partly} more {partly:|has|have} unused GPUs.",
        "目前：{workloads} 个工作负载（{gpus} 张 GPU）整体空闲；另有 {partly} 个存在未使用的 GPU。",
    ),
    "digest-no-books": (
        "There are no books of this week: the ledger is off or was out of reach.",
        "本周没有账目：账本未启用或无法访问。",
    ),
    "namespaces-many": ("{number} {number:|namespace|namespaces}", "{number} 个命名空间"),
    "minutes": ("{number} min", "{number} 分钟"),
    "hours": ("{number} h", "{number} 小时"),
    "days": ("{number} d", "{number} 天"),
    "cluster": ("the whole cluster", "整个集群"),
}


def say(code: str, language: str, /, **values: object) -> str:
    """One sentence. Raises KeyError for an unknown code, ValueError for an unknown language."""
    return format_text(TEXTS[code][LANGUAGES.index(language)], values)
