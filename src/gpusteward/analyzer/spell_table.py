"""Idle spells in columns, for the modules that read many: chances of resumption, replay, lending."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.tables import Codes, Column
from gpusteward.core.idle_spells import SpellEnd
from gpusteward.core.node.containers import WorkloadKey

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
