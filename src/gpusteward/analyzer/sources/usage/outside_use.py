"""Use of a device by somebody who does not hold it: a pod without an allocation, the host, or nobody known.

gpusteward's agent sees it. Other exporters report the use of the whole device as that of its holder.
"""

from functools import cached_property

import numpy as np

from gpusteward.analyzer.sources.usage.presence import PresenceTable
from gpusteward.analyzer.sources.usage.quantities import Aggregation, Level, Quantity
from gpusteward.analyzer.sources.usage.query_results import Flags
from gpusteward.analyzer.sources.usage.row_index import HolderKey, Rows
from gpusteward.analyzer.tables import Column
from gpusteward.core.messages import Message
from gpusteward.core.usage_split import OUTSIDE_MEMORY_BYTES
from gpusteward.messages import unknown_reasons

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
        return counted | self._is_on_device(self._users)

    @property
    def processes(self) -> Column:
        """Of others, the most at once; NaN: none are known."""
        own = self._presence.column(Level.DEVICE, Quantity.HOST_PROCESSES, Aggregation.PEAK)
        if not len(self._others):
            return own
        return np.fmax(own, np.where(self._is_on_device(self._others), 1.0, np.nan))

    def explain(self, row: int) -> Message:
        """Who it is."""
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
        return sorted({_name(keys[row]) for row in others[self._number_devices(others) == device].tolist()})

    def _number_devices(self, others: Rows) -> Rows:
        return self._presence.results.holders.number_devices()[others]


def _name(key: HolderKey) -> str:
    """A container whose pod the agent does not know has a name only, or none."""
    return f"{key.namespace}/{key.pod}" if key.pod else key.container or "?"
