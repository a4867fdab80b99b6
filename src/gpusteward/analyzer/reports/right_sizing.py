"""Who holds a whole GPU, works on it, and would fit into a part of it. Pure: peaks in, findings out.

A part is offered only where the peak of the whole period fits with room to spare:

- memory: the peak and a fifth more. A sample every half minute misses the top of a short rise, a CUDA context of a few
  hundred MiB comes on top, and a GPU, unlike a host, kills at the first byte too many. (krr keeps 15 % over the peak
  for host memory.)
- compute: the peak share of busy time is at most four fifths of the part's share of the board. The measure tells that
  some kernel ran, not how much of the GPU it filled; this holds even if every kernel filled all of it.

Who never worked is not offered a smaller GPU: that one is idle, and the report lists it as such. A container with
several GPUs is left alone: instances of MIG cannot talk to each other, and a process sees one of them only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpusteward.analyzer.judge.models import MIB, find_model
from gpusteward.analyzer.prices import HOUR_MS
from gpusteward.analyzer.reports.mig_profiles import USABLE_OF_NOMINAL, MigBoard, find_board
from gpusteward.analyzer.reports.report import Finding


@dataclass(frozen=True, slots=True)
class Margins:
    """How sure one must be."""

    memory_ratio: float = 1.2  # of the peak
    core_ratio: float = 0.8  # of the part
    least_hours: float = 24  # a day with its night: less says little about what a workload does
    most_unseen_ratio: float = 0.1  # of the time, without a peak or of unknown activity


MARGINS = Margins()
LARGEST_PART_RATIO = 0.6
"""No part that is offered has more of the compute of its board; who needs more need not be looked at."""


@dataclass(frozen=True, slots=True)
class Holder:
    """What a workload did with the GPUs of one model that it held whole and one a container."""

    kind: str
    namespace: str
    name: str
    model: str
    gpus: int
    allocated_gpu_ms: int
    active_gpu_ms: int
    unseen_gpu_ms: int
    cost_micros: int
    core_peak_ratio: float | None
    memory_peak_bytes: int | None
    memory_total_bytes: int | None


@dataclass(frozen=True, slots=True)
class _Part:
    """Something smaller than a whole GPU."""

    kind: str
    name: str
    compute: float  # fractions of the whole
    memory: float
    board: float


SHARES = (_Part("share", "1/4", 0.25, 0.25, 0.25), _Part("share", "1/2", 0.5, 0.5, 0.5))
"""For boards without MIG: time-slicing or MPS. Finer ones gain little and disturb each other more."""


def find_smaller(holders: Iterable[Holder], margins: Margins = MARGINS) -> list[Finding]:
    """One finding a workload and model that fits into less; the largest saving first."""
    found = [finding for holder in holders if (finding := _shrink(holder, margins)) is not None]
    return sorted(found, key=lambda each: (-(each.saving_micros or 0), -each.saving_gpu_ms, each.namespace, each.name))


def _shrink(holder: Holder, margins: Margins) -> Finding | None:
    total_bytes = _memory_of(holder)
    if not _is_evident(holder, margins) or total_bytes is None:
        return None
    board = find_board(holder.model, total_bytes)
    fitting = [part for part in _parts_of(board) if _fits(part, holder, margins, total_bytes=total_bytes)]
    smallest = min(fitting, key=lambda part: (part.board, part.compute), default=None)
    return _describe(holder, smallest, total_bytes) if smallest else None


def _memory_of(holder: Holder) -> int | None:
    """As measured, else as typical of the model."""
    if holder.memory_total_bytes:
        return holder.memory_total_bytes
    facts = find_model(holder.model)
    return int(facts.memory_mib * MIB) if facts else None


def _is_evident(holder: Holder, margins: Margins) -> bool:
    return (
        holder.active_gpu_ms > 0
        and holder.allocated_gpu_ms >= margins.least_hours * HOUR_MS
        and holder.unseen_gpu_ms <= margins.most_unseen_ratio * holder.allocated_gpu_ms
    )


def _parts_of(board: MigBoard | None) -> Sequence[_Part]:
    if board is None:
        return SHARES
    return [
        _Part("mig", each.name, each.compute_fraction, each.memory_fraction * USABLE_OF_NOMINAL, each.board_fraction)
        for each in board.profiles
    ]


def _fits(part: _Part, holder: Holder, margins: Margins, *, total_bytes: int) -> bool:
    if holder.core_peak_ratio is None or holder.memory_peak_bytes is None:
        return False
    return (
        holder.memory_peak_bytes * margins.memory_ratio <= part.memory * total_bytes
        and holder.core_peak_ratio <= part.compute * margins.core_ratio
    )


def _describe(holder: Holder, part: _Part, total_bytes: int) -> Finding:
    assert holder.core_peak_ratio is not None
    assert holder.memory_peak_bytes is not None
    return Finding(
        kind=holder.kind,
        namespace=holder.namespace,
        name=holder.name,
        model=holder.model,
        gpus=holder.gpus,
        allocated_gpu_ms=holder.allocated_gpu_ms,
        part=part.kind,
        profile=part.name,
        board_fraction=round(part.board, 4),
        core_peak_ratio=round(holder.core_peak_ratio, 4),
        memory_peak_bytes=holder.memory_peak_bytes,
        memory_total_bytes=total_bytes,
        saving_gpu_ms=int(holder.allocated_gpu_ms * (1 - part.board)),
        saving_micros=int(holder.cost_micros * (1 - part.board)) if holder.cost_micros else None,
    )
