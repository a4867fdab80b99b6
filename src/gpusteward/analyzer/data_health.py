"""How old and how complete the data is: what /health, /api/v1/health, /metrics and the alert rules say about it.

Whether the process is alive is another question: /health answers 200 whatever its status is, so that no probe restarts
an analyzer because its engine is down.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpusteward.analyzer.pipeline import CycleStats
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import LATE_INTERVALS, Settings
from gpusteward.analyzer.tables import ACTIVITIES
from gpusteward.core.verdicts import Activity

Status = Literal["healthy", "degraded", "warning"]
WARNING_RATIO = 0.5
"""Of unknown allocations or lost targets. A guess: fewer are usually nodes that are being replaced."""


@dataclass(frozen=True, slots=True)
class DataHealth:
    """The state of the last result and of the source."""

    is_connected: bool  # whether the last cycle succeeded
    is_late: bool  # whether the last result is older than three intervals
    max_age_seconds: float
    result_at: float | None = None  # unix seconds; None: no cycle has succeeded yet
    age_seconds: float | None = None
    unknown_ratio: float | None = None  # None: without allocations
    targets: int | None = None  # None: an engine is read, which knows its targets
    targets_up: int = 0

    @property
    def is_too_old(self) -> bool:
        """Whether the result says nothing about the present any more."""
        return self.age_seconds is not None and self.age_seconds > self.max_age_seconds

    @property
    def status(self) -> Status:
        """Degraded: nothing can be read, or nothing is known. Warning: the result is old, or most of it is unknown."""
        unknown, lost = self.unknown_ratio or 0.0, self._lost_ratio
        if not self.is_connected or unknown == 1 or lost == 1:
            return "degraded"
        return "warning" if self.is_late or unknown > WARNING_RATIO or lost > WARNING_RATIO else "healthy"

    @property
    def _lost_ratio(self) -> float:
        return 1 - self.targets_up / self.targets if self.targets else 0.0


def assess_data(
    result: Result | None, *, stats: CycleStats, settings: Settings, target_counts: Mapping[str, int], now: float
) -> DataHealth:
    """`target_counts`: up and down; empty where an engine is read."""
    age = None if result is None else max(0.0, now - result.at)
    return DataHealth(
        is_connected=stats.finished > 0 and not stats.last_error,
        is_late=age is not None and age > LATE_INTERVALS * settings.scheduler.interval,
        max_age_seconds=settings.max_result_age_seconds,
        result_at=None if result is None else result.at,
        age_seconds=age,
        unknown_ratio=_find_unknown_ratio(result),
        targets=sum(target_counts.values()) if target_counts else None,
        targets_up=target_counts.get("up", 0),
    )


def _find_unknown_ratio(result: Result | None) -> float | None:
    if result is None or not len(result.verdicts):
        return None
    return round(float(np.mean(result.verdicts.activity == ACTIVITIES.index(Activity.UNKNOWN))), 4)
