"""Writes the text of one message about idle or stalled workloads or an outage (pure). The first line is the title."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from gpusteward.analyzer.notify.notices.formatting import (
    format_duration,
    format_memory,
    format_money,
    format_percent,
    format_time,
    safe_line,
    safe_name,
)
from gpusteward.analyzer.notify.notices.idle_workloads import MAX_ALLOCATIONS, NoticeWorkload
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.errors import SourceError
from gpusteward.core.gpu_counts import format_gpus
from gpusteward.core.messages import Language
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.usages import AllocationKey
from gpusteward.messages import notices as messages

MAX_LINES = 20
"""A message names this many workloads, the largest first, and counts the others: chat clients cut longer messages."""
GPUS_PER_LINE = 2
MAX_STALLED = 5
"""Of workloads that are stalled: each takes five lines."""
MAX_LINE_LENGTH = 400


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """How messages to one channel are written."""

    language: Language
    time_zone: str
    currency: str
    repeat_hours: float
    window_seconds: float
    with_cluster: bool = False  # where there are several

    @classmethod
    def of(
        cls, settings: Settings, channel: str = "", *, window_seconds: float = 0.0, with_cluster: bool = False
    ) -> "MessageOptions":
        """Empty `channel`: as in channels without a language of their own."""
        notify = settings.notify
        return cls(
            language=notify.languages.get(channel, notify.language),
            time_zone=notify.time_zone,
            currency=settings.prices.currency,
            repeat_hours=notify.repeat_hours,
            window_seconds=window_seconds,
            with_cluster=with_cluster,
        )


def write_as_of(at: float, options: MessageOptions) -> str:
    """When a message was true: it may wait for its receiver."""
    return messages.AS_OF.text(options.language, time=format_time(at, options.time_zone))


def write_idle(workloads: Sequence[NoticeWorkload], options: MessageOptions, *, at: float) -> str:
    """One message about one or several idle workloads."""
    language = options.language
    body = describe_idle(workloads[0], options) if len(workloads) == 1 else _list_workloads(workloads, options)
    repeat = format_duration(options.repeat_hours * 3600, language)
    return "\n".join(
        (
            messages.IDLE_TITLE.text(language, where=_name_namespaces(workloads, options)),
            write_as_of(at, options),
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
            write_as_of(now, options),
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
    title, text = messages.RECOVERY_TITLE.text(language), messages.RECOVERY.text(language, duration=duration)
    return "\n".join((title, write_as_of(now, options), text))


def describe_idle(workload: NoticeWorkload, options: MessageOptions) -> Iterator[str]:
    """One workload with all its evidence, line by line."""
    language = options.language
    yield messages.IDLE_WORKLOAD.text(
        language,
        workload=name_workload(workload.key, options),
        gpus=format_gpus(workload.gpus),
        since=format_time(workload.idle_since, options.time_zone),
        duration=format_duration(workload.idle_seconds, language),
    )
    yield messages.GPUS.text(language, gpus=_name_gpus(workload, language, shown=MAX_ALLOCATIONS, name=_name_gpu))
    if workload.core_peak_ratio is not None:
        minutes = round(options.window_seconds / 60)
        yield messages.CORE_PEAK.text(language, minutes=minutes, peak=format_percent(workload.core_peak_ratio))
    if workload.silent_since is not None:
        yield messages.SILENT.text(language, since=format_time(workload.silent_since, options.time_zone))
    elif workload.requests_per_hour:
        yield messages.REQUESTS.text(language, requests=workload.requests_per_hour)
    if workload.is_sampled:
        yield messages.SAMPLED.text(language)
    if workload.memory_used_bytes is not None:
        yield messages.MEMORY.text(language, memory=format_memory(workload.memory_used_bytes))
    if workload.cost_micros is not None:
        yield messages.COST.text(language, cost=format_money(workload.cost_micros, options.currency))


def name_workload(key: WorkloadKey, options: MessageOptions) -> str:
    """As `gpusteward explain` accepts it."""
    return f"{_name_namespace(key, options)}/{safe_name(key.kind)}/{safe_name(key.name)}"


def _name_namespace(key: WorkloadKey, options: MessageOptions) -> str:
    cluster = f"{safe_name(key.cluster)}/" if options.with_cluster and key.cluster else ""
    return f"{cluster}{safe_name(key.namespace)}"


def _name_namespaces(workloads: Sequence[NoticeWorkload], options: MessageOptions) -> str:
    namespaces = {(workload.key.cluster, workload.key.namespace) for workload in workloads}
    if len(namespaces) > 1:
        return messages.NAMESPACES.text(options.language, number=len(namespaces))
    return _name_namespace(workloads[0].key, options)


def _name_gpus(
    workload: NoticeWorkload, language: Language, *, shown: int, name: Callable[[AllocationKey], str]
) -> str:
    named = [name(allocation) for allocation in workload.allocations[:shown]]
    if workload.allocations_total > shown:
        named.append(messages.MORE_GPUS.text(language, number=workload.allocations_total - shown))
    return ", ".join(named)


def _name_gpu(allocation: AllocationKey) -> str:
    device = f"{safe_name(allocation.model)}, {safe_name(allocation.gpu_uuid, max_length=48)}"
    return f"{_name_gpu_slot(allocation)} ({device})"


def _name_gpu_slot(allocation: AllocationKey) -> str:
    """The node and the index of the GPU on it."""
    index = f" {safe_name(allocation.gpu_index)}" if allocation.gpu_index else ""
    instance = f" MIG {safe_name(allocation.gpu_instance)}" if allocation.gpu_instance else ""
    return f"{safe_name(allocation.node)}{index}{instance}"


def _list_workloads(workloads: Sequence[NoticeWorkload], options: MessageOptions) -> Iterator[str]:
    language, gpus = options.language, sum(workload.gpus for workload in workloads)
    yield messages.IDLE_WORKLOADS.text(language, workloads=len(workloads), gpus=format_gpus(gpus))
    largest = sorted(workloads, key=lambda each: (-each.gpus, each.idle_since, each.key))
    named, others = largest[:MAX_LINES], largest[MAX_LINES:]
    for namespace, group in groupby(sorted(named, key=_tenant_of), key=lambda each: _name_namespace(each.key, options)):
        yield messages.NAMESPACE.text(language, namespace=namespace)
        yield from (_write_line(each, options) for each in group)
    if others:
        gpus = sum(each.gpus for each in others)
        yield messages.MORE_WORKLOADS.text(language, number=len(others), gpus=format_gpus(gpus))
    if any(each.is_sampled for each in workloads):
        yield messages.SAMPLED.text(language)
    costs = [workload.cost_micros for workload in workloads]
    if None not in costs:
        total = sum(cost or 0 for cost in costs)
        yield messages.TOTAL_COST.text(language, cost=format_money(total, options.currency))


def _tenant_of(workload: NoticeWorkload) -> tuple[str, str]:
    return workload.key.cluster, workload.key.namespace


def _write_line(workload: NoticeWorkload, options: MessageOptions) -> str:
    language = options.language
    return messages.LINE.text(
        language,
        workload=f"{safe_name(workload.key.kind)}/{safe_name(workload.key.name)}",
        gpus=format_gpus(workload.gpus),
        duration=format_duration(workload.idle_seconds, language),
        since=format_time(workload.idle_since, options.time_zone),
        details="".join(_write_details(workload, options)),
    )


def _write_details(workload: NoticeWorkload, options: MessageOptions) -> Iterator[str]:
    language = options.language
    if workload.core_peak_ratio is not None:
        yield messages.LINE_PEAK.text(language, peak=format_percent(workload.core_peak_ratio))
    if workload.memory_used_bytes is not None:
        yield messages.LINE_MEMORY.text(language, memory=format_memory(workload.memory_used_bytes))
    if workload.cost_micros is not None:
        yield messages.LINE_COST.text(language, cost=format_money(workload.cost_micros, options.currency))
    gpus = _name_gpus(workload, language, shown=GPUS_PER_LINE, name=_name_gpu_slot)
    yield messages.LINE_GPUS.text(language, gpus=gpus)


def write_stalled(result: Result, numbers: Sequence[int], options: MessageOptions) -> str:
    """One message about workloads of one namespace."""
    table, language = result.workloads, options.language
    largest = sorted(numbers, key=lambda each: (-float(table.gpus[each]), table.keys[each]))
    namespace = safe_name(table.keys[largest[0]].namespace)
    lines = [
        messages.STALLED_TITLE.text(language, where=namespace),
        write_as_of(result.at, options),
        *(line for number in largest[:MAX_STALLED] for line in _describe_stalled(result, number, options)),
    ]
    if others := largest[MAX_STALLED:]:
        gpus = format_gpus(sum(float(table.gpus[each]) for each in others))
        lines.append(messages.MORE_WORKLOADS.text(language, number=len(others), gpus=gpus))
    repeat = format_duration(options.repeat_hours * 3600, language)
    return "\n".join((*lines, messages.STALLED_NEXT.text(language, repeat=repeat)))


def _describe_stalled(result: Result, number: int, options: MessageOptions) -> Iterator[str]:
    table, language, rows = result.workloads, options.language, result.workloads.rows(number)
    since = result.verdicts.ineffective_since[rows]
    yield messages.STALLED_WORKLOAD.text(
        language,
        workload=name_workload(table.keys[number], options),
        gpus=format_gpus(float(table.gpus[number])),
        duration=format_duration(result.at - float(np.nanmax(since)), language),
    )
    for reason in table.explain_stall(number):
        yield safe_line(reason.text(language), max_length=MAX_LINE_LENGTH)
    cost = np.sum(result.cost_micros_per_hour[rows] * np.where(np.isnan(since), 0.0, result.at - since)) / 3600
    if not np.isnan(cost):  # a GPU without a price: a partial sum would be read as the total
        yield messages.STALLED_COST.text(language, cost=format_money(round(float(cost)), options.currency))
