"""The state: the range that a score falls into."""

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.allocation_columns import Mask
from gpusteward.analyzer.tables import ACTIVITIES, STATES, Codes, Column
from gpusteward.core.verdicts import Activity, State


class Thresholds(BaseModel):
    """The limits between the states. All three defaults are gpu-oour's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low_utilization: float = Field(default=20, ge=0, le=100, description="Below this score a GPU is low.")
    idle: float = Field(default=10, ge=0, le=100, description="Below this score a GPU is idle.")
    high: float = Field(default=70, ge=0, le=100, description="From this score on a GPU is high.")

    @property
    def contradict(self) -> bool:
        """Whether the values contradict each other. gpu-oour has no order: `low_utilization` is always valid."""
        if "low_utilization" in self.model_fields_set:
            return self.idle > self.high and {"idle", "high"} <= self.model_fields_set
        return not self.idle <= self.low_utilization <= self.high

    def in_order(self) -> "Thresholds":
        """idle <= low_utilization <= high: the other two are adjusted to `low_utilization`."""
        low = self.low_utilization
        wanted = {"idle": min(self.idle, low), "high": max(self.high, low)}
        return self.model_copy(update={name: value for name, value in wanted.items() if value != getattr(self, name)})


def name_states(score: Column, activity: Codes, *, thresholds: Thresholds) -> Codes:
    """By score, except that a row with the activity idle has the state idle, however much memory it holds.

    By score alone a loaded model without requests would be "normal": 90 % of the memory is 18 points.
    """
    is_idle = activity == ACTIVITIES.index(Activity.IDLE)
    return np.select(
        [
            is_idle,
            np.isnan(score),
            score < thresholds.idle,
            score < thresholds.low_utilization,
            score < thresholds.high,
        ],
        [STATES.index(state) for state in (State.IDLE, State.UNKNOWN, State.IDLE, State.LOW, State.NORMAL)],
        STATES.index(State.HIGH),
    ).astype(np.int8)


def find_low(score: Column, state: Codes, *, thresholds: Thresholds) -> Mask:
    """gpu-oour's "low": a score below the threshold, or idle with a higher score because of held memory."""
    is_idle: Mask = np.equal(state, STATES.index(State.IDLE)) & ~np.isnan(score)
    return is_idle | np.less(score, thresholds.low_utilization)
