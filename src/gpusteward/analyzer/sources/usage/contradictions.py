"""A zero that other signals deny is no zero.

Exporters write 0 for a sharing pod whose processes they could not find, and some driver and board pairs report no
process utilization at all. While the device works, such a zero is unknown.
"""

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.tables import Column

Flags = NDArray[np.bool_]

ACTIVE_RATIO = 0.02
"""Engine, memory copy or DRAM above this is work: counters of an idle GPU flicker below a per cent."""
BUSY_POWER_RATIO = 0.5
"""Of the power limit. A loaded model that does nothing keeps small boards (A10, T4, L4) at up to 40 % of theirs."""
BUSY_POWER_WATTS = 250.0
"""Where no limit is known: no board idles above it."""
HIGHEST_CORE = 1.05
"""Dead processes make drivers report several hundred per cent; rounding alone stays below this."""


def deny_zeros(
    core_peak: Column, *, device: NDArray[np.int64], activity: Column, power: Column, limit: Column
) -> Flags:
    """Rows whose zero is denied: nobody on the device is seen working, and yet the device works.

    `device` numbers the device of each row; `activity` is the highest of its other ratios; all are peaks but `power`.
    """
    if not len(core_peak):
        return np.zeros(0, dtype=bool)
    busiest = np.zeros(int(device.max()) + 1)
    np.fmax.at(busiest, device, np.nan_to_num(core_peak))
    draws = np.where(np.isfinite(limit), power > BUSY_POWER_RATIO * limit, power > BUSY_POWER_WATTS)
    works = (activity > ACTIVE_RATIO) | draws
    device_works = np.zeros(len(busiest), dtype=bool)
    np.logical_or.at(device_works, device, works)
    return np.asarray((core_peak == 0) & (busiest[device] == 0) & device_works[device])
