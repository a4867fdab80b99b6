"""All that a run of `bench.analyzer` has found, as plain data: what is written to bench/results/analyzer.json."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from bench.machines import About
from bench.readings import Memory


@dataclass(frozen=True, slots=True)
class CycleTime:
    """One cycle of the analyzer, in seconds."""

    whole: float  # until its result is up
    read: float  # the engine's answers, and what is made of them
    judged: float  # and put up, with the order of the first list
    rendered: float  # the /metrics page, after that
    cpu: float  # of all threads of the analyzer, the page included


@dataclass(slots=True)
class Ways:
    """The three ways on the same data, in turns; seconds for the whole fleet, round by round."""

    gpus: int
    window_minutes: float
    queries: list[str]  # that a cycle sends
    allocations: int  # that it found
    unknown: int  # of them not judged
    sampled_gpus: int  # that the seed's way was measured on
    first_cycle: CycleTime  # which also looks up what the site has
    others: list[float] = field(default_factory=list)  # cores that all else kept busy before each round
    curl: list[float] = field(default_factory=list)
    curl_of_all: list[float] = field(default_factory=list)  # and what nobody judges
    cycles: list[CycleTime] = field(default_factory=list)
    seed: list[float] = field(default_factory=list)
    seed_by_uuid: list[float] = field(default_factory=list)  # the same, without `pod!=""`
    seed_kept: list[float] = field(default_factory=list)  # and with connections kept
    alone: list[float] = field(default_factory=list)  # curl, each query alone

    @property
    def cycles_whole(self) -> list[float]:
        return [cycle.whole for cycle in self.cycles]

    @property
    def cycles_cpu(self) -> list[float]:
        return [cycle.cpu for cycle in self.cycles]

    @property
    def over_curl(self) -> float:
        """A round's cycle against the same round's curl, the median of the rounds: a busy machine delays both."""
        return median(cycle.whole / floor for cycle, floor in zip(self.cycles, self.curl, strict=True))

    @property
    def over_curl_with_page(self) -> float:
        """The same, up to the moment when /metrics shows it too."""
        pairs = zip(self.cycles, self.curl, strict=True)
        return median((cycle.whole + cycle.rendered) / floor for cycle, floor in pairs)

    def faster_than(self, seed: Iterable[float]) -> float:
        return median(theirs / cycle.whole for theirs, cycle in zip(seed, self.cycles, strict=True))

    @property
    def cost_of_all(self) -> float:
        """What a cycle would take in which every signal had its mean and its peak, in cycles."""
        return median(more / less for more, less in zip(self.curl_of_all, self.curl, strict=True))


@dataclass(frozen=True, slots=True)
class Served:
    """`gpusteward serve` in a process of its own, after some cycles and some of everything it serves."""

    gpus: int
    cycles: int
    allocations: int
    coverage: float
    unknown: dict[str, int]
    start_seconds: float  # from its start to its first result
    cycle_seconds: list[float]  # as it says itself: without the page
    after_cycles: Memory
    after_requests: Memory
    milliseconds: dict[str, list[float]]  # by what is asked for, request by request; the first ones first
    sizes: dict[str, int]  # bytes of the answers


@dataclass(frozen=True, slots=True)
class Results:
    about: About
    ways: list[Ways]
    served: list[Served]
