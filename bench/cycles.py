"""`python -m bench.cycles CYCLES FLAGS`: the agent's cycles without a pause between them, and its memory after each
`EVERY` of them, as JSON (KiB). Runs in a process of its own, as the agent does."""

import json
import sys
import time
from collections.abc import Iterator, Sequence

from bench.readings import Memory, read_memory
from gpusteward.agent.app import build_dialects, build_source
from gpusteward.agent.collection import Collection
from gpusteward.agent.metrics_page import MetricsPage
from gpusteward.agent.settings.table import AgentSettings, read_settings
from gpusteward.core.exposition import LabelCache
from gpusteward.kubernetes.api import ApiServer
from gpusteward.process_memory import freeze_gc, limit_malloc_arenas

EVERY, FAST_CYCLES = 200, 6000


def run_cycles(settings: AgentSettings, count: int) -> Iterator[Memory]:
    """The memory after each `EVERY` cycles. The clocks advance as if each had waited its interval."""
    api = ApiServer(settings.kubernetes_api) if settings.kubernetes_api else None
    source = build_source(settings, api)
    page = MetricsPage(node=settings.node_name, interval_seconds=settings.interval_seconds, clock=time.monotonic)
    collection = Collection(
        source, build_dialects(settings, api, LabelCache()), page, interval_seconds=settings.interval_seconds
    )
    began = time.monotonic()
    try:
        for number in range(count):
            ahead = number * settings.interval_seconds
            collection.run_cycle(now=time.time() + ahead, monotonic=began + ahead)
            if not number:
                freeze_gc()
            if (number + 1) % EVERY == 0:
                yield read_memory("self")
    finally:
        source.close()


def main(arguments: Sequence[str]) -> None:
    limit_malloc_arenas()
    count, *flags = arguments
    json.dump([each.rss for each in run_cycles(read_settings(flags, {}), int(count))], sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
