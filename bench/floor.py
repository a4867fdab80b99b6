"""CPU of the agent compared with its lower bound: `python -m bench.floor ROUNDS TURNS [flags of the agent]`.

The lower bound of any agent in Python: the NVML calls of one collection, recorded and then repeated in a loop with the
same arguments and without using the results. Prints JSON. Runs in the agent's virtual environment.
"""

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, TypeVar

import pynvml

from bench.cycles import Loop
from gpusteward.agent.collector_runner import CollectorRunner
from gpusteward.agent.nvml import Nvml
from gpusteward.agent.settings.table import AgentSettings, read_settings
from gpusteward.core.node.usage_split import SPLIT_SIGNALS
from gpusteward.process_memory import limit_malloc_arenas

_Result = TypeVar("_Result")
Function = Callable[..., int]

WARM_UP_TURNS = 10
PODS_SECONDS = 10.0
REST = "rest"
"""The part outside of collectors: attribution, counters, the page."""


class Recorder:
    """Wraps the library's functions and records the calls with their arguments and return codes."""

    def __init__(self) -> None:
        self.calls: list[tuple[Function, tuple[Any, ...]]] = []
        self.codes: list[int] = []
        self._thread = threading.get_ident()
        self._find: Callable[[str], Function] = pynvml._nvmlGetFunctionPointer

    def __enter__(self) -> "Recorder":
        pynvml._nvmlGetFunctionPointer = self._wrap
        return self

    def __exit__(self, *_: object) -> None:
        pynvml._nvmlGetFunctionPointer = self._find

    def _wrap(self, name: str) -> Function:
        function = self._find(name)

        def call(*arguments: Any) -> int:
            own = tuple(_keep(argument) for argument in arguments)
            code = function(*arguments)
            if threading.get_ident() == self._thread:  # the thread that waits for XIDs is not part of a collection
                self.calls.append((function, own))
                self.codes.append(code)
            return code

        return call

    def replay(self) -> None:
        for function, arguments in self.calls:
            function(*arguments)


def _keep(argument: Any) -> Any:
    """The agent uses one counter for many lists: each recorded call gets its own, as it was before the call."""
    pointed_at = getattr(argument, "_obj", None)
    if isinstance(pointed_at, ctypes.c_uint):
        return ctypes.byref(ctypes.c_uint(pointed_at.value))
    return argument


def record_read(nvml: Nvml, wanted: frozenset[str]) -> Recorder:
    """The calls of a later read, without those that are made only once.

    They can be repeated while `nvml` stays open. Raises RuntimeError if they return other codes.
    """
    with Recorder() as recorder:
        for _ in range(3):
            recorder.calls.clear()
            recorder.codes.clear()
            nvml.read(wanted, peers="peer_status" in wanted)
        for _ in range(2):
            if [function(*arguments) for function, arguments in recorder.calls] != recorder.codes:
                raise RuntimeError("the recorded NVML calls return other codes when they are repeated")
    return recorder


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


class TimedLoop(Loop):
    """Notes the CPU of each collector."""

    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(settings)
        self.collection.runner = self._runner = CpuCollectorRunner()
        self._cpu_by_cycle: list[dict[str, float]] = []  # cycle by cycle: milliseconds of each collector that ran

    def run_cycle(self) -> None:
        self._runner.used, began = {}, time.thread_time()
        super().run_cycle()
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
        while (snapshot := self.collection.last_snapshot) is None or not all(
            process.container for process in snapshot.processes
        ):
            if time.monotonic() > deadline:
                raise RuntimeError(f"no pods after {PODS_SECONDS:g} s: {self.collection.runner.failures}")
            time.sleep(0.05)
            self.run_cycle()
        self._cpu_by_cycle.clear()


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
    loop, recorded, nvml = TimedLoop(settings), Nvml(settings.node_name), Nvml(settings.node_name)
    wanted = SPLIT_SIGNALS.union(*(dialect.wanted for dialect in loop.dialects.dialects))
    try:
        recorder = record_read(recorded, wanted)
        loop.wait_for_pods()
        works = {
            "bare_calls": recorder.replay,
            "nvml_read": lambda: nvml.read(wanted),
            "whole_cycle": loop.run_cycle,
        }
        measure_all(works, 1, turns=WARM_UP_TURNS)
        found = measure_all(works, rounds, turns=turns)
    finally:
        for each in (recorded, nvml):
            each.release()
        loop.source.close()
    return {"calls": len(recorder.calls), **found, "collectors": loop.split_cycle()}


def main(arguments: Sequence[str]) -> None:
    limit_malloc_arenas()
    rounds, turns, *flags = arguments
    json.dump(measure_floor(read_settings(flags, {}), int(rounds), turns=int(turns)), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
