"""The collection loop: one snapshot and one rendered page per interval. A scrape never waits for it.

Metric families that a GPU model does not provide are named once in the log, and by `gpusteward doctor`.
"""

import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from gpusteward import process_memory
from gpusteward.agent.collector_runner import CollectorRunner, render_self_metrics
from gpusteward.agent.metrics_page import STALE_AFTER_INTERVALS, MetricsPage
from gpusteward.agent.node_source import SnapshotSource
from gpusteward.agent.usage_counters import SnapshotView, UsageCounters
from gpusteward.core.exposition import Family, LabelCache
from gpusteward.core.node.gpus import GpuReading
from gpusteward.core.node.snapshots import Snapshot
from gpusteward.core.node.usage_split import SPLIT_SIGNALS
from gpusteward.logs import Log

log = Log(__name__)


class Dialect(Protocol):
    """Converts a snapshot view into metric families under one naming scheme."""

    name: str

    @property
    def wanted(self) -> frozenset[str]:
        """Names of the signals it needs."""

    def families(self, view: SnapshotView) -> list[Family]:
        """The metric families of this view."""

    def list_unavailable(self, unsupported: frozenset[str]) -> list[str]:
        """Names of the families that a GPU without these signals cannot have."""


FIRST_CYCLE = 3
"""The families are named from this cycle on: a second source of signals may need some time to connect."""


class ModelFamilies(NamedTuple):
    """The families that a GPU model does not provide."""

    model: str
    is_mig: bool
    families: tuple[str, ...]


def find_unavailable(readings: Sequence[GpuReading], dialects: Iterable[Dialect]) -> Iterator[ModelFamilies]:
    """One row per model, and one more where it is divided by MIG."""
    dialects = tuple(dialects)
    unsupported: dict[tuple[str, bool], frozenset[str]] = {}
    for reading in readings:
        if not reading.lost and not reading.gpu.mig:
            key = (reading.gpu.model, reading.is_mig_parent)
            # Whatever source they are from, also those of its MIG instances.
            seen = (each.signals for each in readings if each.gpu.device_uuid == reading.gpu.uuid)
            missing = reading.unsupported.difference(*seen)
            unsupported[key] = unsupported.get(key, missing) & missing
    for (model, is_mig), signals in unsupported.items():
        names = dict.fromkeys(name for dialect in dialects for name in dialect.list_unavailable(signals))
        if names:
            yield ModelFamilies(model, is_mig, tuple(names))


class UnavailableFamilies:
    """Logs each family of each model once."""

    def __init__(self) -> None:
        self._cycles = 0
        self._seen: object = None  # what was unsupported when the families were last determined
        self._logged: set[tuple[str, bool, str]] = set()

    def update(self, readings: Sequence[GpuReading], dialects: Iterable[Dialect]) -> None:
        """Log the families that are not named yet."""
        seen = {(each.gpu.model, each.is_mig_parent, each.unsupported) for each in readings if each.unsupported}
        self._cycles += bool(seen)
        if self._cycles < FIRST_CYCLE or seen == self._seen:
            return
        self._seen = seen
        for model, is_mig, families in find_unavailable(readings, dialects):
            new = [name for name in families if (model, is_mig, name) not in self._logged]
            self._logged.update((model, is_mig, name) for name in new)
            if new:
                log.info("families_unavailable", model=model, mig=is_mig, families=",".join(new))


@dataclass(frozen=True, slots=True)
class DialectSet:
    """The enabled dialects and what they share."""

    dialects: Sequence[Dialect]
    labels: LabelCache
    refresh: Callable[[float], None] = lambda _now: None  # reloads the field list if it changed
    count_reloads: Callable[[], Mapping[str, int]] = dict


class Collection:
    """Runs cycles: read, count, render, publish."""

    def __init__(
        self, source: SnapshotSource, dialect_set: DialectSet, page: MetricsPage, *, interval_seconds: float
    ) -> None:
        self._source = source
        self._dialect_set = dialect_set
        self._page = page
        self._counters = UsageCounters(longest_gap_seconds=interval_seconds * STALE_AFTER_INTERVALS)
        self._unavailable = UnavailableFamilies()
        self._cycles = 0
        self.runner = CollectorRunner()
        self.last_snapshot: Snapshot | None = None
        self.has_seen_gpus = False  # since the start
        self.running_since: float | None = None  # monotonic time at which the current cycle began; None between cycles

    def run_cycle(self, *, now: float, monotonic: float) -> None:
        """Run one cycle. `now` is wall time, `monotonic` the clock of the metrics page."""
        self.runner.start_cycle()
        self._dialect_set.labels.start_cycle()
        self.runner.run("fields", lambda: self._dialect_set.refresh(monotonic), None)
        dialects = self._dialect_set.dialects
        wanted = SPLIT_SIGNALS.union(*(dialect.wanted for dialect in dialects))
        snapshot = self._source.read(wanted, now=now, runner=self.runner)
        view, families = self._counters.advance(snapshot), list[Family]()
        for dialect in dialects:
            families += self.runner.run(f"dialect_{dialect.name}", partial(dialect.families, view), [])
        self._cycles += 1
        families += render_self_metrics(
            self.runner,
            node=snapshot.node,
            cycles=self._cycles,
            reloads=self._dialect_set.count_reloads(),
            labels=self._dialect_set.labels,
        )
        self._page.publish(families, taken_at=monotonic)
        self._unavailable.update(snapshot.readings, dialects)
        if self._cycles % process_memory.COLLECT_CYCLES == 0:
            gc.collect()
        self.last_snapshot = snapshot
        self.has_seen_gpus |= bool(snapshot.readings)

    def release(self, *, seconds: float) -> None:
        self._source.release(seconds=seconds)


class CollectionThread(threading.Thread):
    """Runs one cycle per interval in its own thread; a hanging driver call blocks only this thread."""

    def __init__(self, collection: Collection, *, interval_seconds: float, release_seconds: float) -> None:
        super().__init__(name="collect", daemon=True)
        self._collection = collection
        self._interval = interval_seconds
        self._release_seconds = release_seconds
        self._wake = threading.Event()
        self._stopping = False
        self._release_requested = False

    def run(self) -> None:
        due = time.monotonic()
        self._run_once()
        process_memory.freeze_gc()
        while not self._stopping:
            now = time.monotonic()
            # Keeps the phase of the interval; extra cycles on request never delay the next regular one.
            due = min(max(due + self._interval, now), now + self._interval)
            if self._wake.wait(due - now):
                self._wake.clear()
                if self._release_requested:
                    self._release_requested = False
                    self._collection.release(seconds=self._release_seconds)
                    log.info("nvml_released", seconds=self._release_seconds)
            if not self._stopping:
                self._run_once()

    def _run_once(self) -> None:
        """An unexpected error fails only this cycle: the page ages visibly and the next cycle tries again."""
        self._collection.running_since = started = time.monotonic()
        run = partial(self._collection.run_cycle, now=time.time(), monotonic=started)
        self._collection.runner.run("cycle", run, None)
        self._collection.running_since = None

    def request_release(self) -> None:
        """Release NVML now, for `release_seconds`."""
        self._release_requested = True
        self._wake.set()

    def request_cycle(self) -> None:
        """Run a cycle now instead of at the end of the interval."""
        self._wake.set()

    def stop(self, *, timeout_seconds: float) -> None:
        """Stop after the current cycle; give up waiting for it after the timeout."""
        self._stopping = True
        self._wake.set()
        self.join(timeout_seconds)
