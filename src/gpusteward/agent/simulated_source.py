"""A node that does not exist as a source of snapshots."""

import time
from collections.abc import Sequence

from gpusteward.agent.collector_runner import CollectorRunner
from gpusteward.core.snapshots import Snapshot
from gpusteward.simulate.fleets import default_node
from gpusteward.simulate.loads import parse_load


class SimulatedSource:
    """Eight GPUs with every sharing mode and kind of workload, and the loads a person put on them."""

    def __init__(self, node: str, *, seed: int, loads: Sequence[str]) -> None:
        """Raises ConfigurationError for a load that cannot be put on."""
        self._node = default_node(seed, name=node)
        for load in loads:
            self._node = self._node.with_load(parse_load(load, now=time.time()))

    def read(self, wanted: frozenset[str], *, now: float, runner: CollectorRunner) -> Snapshot:
        """Everything the simulated model would report, wanted or not."""
        del wanted
        return runner.run("simulate", lambda: self._node.snapshot(now), Snapshot(self._node.name, now))

    def release(self, *, seconds: float) -> None:
        """There is no driver to let go of."""

    def close(self) -> None:
        """There is nothing to stop."""
