"""`python -m bench.cycles CYCLES FLAGS`: the agent's cycles without a pause between them, and its memory after each
`EVERY` of them, as JSON (KiB). Runs in a process of its own, as the agent does."""

import json
import sys
import time
from collections.abc import Iterator, Sequence

from bench.measure import read_memory
from gpusteward.agent.app import build_dialects, build_source
from gpusteward.agent.collection import Collection
from gpusteward.agent.metrics_page import MetricsPage
from gpusteward.agent.settings.table import AgentSettings, read_settings
from gpusteward.core.exposition import LabelCache
from gpusteward.kubernetes.api import ApiServer
from gpusteward.process_memory import freeze_gc, limit_malloc_arenas

EVERY, FAST_CYCLES = 200, 6000


class Loop:
    """Cycles of the agent without the waits in between; its clocks advance as if it had waited."""

    def __init__(self, settings: AgentSettings) -> None:
        api = ApiServer(settings.kubernetes_api) if settings.kubernetes_api else None
        self.source, self.dialects = build_source(settings, api), build_dialects(settings, api, LabelCache())
        self._interval, self._ahead = settings.interval_seconds, 0.0
        page = MetricsPage(node=settings.node_name, interval_seconds=self._interval, clock=time.monotonic)
        self.collection = Collection(self.source, self.dialects, page, interval_seconds=self._interval)

    def run_cycle(self) -> None:
        self._ahead += self._interval
        self.collection.run_cycle(now=time.time() + self._ahead, monotonic=time.monotonic() + self._ahead)


def measure_cycles(settings: AgentSettings, count: int) -> Iterator[int]:
    """RSS after each `EVERY` cycles."""
    loop = Loop(settings)
    try:
        for number in range(1, count + 1):
            loop.run_cycle()
            if number == 1:
                freeze_gc()
            if number % EVERY == 0:
                yield read_memory("self").rss
    finally:
        loop.source.close()


def main(arguments: Sequence[str]) -> None:
    limit_malloc_arenas()
    count, *flags = arguments
    json.dump(list(measure_cycles(read_settings(flags, {}), int(count))), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
