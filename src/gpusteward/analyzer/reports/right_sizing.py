"""Finds workloads that hold whole GPUs, use them, and would fit into a part of each: peaks in, findings out.

A part is suggested only if the peak of the whole period fits with a margin:

- memory: the peak plus 20 %. A sample every 30 seconds misses the top of a short rise, a CUDA context of a few hundred
  MiB comes on top, and an allocation beyond the memory of a GPU fails at once. (krr keeps 15 % over the peak for host
  memory.)
- compute: the peak utilization is at most 80 % of the part's share of the board. Utilization only means that some
  kernel ran, not how much of the GPU it filled; the rule holds even if every kernel filled all of it.

Workloads that were active for less than a fifth of the time are not included: the report lists them as idle, and a
smaller GPU would be idle too. Those whose verdict is idle, keep-alive, health-check or stalled need another remedy,
too (`select_unflagged`). Containers with several GPUs are not included either: MIG instances cannot communicate with
each other, and a process sees only one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select, tuple_

from gpusteward.analyzer.judge.gpu_models import MIB, find_model, split_words
from gpusteward.analyzer.ledger.database.schema import verdict_changes
from gpusteward.analyzer.prices import HOUR_MS
from gpusteward.analyzer.reports.ledger_sums.grouping import WORKLOAD, GroupKey
from gpusteward.analyzer.reports.report import Finding
from gpusteward.core.verdicts import Activity, Signature


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
class GpuPart:
    """A part of a GPU."""

    kind: str  # mig or share
    name: str
    compute: float  # fractions of the whole
    memory: float  # that certainly can be used
    board: float  # that is unavailable to others


SHARES = (GpuPart("share", "1/4", 0.25, 0.25, 0.25), GpuPart("share", "1/2", 0.5, 0.5, 0.5))
"""For boards without MIG: time-slicing or MPS. Smaller shares save little more and interfere with each other more."""


def find_smaller(workloads: Iterable[WholeGpuWorkload], margins: Margins = MARGINS) -> list[Finding]:
    """One finding per workload and model that fits into a part; the largest saving first."""
    found = [finding for workload in workloads if (finding := _find_smallest(workload, margins)) is not None]
    return sorted(found, key=lambda each: (-(each.saving_micros or 0), -each.saving_gpu_ms, each.namespace, each.name))


def _find_smallest(workload: WholeGpuWorkload, margins: Margins) -> Finding | None:
    facts = find_model(workload.model)
    total_bytes = workload.memory_total_bytes or (int(facts.memory_mib * MIB) if facts else None)
    if not _has_evidence(workload, margins) or total_bytes is None:
        return None
    board = find_board(workload.model, total_bytes)
    parts = SHARES if board is None else board.profiles
    fitting = [part for part in parts if _fits(part, workload, margins, total_bytes=total_bytes)]
    smallest = min(fitting, key=lambda part: (part.board, part.compute), default=None)
    return _make_finding(workload, smallest, total_bytes) if smallest else None


def _has_evidence(workload: WholeGpuWorkload, margins: Margins) -> bool:
    return (
        workload.active_gpu_ms >= margins.min_active_ratio * workload.allocated_gpu_ms
        and workload.allocated_gpu_ms >= margins.min_hours * HOUR_MS
        and workload.unmeasured_gpu_ms <= margins.max_unmeasured_ratio * workload.allocated_gpu_ms
    )


def _fits(part: GpuPart, workload: WholeGpuWorkload, margins: Margins, *, total_bytes: int) -> bool:
    if workload.core_peak_ratio is None or workload.memory_peak_bytes is None:
        return False
    return (
        workload.memory_peak_bytes * margins.memory_ratio <= part.memory * total_bytes
        and workload.core_peak_ratio <= part.compute * margins.core_ratio
    )


def _make_finding(workload: WholeGpuWorkload, part: GpuPart, total_bytes: int) -> Finding:
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


USABLE_OF_NOMINAL = 0.9
"""An instance has less memory than its fraction of the board: 9.5 of 10 GiB on an A100 80GB, 16.0 of 17.5 on an H200,
which is the lowest known. A profile is only suggested for what certainly fits."""
SAME_MEMORY_RATIO = 0.06  # driver and ECC reserve some; the closest two boards of one name differ by a sixth


@dataclass(frozen=True, slots=True)
class MigBoard:
    """A board that can be divided."""

    words: frozenset[str]  # all of them occur in the model name
    memory_mib: int
    profiles: tuple[GpuPart, ...]  # smallest first


_OF_SEVEN = ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4))  # compute slices of 7, memory slices of 8
_OF_FOUR = ((1, 1), (2, 2))


def _board(words: str, memory_mib: int, names: str) -> MigBoard:
    profiles, made = names.split(), list[GpuPart]()
    shapes, all_compute, all_memory = (_OF_SEVEN, 7, 8) if len(profiles) == len(_OF_SEVEN) else (_OF_FOUR, 4, 4)
    for name, (compute_slices, memory_slices) in zip(profiles, shapes, strict=True):
        compute, memory = compute_slices / all_compute, memory_slices / all_memory
        made.append(GpuPart("mig", name, compute, memory * USABLE_OF_NOMINAL, max(compute, memory)))
    return MigBoard(frozenset(words.split()), memory_mib, tuple(made))


_40_GB = "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb"
_80_GB = "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb"
_94_GB = "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb"
_96_GB = "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb"
_141_GB = "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb"

BOARDS: tuple[MigBoard, ...] = (
    _board("A30", 24576, "1g.6gb 2g.12gb"),
    _board("A100", 40960, _40_GB),
    _board("A100", 81920, _80_GB),
    _board("A800", 40960, _40_GB),
    _board("A800", 81920, _80_GB),
    _board("H100", 81559, _80_GB),
    _board("H800", 81559, _80_GB),
    _board("H100", 95830, _94_GB),
    _board("H800", 95830, _94_GB),
    _board("GH200", 97871, _96_GB),
    _board("H20", 97871, _96_GB),
    _board("H200", 143771, _141_GB),
    _board("B200", 183359, "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb"),
    _board("GB200", 189471, "1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb"),
    _board("RTX PRO 6000", 97887, "1g.24gb 2g.48gb"),
)
"""Names and fractions are those of NVIDIA's MIG user guide ("Supported MIG Profiles") and of the GPU operator's default
configuration. Profiles with media extensions have the same size as those without; the profile of the whole board is
omitted, since it is not smaller. Boards whose profiles are not documented there are left out rather than guessed."""


def find_board(model: str, memory_bytes: float, boards: Sequence[MigBoard] = BOARDS) -> MigBoard | None:
    """The board with this name and memory; None if it has no MIG or is not known."""
    words = set(split_words(model))
    return next((board for board in boards if words >= board.words and _is_near(board, memory_bytes)), None)


def _is_near(board: MigBoard, memory_bytes: float) -> bool:
    return abs(memory_bytes / MIB - board.memory_mib) <= SAME_MEMORY_RATIO * board.memory_mib


FLAGGED_SIGNATURES = (Signature.KEEP_ALIVE, Signature.HEALTH_CHECK, Signature.STALLED, Signature.NO_REQUESTS)
BATCH_SIZE = 100
"""Findings that are looked up at once; a report shows only the first few."""


def select_unflagged(connection: Connection, findings: Sequence[Finding], *, until_ms: int) -> Iterator[Finding]:
    """The findings about other workloads, in their order. Raises SQLAlchemyError."""
    for first in range(0, len(findings), BATCH_SIZE):
        batch = findings[first : first + BATCH_SIZE]
        flagged = _find_flagged(connection, {_name(each) for each in batch}, until_ms)
        yield from (each for each in batch if _name(each) not in flagged)


def _name(finding: Finding) -> GroupKey:
    """The values of `WORKLOAD`."""
    return finding.kind, finding.namespace, finding.name, finding.cluster


def _find_flagged(connection: Connection, names: set[GroupKey], until_ms: int) -> set[GroupKey]:
    changes = verdict_changes.c
    columns = [changes[name] for name in WORKLOAD]
    last = (
        select(func.max(changes.id))
        .where(tuple_(*columns).in_(sorted(names)), changes.at_ms <= until_ms)
        .group_by(*columns)
    )
    is_flagged = (changes.activity == Activity.IDLE.value) | changes.signature.in_(FLAGGED_SIGNATURES)
    rows = connection.execute(select(*columns).where(changes.id.in_(last), is_flagged))
    return {tuple(row) for row in rows}
