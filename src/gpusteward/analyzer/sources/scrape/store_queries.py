"""The query plan of `sources.promql`, computed from the sample store instead of an engine; and charts."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.promql.on_demand_queries import (
    AHEAD_SECONDS,
    MAX_POINTS,
    add_work,
    chart_metrics,
    device_work_metrics,
    work_metrics,
)
from gpusteward.analyzer.sources.promql.query_plan import (
    DetectedScheme,
    Query,
    SeriesGroup,
    list_missing_video,
    plan_devices,
    plan_holders,
)
from gpusteward.analyzer.sources.scrape.page_parser import BY_NAME, FAMILIES
from gpusteward.analyzer.sources.scrape.sample_store import SampleStore, StoreWindow
from gpusteward.analyzer.sources.scrape.series import (
    UNIFIED_LABELS,
    SeriesChoice,
    SeriesLabels,
    SeriesNumbers,
    SeriesTrait,
)
from gpusteward.analyzer.sources.scrape.series_values import SeriesWindow, TimeSeries
from gpusteward.analyzer.sources.usage.quantities import COUNTS, MEASURES, Level, Quantity, UsageMetric
from gpusteward.analyzer.sources.usage.query_results import DeviceKey, HolderKey, QueryResults
from gpusteward.analyzer.sources.usage.schemes import SCHEMES, MetricScheme
from gpusteward.analyzer.sources.usage.selectors import Matcher
from gpusteward.analyzer.sources.usage_source import Chart, Points
from gpusteward.analyzer.tables import Column, NodeModel
from gpusteward.core.usages import AllocationKey, Measure

_TRAITS: Mapping[Matcher, tuple[SeriesTrait, bool]] = {
    Matcher(UNIFIED_LABELS.pod, "!=", ""): (SeriesTrait.HAS_POD, True),
    Matcher(UNIFIED_LABELS.namespace, "!=", ""): (SeriesTrait.HAS_POD, True),  # the plan uses the cheaper label
    Matcher(UNIFIED_LABELS.pod, "=", ""): (SeriesTrait.HAS_POD, False),
    Matcher(UNIFIED_LABELS.namespace, "=", ""): (SeriesTrait.HAS_POD, False),
    Matcher(UNIFIED_LABELS.instance, "!=", ""): (SeriesTrait.IS_MIG, True),
    Matcher(UNIFIED_LABELS.instance, "=", ""): (SeriesTrait.IS_MIG, False),
    Matcher("by", "=", "container"): (SeriesTrait.BY_CONTAINER, True),
    Matcher("by", "=", "unattributed"): (SeriesTrait.BY_UNATTRIBUTED, True),
    Matcher("by", "=", "host"): (SeriesTrait.BY_HOST, True),
}
"""The matchers that a plan may contain, each with the trait that a series must or must not have."""


class _TraitFilter(NamedTuple):
    mask: int  # the traits that matter
    values: int  # and how they must be

    def select(self, window: SeriesWindow, metric: str) -> SeriesNumbers:
        is_selected = (window.family == BY_NAME[metric].number) & ((window.traits & self.mask) == self.values)
        return np.flatnonzero(is_selected)


def detect_schemes(names: Collection[str]) -> tuple[DetectedScheme, ...]:
    """The metric schemes with these families, in the order of preference. Labels are unified already."""
    found: list[DetectedScheme] = []
    for scheme in SCHEMES:
        holders, devices = scheme.find_metrics(names)
        if holders:
            device = SeriesGroup(UNIFIED_LABELS, devices) if devices else None
            found.append(DetectedScheme(scheme, SeriesGroup(UNIFIED_LABELS, holders), device))
    return tuple(found)


def run_queries(detected: DetectedScheme, window: StoreWindow, *, previous_rows: Sequence[int] = ()) -> QueryResults:
    """All query results of one scheme. `previous_rows`: holders of earlier cycles that may only be stale."""
    rows = window.rows
    results = QueryResults(detected.scheme, rows.holders[detected.scheme], rows.devices, previous_rows=previous_rows)
    results.lacks_video = bool(list_missing_video(detected))
    plans = [plan_holders(detected, ()), *([plan_devices(detected.device, ())] if detected.device else [])]
    selected: dict[tuple[str, _TraitFilter], SeriesNumbers] = {}
    for query in (query for plan in plans for query in plan.queries):
        key = query.metric, _make_filter(query)
        if key not in selected:
            selected[key] = key[1].select(window.series, query.metric)
        chosen = _leave_out(query, window.series, selected[key]) if query.other_than else selected[key]
        _add_result(results, query, window.series, chosen, at=window.at)
    if not detected.scheme.lists_allocations:
        _add_unlisted(results, window.series)
    return results


def _leave_out(query: Query, window: SeriesWindow, selected: SeriesNumbers) -> SeriesNumbers:
    """Without the holders that have a value of the others now."""
    others = (_make_filter(other).select(window, other.metric) for other in query.other_than)
    has_other = np.zeros(int(window.holder.max(initial=-1)) + 1, dtype=bool)
    for series in others:
        has_other[window.holder[series[np.isfinite(window.last[series])]]] = True
    return selected[~has_other[window.holder[selected]]]


def _add_unlisted(results: QueryResults, window: SeriesWindow) -> None:
    """Holders and devices that are on other lines than those of the presence metric, see `promql.unlisted_holders`."""
    is_listed = np.zeros(len(results.holders), dtype=bool)
    is_listed[list(results.present)] = True
    traits = int(SeriesTrait.FOR_HOLDERS)
    for family in FAMILIES:
        if family.scheme is results.scheme and family.shows_presence:
            selected = _TraitFilter(traits, traits).select(window, family.name)
            unlisted = selected[~is_listed[window.holder[selected]]]
            results.add_present(_read_details(window.holder, window, unlisted))
            is_listed[list(results.present)] = True


def add_last_details(results: QueryResults, window: StoreWindow, holders: Collection[int]) -> None:
    """The details of stale holders, from as far back as samples are kept."""
    series = window.series
    shown = [family.number for family in FAMILIES if family.scheme is results.scheme and family.shows_presence]
    is_presence = np.isin(series.family, shown)
    selected = np.flatnonzero(is_presence & np.isin(series.holder, list(holders)))
    results.last_details |= zip(series.holder[selected].tolist(), series.details[selected].tolist(), strict=True)


def add_sample_times(
    results: QueryResults, store: SampleStore, holders: Sequence[int], *, at: float, seconds: float
) -> None:
    """When these holders were seen in the window, with their details."""
    keys = [results.holders.keys[row] for row in holders]
    with store.lock_targets() as (series_labels, targets):
        # Rows may have got other numbers since the window was read.
        rows = dict(zip(series_labels.holders[results.scheme].find(keys).tolist(), holders, strict=True))
        for samples in targets.values():
            for found in samples.values.read_presence(results.scheme, rows.keys() - {-1}, at=at, seconds=seconds):
                row = rows[found.holder]
                results.last_details.setdefault(row, found.details)
                results.seen.add(row, found.details.pod_uid, found.times)
                results.seen.devices.setdefault(results.holders.keys[row].device, []).append(found.device_times)


def count_fleet(window: StoreWindow) -> Mapping[NodeModel, int]:
    """Whole GPUs by node and model, each counted once, by its most preferred scheme."""
    keys: dict[tuple[str, str], NodeModel] = {}
    series = window.series
    present = [row for row in np.flatnonzero(np.isfinite(series.last)).tolist() if series.fleet_key[row] is not None]
    for row in sorted(present, key=lambda row: int(series.family[row])):  # families are numbered by preference
        device = window.rows.devices.keys[series.device[row]]
        keys.setdefault((device.cluster, device.uuid), series.fleet_key[row])
    return Counter(keys.values())


def _make_filter(query: Query) -> _TraitFilter:
    level = SeriesTrait.FOR_HOLDERS if query.key.level is Level.HOLDER else SeriesTrait.FOR_DEVICES
    mask = values = int(level)
    for matcher in query.matchers:
        trait, is_required = _TRAITS[matcher]
        mask |= trait
        values |= trait if is_required else 0
    return _TraitFilter(mask, values)


def _add_result(
    results: QueryResults, query: Query, window: SeriesWindow, selected: SeriesNumbers, *, at: float
) -> None:
    level, quantity, aggregation = query.key
    if quantity is Quantity.PRESENCE:
        results.add_present(_read_details(window.holder, window, selected))
    elif quantity is Quantity.IDENTITY:
        results.device_details |= _read_details(window.device, window, selected)
    else:
        rows = (window.holder if level is Level.HOLDER else window.device)[selected]
        column: Column = getattr(window, aggregation.name.lower())  # its fields have the names of aggregations
        values = column[selected] * (1.0 if aggregation in COUNTS else query.scale)
        if quantity is Quantity.LAST_KERNEL:
            values = at - values  # up to a scrape interval later than it was
        if query.floor is not None:
            is_above = values > query.floor
            rows, values = rows[is_above], values[is_above]
        if query.floor is None or len(values):
            results.add_values(query.key, rows.astype(np.int64), values)


def _read_details(rows: NDArray[np.int32], window: SeriesWindow, selected: SeriesNumbers) -> Iterable[tuple[int, Any]]:
    """Rows that have a value now, with their details."""
    present = selected[np.isfinite(window.last[selected])]
    return zip(rows[present].tolist(), window.details[present].tolist(), strict=True)


def read_chart(
    store: SampleStore, schemes: Iterable[DetectedScheme], allocation: AllocationKey, *, at: float, seconds: float
) -> Chart:
    """The charted measures of one allocation, as far back as samples are kept."""
    lines: dict[Measure, Points] = {}
    with store.lock_targets() as (series_labels, targets):
        for detected in schemes:
            holders = frozenset(_find_holders(detected.scheme, series_labels, allocation))
            reporting = [samples for samples in targets.values() if samples.series.has_any(holders)]
            for metric in chart_metrics(detected, allocation):
                family, measure = BY_NAME[metric.name], MEASURES[metric.quantity]
                found = [
                    series
                    for samples in reporting
                    for series in samples.values.read_samples(SeriesChoice(family, holders), at=at, seconds=seconds)
                ]
                if measure not in lines and (points := _merge(found, metric.scale)):
                    lines[measure] = points
    return Chart(allocation, lines)


def read_work(
    store: SampleStore,
    schemes: Iterable[DetectedScheme],
    allocations: Sequence[AllocationKey],
    *,
    at: float,
    seconds: float,
) -> list[Chart]:
    """Every metric of these allocations that can prove work, or use by others, with the times at which they were
    scraped; and up to times in the future, as from an engine: this clock may have been set back."""
    lines: list[_Lines] = [{} for _ in allocations]
    with store.lock_targets() as (series_labels, targets):
        for detected in schemes:
            rows = [_find_rows(detected.scheme, series_labels, allocation) for allocation in allocations]
            holders = frozenset(row for each in rows for row in each.holders)
            devices = frozenset(row for each in rows for row in each.devices)
            reporting = [samples for samples in targets.values() if samples.series.has_any(holders, devices)]
            for allocation, found, own in zip(allocations, lines, rows, strict=True):
                about = [(metric, _choose(metric, own.holders)) for metric in work_metrics(detected, allocation)]
                about += [
                    (metric, _choose(metric, own.devices, of_devices=True))
                    for metric in device_work_metrics(detected, allocation)
                ]
                for samples in reporting:
                    if not samples.series.has_any(own.holders, own.devices):
                        continue
                    for metric, choice in about:
                        for series in samples.values.read_samples(
                            choice, at=at + AHEAD_SECONDS, seconds=seconds + AHEAD_SECONDS
                        ):
                            if len(series.times):  # one that has ended earlier is not there, as in an engine
                                points = zip(series.times.tolist(), series.values.tolist(), strict=True)
                                add_work(found, metric, list(points))
    return [Chart(allocation, found) for allocation, found in zip(allocations, lines, strict=True)]


_Lines = dict[Measure, list[tuple[float, float]]]


def _choose(metric: UsageMetric, rows: frozenset[int], *, of_devices: bool = False) -> SeriesChoice:
    traits = 0
    for matcher in metric.matchers:
        trait, is_required = _TRAITS[matcher]
        assert is_required
        traits |= trait
    return SeriesChoice(BY_NAME[metric.name], rows, of_devices, traits)


class _Rows(NamedTuple):
    holders: frozenset[int]
    devices: frozenset[int]


def _find_rows(scheme: MetricScheme, series_labels: SeriesLabels, allocation: AllocationKey) -> _Rows:
    """The device as it is reported beside its holder: the agent's MIG instances have an uuid of their own."""
    holders = frozenset(_find_holders(scheme, series_labels, allocation))
    keys = series_labels.holders[scheme].keys
    device = DeviceKey(allocation.gpu_uuid, allocation.gpu_instance, allocation.cluster)
    devices = {device, *(keys[row].device for row in holders)}
    found = series_labels.devices.find(sorted(devices)).tolist()
    return _Rows(holders, frozenset(row for row in found if row >= 0))


def _find_holders(scheme: MetricScheme, series_labels: SeriesLabels, allocation: AllocationKey) -> Iterator[int]:
    """Rows of this allocation. The agent reports a MIG instance by its own uuid, the allocation has its parent's."""
    container = allocation.container
    names = (container.namespace, container.pod, container.name, container.cluster)
    own = HolderKey(allocation.gpu_uuid, allocation.gpu_instance, *names)
    index = series_labels.holders[scheme]
    if scheme.lists_allocations and allocation.gpu_instance:
        yield from (row for row, key in enumerate(index.keys) if key == own._replace(uuid=key.uuid))
    else:
        yield from (row for row in index.find([own]).tolist() if row >= 0)


def _merge(found: Collection[TimeSeries], scale: float) -> Points:
    """The largest value at each time, in a limited number of points; the last one is always among them."""
    largest: dict[float, float] = {}
    for series in found:
        for moment, value in zip(series.times.tolist(), (series.values * scale).tolist(), strict=True):
            largest[moment] = max(value, largest.get(moment, value))
    points = sorted(largest.items())
    step = -(-len(points) // MAX_POINTS) or 1
    return points[::-1][::step][::-1]
