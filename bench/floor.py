"""CPU of the agent compared with its lower bound: `python -m bench.floor ROUNDS TURNS [flags of the agent]`.

The lower bound of any agent in Python: the NVML calls of one collection, repeated in a loop with the same arguments and
without using the results. Prints JSON. Runs in the agent's virtual environment.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeVar

from bench.recorder import record_read, replay
from gpusteward.agent.app import build_dialects, build_source
from gpusteward.agent.collection import Collection, DialectSet
from gpusteward.agent.collector_runner import CollectorRunner
from gpusteward.agent.metrics_page import MetricsPage
from gpusteward.agent.node_source import SnapshotSource
from gpusteward.agent.nvml import Nvml
from gpusteward.agent.settings.table import AgentSettings, read_settings
from gpusteward.core.exposition import LabelCache
from gpusteward.core.usage_split import SPLIT_SIGNALS
from gpusteward.kubernetes.api import ApiServer
from gpusteward.process_memory import limit_malloc_arenas

_Result = TypeVar("_Result")

WARM_UP_TURNS = 10
PODS_SECONDS = 10.0
REST = "rest"
"""The part outside of collectors: attribution, counters, the page."""


class CpuCollectorRunner(CollectorRunner):
    """Also records CPU time, which other processes on the machine do not affect."""

    def __init__(self) -> None:
        super().__init__()
        self.used: dict[str, float] = {}  # milliseconds in this cycle

    def run(self, collector: str, collect: Callable[[], _Result], default: _Result) -> _Result:
        began = time.thread_time()
        result = super().run(collector, collect, default)
        self.used[collector] = (time.thread_time() - began) * 1000
        return result


class Loop:
    """Cycles of the agent without the waits in between; its clocks advance as if it had waited."""

    def __init__(self, source: SnapshotSource, dialects: DialectSet, settings: AgentSettings) -> None:
        page = MetricsPage(node=settings.node_name, interval_seconds=settings.interval_seconds, clock=time.monotonic)
        self._collection = Collection(source, dialects, page, interval_seconds=settings.interval_seconds)
        self._collection.runner = self._runner = CpuCollectorRunner()
        self._interval = settings.interval_seconds
        self._ahead = 0.0
        self._cpu_by_cycle: list[dict[str, float]] = []  # cycle by cycle: milliseconds of each collector that ran

    def run_cycle(self) -> None:
        self._ahead += self._interval
        self._runner.used, began = {}, time.thread_time()
        self._collection.run_cycle(now=time.time() + self._ahead, monotonic=time.monotonic() + self._ahead)
        rest = (time.thread_time() - began) * 1000 - sum(self._runner.used.values())
        self._cpu_by_cycle.append({**self._runner.used, REST: rest})

    def split_cycle(self) -> dict[str, float]:
        """CPU milliseconds of a cycle by collector: the median of its runs, for as many cycles as it runs in."""
        names = dict.fromkeys(name for ran in self._cpu_by_cycle for name in ran)
        runs = {name: [ran[name] for ran in self._cpu_by_cycle if name in ran] for name in names}
        return {name: median(own) * len(own) / len(self._cpu_by_cycle) for name, own in runs.items()}

    def wait_for_pods(self) -> None:
        """Run cycles until all processes are attributed to pods."""
        deadline = time.monotonic() + PODS_SECONDS
        while not self._knows_pods():
            if time.monotonic() > deadline:
                raise RuntimeError(f"no pods after {PODS_SECONDS:g} s: {self._collection.runner.failures}")
            time.sleep(0.05)
            self.run_cycle()
        self._cpu_by_cycle.clear()

    def _knows_pods(self) -> bool:
        snapshot = self._collection.last_snapshot
        return snapshot is not None and all(process.container for process in snapshot.processes)


def measure_all(works: Mapping[str, Callable[[], object]], rounds: int, *, turns: int) -> dict[str, list[float]]:
    """CPU milliseconds of each function, measured alternately, so that disturbances affect all."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            began = time.thread_time()
            for _turn in range(turns):
                work()
            found[name].append((time.thread_time() - began) / turns * 1000)
    return found


def measure_floor(settings: AgentSettings, rounds: int, *, turns: int) -> dict[str, object]:
    api = ApiServer(settings.kubernetes_api) if settings.kubernetes_api else None
    dialects = build_dialects(settings, api, LabelCache())
    wanted = SPLIT_SIGNALS.union(*(dialect.wanted for dialect in dialects.dialects))
    source, recorded, nvml = build_source(settings, api), Nvml(settings.node_name), Nvml(settings.node_name)
    try:
        calls = record_read(recorded, wanted)
        loop = Loop(source, dialects, settings)
        loop.wait_for_pods()
        works = {
            "bare_calls": lambda: replay(calls),
            "nvml_read": lambda: nvml.read(wanted),
            "whole_cycle": loop.run_cycle,
        }
        measure_all(works, 1, turns=WARM_UP_TURNS)
        found = measure_all(works, rounds, turns=turns)
    finally:
        for each in (recorded, nvml):
            each.release()
        source.close()
    return {"calls": len(calls), **found, "collectors": loop.split_cycle()}


def main(arguments: Sequence[str]) -> None:
    limit_malloc_arenas()
    rounds, turns, *flags = arguments
    settings = read_settings(flags, {})
    json.dump(measure_floor(settings, int(rounds), turns=int(turns)), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
