"""The results of a run as plain data: the content of bench/results/*.json."""

from dataclasses import dataclass, field
from statistics import median

from bench.cycles import EVERY, FAST_CYCLES
from bench.machines import About
from bench.readings import Memory
from bench.scrapes import Cost


@dataclass(slots=True)
class Measured:
    """One side on one node."""

    idle_shares: dict[str, list[float]] = field(default_factory=dict)  # by interval: of one core, window by window
    scraped_shares: list[float] = field(default_factory=list)  # the same at the first interval, under a Prometheus
    memory: dict[str, Memory] = field(default_factory=dict)  # by moment
    scrapes: dict[str, list[Cost]] = field(default_factory=dict)  # by mode, round by round
    lone_scrapes: dict[str, list[Cost]] = field(default_factory=dict)  # by mode, scrape by scrape
    collectors: dict[str, list[float]] = field(default_factory=dict)  # seconds, as the agent reports them
    page_bytes: dict[str, int] = field(default_factory=dict)  # by mode
    series: int = 0

    def cpu_share(self, interval: float) -> float:
        return median(self.idle_shares[f"{interval:g} s"])

    def cycle_milliseconds(self, interval: float) -> float:
        """CPU for one interval's work, between which the processor did other things."""
        return self.cpu_share(interval) * interval * 1000

    def scrape_cpu(self, mode: str) -> float:
        return median(cost.cpu for cost in self.scrapes[mode])

    def scrape_wall(self, mode: str) -> float:
        return median(cost.wall for cost in self.scrapes[mode])

    def lone_scrape_cpu(self, mode: str) -> float:
        return median(cost.cpu for cost in self.lone_scrapes[mode])

    @property
    def highest_scrape_cpu(self) -> float:
        """The highest of all the ways to scrape that were measured."""
        kinds = [self.scrape_cpu(mode) for mode in self.scrapes]
        return max(kinds + [self.lone_scrape_cpu(mode) for mode in self.lone_scrapes])

    @property
    def peak_rss(self) -> int:
        """The peak including the start, in KiB."""
        return max(memory.peak for memory in self.memory.values())


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides on one node."""

    gpus: int
    processes: int
    pods: int
    intervals: tuple[float, ...]
    others: list[float]  # cores that all else on the machine kept busy, window by window
    agent: Measured
    nvitop: Measured


@dataclass(frozen=True, slots=True)
class Floor:
    """CPU of the agent's own work in one process, in a tight loop; milliseconds, round by round."""

    gpus: int
    processes: int
    calls: int  # of NVML in one collection
    bare_calls: list[float]
    nvml_read: list[float]
    whole_cycle: list[float]
    collectors: dict[str, float]  # of each and of the rest, for one cycle


@dataclass(frozen=True, slots=True)
class Moment:
    """Memory after so many cycles, scrapes and changes."""

    cycles: int
    scrapes: int
    pod_changes: int
    memory: Memory


@dataclass(frozen=True, slots=True)
class Endurance:
    """Memory of the agent while pods come and go under scrapes."""

    before: Memory
    moments: list[Moment]
    fast_rss: list[int]  # KiB after each `bench.cycles.EVERY` of 6,000 cycles without a pause, in a process of its own

    @property
    def warm_up(self) -> int:
        """Moments that do not count: the first quarter."""
        return len(self.moments) // 4

    @property
    def growth_kib(self) -> float:
        """From the first five moments after the warm-up to the last five, median to median."""
        after = [moment.memory.rss for moment in self.moments[self.warm_up :]]
        return median(after[-5:]) - median(after[:5])

    @property
    def cycles(self) -> int:
        """After the warm-up."""
        return self.moments[-1].cycles - self.moments[self.warm_up].cycles

    @property
    def bytes_a_cycle(self) -> float:
        """Growth over 5,000 fast cycles after the first 1,000."""
        first, last = 1000 // EVERY - 1, FAST_CYCLES // EVERY - 1
        return (self.fast_rss[last] - self.fast_rss[first]) * 1024 / (FAST_CYCLES - 1000)

    @property
    def peak_rss(self) -> int:
        return self.moments[-1].memory.peak


@dataclass(frozen=True, slots=True)
class Results:
    """One run."""

    about: About
    comparisons: list[Comparison]  # the standard size first
    floors: list[Floor]
    endurance: Endurance
