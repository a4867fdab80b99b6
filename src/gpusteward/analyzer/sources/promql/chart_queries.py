"""The course of one allocation, for a chart: range queries for one holder, in a bounded number of points."""

from collections.abc import Iterator
from dataclasses import replace

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import decode_matrix
from gpusteward.analyzer.sources.promql.discovery import Sources
from gpusteward.analyzer.sources.promql.matchers import Matcher, write_selector
from gpusteward.analyzer.sources.promql.plan import Found
from gpusteward.analyzer.sources.usage.label_mapping import Spelling
from gpusteward.analyzer.sources.usage.quantities import MEASURES, Level, Quantity, Signal
from gpusteward.analyzer.sources.usage_source import Chart, Points
from gpusteward.core.usages import AllocationKey, Measure

MOST_POINTS = 500
_DRAWN = (Quantity.CORE, Quantity.MEMORY_COPY, Quantity.MEMORY_USED, Quantity.POWER)


def read_chart(
    engine: Engine, sources: Sources, allocation: AllocationKey, *, at: float, seconds: float, step: float
) -> Chart:
    """The measures that people look at. Raises SourceError."""
    step = max(step, seconds / MOST_POINTS)
    lines: dict[Measure, Points] = {}
    for found in sources.found:
        for signal, selector in _select(found, allocation):
            if MEASURES[signal.quantity] in lines:
                continue
            answer = engine.query_range(f"max({selector})", start=at - seconds, end=at, step=step)
            for _, points in decode_matrix(answer)[:1]:
                lines[MEASURES[signal.quantity]] = [(moment, value * signal.scale) for moment, value in points]
    return Chart(allocation, lines)


def drawn_signals(found: Found, allocation: AllocationKey) -> Iterator[Signal]:
    """What is drawn of a holder; a MIG instance's core is its engine's activity."""
    core = Quantity.ENGINE if allocation.gpu_instance and found.device is None else Quantity.CORE
    for signal in (signal for signal in found.holder.signals if signal.level is Level.HOLDER):
        quantity = Quantity.CORE if signal.quantity is core else signal.quantity
        if quantity in _DRAWN and not (quantity is Quantity.CORE and signal.quantity is not core):
            yield replace(signal, quantity=quantity, folds=())


def _select(found: Found, allocation: AllocationKey) -> Iterator[tuple[Signal, str]]:
    for signal in drawn_signals(found, allocation):
        further = [Matcher(*parts) for parts in signal.only]
        yield signal, write_selector(signal.metric, (*_match(found.holder.spelling, allocation), *further))


def _match(spelling: Spelling, allocation: AllocationKey) -> Iterator[Matcher]:
    who = allocation.container
    told = (
        ("" if allocation.gpu_instance and spelling.uuid == "uuid" else spelling.uuid, allocation.gpu_uuid),
        (spelling.instance, allocation.gpu_instance),
        (spelling.namespace, who.namespace),
        (spelling.pod, who.pod),
        (spelling.container, who.name),
    )
    for label, value in told:
        if label:
            yield Matcher(label, "=", value)
