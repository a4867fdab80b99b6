"""The results of `bench.analyzer` as plain data: the content of bench/results/analyzer.json."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from bench.machines import About
from bench.readings import Memory


@dataclass(frozen=True, slots=True)
class CycleTime:
    """One cycle of the analyzer, in seconds."""

    whole: float  # until its result is published
    read: float  # queries and building the usage table
    judged: float  # judging and publishing
    rendered: float  # the /metrics page, after that
    cpu: float  # all threads of the analyzer, including the page


@dataclass(slots=True)
class Ways:
    """All ways on the same data, in turns; seconds for the whole fleet, by round."""

    gpus: int
    window_minutes: float
    queries: list[str]  # of a cycle
    allocations: int  # in its result
    unknown: int  # allocations that were not judged
    sampled_gpus: int  # that gpu-oour's queries were measured on
    first_cycle: CycleTime  # with discovery
    busy_cores: list[float] = field(default_factory=list)  # cores used by other programs before each round
    curl: list[float] = field(default_factory=list)
    curl_all_signals: list[float] = field(default_factory=list)  # with the signals that a cycle does not read
    cycles: list[CycleTime] = field(default_factory=list)
    oour: list[float] = field(default_factory=list)
    oour_by_uuid: list[float] = field(default_factory=list)  # without `pod!=""`
    oour_kept: list[float] = field(default_factory=list)  # and on kept connections
    alone_seconds: list[float] = field(default_factory=list)  # curl, each query on its own

    @property
    def cycles_whole(self) -> list[float]:
        return [cycle.whole for cycle in self.cycles]

    @property
    def cycles_cpu(self) -> list[float]:
        return [cycle.cpu for cycle in self.cycles]

    @property
    def over_curl(self) -> float:
        """Cycle / curl of the same round, median of the rounds: a busy machine delays both."""
        return median(cycle.whole / floor for cycle, floor in zip(self.cycles, self.curl, strict=True))

    @property
    def over_curl_with_page(self) -> float:
        """The same, until /metrics shows the result."""
        pairs = zip(self.cycles, self.curl, strict=True)
        return median((cycle.whole + cycle.rendered) / floor for cycle, floor in pairs)

    def faster_than(self, oour: Iterable[float]) -> float:
        return median(theirs / cycle.whole for theirs, cycle in zip(oour, self.cycles, strict=True))

    @property
    def cost_of_all_signals(self) -> float:
        """How much longer a cycle would take if it read the mean and peak of every signal."""
        return median(more / less for more, less in zip(self.curl_all_signals, self.curl, strict=True))


@dataclass(frozen=True, slots=True)
class Served:
    """`gpusteward serve` in a separate process, after some cycles and requests."""

    gpus: int
    cycles: int
    allocations: int
    coverage: float
    unknown: dict[str, int]
    start_seconds: float  # from its start to its first result
    cycle_seconds: list[float]  # as it reports them: without the page
    after_cycles: Memory
    after_requests: Memory
    milliseconds: dict[str, list[float]]  # by path, in the order of the requests
    sizes: dict[str, int]  # bytes of the responses


@dataclass(frozen=True, slots=True)
class Results:
    about: About
    ways: list[Ways]
    served: list[Served]
