"""The worker: every interval one snapshot, one view, one page. A scrape never waits for any of it."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from gpusteward import process_memory
from gpusteward.agent.collector_runner import CollectorRunner
from gpusteward.agent.dialects.self_metrics import agent_families
from gpusteward.agent.metrics_page import STALE_AFTER_INTERVALS, MetricsPage
from gpusteward.agent.node_source import SnapshotSource
from gpusteward.agent.usage_counters import SnapshotView, UsageCounters
from gpusteward.core.exposition import Family, LabelCache
from gpusteward.core.snapshots import Snapshot
from gpusteward.core.usage_split import DIVIDED_SIGNALS
from gpusteward.logs import Log

log = Log(__name__)


class Dialect(Protocol):
    """Says a view under one system's names."""

    name: str

    @property
    def wanted(self) -> frozenset[str]:
        """Signals it needs."""

    def families(self, view: SnapshotView) -> list[Family]:
        """The same facts, as families."""


@dataclass(frozen=True, slots=True)
class DialectSet:
    """What a cycle says and in whose words."""

    dialects: Sequence[Dialect]
    labels: LabelCache
    refresh: Callable[[float], None] = lambda _now: None  # looks for a changed field list
    count_reloads: Callable[[], Mapping[str, int]] = dict


class Collection:
    """One cycle after another: read, count, render, publish."""

    def __init__(
        self, source: SnapshotSource, script: DialectSet, page: MetricsPage, *, interval_seconds: float
    ) -> None:
        self._source = source
        self._script = script
        self._pages = page
        self._meters = UsageCounters(longest_gap_seconds=interval_seconds * STALE_AFTER_INTERVALS)
        self._cycles = 0
        self.runner = CollectorRunner()
        self.last_snapshot: Snapshot | None = None
        self.has_seen_gpus = False  # since the start

    def run_cycle(self, *, now: float, monotonic: float) -> None:
        """The whole work of one interval. `now` is wall time, `monotonic` the clock of the pages."""
        self.runner.start_cycle()
        self._script.labels.start_cycle()
        self.runner.run("fields", lambda: self._script.refresh(monotonic), None)
        snapshot = self._source.read(self._wanted(), now=now, runner=self.runner)
        families = self._families(self._meters.advance(snapshot))
        self._cycles += 1
        families += agent_families(
            self.runner,
            node=snapshot.node,
            cycles=self._cycles,
            reloads=self._script.count_reloads(),
            labels=self._script.labels,
        )
        self._pages.publish(families, taken_at=monotonic)
        self.last_snapshot = snapshot
        self.has_seen_gpus |= bool(snapshot.readings)

    def release(self, *, seconds: float) -> None:
        self._source.release(seconds=seconds)

    def _wanted(self) -> frozenset[str]:
        return DIVIDED_SIGNALS.union(*(dialect.wanted for dialect in self._script.dialects))

    def _families(self, view: SnapshotView) -> list[Family]:
        families: list[Family] = []
        for dialect in self._script.dialects:
            families += self.runner.run(f"dialect_{dialect.name}", partial(dialect.families, view), [])
        return families


class CollectionThread(threading.Thread):
    """Runs the collection every interval in a thread of its own; a hung driver hangs this thread alone."""

    def __init__(self, collection: Collection, *, interval_seconds: float, release_seconds: float) -> None:
        super().__init__(name="collect", daemon=True)
        self._collection = collection
        self._interval = interval_seconds
        self._release_seconds = release_seconds
        self._wake = threading.Event()
        self._stopping = False
        self._release_asked = False

    def run(self) -> None:
        due = time.monotonic()
        self._run_once()
        process_memory.freeze_gc()
        while not self._stopping:
            now = time.monotonic()
            # Kept in step; never put off by cycles that were asked for in between.
            due = min(max(due + self._interval, now), now + self._interval)
            if self._wake.wait(due - now):
                self._wake.clear()
                self._heed()
            if not self._stopping:
                self._run_once()

    def _run_once(self) -> None:
        """A fault nobody foresaw costs this cycle: the page grows old and says so, the next cycle tries again."""
        run = partial(self._collection.run_cycle, now=time.time(), monotonic=time.monotonic())
        self._collection.runner.run("cycle", run, None)

    def request_release(self) -> None:
        """Let go of NVML at once, for a while."""
        self._release_asked = True
        self._wake.set()

    def request_cycle(self) -> None:
        """Run a cycle now instead of at the end of the interval."""
        self._wake.set()

    def stop(self, *, timeout_seconds: float) -> None:
        """Stop after the cycle under way; a hung one is left behind when the time is over."""
        self._stopping = True
        self._wake.set()
        self.join(timeout_seconds)

    def _heed(self) -> None:
        """Do what was asked while it slept."""
        if not self._release_asked:
            return
        self._release_asked = False
        self._collection.release(seconds=self._release_seconds)
        log.info("nvml_released", seconds=self._release_seconds)
