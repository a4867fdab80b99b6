"""GPU time that actions have given back, and what it would have cost (pure)."""

from collections.abc import Callable
from typing import NamedTuple

from gpusteward.analyzer.reclaim.actions import RESTORABLE_STATES, Action
from gpusteward.analyzer.reclaim.plan import ActionState, Mode

SAVING_STATES = (
    *sorted(RESTORABLE_STATES),
    *(ActionState.RESTORING, ActionState.RESTORED, ActionState.REVERTED, ActionState.ENDED),
)
"""An action that failed has given nothing back."""
PriceOf = Callable[[str, str], int]
"""Model and namespace -> millionths per GPU-hour; 0: unknown."""


class Saving(NamedTuple):
    """Of one action within a period."""

    gpu_hours: float
    cost_micros: int | None  # None: a model has no price
    is_open: bool  # the GPUs are still given back


def measure_saving(action: Action, price_of: PriceOf, *, since: float, now: float) -> Saving | None:
    """From the action to its restore, or until now. None: it gave nothing back in the period."""
    if action.mode is not Mode.ENFORCE or action.acted_at is None or action.state not in SAVING_STATES:
        return None
    end = now if action.ended_at is None else min(action.ended_at, now)
    seconds = end - max(action.acted_at, since)
    if seconds < 0:
        return None
    hours = action.gpus * seconds / 3600
    price = _mean_price(action, price_of)
    return Saving(hours, None if price is None else round(hours * price), action.ended_at is None)


def _mean_price(action: Action, price_of: PriceOf) -> float | None:
    """Of the GPUs that it held, as its evidence lists them."""
    models = [str(each.get("model", "")) for each in action.evidence.get("allocations") or ()]
    prices = [price_of(model, action.workload.namespace) for model in models]
    return sum(prices) / len(prices) if prices and all(prices) else None
