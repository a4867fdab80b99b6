"""Idle spells in columns, for the modules that read many: chances of resumption, replay, lending."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.tables import PROOFS, SIGNATURES, Codes, Column
from gpusteward.core.containers import WorkloadKey
from gpusteward.core.idle_spells import IdleSpell, SpellEnd

ENDS = tuple(SpellEnd)
STILL_IDLE = -1
Numbers = NDArray[np.intp]
Mask = NDArray[np.bool_]
Value = TypeVar("Value")


@dataclass(frozen=True)
class HeldTable:
    """When allocations were held, one row each."""

    workload: Numbers  # indexes `workloads` of the spell table
    pod: Numbers
    allocation_id: NDArray[np.int64]
    began_at: Column
    ended_at: Column  # infinite while it is held
    gpus: Column

    def __len__(self) -> int:
        return len(self.began_at)


NOTHING_HELD = HeldTable(
    workload=np.empty(0, np.intp),
    pod=np.empty(0, np.intp),
    allocation_id=np.empty(0, np.int64),
    began_at=np.empty(0),
    ended_at=np.empty(0),
    gpus=np.empty(0),
)


@dataclass(frozen=True)
class SpellTable:
    """Idle spells, one row each, in no particular order."""

    at: float  # unix seconds: up to when the spells that have not ended are known to last
    workloads: Sequence[WorkloadKey]
    models: Sequence[str]
    pods: Sequence[str]
    workload: Numbers  # indexes `workloads`
    model: Numbers  # indexes `models`
    pod: Numbers  # indexes `pods`
    allocation_id: NDArray[np.int64]
    started_at: Column
    ended_at: Column  # `at` where it has not ended, or the end of what is known
    ended_by: Codes  # indexes `ENDS`; STILL_IDLE where it has not ended
    proof: Codes  # indexes `PROOFS`
    signature: Codes  # indexes `SIGNATURES`
    gpus: Column  # fractions of a GPU
    held: HeldTable = NOTHING_HELD  # all allocations, also those without a spell

    def __len__(self) -> int:
        return len(self.started_at)

    @property
    def seconds(self) -> Column:
        """Their lengths."""
        return self.ended_at - self.started_at

    def has_ended_by(self, *ends: SpellEnd) -> Mask:
        codes = np.array([ENDS.index(each) for each in ends], np.int8)
        found: Mask = (self.ended_by[:, None] == codes).any(axis=1)
        return found

    def take(self, rows: Mask | Numbers) -> "SpellTable":
        """Some rows; the names stay."""
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        arrays: dict[str, Any] = {name: each[rows] for name, each in columns.items() if isinstance(each, np.ndarray)}
        return replace(self, **arrays)

    def select_workloads(self, chosen: Mask) -> "SpellTable":
        """Only the spells and allocations of these workloads; the others keep neither name nor row."""
        numbers = np.cumsum(chosen) - 1
        mine = self.take(chosen[self.workload])
        held = self.held
        is_held = chosen[held.workload]
        return replace(
            mine,
            workloads=[key for key, is_chosen in zip(self.workloads, chosen.tolist(), strict=True) if is_chosen],
            workload=numbers[mine.workload],
            held=HeldTable(
                workload=numbers[held.workload[is_held]],
                pod=held.pod[is_held],
                allocation_id=held.allocation_id[is_held],
                began_at=held.began_at[is_held],
                ended_at=held.ended_at[is_held],
                gpus=held.gpus[is_held],
            ),
        )

    def make_spell(self, row: int) -> IdleSpell:
        code = int(self.ended_by[row])
        return IdleSpell(
            workload=self.workloads[self.workload[row]],
            allocation_id=int(self.allocation_id[row]),
            started_at=float(self.started_at[row]),
            ended_at=None if code == STILL_IDLE else float(self.ended_at[row]),
            proof=PROOFS[self.proof[row]],
            signature=SIGNATURES[self.signature[row]],
            ended_by=None if code == STILL_IDLE else ENDS[code],
            gpus=float(self.gpus[row]),
            model=self.models[self.model[row]],
            pod=self.pods[self.pod[row]],
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
