"""Prices of GPU-hours and energy. Money is in integer millionths of the currency, so that sums are exact."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from gpusteward.analyzer.judge.gpu_models import split_words

MICROS = 1_000_000
HOUR_MS = 3_600_000
KILOWATT_HOUR_MJ = 3_600_000_000  # millijoules
HIGHEST_PRICE = 1_000_000  # a price times the milliseconds of an hour fits into 63 bits

EVERY_OTHER = "*"
"""In `prices.per_gpu_hour`: every model that is not there."""

Amount = Annotated[float, Field(ge=0, le=HIGHEST_PRICE, allow_inf_nan=False)]
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class PriceSettings(BaseModel):
    """Prices of GPU time and energy."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    currency: str = Field(default="USD", pattern="^[A-Z]{3}$", description="ISO 4217 code of every amount here.")
    per_gpu_hour: dict[str, Amount] = Field(
        default_factory=dict,
        description="Price of a GPU-hour by words of the model's name, such as `A100` or `A100 80GB`; "
        "of several that match, the longest is used; `*`: that of every other model. 0: unknown.",
    )
    discount_percent: dict[str, Percent] = Field(
        default_factory=dict, description="By namespace: discount on GPU-hours in percent."
    )
    electricity_per_kwh: Amount = Field(default=0, description="Price of a kilowatt-hour; 0: unknown.")


class PriceList:
    """Prices by model and namespace, cached. A price of 0 is unknown, or discounted completely."""

    def __init__(self, settings: PriceSettings) -> None:
        words = {name: split_words(name) if name != EVERY_OTHER else [] for name in settings.per_gpu_hour}
        falling = sorted(words, key=lambda name: (len(words[name]), len(name)), reverse=True)
        self._patterns = [(frozenset(words[name]), _micros(settings.per_gpu_hour[name])) for name in falling]
        self._discounts: Mapping[str, float] = settings.discount_percent
        self.cached: dict[tuple[str, float], int] = {}  # by model and percentage paid

    def micros_per_gpu_hour(self, model: str, namespace: str) -> int:
        """The price of an hour of a whole GPU of this model for this namespace."""
        kept_percent = 100 - self._discounts.get(namespace, 0)
        key = (model, kept_percent)  # not the namespace: their number grows without limit
        if key not in self.cached:
            self.cached[key] = round(self.list_micros_per_gpu_hour(model) * kept_percent / 100)
        return self.cached[key]

    def list_micros_per_gpu_hour(self, model: str) -> int:
        """The price without the discount of a namespace."""
        words = set(split_words(model))
        return next((price for pattern, price in self._patterns if words >= pattern), 0)


def cost_of(gpu_ms: int, micros_per_gpu_hour: int) -> int:
    """The cost of GPU time in millionths, rounded half up."""
    return (gpu_ms * micros_per_gpu_hour + HOUR_MS // 2) // HOUR_MS


def costs_of(gpu_ms: NDArray[np.int64], micros_per_gpu_hour: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same for columns; whole hours are multiplied separately, so that nothing overflows."""
    hours, rest = np.divmod(gpu_ms, HOUR_MS)
    costs: NDArray[np.int64] = hours * micros_per_gpu_hour + (rest * micros_per_gpu_hour + HOUR_MS // 2) // HOUR_MS
    return costs


def electricity_of(energy_mj: int, settings: PriceSettings) -> int | None:
    """The cost of energy in millionths; None where electricity has no price."""
    price = _micros(settings.electricity_per_kwh)
    return (energy_mj * price + KILOWATT_HOUR_MJ // 2) // KILOWATT_HOUR_MJ if price else None


def _micros(amount: float) -> int:
    return round(amount * MICROS)
