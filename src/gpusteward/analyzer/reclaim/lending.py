"""Lending: how many idle GPUs can be lent for how long, and with what probability nobody needs them before (pure)."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.judge.resumption import Chance, SpellHistory, SpellsOf, seconds_until_morning
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import PROOFS, STEPS
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Proof, Step

LEAST_PROBABILITY = 0.9
"""Of not being needed for the whole time, for a GPU to be called lendable."""
HORIZONS = ("1h", "4h", "morning")


class IdleGpus(NamedTuple):
    """Idle GPUs of one model of a workload whose idleness is proven."""

    workload: WorkloadKey
    model: str
    gpus: float
    idle_since: float


@dataclass(frozen=True, slots=True)
class LendableWorkload:
    """Where lendable GPUs come from."""

    workload: WorkloadKey
    model: str
    gpus: float
    idle_since: float
    probability: float | None  # that no work comes back; None: too few spells
    spells: int
    of: SpellsOf


@dataclass(frozen=True, slots=True)
class LendableGpus:
    """The GPUs of one model for one horizon."""

    horizon: str
    seconds: float
    model: str
    gpus: float  # whose probability is high enough
    probability: float | None  # mean of these GPUs; None: there are none
    expected_gpus: float  # sum of all idle GPUs, weighted with their probabilities
    unknown_gpus: float  # idle, but with too few spells
    workloads: tuple[LendableWorkload, ...]  # the most probable first; also those that are not lendable


def find_lendable(idle: Iterable[IdleGpus], history: SpellHistory) -> tuple[LendableGpus, ...]:
    """For every horizon and model."""
    rows = list(idle)
    by_model: dict[str, list[IdleGpus]] = defaultdict(list)
    for row in rows:
        by_model[row.model].append(row)
    seconds = {"1h": 3600.0, "4h": 4 * 3600.0, "morning": seconds_until_morning(history.at, history.zone)}
    return tuple(
        _sum_up(horizon, seconds[horizon], model, own, history)
        for horizon in HORIZONS
        for model, own in sorted(by_model.items())
    )


def _sum_up(horizon: str, seconds: float, model: str, rows: Sequence[IdleGpus], history: SpellHistory) -> LendableGpus:
    workloads = [
        _make_row(row, history.estimate(row.workload, age=max(0.0, history.at - row.idle_since), horizon=seconds))
        for row in rows
    ]
    workloads.sort(key=lambda each: (-(each.probability if each.probability is not None else -1.0), each.workload))
    known = [(each.gpus, each.probability) for each in workloads if each.probability is not None]
    lendable = [(gpus, probability) for gpus, probability in known if probability >= LEAST_PROBABILITY]
    gpus = sum(each for each, _ in lendable)
    return LendableGpus(
        horizon=horizon,
        seconds=seconds,
        model=model,
        gpus=gpus,
        probability=sum(count * probability for count, probability in lendable) / gpus if gpus else None,
        expected_gpus=sum(count * probability for count, probability in known),
        unknown_gpus=sum(each.gpus for each in workloads if each.probability is None),
        workloads=tuple(workloads),
    )


def _make_row(row: IdleGpus, chance: Chance) -> LendableWorkload:
    probability = None if chance.probability is None else 1 - chance.probability
    return LendableWorkload(row.workload, row.model, row.gpus, row.idle_since, probability, chance.spells, chance.of)


def lend_result(result: Result) -> tuple[LendableGpus, ...]:
    """Of a finished cycle: its idle workloads whose idleness is proven and that may be reclaimed."""
    table, allocations = result.workloads, result.verdicts.usage.allocations
    is_proven = (table.proof == PROOFS.index(Proof.INTEGRATED)) & (table.step == STEPS.index(Step.RECLAIM))
    idle: list[IdleGpus] = []
    for number in np.flatnonzero(is_proven & ~np.isnan(table.idle_since)).tolist():
        gpus: dict[str, float] = defaultdict(float)
        for row in table.rows(number).tolist():
            gpus[allocations[row].model] += float(table.fractions[row])
        unused_work = result.verdicts.unused_work_at[table.rows(number)]
        since = float(np.fmax(table.idle_since[number], np.fmax.reduce(unused_work)))
        idle += [IdleGpus(table.keys[number], model, count, since) for model, count in gpus.items()]
    return find_lendable(idle, result.spells)
