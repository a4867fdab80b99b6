"""Both exporters on one node at the same time, measured alternately, so that disturbances affect both."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from bench.exporters import AGENT, MODES, NVITOP, Exporter, Install, ScrapeCost, Scraper, fetch_page, run_exporter
from bench.measure import Memory, print_progress, read_busy_seconds, read_cpu_seconds, read_memory
from bench.nodes import PODS, Node

WARM_UP_SECONDS = 12.0
SCRAPE_SECONDS = 15.0
"""A common scrape interval."""
LONE_PAUSE_SECONDS = 1.07
"""Longer than the interval of these exporters, so that each scrape gets a new page."""

Exporters = dict[str, Exporter]  # by name, all at the same interval


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    intervals: tuple[float, ...]  # of collection, in seconds; those at the first are the ones that are scraped
    scrapes: dict[str, int]  # by exporter: in one round and mode
    window_seconds: float = 30.0
    windows: int = 3
    rounds: int = 5
    lone_scrapes: int = 0  # of the exporters at the last interval


@dataclass(slots=True)
class Measured:
    """One exporter on one node."""

    idle_shares: dict[str, list[float]] = field(default_factory=dict)  # by interval: of one core, window by window
    scraped_shares: list[float] = field(default_factory=list)  # the same at the first interval, under a Prometheus
    memory: dict[str, Memory] = field(default_factory=dict)  # by moment
    scrapes: dict[str, list[ScrapeCost]] = field(default_factory=dict)  # by mode, round by round
    lone_scrapes: dict[str, list[ScrapeCost]] = field(default_factory=dict)  # by mode, scrape by scrape
    collectors: dict[str, list[float]] = field(default_factory=dict)  # seconds, as the agent reports them
    page_bytes: dict[str, int] = field(default_factory=dict)  # by mode
    series: int = 0

    def cpu_share(self, interval: float) -> float:
        return median(self.idle_shares[f"{interval:g} s"])

    @property
    def scrape_cpu(self) -> dict[str, float]:
        """By mode, in milliseconds, as the next ones."""
        return {mode: median(cost.cpu for cost in costs) for mode, costs in self.scrapes.items()}

    @property
    def scrape_wall(self) -> dict[str, float]:
        return {mode: median(cost.wall for cost in costs) for mode, costs in self.scrapes.items()}

    @property
    def lone_scrape_cpu(self) -> dict[str, float]:
        return {mode: median(cost.cpu for cost in costs) for mode, costs in self.lone_scrapes.items()}

    @property
    def highest_scrape_cpu(self) -> float:
        """The highest of all the ways to scrape that were measured."""
        return max([*self.scrape_cpu.values(), *self.lone_scrape_cpu.values()])

    @property
    def peak_mb(self) -> float:
        """The peak including the start."""
        return max(memory.peak_mb for memory in self.memory.values())


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both exporters on one node."""

    gpus: int
    processes: int
    pods: int
    intervals: tuple[float, ...]
    others: list[float]  # cores that all else on the machine kept busy, window by window
    agent: Measured
    nvitop: Measured


class ComparisonRun:
    """Runs both exporters at every interval of a plan and records the measurements."""

    def __init__(self, node: Node, plan: Plan) -> None:
        self._node, self._plan = node, plan
        self._running: list[Exporters] = []  # at each interval
        self._found = {AGENT: Measured(), NVITOP: Measured()}
        self._others: list[float] = []

    def compare(self, agent: Install, nvitop: Install) -> Comparison:
        """Run the whole plan; the exporters are stopped at the end."""
        plan, installs = self._plan, {AGENT: agent, NVITOP: nvitop}
        with ExitStack() as stack:
            for interval in plan.intervals:
                self._running.append(
                    {
                        name: stack.enter_context(run_exporter(name, each, self._node, interval=interval))
                        for name, each in installs.items()
                    }
                )
            self._look_at_pages()
            time.sleep(WARM_UP_SECONDS)
            self._note_memory("started")
            self._measure_idle()
            self._note_memory("idle")
            self._measure_scraped()
            self._measure_scrapes()
            self._note_memory("scraped")
            self._measure_lone_scrapes()
        found, processes = self._found, len(self._node.pids)
        others = self._others
        return Comparison(self._node.gpus, processes, PODS, plan.intervals, others, found[AGENT], found[NVITOP])

    def _look_at_pages(self) -> None:
        for name, exporter in self._running[0].items():
            found = self._found[name]
            found.series = sum(not line.startswith("#") for line in fetch_page(exporter.port).splitlines())
            with Scraper(exporter) as scraper:
                found.page_bytes = {mode: len(scraper.scrape(mode)) for mode in ("identity", "gzip")}

    def _note_memory(self, moment: str) -> None:
        for name, exporter in self._running[0].items():
            self._found[name].memory[moment] = read_memory(exporter.pid)

    def _measure_idle(self) -> None:
        """CPU shares of all exporters in the same windows, without scrapes."""
        for window in range(self._plan.windows):
            print_progress(f"  idle window {window + 1} of {self._plan.windows}, {self._plan.window_seconds:g} s")
            busy, before = read_busy_seconds(), [Clocks.read(each) for each in self._running]
            time.sleep(self._plan.window_seconds)
            ours = 0.0
            for interval, each, clocks in zip(self._plan.intervals, self._running, before, strict=True):
                for name, share in clocks.shares(each).items():
                    self._found[name].idle_shares.setdefault(f"{interval:g} s", []).append(share)
                    ours += share
            self._others.append((read_busy_seconds() - busy) / self._plan.window_seconds - ours)

    def _measure_scraped(self) -> None:
        """CPU shares while both are scraped with gzip, as by Prometheus."""
        exporters = self._running[0]
        with ExitStack() as stack:
            scrapers = [stack.enter_context(Scraper(exporter)) for exporter in exporters.values()]
            for window in range(self._plan.windows):
                print_progress(f"  scraped window {window + 1} of {self._plan.windows}, {2 * SCRAPE_SECONDS:g} s")
                before = Clocks.read(exporters)
                for _ in range(2):
                    time.sleep(SCRAPE_SECONDS)
                    for scraper in scrapers:
                        scraper.scrape("gzip")
                for name, share in before.shares(exporters).items():
                    self._found[name].scraped_shares.append(share)

    def _measure_scrapes(self) -> None:
        for turn in range(self._plan.rounds):
            print_progress(f"  scrapes, round {turn + 1} of {self._plan.rounds}")
            for mode in MODES:
                for name, exporter in self._running[0].items():
                    found = self._found[name]
                    idle_share = found.cpu_share(self._plan.intervals[0])
                    with Scraper(exporter) as scraper:
                        cost = scraper.measure(mode, self._plan.scrapes[name], idle_share=idle_share)
                    found.scrapes.setdefault(mode, []).append(cost)

    def _measure_lone_scrapes(self) -> None:
        """Single scrapes as by Prometheus: caches are cold and the page is new."""
        if self._plan.lone_scrapes:
            print_progress(f"  {self._plan.lone_scrapes} lone scrapes, one a second")
        exporters = self._running[-1]
        with ExitStack() as stack:
            scrapers = {name: stack.enter_context(Scraper(exporter)) for name, exporter in exporters.items()}
            for _ in range(self._plan.lone_scrapes):
                time.sleep(LONE_PAUSE_SECONDS)
                for mode in ("gzip", "identity"):
                    for name, scraper in scrapers.items():
                        self._found[name].lone_scrapes.setdefault(mode, []).append(scraper.measure(mode, 1))
                for name, seconds in read_collectors(fetch_page(exporters[AGENT].port)).items():
                    self._found[AGENT].collectors.setdefault(name, []).append(seconds)


@dataclass(frozen=True, slots=True)
class Clocks:
    """CPU time used by each exporter at a moment."""

    at: float
    used: dict[str, float]

    @classmethod
    def read(cls, exporters: Exporters) -> "Clocks":
        return cls(time.monotonic(), {name: read_cpu_seconds(each.pid) for name, each in exporters.items()})

    def shares(self, exporters: Exporters) -> dict[str, float]:
        """Of a core, since then."""
        now = Clocks.read(exporters)
        return {name: (used - self.used[name]) / (now.at - self.at) for name, used in now.used.items()}


def read_collectors(page: str) -> dict[str, float]:
    """Duration of each collector of the agent in seconds, from its page."""
    found = {}
    for line in page.splitlines():
        if line.startswith("gpusteward_collector_duration_seconds{"):
            labels, _, value = line.rpartition(" ")
            found[labels.split('collector="')[1].split('"')[0]] = float(value)
    return found
