"""Holders that had samples in the window and have ended: their device reports without them.

They are no allocations any more, so they have no row in the usage table. The ledger records the time from the last
cycle until they ended; of a pod that lived between two cycles that is all its time.
"""

from collections import Counter

import numpy as np

from gpusteward.analyzer.sources.usage.coverage import ExpectedSamples
from gpusteward.analyzer.sources.usage.metric_schemes import MetricScheme
from gpusteward.analyzer.sources.usage.partial_tables import AllocationCache, measure_coverage
from gpusteward.analyzer.sources.usage.presence import PresenceTable
from gpusteward.analyzer.sources.usage.quantities import (
    CORE_COUNT,
    FLOORS,
    PRESENCE_TIME,
    Aggregation,
    Level,
    Quantity,
)
from gpusteward.analyzer.sources.usage.query_results import Flags, QueryResults
from gpusteward.analyzer.sources.usage.unknown_rows import HIGHEST_CORE
from gpusteward.analyzer.tables import EndedHolder


def build_ended_holders(
    scheme: MetricScheme, results: QueryResults, *, expected: ExpectedSamples, at: float
) -> list[EndedHolder]:
    """The ended holders whose last sample was found, without those whose scrape interval is not known yet."""
    if not results.has(*PRESENCE_TIME):
        return []
    times = results.column(*PRESENCE_TIME)
    presence = PresenceTable(scheme, results, rows=np.flatnonzero(np.isfinite(times)).tolist())
    seconds = measure_coverage(presence, expected, at) * expected.window_seconds
    intervals = seconds / presence.column(*CORE_COUNT)
    found = zip(
        AllocationCache().find_keys(presence),
        np.minimum(times[presence.rows], at).tolist(),
        intervals.tolist(),
        seconds.tolist(),
        _find_work(presence).tolist(),
        strict=True,
    )
    return [EndedHolder(*each) for each in found if np.isfinite(each[2])]


def _find_work(presence: PresenceTable) -> Flags:
    """Whether work was seen that is its own: dcgm-exporter gives every holder of a shared GPU the use of the device."""
    core = presence.column(Level.HOLDER, Quantity.CORE, Aggregation.PEAK)
    works: Flags = (core > 0) & (core <= HIGHEST_CORE)
    works |= presence.column(Level.HOLDER, Quantity.BUSY, Aggregation.INCREASE) > 0
    for quantity in FLOORS:
        for aggregation in (Aggregation.PEAK, Aggregation.INCREASE):
            works |= np.isfinite(presence.column(Level.HOLDER, quantity, aggregation))
    if presence.scheme is not MetricScheme.DCGM:
        return works
    keys = presence.results.holders.keys
    now = Counter(keys[row].device for row in presence.results.present if keys[row].pod)
    is_alone: Flags = np.array([now[key.device] < 2 for key in presence.keys], dtype=bool)
    return works & is_alone
