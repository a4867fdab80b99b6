"""Both exporters on one node at the same time, measured alternately, so that disturbances affect both."""

import time
from contextlib import ExitStack
from dataclasses import dataclass

from bench.installs import Install
from bench.nodes import PODS, Node
from bench.progress import print_progress
from bench.readings import read_busy_seconds, read_cpu_seconds, read_memory
from bench.results import Comparison, Measured
from bench.scrapes import MODES, Scraper
from bench.sides import AGENT, NVITOP, Side, fetch_page, run_agent, run_nvitop

WARM_UP_SECONDS = 12.0
SCRAPE_SECONDS = 15.0
"""A common scrape interval."""
LONE_PAUSE_SECONDS = 1.07
"""Longer than the interval of these exporters, so that each scrape gets a new page."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    intervals: tuple[float, ...]  # of collection, in seconds; the sides at the first are the ones that are scraped
    scrapes: dict[str, int]  # by side: in one round and mode
    window_seconds: float = 30.0
    windows: int = 3
    rounds: int = 5
    lone_scrapes: int = 0  # of the sides at the last interval


@dataclass(frozen=True, slots=True)
class Pair:
    """Both sides at the same interval."""

    interval: float
    sides: dict[str, Side]


@dataclass(frozen=True, slots=True)
class Clocks:
    """CPU time used by each exporter at a moment."""

    at: float
    used: dict[str, float]


class ComparisonRun:
    """Runs both exporters at every interval of a plan and records the measurements."""

    def __init__(self, node: Node, plan: Plan) -> None:
        self._node = node
        self._plan = plan
        self._pairs: list[Pair] = []
        self._found = {AGENT: Measured(), NVITOP: Measured()}
        self._others: list[float] = []

    def compare(self, agent: Install, nvitop: Install) -> Comparison:
        """Run the whole plan; the exporters are stopped at the end."""
        with ExitStack() as stack:
            for interval in self._plan.intervals:
                ours = stack.enter_context(run_agent(agent, self._node, interval=interval))
                theirs = stack.enter_context(run_nvitop(nvitop, self._node, interval=interval))
                self._pairs.append(Pair(interval, {AGENT: ours, NVITOP: theirs}))
            self._measure()
        return Comparison(
            self._node.gpus,
            len(self._node.pids),
            PODS,
            self._plan.intervals,
            self._others,
            agent=self._found[AGENT],
            nvitop=self._found[NVITOP],
        )

    def _measure(self) -> None:
        self._look_at_pages()
        time.sleep(WARM_UP_SECONDS)
        self._note_memory("started")
        self._measure_idle()
        self._note_memory("idle")
        self._measure_scraped()
        self._measure_scrapes()
        self._note_memory("scraped")
        self._measure_lone_scrapes()

    def _look_at_pages(self) -> None:
        for name, side in self._pairs[0].sides.items():
            found = self._found[name]
            found.series = sum(not line.startswith("#") for line in fetch_page(side.port).splitlines())
            with Scraper(side) as scraper:
                found.page_bytes = {mode: len(scraper.scrape(mode)) for mode in ("identity", "gzip")}

    def _note_memory(self, moment: str) -> None:
        for name, side in self._pairs[0].sides.items():
            self._found[name].memory[moment] = read_memory(side.pid)

    def _measure_idle(self) -> None:
        """CPU shares of all exporters in the same windows, without scrapes."""
        for window in range(self._plan.windows):
            print_progress(f"  idle window {window + 1} of {self._plan.windows}, {self._plan.window_seconds:g} s")
            busy, before = read_busy_seconds(), [_read_clocks(pair) for pair in self._pairs]
            time.sleep(self._plan.window_seconds)
            ours = sum(self._add_shares(*each) for each in zip(self._pairs, before, strict=True))
            self._others.append((read_busy_seconds() - busy) / self._plan.window_seconds - ours)

    def _measure_scraped(self) -> None:
        """CPU shares while both are scraped with gzip, as by Prometheus."""
        pair = self._pairs[0]
        with ExitStack() as stack:
            scrapers = [stack.enter_context(Scraper(side)) for side in pair.sides.values()]
            for window in range(self._plan.windows):
                print_progress(f"  scraped window {window + 1} of {self._plan.windows}, {2 * SCRAPE_SECONDS:g} s")
                before = _read_clocks(pair)
                for _ in range(2):
                    time.sleep(SCRAPE_SECONDS)
                    for scraper in scrapers:
                        scraper.scrape("gzip")
                for name, share in _shares(before, _read_clocks(pair)).items():
                    self._found[name].scraped_shares.append(share)

    def _add_shares(self, pair: Pair, before: Clocks) -> float:
        """Record the CPU share of each exporter since then; return the sum."""
        shares = _shares(before, _read_clocks(pair))
        for name, share in shares.items():
            self._found[name].idle_shares.setdefault(f"{pair.interval:g} s", []).append(share)
        return sum(shares.values())

    def _measure_scrapes(self) -> None:
        for turn in range(self._plan.rounds):
            print_progress(f"  scrapes, round {turn + 1} of {self._plan.rounds}")
            for mode in MODES:
                for name, side in self._pairs[0].sides.items():
                    self._measure_round(name, side, mode=mode)

    def _measure_round(self, name: str, side: Side, *, mode: str) -> None:
        found = self._found[name]
        with Scraper(side) as scraper:
            idle_share = found.cpu_share(self._plan.intervals[0])
            cost = scraper.measure(mode, self._plan.scrapes[name], idle_share=idle_share)
        found.scrapes.setdefault(mode, []).append(cost)

    def _measure_lone_scrapes(self) -> None:
        """Single scrapes as by Prometheus: caches are cold and the page is new."""
        if self._plan.lone_scrapes:
            print_progress(f"  {self._plan.lone_scrapes} lone scrapes, one a second")
        with ExitStack() as stack:
            sides = self._pairs[-1].sides.items()
            scrapers = {name: stack.enter_context(Scraper(side)) for name, side in sides}
            for _ in range(self._plan.lone_scrapes):
                time.sleep(LONE_PAUSE_SECONDS)
                self._scrape_alone(scrapers)

    def _scrape_alone(self, scrapers: dict[str, Scraper]) -> None:
        for mode in ("gzip", "identity"):
            for name, scraper in scrapers.items():
                self._found[name].lone_scrapes.setdefault(mode, []).append(scraper.measure(mode, 1))
        for name, seconds in read_collectors(fetch_page(self._pairs[-1].sides[AGENT].port)).items():
            self._found[AGENT].collectors.setdefault(name, []).append(seconds)


def read_collectors(page: str) -> dict[str, float]:
    """Duration of each collector of the agent in seconds, from its page."""
    found = {}
    for line in page.splitlines():
        if line.startswith("gpusteward_collector_duration_seconds{"):
            labels, _, value = line.rpartition(" ")
            found[labels.split('collector="')[1].split('"')[0]] = float(value)
    return found


def _shares(before: Clocks, now: Clocks) -> dict[str, float]:
    return {name: (used - before.used[name]) / (now.at - before.at) for name, used in now.used.items()}


def _read_clocks(pair: Pair) -> Clocks:
    return Clocks(time.monotonic(), {name: read_cpu_seconds(side.pid) for name, side in pair.sides.items()})
