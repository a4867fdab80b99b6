"""Workloads that notices are about; idle ones with what a message contains: GPUs, idle time, memory, cost. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, SIGNATURES
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.usages import AllocationKey, Measure, Stat
from gpusteward.core.verdicts import Activity, Proof, Signature

MAX_ALLOCATIONS = 8
"""A message lists at most this many allocations of a workload."""

WorkloadNumbers = Sequence[int]  # positions in `Result.workloads`


@dataclass(frozen=True, slots=True)
class NoticeWorkload:
    """One workload with only idle GPUs. None means unknown."""

    key: WorkloadKey
    gpus: float  # a share of a GPU is a fraction
    allocations_total: int
    allocations: tuple[AllocationKey, ...]  # at most MAX_ALLOCATIONS
    signature: str
    idle_since: float
    idle_seconds: float
    core_peak_ratio: float | None
    memory_used_bytes: float | None
    cost_micros: int | None  # of the idle time so far
    is_sampled: bool = False  # short work may have been missed
    silent_since: float | None = None  # since when its inference servers are proven to have no requests
    requests_per_hour: float | None = None  # that they finished in the window


def find_idle_workloads(result: Result, *, minutes: float) -> WorkloadNumbers:
    """Workloads that have been idle for at least this many minutes."""
    table = result.workloads
    is_idle = table.activity == ACTIVITIES.index(Activity.IDLE)
    with np.errstate(invalid="ignore"):
        is_long = result.at - table.idle_since >= minutes * 60
    found: WorkloadNumbers = np.flatnonzero(is_idle & is_long).tolist()
    return found


def find_stalled_workloads(result: Result) -> WorkloadNumbers:
    """Workloads that are busy without doing anything. The time that it must last is part of the verdict."""
    found: WorkloadNumbers = np.flatnonzero(result.workloads.signature == SIGNATURES.index(Signature.STALLED)).tolist()
    return found


class NoticeWorkloadBuilder:
    """Builds idle workloads from one result; columns that all of them need are computed once."""

    def __init__(self, result: Result) -> None:
        usage = result.verdicts.usage
        self._result = result
        self._peaks = usage.column(Measure.CORE, Stat.PEAK)
        self._requests = usage.column(Measure.REQUESTS, Stat.COUNT) * 3600 / usage.window_seconds
        held, means = usage.column(Measure.MEMORY_USED, Stat.LAST), usage.column(Measure.MEMORY_USED, Stat.MEAN)
        self._memory = np.where(np.isnan(held), means, held)

    def build(self, numbers: WorkloadNumbers) -> Iterator[NoticeWorkload]:
        result, table, allocations = self._result, self._result.workloads, self._result.verdicts.usage.allocations
        for number in numbers:
            rows, since = table.rows(number).tolist(), float(table.idle_since[number])
            # Of a GPU without a price it is unknown: a partial sum would be read as the total.
            cost = _known(np.sum(result.cost_micros_per_hour[rows]) * (result.at - since) / 3600)
            yield NoticeWorkload(
                key=table.keys[number],
                gpus=float(table.gpus[number]),
                allocations_total=len(rows),
                allocations=tuple(allocations[row] for row in rows[:MAX_ALLOCATIONS]),
                signature=SIGNATURES[table.signature[number]].value,
                idle_since=since,
                idle_seconds=result.at - since,
                core_peak_ratio=_known(np.max(self._peaks[rows])),
                memory_used_bytes=_known(np.sum(self._memory[rows])),
                cost_micros=None if cost is None else round(cost),
                is_sampled=PROOFS[table.proof[number]] is Proof.SAMPLED,
                silent_since=_known(np.max(result.verdicts.silent_since[rows])),
                requests_per_hour=_known(np.max(self._requests[rows])),
            )


def _known(number: np.floating) -> float | None:
    return None if np.isnan(number) else float(number)
