"""Loaded idle power: what a GPU draws that holds memory and does nothing, at the clock of a working one; by model.

Power that a waiting kernel draws is a little above it. A share of the power limit is no replacement: a T4 waits at 58 %
of its limit, an H100 at 16 %. Nor is the lowest power of a model: without a context, or in the sleep state P8, a GPU
draws half of it or less.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.judge.allocation_columns import AllocationColumns, Mask
from gpusteward.analyzer.tables import Column

LEAST_WINDOWS = 20
"""Windows of a model from which on its loaded idle power is known. Ten per cent of them are two."""
PERCENTILE = 10.0
"""Boards of one model differ by a tenth, and a warm one draws more: the level must hold for the coolest."""
LEAST_CLOCK_RATIO = 0.8
"""Of the highest SM clock of the model. A T4 or an RTX in P8 runs at a fifth of it."""
MODELS_KEPT, WINDOWS_KEPT, NEW_WINDOWS = 100, 400, 40
"""Of one cycle, a model adds 40 windows at most: then ten cycles are remembered, whatever the size of the site."""


class IdleWindow(NamedTuple):
    """Means over one window of one GPU."""

    watts: float
    hertz: float


@dataclass(frozen=True)
class ModelPower:
    windows: tuple[IdleWindow, ...] = ()  # the newest last
    highest_hertz: float = 0.0  # of GPUs that worked

    def learn(self, windows: list[IdleWindow], *, worked_at_hertz: float) -> "ModelPower":
        """Evenly spaced ones of this cycle, so that all GPUs count, not only the first."""
        ordered = sorted(windows)
        step = max(1, -(-len(ordered) // NEW_WINDOWS))
        kept = (*self.windows, *islice(ordered, 0, None, step))[-WINDOWS_KEPT:]
        return ModelPower(kept, max(self.highest_hertz, worked_at_hertz))

    @property
    def watts(self) -> float:
        """NaN: not known. Until a GPU of the model has worked, the clock of a working one is not known either."""
        if not self.highest_hertz:
            return np.nan
        awake = [one.watts for one in self.windows if one.hertz >= LEAST_CLOCK_RATIO * self.highest_hertz]
        return float(np.percentile(awake, PERCENTILE)) if len(awake) >= LEAST_WINDOWS else np.nan


@dataclass(frozen=True)
class LoadedIdle:
    """What is known of each model by its name."""

    models: Mapping[str, ModelPower] = field(default_factory=dict)

    def learn(
        self, columns: AllocationColumns, *, watts: Column, hertz: Column, is_loaded_idle: Mask, is_busy: Mask
    ) -> "LoadedIdle":
        """With the windows of one cycle. `is_loaded_idle`: holds memory and did nothing; `is_busy`: worked."""
        may_learn = is_loaded_idle & (watts > 0) & (hertz > 0)
        shows_clock = is_busy & (hertz > 0)
        seen = np.flatnonzero((may_learn | shows_clock) & columns.is_whole)
        if not len(seen):
            return self
        models = dict(self.models)
        for code in np.unique(columns.models.codes[seen]).tolist():
            name, own = columns.models.names[code], seen[columns.models.codes[seen] == code]
            idle, busy = own[may_learn[own]].tolist(), own[shows_clock[own]]
            known = models.pop(name, ModelPower())
            if not name or (len(models) >= MODELS_KEPT and not known.windows):
                continue
            windows = [IdleWindow(float(watts[row]), float(hertz[row])) for row in idle]
            models[name] = known.learn(windows, worked_at_hertz=float(np.max(hertz[busy], initial=0.0)))
        return LoadedIdle(models)

    def find_watts(self, columns: AllocationColumns) -> Column:
        """Of the model of each row; NaN where it is not known, of a MIG instance and of a shared GPU."""
        by_model = [self.models[name].watts if name in self.models else np.nan for name in columns.models.names]
        found = np.array(by_model, dtype=np.float64)[columns.models.codes] if by_model else np.empty(0)
        return np.where(columns.is_whole, found, np.nan)
