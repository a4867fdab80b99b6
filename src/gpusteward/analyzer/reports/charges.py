"""The rows of a FOCUS export. Standard library only, as in `report.py`."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ChargePeriod:
    """The part of one day that is in the export."""

    begin_ms: int
    end_ms: int
    is_partial: bool


@dataclass(frozen=True, slots=True)
class UnitPrices:
    """Micros per GPU-hour; None is unknown."""

    contracted: int | None = None
    listed: int | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    """One row. `names`: columns of `allocations`. Time is in GPU-milliseconds, money in micros."""

    period: ChargePeriod
    currency: str
    names: Mapping[str, str]
    team: str = ""
    times: Mapping[str, int] = field(default_factory=dict)  # by column of the usage tables; empty: unallocated time
    costs: Mapping[str, int] = field(default_factory=dict)
    unpriced_ms: int = 0
    prices: UnitPrices = UnitPrices()
    list_cost: int = 0
    unallocated_ms: int | None = None  # None: of an allocation
    unallocated_cost: int | None = None

    @property
    def cost(self) -> int:
        return sum(self.costs.values())

    @property
    def allocated_ms(self) -> int:
        return self.times.get("allocated_ms", 0)
