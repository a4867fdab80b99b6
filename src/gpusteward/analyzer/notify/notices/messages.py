"""Findings -> the text of one message: the first line is its title (pure)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from gpusteward.analyzer.notify.amounts import say_duration, say_memory, say_money, say_time
from gpusteward.analyzer.notify.notices.findings import GPUS_NAMED, IdleFinding
from gpusteward.analyzer.notify.notices.formatting import line, plain
from gpusteward.analyzer.notify.texts import say
from gpusteward.core.usages import AllocationKey

LINES = 20
"""A message names so many workloads, the largest first; the others are counted. Chats cut what is much longer."""
GPUS_IN_A_LINE = 2


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """How a channel is spoken to."""

    language: str
    zone: str
    currency: str
    repeat_hours: float
    window_seconds: float


def write_idle(findings: Sequence[IdleFinding], options: MessageOptions) -> str:
    """One message about one or many idle workloads."""
    language = options.language
    body = describe_idle(findings[0], options) if len(findings) == 1 else _write_many(findings, options)
    repeat = say_duration(options.repeat_hours * 3600, language)
    ends = (say("next", language, repeat=repeat), say("way-out", language))
    return "\n".join((say("idle-title", language, who=_name_whom(findings, language)), *body, *ends))


def write_lost(reason: str, options: MessageOptions, *, since: float, now: float) -> str:
    language = options.language
    hours = say_duration(now - since, language)
    said = say("lost", language, since=say_time(since, options.zone), hours=hours, reason=line(reason))
    return "\n".join((say("lost-title", language), said, say("lost-next", language)))


def write_found(options: MessageOptions, *, since: float, now: float) -> str:
    hours = say_duration(now - since, options.language)
    return "\n".join((say("found-title", options.language), say("found", options.language, hours=hours)))


def name_workload(kind: str, namespace: str, name: str) -> str:
    return f"{plain(namespace)} / {plain(kind)} {plain(name)}"


def _name_whom(findings: Sequence[IdleFinding], language: str) -> str:
    namespaces = {finding.namespace for finding in findings}
    if len(namespaces) > 1:
        return say("namespaces-many", language, number=len(namespaces))
    return plain(findings[0].namespace)


def describe_idle(finding: IdleFinding, options: MessageOptions) -> Iterator[str]:
    """One workload with all its evidence, line by line."""
    language = options.language
    yield say(
        "idle-one",
        language,
        workload=name_workload(*finding.key),
        gpus=finding.gpus,
        since=say_time(finding.idle_since, options.zone),
        hours=say_duration(finding.idle_seconds, language),
    )
    yield say("gpus", language, gpus=_name_gpus(finding, language, shown=GPUS_NAMED, name=_name_gpu))
    if finding.core_peak_ratio is not None:
        minutes = round(options.window_seconds / 60)
        yield say("peak", language, minutes=minutes, peak=_say_peak(finding.core_peak_ratio))
    if finding.memory_used_bytes is not None:
        yield say("memory", language, memory=say_memory(finding.memory_used_bytes))
    if finding.cost_micros is not None:
        yield say("cost", language, cost=say_money(finding.cost_micros, options.currency))


def _say_peak(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"


def _name_gpus(finding: IdleFinding, language: str, *, shown: int, name: Callable[[AllocationKey], str]) -> str:
    named = [name(allocation) for allocation in finding.allocations[:shown]]
    if finding.gpus > shown:
        named.append(say("gpus-more", language, number=finding.gpus - shown))
    return ", ".join(named)


def _name_gpu(allocation: AllocationKey) -> str:
    return f"{_name_place(allocation)} ({plain(allocation.model)}, {plain(allocation.gpu_uuid, longest=48)})"


def _name_place(allocation: AllocationKey) -> str:
    """The node and the number of the GPU on it."""
    index = f" {plain(allocation.gpu_index)}" if allocation.gpu_index else ""
    instance = f" MIG {plain(allocation.gpu_instance)}" if allocation.gpu_instance else ""
    return f"{plain(allocation.node)}{index}{instance}"


def _write_many(findings: Sequence[IdleFinding], options: MessageOptions) -> Iterator[str]:
    language, gpus = options.language, sum(finding.gpus for finding in findings)
    yield say("idle-many", language, workloads=len(findings), gpus=gpus)
    largest = sorted(findings, key=lambda each: (-each.gpus, each.idle_since, each.key))
    named, others = largest[:LINES], largest[LINES:]
    for namespace, group in groupby(sorted(named, key=lambda each: each.namespace), key=lambda each: each.namespace):
        yield say("namespace", language, namespace=plain(namespace))
        yield from (_write_line(each, options) for each in group)
    if others:
        yield say("more", language, number=len(others), gpus=sum(each.gpus for each in others))
    costs = [finding.cost_micros for finding in findings]
    if None not in costs:
        yield say("total-cost", language, cost=say_money(sum(cost or 0 for cost in costs), options.currency))


def _write_line(finding: IdleFinding, options: MessageOptions) -> str:
    language, extra = options.language, ""
    if finding.core_peak_ratio is not None:
        extra += say("extra-peak", language, peak=_say_peak(finding.core_peak_ratio))
    if finding.memory_used_bytes is not None:
        extra += say("extra-memory", language, memory=say_memory(finding.memory_used_bytes))
    if finding.cost_micros is not None:
        extra += say("extra-cost", language, cost=say_money(finding.cost_micros, options.currency))
    extra += say("extra-gpus", language, gpus=_name_gpus(finding, language, shown=GPUS_IN_A_LINE, name=_name_place))
    return say(
        "idle-line",
        language,
        workload=f"{plain(finding.kind)} {plain(finding.name)}",
        gpus=finding.gpus,
        hours=say_duration(finding.idle_seconds, language),
        since=say_time(finding.idle_since, options.zone),
        extra=extra,
    )
