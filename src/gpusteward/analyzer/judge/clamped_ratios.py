"""Measured shares of time, as far as they can be believed."""

import numpy as np

from gpusteward.analyzer.tables import Column, UsageTable
from gpusteward.core.usages import Measure, Stat

HIGHEST_RATIO = 1.5
"""Zombie samples push NVML's process utilization a little over 1, which still is work; blank values of DCGM read
1.4e14, which is nothing at all. The line between them is a guess."""


def clamped_ratio(table: UsageTable, measure: Measure, stat: Stat) -> Column:
    """A column of shares of time; what cannot be one is unknown."""
    column = table.column(measure, stat)
    is_possible = (column >= 0) & (column <= HIGHEST_RATIO)
    return np.where(is_possible, column, np.nan)


def first_known(*columns: Column) -> Column:
    """Row by row the first that is known."""
    found = columns[0]
    for column in columns[1:]:
        found = np.where(np.isnan(found), column, found)
    return found
