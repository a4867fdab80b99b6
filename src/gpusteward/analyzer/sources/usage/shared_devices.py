"""Rows that share a device: what one of them used, and what cannot be attributed to any of them.

Device-wide values count for a holder that is alone, and for a holder that works according to its own values. What no
holder accounts for is work of an unknown holder: none of them may be called idle because of it, and none active.

Use by somebody who does not hold the device (a pod without an allocation, the host, or nobody known) is seen by
gpusteward's agent. Other exporters report the use of the whole device as that of its holder.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.usage.presence import PresenceTable
from gpusteward.analyzer.sources.usage.quantities import Aggregation, Level, Quantity
from gpusteward.analyzer.sources.usage.query_results import Flags, Rows
from gpusteward.analyzer.tables import Column
from gpusteward.core.messages import Message
from gpusteward.core.node.usage_split import OUTSIDE_MEMORY_BYTES
from gpusteward.messages import unknown_reasons

_SAME = 1e-6
"""Relative difference up to which two sums are of the same samples: engines add them up in different orders."""


def find_copied_rows(presence: PresenceTable) -> Flags:
    """Rows whose core utilization is that of the device, copied for each pod on it.

    dcgm-exporter with virtual GPUs copies every value of the device to every pod; since 4.8.2 core utilization and
    memory are those of the pod, except on MIG. Copies are recognized by their values: what is left of the samples of
    one row after those of a younger one must be possible samples.
    """
    groups = presence.devices
    copied = ~groups.is_alone
    if not presence.scheme.names_holder or not copied.any():
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


_MOST_NAMES = 3
_USE = (
    (Quantity.CORE, Aggregation.PEAK, 0.0),
    (Quantity.BUSY, Aggregation.INCREASE, 0.0),
    (Quantity.VIDEO, Aggregation.INCREASE, 0.0),
    (Quantity.MEMORY_USED, Aggregation.PEAK, OUTSIDE_MEMORY_BYTES),
)
"""What is use of a container, and above what."""


class OutsideUse:
    """What others than its holders do on the device of each row."""

    def __init__(self, presence: PresenceTable) -> None:
        self._presence = presence

    @property
    def is_used(self) -> Flags:
        """By the agent's counter; agents before it had one show containers with their use."""
        counted = self._presence.column(Level.DEVICE, Quantity.OUTSIDE, Aggregation.INCREASE) > 0
        is_pair = np.array([bool(details.used_by) for details in self._presence.details], dtype=bool)
        is_used: Flags = counted | is_pair | self._is_on_device(self._users)
        return is_used

    @property
    def processes(self) -> Column:
        """Of others, the most at once; NaN: none are known."""
        own = self._presence.column(Level.DEVICE, Quantity.HOST_PROCESSES, Aggregation.PEAK)
        if not len(self._others):
            return own
        return np.fmax(own, np.where(self._is_on_device(self._others), 1.0, np.nan))

    def explain(self, row: int) -> Message:
        """Who it is."""
        if pod := self._presence.details[row].used_by:
            return unknown_reasons.USED_BY_PAIR.fill(pod=pod)
        device = self._presence.device_numbers[row]
        names = self._name_on_device(self._users, device)
        if not names and self._presence.column(Level.DEVICE, Quantity.HOST_PROCESSES, Aggregation.PEAK)[row] > 0:
            return unknown_reasons.USED_BY_HOST
        names = names or self._name_on_device(self._others, device)
        if not names:
            return unknown_reasons.USED_BY_UNKNOWN
        return unknown_reasons.USED_BY_POD.fill(pods=", ".join(names[:_MOST_NAMES]))

    @cached_property
    def _others(self) -> Rows:
        """Containers with a process on a device now that do not hold it. What only the window shows may be an earlier
        holder, which has ended."""
        results = self._presence.results
        if not results.has(Level.HOLDER, Quantity.PROCESSES, Aggregation.LAST):
            return np.empty(0, np.int64)
        has_processes = results.column(Level.HOLDER, Quantity.PROCESSES, Aggregation.LAST) > 0
        has_processes[list(results.present)] = False
        return np.flatnonzero(has_processes)

    @cached_property
    def _users(self) -> Rows:
        results, rows = self._presence.results, self._others
        uses = np.zeros(len(rows), dtype=bool)
        if len(rows):
            for quantity, aggregation, floor in _USE:
                uses |= results.column(Level.HOLDER, quantity, aggregation)[rows] > floor
        return rows[uses]

    def _is_on_device(self, others: Rows) -> Flags:
        return np.isin(self._presence.device_numbers, self._number_devices(others))

    def _name_on_device(self, others: Rows, device: int) -> list[str]:
        keys = self._presence.results.holders.keys
        found = (keys[row] for row in others[self._number_devices(others) == device].tolist())
        # A container whose pod the agent does not know has a name only, or none.
        return sorted({f"{key.namespace}/{key.pod}" if key.pod else key.container or "?" for key in found})

    def _number_devices(self, others: Rows) -> Rows:
        return self._presence.results.holders.number_devices()[others]
