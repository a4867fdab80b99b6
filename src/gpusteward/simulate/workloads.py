"""Kinds of workloads: when each is busy, what it does to a GPU, how much memory it holds, how long its pods run.

Each table has one row per kind. Values are drawn from the ranges by seed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpusteward.simulate.load_curves import (
    DAY,
    HOUR,
    Breaks,
    Bursts,
    Chain,
    Constant,
    DayAndNight,
    Lifetimes,
    LoadCurve,
    OfficeHours,
    Scaled,
    Steady,
)
from gpusteward.simulate.seeded_random import SeededRandom

Range = tuple[float, float]


class Kind(StrEnum):
    """Kind of a workload."""

    TRAINING = "training"  # steady, short breaks for checkpoints
    INFERENCE = "inference"  # bursts, more by day than by night
    NOTEBOOK = "notebook"  # works in office hours, idle otherwise
    PARKED = "parked"  # a model in memory without requests
    EMPTY = "empty"  # an allocation without a process
    STARVED = "starved"  # waits for its input most of the time
    HUNG = "hung"  # worked, then nothing; memory pinned
    KEEP_ALIVE = "keep-alive"  # useless work to look busy: low and constant
    STALLED = "stalled"  # its first collective never returns: kernels that wait


@dataclass(frozen=True, slots=True)
class ActivityMix:
    """The effect of one busy second, as shares of the device's maximum."""

    power: float = 0.0  # of the way from idle to the limit
    memory_copy: float = 0.0
    sm_active: float = 0.0
    sm_occupancy: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    fp32: float = 0.0
    fp16: float = 0.0
    pcie: float = 0.0  # of what the link can carry
    nvlink: float = 0.0
    profile: tuple[tuple[str, float], ...] = field(init=False)  # profiling signals by name

    def __post_init__(self) -> None:
        names = ("sm_active", "sm_occupancy", "tensor", "dram", "fp32", "fp16")
        values = [(f"{name}_ratio", getattr(self, name)) for name in names]
        object.__setattr__(self, "profile", (("gr_engine_ratio", 1.0), *values))


MIXES: Mapping[Kind, ActivityMix] = {
    Kind.TRAINING: ActivityMix(0.88, 0.55, 0.90, 0.36, 0.52, 0.48, 0.12, 0.05, pcie=0.06, nvlink=0.30),
    Kind.INFERENCE: ActivityMix(0.62, 0.58, 0.71, 0.22, 0.24, 0.61, 0.07, 0.03, pcie=0.03, nvlink=0.04),
    Kind.NOTEBOOK: ActivityMix(0.55, 0.35, 0.60, 0.25, 0.18, 0.30, 0.15, 0.02, pcie=0.05),
    Kind.PARKED: ActivityMix(),
    Kind.EMPTY: ActivityMix(),
    Kind.STARVED: ActivityMix(0.72, 0.40, 0.82, 0.33, 0.40, 0.38, 0.12, 0.04, pcie=0.12, nvlink=0.10),
    Kind.HUNG: ActivityMix(0.86, 0.54, 0.89, 0.35, 0.50, 0.46, 0.12, 0.05, pcie=0.06, nvlink=0.28),
    # A loop of one small matrix product: SMs busy while it runs, memory hardly touched.
    Kind.KEEP_ALIVE: ActivityMix(0.80, 0.02, 0.95, 0.12, 0.05, 0.02, 0.90, 0.0),
    # NCCL has one kernel block per channel, and so 20 of 132 SMs of an H100, with few warps. It waits: 10 to 40 W more
    # than with a context alone, and nothing is computed, copied or sent.
    Kind.STALLED: ActivityMix(0.04, sm_active=0.15, sm_occupancy=0.03),
}

MEMORY: Mapping[Kind, Range] = {
    Kind.TRAINING: (0.62, 0.92),
    Kind.INFERENCE: (0.70, 0.90),  # serving engines take nine tenths for their cache
    Kind.NOTEBOOK: (0.10, 0.55),
    Kind.PARKED: (0.30, 0.88),
    Kind.EMPTY: (0.0, 0.0),
    Kind.STARVED: (0.30, 0.75),
    Kind.HUNG: (0.60, 0.92),
    Kind.KEEP_ALIVE: (0.02, 0.06),
    Kind.STALLED: (0.60, 0.92),
}
"""Share of the memory available to it."""

SLEEPING_MEMORY: Range = (0.01, 0.03)
"""Of an inference server that has moved its model to the memory of the host: its context, and what cannot be moved."""

VARYING_MEMORY: frozenset[Kind] = frozenset({Kind.TRAINING, Kind.NOTEBOOK, Kind.STARVED})
"""Kinds whose memory varies by about a percent; the memory of others is constant."""


@dataclass(frozen=True, slots=True)
class HostMix:
    """What a busy second of a GPU takes of the node."""

    cpu_seconds: float = 0.0
    disk_bytes: float = 0.0
    network_bytes: float = 0.0


HOST_MIXES: Mapping[Kind, HostMix] = {
    Kind.TRAINING: HostMix(6.0, 40e6, 25e6),
    Kind.INFERENCE: HostMix(2.0, 0.0, 3e6),
    Kind.NOTEBOOK: HostMix(1.5, 8e6, 2e6),
    Kind.STARVED: HostMix(20.0, 120e6, 300e6),  # its input is what it waits for
    Kind.HUNG: HostMix(6.0, 40e6, 25e6),
    Kind.KEEP_ALIVE: HostMix(0.1, 0.0, 0.0),  # a loop that only starts kernels
    Kind.STALLED: HostMix(1.0, 0.0, 0.0),  # a thread of NCCL that asks whether anything came
}
"""Kinds that never work are absent."""
IDLE_HOST_MIX = HostMix(0.004, 0.0, 60.0)
"""Of each second of a pod, beside its work: probes and heartbeats."""
START_DISK_BYTES = 600e6
"""Read once by every pod: programs and libraries."""

LIFETIMES: Mapping[Kind, tuple[Range, Range]] = {
    Kind.TRAINING: ((1 * DAY, 5 * DAY), (0.88, 0.98)),
    Kind.INFERENCE: ((10 * DAY, 30 * DAY), (1.0, 1.0)),
    Kind.NOTEBOOK: ((7 * DAY, 20 * DAY), (1.0, 1.0)),
    Kind.PARKED: ((8 * DAY, 24 * DAY), (1.0, 1.0)),
    Kind.EMPTY: ((4 * DAY, 12 * DAY), (0.90, 0.99)),
    Kind.STARVED: ((1 * DAY, 4 * DAY), (0.90, 0.98)),
    Kind.HUNG: ((3 * DAY, 7 * DAY), (0.92, 0.99)),
    Kind.KEEP_ALIVE: ((5 * DAY, 15 * DAY), (1.0, 1.0)),
    Kind.STALLED: ((1 * DAY, 5 * DAY), (0.88, 0.98)),
}
"""Seconds from the start of one pod to the next, and the share of that time in which the pod runs."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Random values of the pod and of its rank on one GPU, and the lifetimes of the pod."""

    pod: SeededRandom
    rank: SeededRandom
    lifetimes: Lifetimes


def draw_lifetimes(kind: Kind, random: SeededRandom) -> Lifetimes:
    """Lifetimes in whole seconds, so that start times are free of rounding errors."""
    periods, parts = LIFETIMES[kind]
    period = float(round(random.between(*periods, "period")))
    duration = float(round(period * random.between(*parts, "lasting")))
    return Lifetimes(period, float(round(random.between(0, period, "phase"))), duration)


def draw_work(kind: Kind, draws: Draws, *, capacity: float) -> LoadCurve:
    """The load curve of a workload that may use `capacity` of a device."""
    if kind is Kind.KEEP_ALIVE:
        return _keep_alive(draws, capacity)
    work = _WORK[kind](draws)
    return work if capacity == 1.0 else Scaled(work, capacity)


def _epochs(draws: Draws) -> LoadCurve:
    """All ranks pause together for a checkpoint of half a minute to two minutes, once or twice an hour."""
    every = draws.pod.between(1800, 4200, "checkpoint every")
    breaks = Breaks(draws.pod.number("breaks"), every, draws.pod.between(20, 120, "checkpoint lasts"))
    return Chain(breaks, Steady(draws.rank.number("ripple"), draws.rank.between(0.86, 0.95, "level"), 0.02))


def _inference(draws: Draws) -> LoadCurve:
    """Requests every minute or two, at night a fifth of the day's or less, never none."""
    mean = draws.pod.between(0.14, 0.42, "mean")
    swing = mean * draws.pod.between(0.60, 0.85, "swing")
    day = DayAndNight(mean, swing, peak_at=draws.pod.between(2 * HOUR, 20 * HOUR, "peak"))
    return Bursts(draws.rank.number("bursts"), draws.pod.between(40, 110, "every"), day, lowest_level=0.08)


def _notebook(draws: Draws) -> LoadCurve:
    """A cell every few minutes during office hours; nothing at night and on weekends."""
    office = OfficeHours(
        draws.pod.number("office"),
        offset=HOUR * round(draws.pod.between(-8, 9, "offset")),
        morning=draws.pod.between(0.5 * HOUR, 2.5 * HOUR, "morning"),
        afternoon=draws.pod.between(0.7 * HOUR, 4 * HOUR, "afternoon"),
    )
    cells = Bursts(
        draws.rank.number("cells"),
        draws.pod.between(120, 420, "every"),
        Constant(draws.pod.between(0.12, 0.40, "level")),
        lowest_level=0.4,
    )
    return Chain(office, cells)


def _starved(draws: Draws) -> LoadCurve:
    """A batch every few seconds, then waiting for the next one."""
    batches = Steady(draws.rank.number("ripple"), draws.pod.between(0.09, 0.22, "level"), 0.02, fast=46.0)
    bursts = Bursts(draws.rank.number("batches"), draws.pod.between(4, 12, "every"), batches, lowest_level=0.7)
    return Chain(draws.lifetimes, bursts)


def _hung(draws: Draws) -> LoadCurve:
    """Trains for the first part of its lifetime, then hangs: a lost peer, a deadlock, a dead storage mount."""
    lifetimes = draws.lifetimes
    works = round(lifetimes.duration * draws.pod.between(0.06, 0.30, "works"))
    return Chain(Lifetimes(lifetimes.period, lifetimes.phase, float(works)), _epochs(draws))


def _keep_alive(draws: Draws, capacity: float) -> LoadCurve:
    """Whole percents, so that the utilization is constant; public scripts of this kind use 1 to 40 %."""
    percent = min(draws.pod.between(2, 30, "level"), 100 * capacity)
    return Chain(draws.lifetimes, Constant(max(int(percent), 1) / 100))


_WORK: Mapping[Kind, Callable[[Draws], LoadCurve]] = {
    Kind.TRAINING: lambda draws: Chain(draws.lifetimes, _epochs(draws)),
    Kind.INFERENCE: _inference,
    Kind.NOTEBOOK: _notebook,
    Kind.PARKED: lambda _: Constant(0.0),
    Kind.EMPTY: lambda _: Constant(0.0),
    Kind.STARVED: _starved,
    Kind.HUNG: _hung,
    Kind.STALLED: lambda draws: Chain(draws.lifetimes, Constant(1.0)),
}
