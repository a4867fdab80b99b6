"""Queries outside the cycle, on demand: the chart of one allocation, the processes of pods, the GPUs of a node."""

import itertools
import threading
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from gpusteward.analyzer.sources.engine.client import Engine
from gpusteward.analyzer.sources.engine.decode import Vector, decode_matrix
from gpusteward.analyzer.sources.live_readings import (
    DCGM_LABELS,
    GPU_METRICS,
    NATIVE_LABELS,
    PROCESS_METRICS,
    LiveSample,
    PodProcesses,
    ReportedGpu,
    collect_processes,
    collect_readings,
    find_labels,
)
from gpusteward.analyzer.sources.promql.expressions import write_range
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme
from gpusteward.analyzer.sources.usage.label_mapping import LabelMapping
from gpusteward.analyzer.sources.usage.quantities import (
    MEASURES,
    Aggregation,
    Level,
    Quantity,
    UsageMetric,
)
from gpusteward.analyzer.sources.usage.query_results import PodKey, split_label
from gpusteward.analyzer.sources.usage.selectors import Matcher, match_any, write_selector
from gpusteward.analyzer.sources.usage.unknown_rows import ACTIVE_RATIO
from gpusteward.analyzer.sources.usage_source import Chart, Points
from gpusteward.core.errors import SourceError
from gpusteward.core.node.gpus import Share
from gpusteward.core.usages import AllocationKey, Measure

MAX_POINTS = 500
WORK_BATCH = 50
"""Allocations of one query for work: 50 GPUs with 15 metrics are about 1 MB."""
AHEAD_SECONDS = 300.0
"""Work is read up to so far in the future. A Prometheus whose clock is ahead writes times that are still to come, and
those of its samples that seem new are old: only the newest ones show that. Mimir answers up to ten minutes ahead."""
SMALL_SKEW_SECONDS = 2.0
"""The clock of the engine is known to the second: a smaller difference is none."""
_WORK = frozenset(
    {
        *(Quantity.CORE, Quantity.BUSY, Quantity.MEMORY_COPY, Quantity.ENGINE, Quantity.TENSOR, Quantity.DRAM),
        *(Quantity.ENCODER, Quantity.DECODER, Quantity.VIDEO, Quantity.SM_ACTIVE, Quantity.PIPES),
        *(Quantity.PCIE, Quantity.NVLINK, Quantity.LAST_KERNEL),
    }
)
_VIDEO = frozenset({Quantity.ENCODER, Quantity.DECODER, Quantity.VIDEO})
_OUTSIDE: Mapping[Quantity, float] = {
    Quantity.OUTSIDE: 0.0,
    Quantity.UNATTRIBUTED_VIDEO: 0.0,
    **dict.fromkeys((Quantity.UNATTRIBUTED, Quantity.CORE, Quantity.BUSY), ACTIVE_RATIO),
}
"""What a device reports of itself beside the use of its holders: above these floors, where they do not work, somebody
else does, and no verdict would be idle (`usage.unknown_rows`)."""
_WORK_MEASURES: Mapping[Quantity, Measure] = {
    **MEASURES,
    Quantity.BUSY: Measure.BUSY,
    Quantity.LAST_KERNEL: Measure.LAST_KERNEL,
}
_IN_CHARTS = (Quantity.CORE, Quantity.MEMORY_COPY, Quantity.MEMORY_USED, Quantity.POWER)


def read_chart(
    engine: Engine,
    schemes: Iterable[DetectedScheme],
    allocation: AllocationKey,
    *,
    at: float,
    seconds: float,
    step: float,
) -> Chart:
    """The course of one allocation by range queries, with a bounded number of points. Raises SourceError."""
    step = max(step, seconds / MAX_POINTS)
    lines: dict[Measure, Points] = {}
    for detected in schemes:
        matchers = tuple(_match_allocation(detected.holder.mapping, allocation))
        for metric in chart_metrics(detected, allocation):
            if MEASURES[metric.quantity] in lines:
                continue
            selector = write_selector(metric.name, (*matchers, *metric.matchers))
            body = engine.query_range(f"max({selector})", start=at - seconds, end=at, step=step)
            for series in decode_matrix(body)[:1]:
                points = [(time, value * metric.scale) for time, value in series.points]
                lines[MEASURES[metric.quantity]] = points
    return Chart(allocation, lines)


def read_work(
    engine: Engine,
    schemes: Collection[DetectedScheme],
    allocations: Sequence[AllocationKey],
    *,
    at: float,
    seconds: float,
) -> list[Chart]:
    """Every metric of these allocations that can prove work, or use by others. Several metrics of one measure, such as
    both directions of a link, are one line. A few queries at once: the first answer must not age while the others are
    waited for. Raises SourceError.

    An instant query for a range (`metric[3m]`) returns samples with their own times. The points of a range query have
    the times of its steps: a sample of five minutes ago would look new. VictoriaMetrics also hides the newest 30 s from
    every other query.
    """
    skew = engine.skew_seconds or 0.0  # times of samples are those of the engine's clock
    skew = skew + 1.0 if abs(skew) > SMALL_SKEW_SECONDS else 0.0  # its response has whole seconds, rounded down
    lines: list[dict[Measure, list[tuple[float, float]]]] = [{} for _ in allocations]
    queries: defaultdict[Hashable, list[_WantedSeries]] = defaultdict(list)
    for number, allocation in enumerate(allocations):
        for detected in schemes:
            for one in _list_wanted(detected, number, allocation):
                # Of devices by what selects series of a metric: others would be sent in vain.
                selected_by = one.metric.matchers if one.metric.level is Level.DEVICE else None
                queries[number // WORK_BATCH, detected.key, selected_by].append(one)
    lock = threading.Lock()

    def read(wanted: Sequence[_WantedSeries]) -> None:
        by_name: defaultdict[str, list[_WantedSeries]] = defaultdict(list)
        for one in wanted:
            by_name[one.metric.name].append(one)
        query = f"{_select_any(wanted)}{write_range(seconds + AHEAD_SECONDS)}"
        found = decode_matrix(engine.query(query, at + skew + AHEAD_SECONDS))
        with lock:
            for series in found:
                points = [(time - skew, value) for time, value in series.points]
                for one in by_name[series.labels.get("__name__", "")]:
                    if all(series.labels.get(label, "") == value for label, value in one.labels.items()):
                        add_work(lines[one.number], one.metric, points)

    with ThreadPoolExecutor(engine.max_concurrent_queries + 1, thread_name_prefix="work") as threads:
        try:
            for _ in threads.map(read, queries.values()):
                pass
        except SourceError:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return [Chart(allocation, found) for allocation, found in zip(allocations, lines, strict=True)]


class _WantedSeries(NamedTuple):
    """The series of one metric about one allocation."""

    number: int  # of the allocation among those that are read
    labels: Mapping[str, str]
    metric: UsageMetric


def _list_wanted(detected: DetectedScheme, number: int, allocation: AllocationKey) -> Iterator[_WantedSeries]:
    """Of the holder, and of its device."""
    for metric in work_metrics(detected, allocation):
        matchers = (*_match_allocation(detected.holder.mapping, allocation), *metric.matchers)
        yield _WantedSeries(number, {one.label: one.value for one in matchers}, metric)
    for metric in device_work_metrics(detected, allocation):
        assert detected.device is not None
        matchers = (*_match_device(detected.device.mapping, allocation), *metric.matchers)
        yield _WantedSeries(number, {one.label: one.value for one in matchers}, metric)


def _select_any(wanted: Sequence[_WantedSeries]) -> str:
    """Labels that not all of these series have do not select."""
    names = {one.metric.name for one in wanted}
    shared = set(wanted[0].labels).intersection(*(one.labels for one in wanted))
    matchers = [match_any(label, sorted({one.labels[label] for one in wanted})) for label in sorted(shared)]
    return write_selector("", (match_any("__name__", sorted(names)), *matchers))


def work_metrics(detected: DetectedScheme, allocation: AllocationKey) -> Iterator[UsageMetric]:
    """The metrics of a holder that can prove work; the core of a MIG instance is its engine activity, as is that of a
    GPU where nothing else is exported."""
    metrics = [metric for metric in detected.holder.metrics if metric.level is Level.HOLDER]
    is_instance = bool(allocation.gpu_instance) and detected.device is None
    is_core = is_instance or all(metric.quantity is not Quantity.CORE for metric in metrics)
    for metric in metrics:
        if metric.quantity is Quantity.ENGINE and is_core:
            yield replace(metric, quantity=Quantity.CORE)
        elif metric.quantity in _WORK and not (metric.quantity is Quantity.CORE and is_instance):
            yield metric


def device_work_metrics(detected: DetectedScheme, allocation: AllocationKey) -> Iterator[UsageMetric]:
    """The metrics of the whole device: what its only holder has none of its own for, such as the traffic of links; and
    what shows somebody else. Whose work it is on a shared device, only the agent knows; of video engines on one of
    HAMi nobody does, so that no verdict is idle while they work."""
    if detected.device is None:
        return
    is_alone = allocation.share == Share.EXCLUSIVE and not allocation.gpu_instance
    own = {metric.quantity for metric in detected.holder.metrics if metric.level is Level.HOLDER}
    wanted = _WORK - own if is_alone else frozenset[Quantity]()
    if detected.scheme.devices:
        wanted |= _VIDEO
    if detected.scheme.lists_allocations:
        has_one_holder = is_alone or allocation.share == Share.MIG
        wanted |= frozenset(_OUTSIDE) if has_one_holder else frozenset(_OUTSIDE) - own
    yield from (metric for metric in detected.device.metrics if metric.quantity in wanted)


def add_work(lines: dict[Measure, list[tuple[float, float]]], metric: UsageMetric, points: Points) -> None:
    """A counter of seconds becomes the share of time between two samples; after a reset, all that it has is new. The
    age of a kernel becomes its time."""
    points = [(time, value * metric.scale) for time, value in points]
    if Aggregation.INCREASE in metric.aggregations:
        points = [
            (time, min(1.0, (value - before if value >= before else value) / (time - earlier)))
            for (earlier, before), (time, value) in itertools.pairwise(points)
            if time > earlier
        ]
    elif metric.quantity is Quantity.LAST_KERNEL:
        points = [(time, time - age) for time, age in points]
    if metric.level is Level.DEVICE and metric.quantity in _OUTSIDE:
        floor = _OUTSIDE[metric.quantity]
        points = [(time, value if value > floor else 0.0) for time, value in points]
        measure = Measure.OUTSIDE
    else:
        measure = _WORK_MEASURES[metric.quantity]
    lines[measure] = sorted([*lines.get(measure, ()), *points])


def chart_metrics(detected: DetectedScheme, allocation: AllocationKey) -> Iterator[UsageMetric]:
    """The metrics in the chart of a holder; the core of a MIG instance is its engine activity."""
    core = Quantity.ENGINE if allocation.gpu_instance and detected.device is None else Quantity.CORE
    for metric in (metric for metric in detected.holder.metrics if metric.level is Level.HOLDER):
        quantity = Quantity.CORE if metric.quantity is core else metric.quantity
        if quantity in _IN_CHARTS and not (quantity is Quantity.CORE and metric.quantity is not core):
            yield replace(metric, quantity=quantity, aggregations=())


def _match_allocation(mapping: LabelMapping, allocation: AllocationKey) -> Iterator[Matcher]:
    container = allocation.container
    # gpusteward's agent reports a MIG instance under its own uuid, which an allocation does not have.
    uuid_label = "" if allocation.gpu_instance and mapping.uuid == "uuid" else mapping.uuid
    values = (
        (uuid_label, allocation.gpu_uuid),
        (mapping.instance, allocation.gpu_instance),
        (mapping.namespace, container.namespace),
        (mapping.pod, container.pod),
        (mapping.container, container.name),
        (mapping.cluster, container.cluster),
    )
    yield from _match(*values)


def _match_device(mapping: LabelMapping, allocation: AllocationKey) -> Iterator[Matcher]:
    """A MIG instance by its place: gpusteward's agent reports it under its own uuid, as above."""
    values = [(mapping.uuid, allocation.gpu_uuid)]
    if allocation.gpu_instance:
        place = (mapping.node, allocation.node), (mapping.gpu, allocation.gpu_index)
        values = [*place, (mapping.instance, allocation.gpu_instance)]
    yield from _match(*values, (mapping.cluster, allocation.cluster))


def _match(*values: tuple[str, str]) -> Iterator[Matcher]:
    """By label, as far as the series have it."""
    pairs = (pair for label, value in values if label for pair in split_label(label, value))
    return (Matcher(name, "=", part) for name, part in pairs)


def read_pod_processes(
    engine: Engine, schemes: Iterable[DetectedScheme], pods: Collection[PodKey], at: float
) -> PodProcesses:
    """Processes as reported by gpusteward's agents; nothing is known where none runs. Raises SourceError."""
    parts: list[PodProcesses] = []
    for detected in schemes if pods else ():
        if detected.scheme.lists_allocations:
            mapping = detected.holder.mapping
            matchers = (
                match_any("__name__", sorted(PROCESS_METRICS)),
                match_any(mapping.namespace, sorted({pod.namespace for pod in pods})),
                match_any(mapping.pod, sorted({pod.name for pod in pods})),
            )
            vector = engine.query_vector(write_selector("", matchers), at)
            parts.append(collect_processes(_list_samples(vector), pods, mapping))
    processes = [process for part in parts for process in part.processes]
    return PodProcesses(processes, frozenset(pod for part in parts for pod in part.reported))


def _list_samples(vector: Vector) -> Iterator[LiveSample]:
    return (LiveSample(labels.get("__name__", ""), labels, value) for labels, value in vector.rows())


def read_node_gpus(
    engine: Engine, schemes: Iterable[DetectedScheme], node: str, cluster: str, at: float
) -> list[ReportedGpu]:
    """The GPUs of a node as reported by gpusteward's agents and dcgm-exporter. Raises SourceError."""
    samples: list[tuple[LiveSample, LabelMapping]] = []
    groups = [(detected.scheme, group.mapping) for detected in schemes for group in detected.groups]
    # The agent exports some values under DCGM's names only, with the labels of dcgm-exporter.
    of_dcgm = [
        replace(mapping, uuid=DCGM_LABELS.uuid, model=DCGM_LABELS.model, instance=DCGM_LABELS.instance, node=node_label)
        for scheme, mapping in groups
        for node_label in ("Hostname", "hostname")
        if scheme.lists_allocations
    ]
    for mapping in dict.fromkeys((*(mapping for _, mapping in groups), *of_dcgm)):
        if not mapping.node or not mapping.uuid:
            continue
        matchers = [match_any("__name__", sorted(GPU_METRICS)), Matcher(mapping.node, "=", node)]
        if mapping.cluster and cluster:
            matchers.append(Matcher(mapping.cluster, "=", cluster))
        vector = engine.query_vector(write_selector("", matchers), at)
        # The labels of the site; as the exporter names them where the site's series of holders do not have them.
        known = {field: name for field in ("uuid", "gpu", "model", "instance") if (name := getattr(mapping, field))}
        filled = {each: replace(each, **known) for each in (NATIVE_LABELS, DCGM_LABELS)}
        samples += ((each, filled[find_labels(each.metric)]) for each in _list_samples(vector))
    return collect_readings(samples)
