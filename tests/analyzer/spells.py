"""Idle spells one by one, for tests; the product has them in columns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from gpusteward.analyzer.judge.resumption import Chance, PastSpells, SpellHistory, count_chance
from gpusteward.analyzer.spell_table import ENDS, STILL_IDLE, Numbers, SpellTable
from gpusteward.analyzer.tables import PROOFS, SIGNATURES
from gpusteward.core.idle_spells import SpellEnd
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Proof, Signature

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class IdleSpell:
    """One period without work of one allocation. Times are unix seconds."""

    workload: WorkloadKey
    allocation_id: int
    started_at: float  # the last work seen, or the start of the data where none was seen
    ended_at: float | None  # None: still idle
    proof: Proof  # of its last verdict: energy proves idleness only after a while
    signature: Signature  # the last one
    ended_by: SpellEnd | None  # None: still idle
    gpus: float  # the fraction of a GPU that the allocation holds
    model: str
    pod: str = ""

    def lasted(self, now: float) -> float:
        """Its length in seconds, until now where it is still going on."""
        return max(0.0, (now if self.ended_at is None else self.ended_at) - self.started_at)


def make_spell(table: SpellTable, row: int) -> IdleSpell:
    code = int(table.ended_by[row])
    return IdleSpell(
        workload=table.workloads[table.workload[row]],
        allocation_id=int(table.allocation_id[row]),
        started_at=float(table.started_at[row]),
        ended_at=None if code == STILL_IDLE else float(table.ended_at[row]),
        proof=PROOFS[table.proof[row]],
        signature=SIGNATURES[table.signature[row]],
        ended_by=None if code == STILL_IDLE else ENDS[code],
        gpus=float(table.gpus[row]),
        model=table.models[table.model[row]],
        pod=table.pods[table.pod[row]],
    )


def make_spell_table(spells: Iterable[IdleSpell], *, at: float) -> SpellTable:
    rows = list(spells)
    workloads, workload = _number([row.workload for row in rows])
    models, model = _number([row.model for row in rows])
    pods, pod = _number([row.pod for row in rows])
    return SpellTable(
        at=at,
        workloads=workloads,
        models=models,
        pods=pods,
        workload=workload,
        model=model,
        pod=pod,
        allocation_id=np.array([row.allocation_id for row in rows], np.int64),
        started_at=np.array([row.started_at for row in rows], np.float64),
        ended_at=np.array([at if row.ended_at is None else row.ended_at for row in rows], np.float64),
        ended_by=np.array([STILL_IDLE if row.ended_by is None else ENDS.index(row.ended_by) for row in rows], np.int8),
        proof=np.array([PROOFS.index(row.proof) for row in rows], np.int8),
        signature=np.array([SIGNATURES.index(row.signature) for row in rows], np.int8),
        gpus=np.array([row.gpus for row in rows], np.float64),
    )


def _number(values: Sequence[Value]) -> tuple[list[Value], Numbers]:
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return list(numbers), np.array([numbers[value] for value in values], np.intp)


def estimate_chance(spells: Iterable[IdleSpell], *, age: float, horizon: float, now: float) -> Chance:
    """The share of spells of at least this age (seconds) in which work came back within the horizon (seconds)."""
    rows = list(spells)
    past = PastSpells(
        np.array([each.started_at for each in rows], np.float64),
        np.array([each.lasted(now) for each in rows], np.float64),
        np.array([each.ended_by is SpellEnd.WORK for each in rows], np.bool_),
        np.array([each.ended_by in (SpellEnd.WORK, SpellEnd.RELEASED) for each in rows], np.bool_),
    )
    return count_chance(past, age=age, horizon=horizon, now=now, of="workload")


def make_history(table: SpellTable, *, at: float) -> SpellHistory:
    past = PastSpells(
        table.started_at,
        table.seconds,
        table.has_ended_by(SpellEnd.WORK),
        table.has_ended_by(SpellEnd.WORK, SpellEnd.RELEASED),
    )
    return SpellHistory(at, table.workloads, table.workload, past, "UTC")
