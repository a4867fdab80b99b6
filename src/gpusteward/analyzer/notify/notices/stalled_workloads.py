"""Workloads that are busy without doing anything, and the message about them. Pure."""

from collections.abc import Iterator, Sequence

import numpy as np

from gpusteward.analyzer.notify.notices.formatting import format_duration, format_money, safe_line, safe_name
from gpusteward.analyzer.notify.notices.messages import MessageOptions, name_workload, write_as_of
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import SIGNATURES
from gpusteward.core.gpu_counts import format_gpus
from gpusteward.core.verdicts import Signature
from gpusteward.messages import notices as messages

MAX_WORKLOADS = 5
"""A message describes this many, the largest first, and counts the others: each takes five lines."""
MAX_LINE_LENGTH = 400


def find_stalled_workloads(result: Result) -> Sequence[int]:
    """Their numbers. The time that it must last is part of the verdict."""
    found = np.flatnonzero(result.workloads.signature == SIGNATURES.index(Signature.STALLED))
    numbers: Sequence[int] = found.tolist()
    return numbers


def write_stalled(result: Result, numbers: Sequence[int], options: MessageOptions) -> str:
    """One message about workloads of one namespace."""
    table, language = result.workloads, options.language
    largest = sorted(numbers, key=lambda each: (-float(table.gpus[each]), table.keys[each]))
    namespace = safe_name(table.keys[largest[0]].namespace)
    lines = [
        messages.STALLED_TITLE.text(language, where=namespace),
        write_as_of(result.at, options),
        *(line for number in largest[:MAX_WORKLOADS] for line in _describe(result, number, options)),
    ]
    if others := largest[MAX_WORKLOADS:]:
        gpus = format_gpus(sum(float(table.gpus[each]) for each in others))
        lines.append(messages.MORE_WORKLOADS.text(language, number=len(others), gpus=gpus))
    repeat = format_duration(options.repeat_hours * 3600, language)
    return "\n".join((*lines, messages.STALLED_NEXT.text(language, repeat=repeat)))


def _describe(result: Result, number: int, options: MessageOptions) -> Iterator[str]:
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
