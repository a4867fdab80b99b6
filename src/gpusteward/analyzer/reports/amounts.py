"""Sums as they come from the database -> amounts of a report. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from gpusteward.analyzer.prices import PriceSettings, electricity_of
from gpusteward.analyzer.reports.report import Amounts

COSTS = ("active_cost", "idle_cost", "unknown_cost")
ADDED = (
    *("allocated_ms", "active_ms", "idle_ms", "unknown_ms"),
    *COSTS,
    *("energy_mj", "energy_ms", "score_ms_sum", "scored_ms"),
)
"""What adds up, by the names of the ledger."""
UNPRICED = "unpriced_ms"
COUNTED = (*ADDED, UNPRICED, "allocations")

Sums = Mapping[str, int]


def read_sums(row: Mapping[Any, Any]) -> Sums:
    """Nothing at all adds up to 0."""
    return {name: int(row[name] or 0) for name in COUNTED}


def subtract(total: Sums, parts: Sequence[Sums]) -> Sums:
    """What is left of the total."""
    return {name: total[name] - sum(part[name] for part in parts) for name in COUNTED}


NO_SUMS: Sums = dict.fromkeys(COUNTED, 0)


def make_amounts(sums: Sums, *, prices: PriceSettings, unallocated_ms: int | None = None) -> Amounts:
    is_priced = sums[UNPRICED] < sums["allocated_ms"]
    has_energy = sums["energy_ms"] > 0
    return Amounts(
        allocations=sums["allocations"],
        allocated_gpu_ms=sums["allocated_ms"],
        active_gpu_ms=sums["active_ms"],
        idle_gpu_ms=sums["idle_ms"],
        unknown_gpu_ms=sums["unknown_ms"],
        unallocated_gpu_ms=unallocated_ms,
        active_cost_micros=sums["active_cost"] if is_priced else None,
        idle_cost_micros=sums["idle_cost"] if is_priced else None,
        unknown_cost_micros=sums["unknown_cost"] if is_priced else None,
        unpriced_gpu_ms=sums[UNPRICED],
        energy_mj=sums["energy_mj"] if has_energy else None,
        energy_gpu_ms=sums["energy_ms"],
        electricity_micros=electricity_of(sums["energy_mj"], prices) if has_energy else None,
        mean_score=sums["score_ms_sum"] / sums["scored_ms"] if sums["scored_ms"] else None,
    )


def settle_electricity(rows: Sequence[Amounts], prices: PriceSettings) -> list[Amounts]:
    """Rounded so that the rows add up to the total: each pays what the bill rises by when it is added."""
    bills = [electricity_of(mj, prices) for mj in accumulate((row.energy_mj or 0 for row in rows), initial=0)]
    shares = [None if one is None or other is None else other - one for one, other in pairwise(bills)]
    return [
        row if row.electricity_micros is None else replace(row, electricity_micros=share)
        for row, share in zip(rows, shares, strict=True)
    ]
