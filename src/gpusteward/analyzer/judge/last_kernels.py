"""When a container last launched a kernel, where HAMi records it: none between two samples is missed.

HAMi-core sees cuLaunchKernel, cuLaunchKernelEx and cuLaunchCooperativeKernel, but not the launch of CUDA graphs. So a
recent kernel proves work, and an old one proves idleness only together with all other signals.
"""

import numpy as np

from gpusteward.analyzer.judge.allocation_columns import Mask
from gpusteward.analyzer.tables import Column, UsageTable
from gpusteward.core.usages import Measure, Stat

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
