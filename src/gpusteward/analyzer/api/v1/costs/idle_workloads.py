"""The idle workloads that cost the most, and what would be free without them."""

from collections.abc import Mapping, Sequence

import numpy as np

from gpusteward.analyzer.api.http.responses import format_utc
from gpusteward.analyzer.api.v1.costs.overview_response import POTENTIAL_WORKLOADS, IdleWorkload, Potential
from gpusteward.analyzer.api.v1.workloads.period_costs import count_gpu_hours
from gpusteward.analyzer.api.v1.workloads.snooze_state import ActiveSnoozes
from gpusteward.analyzer.api.v1.workloads.workload_columns import WorkloadFacts
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.reports.report import Amounts
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import SIGNATURES, Column
from gpusteward.core.api_rows import MOST_NAMES
from gpusteward.core.containers import WorkloadKey

TOP_WORKLOADS = 10


def find_potential(result: Result, facts: WorkloadFacts, idle: Sequence[int]) -> Potential:
    """Of workloads that are idle as a whole: others use a part of what they hold."""
    table = result.workloads
    whole = [number for number in idle if not np.isnan(table.idle_since[number])]
    costs = np.nan_to_num(facts.cost_per_hour)
    dearest = sorted(whole, key=lambda number: (-costs[number], -table.gpus[number]))[:POTENTIAL_WORKLOADS]
    return Potential(
        workloads=len(dearest),
        gpus=round(float(table.gpus[dearest].sum()), GPU_DIGITS),
        cost_micros_per_hour=sum_known(facts.cost_per_hour[dearest]),
    )


def list_top(
    result: Result,
    facts: WorkloadFacts,
    idle: Sequence[int],
    costs: Mapping[WorkloadKey, Amounts],
    snoozes: ActiveSnoozes,
) -> list[IdleWorkload]:
    """By the cost of the period, else of the current idle time; without prices by idle GPU-hours; without the ledger by
    idle GPUs, then the longest idle."""
    table, spell = result.workloads, np.nan_to_num(facts.idle_cost)
    since = np.nan_to_num(table.idle_since, nan=np.inf)

    def order(number: int) -> tuple[float, float, float, float]:
        found = costs.get(table.keys[number])
        cost = found.idle_cost_micros if found and found.idle_cost_micros is not None else float(spell[number])
        idle_ms = found.idle_gpu_ms if found else 0
        return -cost, -idle_ms, -float(table.idle_gpus[number]), float(since[number])

    return [
        _make_row(result, facts, number, costs.get(table.keys[number]), snoozes)
        for number in sorted(idle, key=order)[:TOP_WORKLOADS]
    ]


def _make_row(
    result: Result, facts: WorkloadFacts, number: int, amount: Amounts | None, snoozes: ActiveSnoozes
) -> IdleWorkload:
    table = result.workloads
    key, spell = table.keys[number], facts.idle_cost[number]
    (names,) = facts.list_names([number])
    return IdleWorkload(
        cluster=key.cluster,
        kind=key.kind,
        namespace=key.namespace,
        name=key.name,
        users=names.users[:MOST_NAMES],
        models=names.models[:MOST_NAMES],
        gpus=round(float(table.gpus[number]), GPU_DIGITS),
        idle_gpus=round(float(table.idle_gpus[number]), GPU_DIGITS),
        signature=SIGNATURES[table.signature[number]].value,
        idle_since=format_utc(float(table.idle_since[number])),
        idle_gpu_hours=count_gpu_hours(amount.idle_gpu_ms) if amount else None,
        idle_cost_micros=amount.idle_cost_micros if amount else None,
        spell_cost_micros=None if np.isnan(spell) else round(float(spell)),
        snoozed_until=format_utc(snoozes.find_end(key)),
    )


def sum_known(column: Column) -> int | None:
    known = column[~np.isnan(column)]
    return round(float(known.sum())) if len(known) else None
