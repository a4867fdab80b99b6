"""The questions of a cycle, answered from the store: the same plan as for an engine, the same columns from it."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.promql.expressions import Query
from gpusteward.analyzer.sources.promql.matchers import Matcher
from gpusteward.analyzer.sources.promql.plan import Found, Side, plan_devices, plan_holders
from gpusteward.analyzer.sources.promql.query_runner import Gathered
from gpusteward.analyzer.sources.scrape.metric_filter import BY_NAME
from gpusteward.analyzer.sources.scrape.records import Window
from gpusteward.analyzer.sources.scrape.series import ROLES, Rows, Trait
from gpusteward.analyzer.sources.usage.dialects import Dialect, dcgm_signals, hami_signals, native_signals
from gpusteward.analyzer.sources.usage.quantities import ROLL_CALL, Fold, Level, Quantity
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
_CORES_NOW = (Level.HOLDER, Quantity.CORE, Fold.LAST)


def find_dialects(names: Collection[str]) -> tuple[Found, ...]:
    """Who speaks here, in the order of trust. Labels have one spelling by now."""
    found: list[Found] = []
    if signals := native_signals(names):
        holders = tuple(signal for signal in signals if signal.level is Level.HOLDER)
        devices = tuple(signal for signal in signals if signal.level is Level.DEVICE)
        found.append(Found(Dialect.NATIVE, Side(ROLES, holders), Side(ROLES, devices)))
    if signals := hami_signals(names):
        devices = dcgm_signals(names, level=Level.DEVICE)
        found.append(Found(Dialect.HAMI, Side(ROLES, signals), Side(ROLES, devices) if devices else None))
    if signals := dcgm_signals(names):
        found.append(Found(Dialect.DCGM, Side(ROLES, signals)))
    return tuple(found)


def answer(found: Found, window: Window, rows: Rows, *, before: Sequence[int] = ()) -> Gathered:
    """Everything that is asked about one dialect. `before`: holders of earlier reads who may be silent only."""
    gathered = Gathered(rows.holders[found.dialect], rows.devices, before=before)
    plans = [plan_holders(found, ()), *([plan_devices(found.device, ())] if found.device else [])]
    selected: dict[tuple[str, int, int], Numbers] = {}
    for query in (query for plan in plans for query in plan.queries):
        mask, bits = _demand(query)
        key = (query.metric, mask, bits)
        if key not in selected:
            is_meant = (window.family == BY_NAME[query.metric].number) & ((window.traits & mask) == bits)
            selected[key] = np.flatnonzero(is_meant)
        if not _is_answered(query, gathered, window, selected[key]):
            _join(gathered, query, window, selected[key])
    return gathered


def remember(gathered: Gathered, found: Found, window: Window, silent: Collection[int]) -> None:
    """What these said when they spoke last, as far back as anything is kept."""
    calls = [query for query in plan_holders(found, ()).queries if query.asked == ROLL_CALL]
    is_called = np.isin(window.family, [BY_NAME[query.metric].number for query in calls])
    series = np.flatnonzero(is_called & np.isin(window.holder, list(silent)))
    gathered.remembered |= zip(window.holder[series].tolist(), window.said[series].tolist(), strict=True)


def _is_answered(query: Query, gathered: Gathered, window: Window, series: Numbers) -> bool:
    """Cores of now are asked for because of those who did not answer the roll call; mostly there is nobody."""
    if query.asked != _CORES_NOW:
        return False
    there = series[np.isfinite(window.last[series])]
    return gathered.present.keys() >= set(window.holder[there].tolist())


def count_fleet(window: Window, rows: Rows) -> Mapping[tuple[str, str], int]:
    """Whole GPUs by node and model, each counted once, by who is trusted most."""
    places: dict[str, tuple[str, str]] = {}
    there = [one for one in np.flatnonzero(np.isfinite(window.last)).tolist() if window.place[one] is not None]
    for series in sorted(there, key=lambda one: int(window.family[one])):  # families have numbers in the order of trust
        places.setdefault(rows.devices.all[window.device[series]][0], window.place[series])
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


def _join(gathered: Gathered, query: Query, window: Window, series: Numbers) -> None:
    if query.quantity is Quantity.PRESENCE:
        gathered.call(_tell(window.holder, window, series))
    elif query.quantity is Quantity.IDENTITY:
        gathered.identities |= _tell(window.device, window, series)
    else:
        rows = (window.holder if query.level is Level.HOLDER else window.device)[series]
        scale = 1.0 if query.fold is Fold.COUNT else query.scale
        gathered.put(query.asked, rows.astype(np.int64), column_of(window, query.fold)[series] * scale)


def _tell(rows: NDArray[np.int32], window: Window, series: Numbers) -> Iterable[tuple[int, tuple[str, ...]]]:
    """Who is there now, and what they say of themselves."""
    there = series[np.isfinite(window.last[series])]
    return zip(rows[there].tolist(), window.said[there].tolist(), strict=True)


def column_of(window: Window, fold: Fold) -> Column:
    """One way to sum up a window."""
    return {
        Fold.MEAN: window.mean,
        Fold.PEAK: window.peak,
        Fold.SPREAD: window.spread,
        Fold.COUNT: window.count,
        Fold.INCREASE: window.increase,
        Fold.LAST: window.last,
    }[fold]
