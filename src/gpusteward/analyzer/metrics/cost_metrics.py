"""Metric families on waste: what the GPUs of each namespace cost, and the idle GPUs of each workload.

A sum with an unknown part is NaN and has no sample: a partial sum would be read as the total.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.judge.allocation_columns import Counts, Mask
from gpusteward.analyzer.judge.gpu_fraction import GPU_DIGITS
from gpusteward.analyzer.judge.workloads import WorkloadTable
from gpusteward.analyzer.metrics import analyzer_metrics as metrics
from gpusteward.analyzer.metrics.result_metrics import FamilyPart
from gpusteward.analyzer.prices import MICROS
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, SIGNATURES, Column
from gpusteward.core.exposition import render_labels
from gpusteward.core.metrics import Metric
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.usages import Measure, Stat
from gpusteward.core.verdicts import Activity

MONEY_DIGITS = 6  # prices are whole millionths


def cost_families(result: Result) -> Iterator[FamilyPart]:
    prices = result.settings.prices
    yield FamilyPart(metrics.WORKLOAD_IDLE_SINCE, _list_idle_since(result.workloads))
    yield _idle_sums(result, metrics.WORKLOAD_IDLE_GPUS, result.workloads.idle_gpus, digits=GPU_DIGITS)
    if prices.per_gpu_hour:
        yield FamilyPart(metrics.NAMESPACE_COST, _list_namespace_costs(result))
        yield FamilyPart(metrics.NAMESPACE_INEFFECTIVE_COST, _list_ineffective_costs(result))
        yield _idle_costs(result)
        yield FamilyPart(metrics.WORKLOAD_TOKEN_COST, _list_token_costs(result))


def _list_namespace_costs(result: Result) -> Iterator[tuple[str, float]]:
    """One sample per namespace and activity."""
    namespaces = _number_namespaces(result)
    for code, activity in enumerate(ACTIVITIES):
        rows = result.verdicts.activity == code
        yield from _sum_costs(result, namespaces, rows, (("activity", activity.value),))


def _list_ineffective_costs(result: Result) -> Iterator[tuple[str, float]]:
    """One sample per namespace."""
    yield from _sum_costs(result, _number_namespaces(result), result.verdicts.is_ineffective)


class _Namespaces(NamedTuple):
    """Cluster and name of each, sorted, and the number of that of each row."""

    names: Sequence[tuple[str, str]]
    codes: Counts


def _number_namespaces(result: Result) -> _Namespaces:
    owners = [(one.container.cluster, one.container.namespace) for one in result.verdicts.usage.allocations]
    numbers = {owner: number for number, owner in enumerate(sorted(set(owners)))}
    return _Namespaces(list(numbers), np.fromiter(map(numbers.__getitem__, owners), np.intp, len(owners)))


def _sum_costs(
    result: Result, namespaces: _Namespaces, rows: Mask, labels: Sequence[tuple[str, str]] = ()
) -> Iterator[tuple[str, float]]:
    names, codes = namespaces
    costs = np.bincount(codes[rows], weights=result.cost_micros_per_hour[rows], minlength=len(names)) / MICROS
    currency = ("currency", result.settings.prices.currency)
    for (cluster, namespace), cost in zip(names, costs.tolist(), strict=True):
        if np.isfinite(cost):
            own = (("namespace", namespace), *labels, currency, ("cluster", cluster))
            yield render_labels(own), round(cost, MONEY_DIGITS)


def _list_token_costs(result: Result) -> Iterator[tuple[str, float]]:
    table, usage = result.workloads, result.verdicts.usage
    tokens = -table.find_least(-usage.column(Measure.SERVED_TOKENS, Stat.COUNT))  # the same in all rows of a workload
    costs = np.bincount(table.codes, weights=result.cost_micros_per_hour, minlength=len(table)) / MICROS
    currency = ("currency", result.settings.prices.currency)
    for number in np.flatnonzero((tokens > 0) & np.isfinite(costs)).tolist():
        millions_per_hour = tokens[number] / 1e6 * 3600 / usage.window_seconds
        labels = render_labels([*_name(table.keys[number]), currency])
        yield labels, round(float(costs[number] / millions_per_hour), MONEY_DIGITS)


def _list_idle_since(table: WorkloadTable) -> Iterator[tuple[str, float]]:
    for number in np.flatnonzero(np.isfinite(table.idle_since)).tolist():
        labels = (
            *_name(table.keys[number]),
            ("signature", SIGNATURES[table.signature[number]].value),
            ("proof", PROOFS[table.proof[number]].value),
        )
        yield render_labels(labels), round(float(table.idle_since[number]), 3)


def _idle_costs(result: Result) -> FamilyPart:
    table, is_idle = result.workloads, result.verdicts.activity == ACTIVITIES.index(Activity.IDLE)
    costs = np.bincount(
        table.codes[is_idle], weights=result.cost_micros_per_hour[is_idle], minlength=len(table)
    ).astype(np.float64)
    currency = ("currency", result.settings.prices.currency)
    return _idle_sums(result, metrics.WORKLOAD_IDLE_COST, costs / MICROS, (currency,), digits=MONEY_DIGITS)


def _idle_sums(
    result: Result, metric: Metric, sums: Column, labels: Sequence[tuple[str, str]] = (), *, digits: int
) -> FamilyPart:
    """One sample per workload with an idle GPU."""
    table = result.workloads
    chosen = np.flatnonzero((table.idle_allocations > 0) & np.isfinite(sums)).tolist()
    return FamilyPart(
        metric,
        ((render_labels([*_name(table.keys[each]), *labels]), round(float(sums[each]), digits)) for each in chosen),
    )


def _name(key: WorkloadKey) -> tuple[tuple[str, str], ...]:
    return (
        ("namespace", key.namespace),
        ("workload_kind", key.kind),
        ("workload", key.name),
        ("cluster", key.cluster),
    )
