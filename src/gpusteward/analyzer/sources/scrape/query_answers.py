"""The questions of a cycle, answered from the store: the same plan as for an engine, the same columns from it."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.promql.expressions import Query
from gpusteward.analyzer.sources.promql.query_plan import DetectedScheme, SeriesGroup, plan_devices, plan_holders
from gpusteward.analyzer.sources.scrape.metric_filter import BY_NAME
from gpusteward.analyzer.sources.scrape.records import Window
from gpusteward.analyzer.sources.scrape.series import ROLES, Rows, Trait
from gpusteward.analyzer.sources.usage.metric_schemes import MetricScheme, dcgm_signals, hami_signals, native_signals
from gpusteward.analyzer.sources.usage.quantities import PRESENCE_NOW, Aggregation, Level, Quantity, QueryKey
from gpusteward.analyzer.sources.usage.query_results import QueryResults
from gpusteward.analyzer.sources.usage.selectors import Matcher
from gpusteward.analyzer.tables import Column

Numbers = NDArray[np.int64]

_DEMANDS: Mapping[Matcher, tuple[Trait, bool]] = {
    Matcher(ROLES.pod, "!=", ""): (Trait.HELD, True),
    Matcher(ROLES.namespace, "!=", ""): (Trait.HELD, True),  # an engine is asked by whichever label is cheaper
    Matcher(ROLES.instance, "!=", ""): (Trait.SLICED, True),
    Matcher(ROLES.instance, "=", ""): (Trait.SLICED, False),
    Matcher("by", "=", "container"): (Trait.IN_CONTAINER, True),
    Matcher("by", "=", "unattributed"): (Trait.UNATTRIBUTED, True),
}
"""What a plan may demand of a series, and the trait that says so."""
_CORES_NOW = QueryKey(Level.HOLDER, Quantity.CORE, Aggregation.LAST)


def find_dialects(names: Collection[str]) -> tuple[DetectedScheme, ...]:
    """Who speaks here, in the order of trust. Labels have one spelling by now."""
    found: list[DetectedScheme] = []
    if signals := native_signals(names):
        holders = tuple(signal for signal in signals if signal.level is Level.HOLDER)
        devices = tuple(signal for signal in signals if signal.level is Level.DEVICE)
        found.append(DetectedScheme(MetricScheme.NATIVE, SeriesGroup(ROLES, holders), SeriesGroup(ROLES, devices)))
    if signals := hami_signals(names):
        devices = dcgm_signals(names, level=Level.DEVICE)
        found.append(
            DetectedScheme(
                MetricScheme.HAMI, SeriesGroup(ROLES, signals), SeriesGroup(ROLES, devices) if devices else None
            )
        )
    if signals := dcgm_signals(names):
        found.append(DetectedScheme(MetricScheme.DCGM, SeriesGroup(ROLES, signals)))
    return tuple(found)


def answer(found: DetectedScheme, window: Window, rows: Rows, *, before: Sequence[int] = ()) -> QueryResults:
    """Everything that is asked about one dialect. `before`: holders of earlier reads who may be silent only."""
    results = QueryResults(rows.holders[found.scheme], rows.devices, previous_rows=before)
    plans = [plan_holders(found, ()), *([plan_devices(found.device, ())] if found.device else [])]
    selected: dict[tuple[str, int, int], Numbers] = {}
    for query in (query for plan in plans for query in plan.queries):
        mask, bits = _demand(query)
        key = (query.metric, mask, bits)
        if key not in selected:
            is_meant = (window.family == BY_NAME[query.metric].number) & ((window.traits & mask) == bits)
            selected[key] = np.flatnonzero(is_meant)
        if not _is_answered(query, results, window, selected[key]):
            _join(results, query, window, selected[key])
    return results


def remember(results: QueryResults, found: DetectedScheme, window: Window, silent: Collection[int]) -> None:
    """What these said when they spoke last, as far back as anything is kept."""
    calls = [query for query in plan_holders(found, ()).queries if query.key == PRESENCE_NOW]
    is_called = np.isin(window.family, [BY_NAME[query.metric].number for query in calls])
    series = np.flatnonzero(is_called & np.isin(window.holder, list(silent)))
    results.last_details |= zip(window.holder[series].tolist(), window.said[series].tolist(), strict=True)


def _is_answered(query: Query, results: QueryResults, window: Window, series: Numbers) -> bool:
    """Cores of now are asked for because of those who did not answer the roll call; mostly there is nobody."""
    if query.key != _CORES_NOW:
        return False
    there = series[np.isfinite(window.last[series])]
    return results.present.keys() >= set(window.holder[there].tolist())


def count_fleet(window: Window, rows: Rows) -> Mapping[tuple[str, str], int]:
    """Whole GPUs by node and model, each counted once, by who is trusted most."""
    places: dict[str, tuple[str, str]] = {}
    there = [one for one in np.flatnonzero(np.isfinite(window.last)).tolist() if window.place[one] is not None]
    for series in sorted(there, key=lambda one: int(window.family[one])):  # families have numbers in the order of trust
        places.setdefault(rows.devices.keys[window.device[series]][0], window.place[series])
    return Counter(places.values())


def _demand(query: Query) -> tuple[int, int]:
    """Which traits matter, and how they must be."""
    level = Trait.OF_HOLDERS if query.level is Level.HOLDER else Trait.OF_DEVICES
    mask = bits = int(level)
    for matcher in query.matchers:
        trait, is_so = _DEMANDS[matcher]
        mask |= trait
        bits |= trait if is_so else 0
    return mask, bits


def _join(results: QueryResults, query: Query, window: Window, series: Numbers) -> None:
    if query.quantity is Quantity.PRESENCE:
        results.add_present(_tell(window.holder, window, series))
    elif query.quantity is Quantity.IDENTITY:
        results.device_details |= _tell(window.device, window, series)
    else:
        rows = (window.holder if query.level is Level.HOLDER else window.device)[series]
        scale = 1.0 if query.aggregation is Aggregation.COUNT else query.scale
        results.add_values(query.key, rows.astype(np.int64), column_of(window, query.aggregation)[series] * scale)


def _tell(rows: NDArray[np.int32], window: Window, series: Numbers) -> Iterable[tuple[int, Any]]:
    """Who is there now, and what they say of themselves."""
    there = series[np.isfinite(window.last[series])]
    return zip(rows[there].tolist(), window.said[there].tolist(), strict=True)


def column_of(window: Window, aggregation: Aggregation) -> Column:
    """One way to sum up a window."""
    return {
        Aggregation.MEAN: window.mean,
        Aggregation.PEAK: window.peak,
        Aggregation.SPREAD: window.spread,
        Aggregation.COUNT: window.count,
        Aggregation.INCREASE: window.increase,
        Aggregation.LAST: window.last,
    }[aggregation]
