"""Requests of inference servers that the scraper was told to read: the same values as `promql.request_queries` has from
an engine, computed from the samples of the store.

Which pod a target is, the labels in its file say, or the API server that listed the pod. A page of any other target may
name any pod; it denies silence and never proves it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isnan
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.sources.scrape.page_parser import FAMILIES
from gpusteward.analyzer.sources.scrape.ring_buffers import LOOK_BACK_SECONDS, measure_increase, sum_before_restarts
from gpusteward.analyzer.sources.scrape.sample_store import SampleStore
from gpusteward.analyzer.sources.scrape.series import ServerLabels, is_match
from gpusteward.analyzer.sources.scrape.series_values import SeriesValues
from gpusteward.analyzer.sources.usage.inference_servers import (
    ASLEEP,
    COUNTERS,
    OF_TOKENS,
    PROCESS_START,
    REQUESTS,
    SERVERS,
    InferenceServer,
    ServerMetric,
    ServerPodName,
    ServerValues,
    find_role,
    make_server_pod,
)
from gpusteward.analyzer.tables import ServerPod


class ServerSeries(NamedTuple):
    """One series over the window; NaN is unknown."""

    labels: ServerLabels
    grown: float
    lowest: float
    highest: float
    samples: float
    restarts: float


_ByName = Mapping[str, Sequence[ServerSeries]]


def read_servers(store: SampleStore, *, at: float, seconds: float) -> list[ServerPod]:
    """What inference servers say of their requests in the window before `at`."""
    by_name: defaultdict[str, list[ServerSeries]] = defaultdict(list)
    with store.lock_targets() as (_, targets):
        for samples in targets.values():
            for name, series in _read_series(samples.values, at=at, seconds=seconds):
                by_name[name].append(series)
    begun_processes = {one.labels.pod for one in by_name[PROCESS_START] if one.highest > at - seconds}
    found: list[ServerPod] = []
    for server in SERVERS if by_name else ():
        for pod, values in _read_values(server, by_name, expected=seconds / store.options.interval).items():
            if server.is_one(values):
                one = make_server_pod(server, pod, values)
                found.append(replace(one, is_silent=one.is_silent and pod not in begun_processes))
    return found


def _read_series(values: SeriesValues, *, at: float, seconds: float) -> Iterator[tuple[str, ServerSeries]]:
    """Every series of a server that has a sample in the window."""
    chosen = values.series.find_servers()
    if not len(chosen):
        return
    times, block = values.read_block(chosen, at=at, seconds=seconds + LOOK_BACK_SECONDS)
    is_within = times > at - seconds
    # A series that was not there before the window counts from zero, as one that was reset.
    has_begun = np.isnan(block[~is_within]).all(axis=0)
    block = block[is_within]
    if not len(block):
        return
    is_there = ~np.isnan(block)
    columns = (
        measure_increase(block, times[is_within], start=at - seconds, end=at),
        np.fmin.reduce(block, axis=0),
        np.fmax.reduce(block, axis=0),
        is_there.sum(axis=0),
        has_begun | (sum_before_restarts(block, is_there) > 0),
    )
    rows = values.series.rows[chosen]
    for family, details, *stats in zip(rows["family"].tolist(), rows["details"], *columns, strict=True):
        if stats[3]:
            yield FAMILIES[family].name, ServerSeries(details, *map(float, stats))


def _read_values(server: InferenceServer, by_name: _ByName, *, expected: float) -> dict[ServerPodName, ServerValues]:
    """`expected`: samples of a series in the window."""
    found: defaultdict[ServerPodName, ServerValues] = defaultdict(ServerValues)
    for reading, metrics in server.metrics.items():
        if reading in COUNTERS:
            for pod, value in _add(server, metrics, by_name, lambda one: one.grown).items():
                found[pod].grown[reading] = value
            for name in (name for metric in metrics if reading in OF_TOKENS for name in metric.names):
                for one in by_name.get(name, ()):
                    found[one.labels.pod].roles.add(find_role(dict(one.labels.others)))
            continue
        for pod, value in _add(server, metrics, by_name, lambda one: one.highest).items():
            found[pod].highest[reading] = value
        combine = min if reading is ASLEEP else sum
        for pod, value in _add(server, metrics, by_name, lambda one: one.lowest, combine=combine).items():
            found[pod].lowest[reading] = value
    for name in server.names:
        for one in by_name.get(name, ()):
            if one.labels.pod in found:
                found[one.labels.pod].is_named_by_target |= one.labels.is_named_by_target
    here = (metric for metric in server.metrics[REQUESTS] if not by_name.keys().isdisjoint(metric.names))
    counted = next(here, None)
    for pod, series in _group_by_pod(counted, by_name).items() if counted else ():
        found[pod].coverage = min(one.samples for one in series) / expected
        found[pod].restarts = max(one.restarts for one in series)
    return found


def _add(
    server: InferenceServer,
    metrics: Sequence[ServerMetric],
    by_name: _ByName,
    value_of: Callable[[ServerSeries], float],
    *,
    combine: Callable[[list[float]], float] = sum,
) -> dict[ServerPodName, float]:
    """The sum by pod; of series that differ in none of the labels of this server, as those of a target that is scraped
    twice, the largest."""
    parts: defaultdict[ServerPodName, list[float]] = defaultdict(list)
    for metric in metrics:
        for pod, series in _group_by_pod(metric, by_name).items():
            largest: dict[tuple[str, ...], float] = {}
            for one in series:
                if not isnan(value := value_of(one)):
                    labels = dict(one.labels.others)
                    part = tuple(labels.get(label, "") for label in server.parts)
                    largest[part] = max(value, largest.get(part, value))
            parts[pod] += largest.values()
    return {pod: combine(values) for pod, values in parts.items() if values}


def _group_by_pod(metric: ServerMetric, by_name: _ByName) -> Mapping[ServerPodName, Sequence[ServerSeries]]:
    """Of a metric with several names the first one that a pod has."""
    found: dict[ServerPodName, list[ServerSeries]] = {}
    for name in metric.names:
        own: defaultdict[ServerPodName, list[ServerSeries]] = defaultdict(list)
        for one in by_name.get(name, ()):
            labels = dict(one.labels.others)
            if one.labels.pod not in found and all(is_match(matcher, labels) for matcher in metric.matchers):
                own[one.labels.pod].append(one)
        found |= own
    return found
