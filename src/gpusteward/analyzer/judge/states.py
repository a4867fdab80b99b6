"""The score in four words."""

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.tables import ACTIVITIES, STATES, Codes, Column
from gpusteward.core.verdicts import Activity, State


class Thresholds(BaseModel):
    """Below which score a GPU is called what. All three defaults are gpu-oour's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low_utilization: float = Field(default=20, ge=0, le=100, description="Below this score a GPU is low.")
    idle: float = Field(default=10, ge=0, le=100, description="Below this score a GPU is idle.")
    high: float = Field(default=70, ge=0, le=100, description="From this score on a GPU is high.")


def name_states(score: Column, activity: Codes, *, thresholds: Thresholds) -> Codes:
    """By score, but what did nothing over the whole covered window is idle whatever memory it holds.

    By score alone a loaded model that nobody asks anything is "normal": 90 % of the memory is 18 points.
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
