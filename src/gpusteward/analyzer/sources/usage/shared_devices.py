"""Rows that share a device: what one of them used, and what cannot be attributed to any of them.

Device-wide values count for a holder that is alone, and for a holder that works according to its own values. What no
holder accounts for is work of an unknown holder: none of them may be called idle because of it, and none active.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.usage.metric_schemes import MetricScheme
from gpusteward.analyzer.sources.usage.presence import PresenceTable
from gpusteward.analyzer.sources.usage.quantities import Aggregation, Level, Quantity
from gpusteward.analyzer.sources.usage.query_results import Flags
from gpusteward.analyzer.tables import Column

_SAME = 1e-6
"""Relative difference up to which two sums are of the same samples: engines add them up in different orders."""


@dataclass(frozen=True)
class RowGroups:
    """Rows on the same device."""

    numbers: NDArray[np.int64]  # rows with the same number are in one group
    is_alone: Flags  # rows whose group has no other pod

    def has_any(self, rows: Flags) -> Flags:
        """For each row whether any row of its group is one of these."""
        found = np.zeros(int(self.numbers.max(initial=-1)) + 1, dtype=bool)
        found[self.numbers[rows]] = True
        return found[self.numbers]


def group_rows(presence: PresenceTable, numbers: NDArray[np.int64]) -> RowGroups:
    """Containers of one pod do not count as others: their pod is the holder."""
    sizes = np.bincount(numbers, minlength=1)[numbers] if len(numbers) else numbers
    is_alone = np.asarray(sizes <= 1)
    pods: dict[int, set[tuple[str, str]]] = {}
    shared = np.flatnonzero(~is_alone).tolist()
    for row in shared:
        key = presence.keys[row]
        pods.setdefault(int(numbers[row]), set()).add((key.namespace, key.pod))
    is_alone[shared] = [len(pods[int(numbers[row])]) == 1 for row in shared]
    return RowGroups(numbers, is_alone)


def find_copied_rows(presence: PresenceTable, groups: RowGroups) -> Flags:
    """Rows whose core utilization is that of the device, copied for each pod on it.

    dcgm-exporter with virtual GPUs copies every value of the device to every pod; since 4.8.2 core utilization and
    memory are those of the pod, except on MIG. Copies are recognized by their values: what is left of the samples of
    one row after those of a younger one must be possible samples.
    """
    copied = ~groups.is_alone
    if presence.scheme is not MetricScheme.DCGM or not copied.any():
        return np.zeros(len(presence), dtype=bool)
    counts = presence.column(Level.HOLDER, Quantity.CORE, Aggregation.COUNT)
    order = np.lexsort((-counts, groups.numbers))
    first, second = order[:-1], order[1:]
    is_pair = (groups.numbers[first] == groups.numbers[second]) & copied[first]
    differs = _differ(presence, Quantity.CORE, counts, first, second)
    differs |= _differ(presence, Quantity.MEMORY_USED, counts, first, second) & ~presence.is_mig[first]
    attributed = np.zeros(len(presence), dtype=bool)
    attributed[first[is_pair & differs]] = True
    return copied & ~groups.has_any(attributed)


def _differ(
    presence: PresenceTable, quantity: Quantity, counts: Column, first: NDArray[np.intp], second: NDArray[np.intp]
) -> Flags:
    """Pairs of rows that cannot be copies of one series; the first of each has at least as many samples."""
    mean, peak = (presence.column(Level.HOLDER, quantity, each) for each in (Aggregation.MEAN, Aggregation.PEAK))
    more = counts[first] - counts[second]
    rest = mean[first] * counts[first] - mean[second] * counts[second]  # the sum of what only the first has
    slack = _SAME * np.fmax(mean[first] * counts[first], mean[second] * counts[second])
    sums_differ = (rest < -slack) | (rest > peak[first] * more + slack)
    differ: Flags = sums_differ | (peak[second] > peak[first]) | ((more == 0) & (peak[second] < peak[first]))
    return differ
