"""Measured ratios (shares of time), without impossible values."""

import numpy as np

from gpusteward.analyzer.tables import Column, UsageTable
from gpusteward.core.usages import Measure, Stat

HIGHEST_RATIO = 1.5
"""Samples of dead processes raise NVML's process utilization a little above 1, which is still work; blank values of
DCGM read 1.4e14, which is no value. The limit between them is a guess."""


def valid_ratio(table: UsageTable, measure: Measure, stat: Stat) -> Column:
    """A column of ratios; impossible values become NaN."""
    column = table.column(measure, stat)
    is_possible = (column >= 0) & (column <= HIGHEST_RATIO)
    return np.where(is_possible, column, np.nan)


def first_known(*columns: Column) -> Column:
    """In each row the first value that is known."""
    found = columns[0]
    for column in columns[1:]:
        found = np.where(np.isnan(found), column, found)
    return found
