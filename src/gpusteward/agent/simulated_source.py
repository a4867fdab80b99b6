"""Snapshots of a simulated node."""

import time
from collections.abc import Sequence

from gpusteward.agent.collector_runner import CollectorRunner
from gpusteward.core.snapshots import Snapshot
from gpusteward.simulate.fleets import default_node
from gpusteward.simulate.loads import parse_load


class SimulatedSource:
    """Eight simulated GPUs with every sharing mode and kind of workload, plus the loads given with --simulate-load."""

    def __init__(self, node: str, *, seed: int, loads: Sequence[str]) -> None:
        """Raises ConfigurationError for an invalid load."""
        self._node = default_node(seed, name=node)
        for load in loads:
            self._node = self._node.with_load(parse_load(load, now=time.time()))

    def read(self, wanted: frozenset[str], *, now: float, runner: CollectorRunner) -> Snapshot:
        """All signals of the simulated GPU model; `wanted` is ignored."""
        del wanted
        return runner.run("simulate", lambda: self._node.snapshot(now), Snapshot(self._node.name, now))

    def release(self, *, seconds: float) -> None:
        """Nothing to release: there is no driver."""

    def close(self) -> None:
        """Nothing to close."""
