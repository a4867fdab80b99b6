"""Finds workloads that hold whole GPUs, use them, and would fit into a part of each. Pure: peaks in, findings out.

A part is suggested only if the peak of the whole period fits with a margin:

- memory: the peak plus 20 %. A sample every 30 seconds misses the top of a short rise, a CUDA context of a few hundred
  MiB comes on top, and an allocation beyond the memory of a GPU fails at once. (krr keeps 15 % over the peak for host
  memory.)
- compute: the peak utilization is at most 80 % of the part's share of the board. Utilization only means that some
  kernel ran, not how much of the GPU it filled; the rule holds even if every kernel filled all of it.

Workloads that were active for less than a fifth of the time are not included: the report lists them as idle, and a
smaller GPU would be idle too. `flagged_workloads.py` leaves out those whose verdict is idle, keep-alive or
health-check. Containers with several GPUs are not included either: MIG instances cannot communicate with each other,
and a process sees only one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpusteward.analyzer.judge.gpu_models import MIB, find_model
from gpusteward.analyzer.prices import HOUR_MS
from gpusteward.analyzer.reports.report import Finding
from gpusteward.analyzer.reports.right_sizing.mig_profiles import USABLE_OF_NOMINAL, MigBoard, find_board


@dataclass(frozen=True, slots=True)
class Margins:
    """What is required for a suggestion."""

    memory_ratio: float = 1.2  # of the peak
    core_ratio: float = 0.8  # of the part
    min_hours: float = 24  # a day and a night: less says little about a workload
    min_active_ratio: float = 0.2  # of the time
    max_unmeasured_ratio: float = 0.1  # of the time, without a peak or with unknown activity


MARGINS = Margins()
MAX_PART_RATIO = 0.6
"""No part has a larger share of the compute of its board: workloads with a higher peak need not be read."""


@dataclass(frozen=True, slots=True)
class WholeGpuWorkload:
    """What a workload did with whole GPUs of one model, one per container."""

    kind: str
    namespace: str
    name: str
    model: str
    gpus: int
    allocated_gpu_ms: int
    active_gpu_ms: int
    unmeasured_gpu_ms: int
    cost_micros: int
    core_peak_ratio: float | None
    memory_peak_bytes: int | None
    memory_total_bytes: int | None
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a GPU."""

    kind: str
    name: str
    compute: float  # fractions of the whole
    memory: float
    board: float


SHARES = (
    _Part(kind="share", name="1/4", compute=0.25, memory=0.25, board=0.25),
    _Part(kind="share", name="1/2", compute=0.5, memory=0.5, board=0.5),
)
"""For boards without MIG: time-slicing or MPS. Smaller shares save little more and interfere with each other more."""


def find_smaller(workloads: Iterable[WholeGpuWorkload], margins: Margins = MARGINS) -> list[Finding]:
    """One finding per workload and model that fits into a part; the largest saving first."""
    found = [finding for workload in workloads if (finding := _find_smallest(workload, margins)) is not None]
    return sorted(found, key=lambda each: (-(each.saving_micros or 0), -each.saving_gpu_ms, each.namespace, each.name))


def _find_smallest(workload: WholeGpuWorkload, margins: Margins) -> Finding | None:
    total_bytes = _memory_of(workload)
    if not _has_evidence(workload, margins) or total_bytes is None:
        return None
    board = find_board(workload.model, total_bytes)
    fitting = [part for part in _parts_of(board) if _fits(part, workload, margins, total_bytes=total_bytes)]
    smallest = min(fitting, key=lambda part: (part.board, part.compute), default=None)
    return _make_finding(workload, smallest, total_bytes) if smallest else None


def _memory_of(workload: WholeGpuWorkload) -> int | None:
    """As measured, otherwise as typical of the model."""
    if workload.memory_total_bytes:
        return workload.memory_total_bytes
    facts = find_model(workload.model)
    return int(facts.memory_mib * MIB) if facts else None


def _has_evidence(workload: WholeGpuWorkload, margins: Margins) -> bool:
    return (
        workload.active_gpu_ms >= margins.min_active_ratio * workload.allocated_gpu_ms
        and workload.allocated_gpu_ms >= margins.min_hours * HOUR_MS
        and workload.unmeasured_gpu_ms <= margins.max_unmeasured_ratio * workload.allocated_gpu_ms
    )


def _parts_of(board: MigBoard | None) -> Sequence[_Part]:
    if board is None:
        return SHARES
    return [
        _Part(
            kind="mig",
            name=each.name,
            compute=each.compute_fraction,
            memory=each.memory_fraction * USABLE_OF_NOMINAL,
            board=each.board_fraction,
        )
        for each in board.profiles
    ]


def _fits(part: _Part, workload: WholeGpuWorkload, margins: Margins, *, total_bytes: int) -> bool:
    if workload.core_peak_ratio is None or workload.memory_peak_bytes is None:
        return False
    return (
        workload.memory_peak_bytes * margins.memory_ratio <= part.memory * total_bytes
        and workload.core_peak_ratio <= part.compute * margins.core_ratio
    )


def _make_finding(workload: WholeGpuWorkload, part: _Part, total_bytes: int) -> Finding:
    assert workload.core_peak_ratio is not None
    assert workload.memory_peak_bytes is not None
    return Finding(
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        model=workload.model,
        gpus=workload.gpus,
        allocated_gpu_ms=workload.allocated_gpu_ms,
        part=part.kind,
        profile=part.name,
        board_fraction=round(part.board, 4),
        core_peak_ratio=round(workload.core_peak_ratio, 4),
        memory_peak_bytes=workload.memory_peak_bytes,
        memory_total_bytes=total_bytes,
        saving_gpu_ms=int(workload.allocated_gpu_ms * (1 - part.board)),
        saving_micros=int(workload.cost_micros * (1 - part.board)) if workload.cost_micros else None,
        cluster=workload.cluster,
    )
