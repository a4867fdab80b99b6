"""Findings -> the text of one message (pure). The first line is the title."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from gpusteward.analyzer.notify.notices.findings import MAX_ALLOCATIONS, IdleFinding
from gpusteward.analyzer.notify.notices.formatting import (
    format_duration,
    format_memory,
    format_money,
    format_percent,
    format_time,
    safe_line,
    safe_name,
)
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Language
from gpusteward.core.usages import AllocationKey
from gpusteward.messages import notices as messages

MAX_LINES = 20
"""A message names this many workloads, the largest first, and counts the others: chat clients cut longer messages."""
GPUS_PER_LINE = 2


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """How messages to one channel are written."""

    language: Language
    time_zone: str
    currency: str
    repeat_hours: float
    window_seconds: float


def write_idle(findings: Sequence[IdleFinding], options: MessageOptions) -> str:
    """One message about one or several idle workloads."""
    language = options.language
    body = describe_idle(findings[0], options) if len(findings) == 1 else _list_workloads(findings, options)
    repeat = format_duration(options.repeat_hours * 3600, language)
    return "\n".join(
        (
            messages.IDLE_TITLE.text(language, where=_name_namespaces(findings, language)),
            *body,
            messages.NEXT_NOTICE.text(language, repeat=repeat),
            messages.WHAT_TO_DO.text(language),
        )
    )


def write_outage(reason: str | SourceError, options: MessageOptions, *, since: float, now: float) -> str:
    """Usage cannot be read."""
    language = options.language
    since_text, duration = format_time(since, options.time_zone), format_duration(now - since, language)
    return "\n".join(
        (
            messages.OUTAGE_TITLE.text(language),
            messages.OUTAGE.text(
                language, since=since_text, duration=duration, reason=describe_outage(reason, language)
            ),
            messages.OUTAGE_EFFECT.text(language),
        )
    )


def describe_outage(reason: str | SourceError, language: Language) -> str:
    return safe_line(reason if isinstance(reason, str) else reason.text(language))


def write_recovery(options: MessageOptions, *, since: float, now: float) -> str:
    """Usage can be read again."""
    language = options.language
    duration = format_duration(now - since, language)
    return "\n".join((messages.RECOVERY_TITLE.text(language), messages.RECOVERY.text(language, duration=duration)))


def describe_idle(finding: IdleFinding, options: MessageOptions) -> Iterator[str]:
    """One workload with all its evidence, line by line."""
    language = options.language
    yield messages.IDLE_WORKLOAD.text(
        language,
        workload=name_workload(*finding.key),
        gpus=finding.gpus,
        since=format_time(finding.idle_since, options.time_zone),
        duration=format_duration(finding.idle_seconds, language),
    )
    yield messages.GPUS.text(language, gpus=_name_gpus(finding, language, shown=MAX_ALLOCATIONS, name=_name_gpu))
    if finding.core_peak_ratio is not None:
        minutes = round(options.window_seconds / 60)
        yield messages.CORE_PEAK.text(language, minutes=minutes, peak=format_percent(finding.core_peak_ratio))
    if finding.memory_used_bytes is not None:
        yield messages.MEMORY.text(language, memory=format_memory(finding.memory_used_bytes))
    if finding.cost_micros is not None:
        yield messages.COST.text(language, cost=format_money(finding.cost_micros, options.currency))


def name_workload(kind: str, namespace: str, name: str) -> str:
    return f"{safe_name(namespace)} / {safe_name(kind)} {safe_name(name)}"


def _name_namespaces(findings: Sequence[IdleFinding], language: Language) -> str:
    namespaces = {finding.namespace for finding in findings}
    if len(namespaces) > 1:
        return messages.NAMESPACES.text(language, number=len(namespaces))
    return safe_name(findings[0].namespace)


def _name_gpus(finding: IdleFinding, language: Language, *, shown: int, name: Callable[[AllocationKey], str]) -> str:
    named = [name(allocation) for allocation in finding.allocations[:shown]]
    if finding.gpus > shown:
        named.append(messages.MORE_GPUS.text(language, number=finding.gpus - shown))
    return ", ".join(named)


def _name_gpu(allocation: AllocationKey) -> str:
    device = f"{safe_name(allocation.model)}, {safe_name(allocation.gpu_uuid, max_length=48)}"
    return f"{_name_gpu_slot(allocation)} ({device})"


def _name_gpu_slot(allocation: AllocationKey) -> str:
    """The node and the index of the GPU on it."""
    index = f" {safe_name(allocation.gpu_index)}" if allocation.gpu_index else ""
    instance = f" MIG {safe_name(allocation.gpu_instance)}" if allocation.gpu_instance else ""
    return f"{safe_name(allocation.node)}{index}{instance}"


def _list_workloads(findings: Sequence[IdleFinding], options: MessageOptions) -> Iterator[str]:
    language, gpus = options.language, sum(finding.gpus for finding in findings)
    yield messages.IDLE_WORKLOADS.text(language, workloads=len(findings), gpus=gpus)
    largest = sorted(findings, key=lambda each: (-each.gpus, each.idle_since, each.key))
    named, others = largest[:MAX_LINES], largest[MAX_LINES:]
    for namespace, group in groupby(sorted(named, key=lambda each: each.namespace), key=lambda each: each.namespace):
        yield messages.NAMESPACE.text(language, namespace=safe_name(namespace))
        yield from (_write_line(each, options) for each in group)
    if others:
        yield messages.MORE_WORKLOADS.text(language, number=len(others), gpus=sum(each.gpus for each in others))
    costs = [finding.cost_micros for finding in findings]
    if None not in costs:
        total = sum(cost or 0 for cost in costs)
        yield messages.TOTAL_COST.text(language, cost=format_money(total, options.currency))


def _write_line(finding: IdleFinding, options: MessageOptions) -> str:
    language = options.language
    return messages.LINE.text(
        language,
        workload=f"{safe_name(finding.kind)} {safe_name(finding.name)}",
        gpus=finding.gpus,
        duration=format_duration(finding.idle_seconds, language),
        since=format_time(finding.idle_since, options.time_zone),
        details="".join(_write_details(finding, options)),
    )


def _write_details(finding: IdleFinding, options: MessageOptions) -> Iterator[str]:
    language = options.language
    if finding.core_peak_ratio is not None:
        yield messages.LINE_PEAK.text(language, peak=format_percent(finding.core_peak_ratio))
    if finding.memory_used_bytes is not None:
        yield messages.LINE_MEMORY.text(language, memory=format_memory(finding.memory_used_bytes))
    if finding.cost_micros is not None:
        yield messages.LINE_COST.text(language, cost=format_money(finding.cost_micros, options.currency))
    gpus = _name_gpus(finding, language, shown=GPUS_PER_LINE, name=_name_gpu_slot)
    yield messages.LINE_GPUS.text(language, gpus=gpus)
