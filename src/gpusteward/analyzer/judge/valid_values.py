"""Measured values without impossible ones: ratios (shares of time), and when a container last launched a kernel.

Where HAMi records the last kernel, none between two samples is missed. HAMi-core sees cuLaunchKernel, cuLaunchKernelEx
and cuLaunchCooperativeKernel, but not the launch of CUDA graphs. So a recent kernel proves work, and an old one proves
idleness only together with all other signals.
"""

import numpy as np

from gpusteward.analyzer.judge.allocation_columns import Mask
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


CLOCK_SECONDS = 5.0
"""By which the clocks of node, engine and API server may differ; HAMi counts whole seconds."""


def launched_kernels(table: UsageTable) -> Mask:
    """Rows with a kernel in the window."""
    return _find_own(table, Measure.LAST_KERNEL) > table.at - table.window_seconds


def lacks_kernels(table: UsageTable) -> Mask:
    """Rows whose container launched kernels before the window and none in it, on any of its GPUs."""
    return _find_own(table, Measure.CONTAINER_KERNEL) <= table.at - table.window_seconds


def _find_own(table: UsageTable, measure: Measure) -> Column:
    """NaN where it is unknown, in the future, or before the pod was started: of another pod with the same name."""
    launched = table.column(measure, Stat.LAST)
    is_before_start = launched < table.started_at - CLOCK_SECONDS
    return np.where((launched <= table.at + CLOCK_SECONDS) & ~is_before_start, launched, np.nan)
