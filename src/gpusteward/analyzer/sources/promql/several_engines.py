"""`SeveralEngines`: one usage table from the engines of `prometheus.urls`, each of which has a part of the site."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpusteward.analyzer.setting_values import mask_password
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.gpu_readings import ReportedGpu
from gpusteward.analyzer.sources.memory_limits import DEFAULT_LIMITS, MemoryLimits
from gpusteward.analyzer.sources.pod_processes import Pod, PodProcesses
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.usage.partial_tables import PartialTable, merge_partial_tables
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.core.usages import AllocationKey
from gpusteward.logs import Log
from gpusteward.messages import unknown_reasons
from gpusteward.messages.errors import source_errors

log = Log(__name__)


@dataclass
class EngineShard:
    """One engine, and what it had in the last cycle in which it could be read."""

    url: str  # without credentials
    source: PrometheusSource
    table: UsageTable | None = None  # allocations and GPUs only; None: it could not be read yet
    error: Message | None = None  # why it could not be read in this cycle

    def read(self, at: float) -> UsageTable:
        """The table of this engine. While it cannot be read, its allocations are unknown, never absent.

        Raises SourceError if it could never be read: a workload may have further GPUs there.
        """
        try:
            table, self.error = self.source.read(at), None
        except SourceError as error:
            reason = source_errors.OF_ENGINE.fill(url=self.url, error=error)
            if self.table is None:
                raise SourceError(reason) from error
            if self.error is None:
                log.warning("engine_not_read", url=self.url, reason=error)
            self.error = reason
            unknown = dict.fromkeys(range(len(self.table)), unknown_reasons.ENGINE_FAILED.fill(error=reason))
            return replace(self.table, at=at, unknown=unknown)
        self.table = UsageTable(
            at, table.window_seconds, table.allocations, coverage=np.zeros(len(table)), fleet=table.fleet
        )
        return table


class SeveralEngines:
    """Reads all engines at the same time and joins their tables. `read` is not thread-safe."""

    def __init__(
        self,
        settings: PrometheusSettings,
        *,
        max_workers: int | None = None,
        pod_labels: tuple[str, ...] = (),
        limits: MemoryLimits = DEFAULT_LIMITS,
    ) -> None:
        """Raises ConfigurationError for settings that cannot be used."""

        each = limits.divide(len(settings.addresses))

        def open_source(url: str) -> PrometheusSource:
            engine = settings.with_url(url)
            return PrometheusSource(engine, max_workers=max_workers, pod_labels=pod_labels, limits=each)

        self._shards = [EngineShard(mask_password(url), open_source(url)) for url in settings.addresses]
        self._threads = ThreadPoolExecutor(len(self._shards), thread_name_prefix="engine")

    @property
    def target_counts(self) -> Mapping[str, int]:
        """None: the engine scrapes."""
        return {}

    @property
    def request_counts(self) -> Mapping[str, int]:
        """Requests since the start by result: ok or failed."""
        counts = Counter[str](ok=0, failed=0)
        for shard in self._shards:
            counts.update(shard.source.request_counts)
        return counts

    def describe(self) -> Mapping[str, Any]:
        """What was found in each engine, as plain data, and which queries failed in the last cycle."""
        engines = [{**shard.source.describe(), "error": str(shard.error or "")} for shard in self._shards]
        failures = {
            f"{engine['url']}: {query}": reason for engine in engines for query, reason in engine["failures"].items()
        }
        errors = {shard.url: str(shard.error) for shard in self._shards if shard.error}
        return {
            "url": ", ".join(shard.url for shard in self._shards),
            "engines": engines,
            "failures": failures | errors,
        }

    def read(self, at: float) -> UsageTable:
        """Every allocation of every engine over the window before `at`.

        Raises SourceError if no engine can be read now, or one could never be read.
        """
        tables = list(self._threads.map(lambda shard: shard.read(at), self._shards))
        errors = [shard.error for shard in self._shards if shard.error]
        if len(errors) == len(self._shards):
            raise SourceError(errors[0])
        return join_tables(tables)

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        """The chart of one allocation, from the first engine that has it. Raises SourceError if none has it and one of
        them could not be read."""
        return self._read_first(lambda source: source.read_series(allocation, at, seconds=seconds), allocation)

    def read_work(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        """As above."""
        return self._read_first(lambda source: source.read_work(allocation, at, seconds=seconds), allocation)

    def _read_first(self, read: Callable[[PrometheusSource], Chart], allocation: AllocationKey) -> Chart:
        failure: Message | None = None  # not the error: it would refer to this frame, and this frame to it
        for shard in self._shards:
            try:
                chart = read(shard.source)
            except SourceError as error:
                failure = error.as_message()
                continue
            if chart.lines:
                return chart
        if failure is not None:
            raise SourceError(failure)
        return Chart(allocation)

    def read_processes(self, pods: Collection[Pod], at: float) -> PodProcesses:
        """The processes of these pods, from all engines that can be read. Raises SourceError if these have none of the
        pods and another could not be read."""
        parts: list[PodProcesses] = []
        failure: SourceError | None = None
        for shard in self._shards:
            try:
                parts.append(shard.source.read_processes(pods, at))
            except SourceError as error:
                failure = error
        reported = frozenset[Pod]().union(*(part.reported for part in parts))
        if failure is not None and not reported:
            raise failure
        found = {(one.pod, one.node, one.gpu_uuid, one.pid): one for part in parts for one in part.processes}
        return PodProcesses(list(found.values()), reported)

    def read_gpus(self, node: str, cluster: str, at: float) -> Sequence[ReportedGpu]:
        """From the first engine that has the node. Raises SourceError if none has it and one could not be read."""
        failure: SourceError | None = None
        for shard in self._shards:
            try:
                if found := shard.source.read_gpus(node, cluster, at):
                    return found
            except SourceError as error:
                failure = error
        if failure is not None:
            raise failure
        return []

    def close(self) -> None:
        for shard in self._shards:
            shard.source.close()
        self._threads.shutdown(wait=False)


def join_tables(tables: Sequence[UsageTable]) -> UsageTable:
    """All rows of all tables; an allocation that several engines have is one row."""
    parts = [PartialTable(list(one.allocations), dict(one.stats), one.coverage, dict(one.unknown)) for one in tables]
    first = tables[0]
    joined = merge_partial_tables(
        parts, [list(range(len(one))) for one in tables], at=first.at, window_seconds=first.window_seconds
    )
    fleet: dict[Any, int] = {}
    for table in tables:
        for key, gpus in table.fleet.items():
            fleet[key] = max(gpus, fleet.get(key, 0))
    has_duplicates = not _are_disjoint([{each.gpu_uuid for each in one.allocations} for one in tables])
    return replace(_join_duplicates(joined) if has_duplicates else joined, fleet=fleet)


def _are_disjoint(sets: Sequence[set[str]]) -> bool:
    return len(set[str]().union(*sets)) == sum(map(len, sets))


def _join_duplicates(table: UsageTable) -> UsageTable:
    """One row of each allocation, with the largest value of all its rows: work that one engine has seen counts. It is
    unknown only if all its rows are."""
    numbers: dict[Hashable, int] = {}
    targets = np.array([numbers.setdefault(_identify(one), len(numbers)) for one in table.allocations], dtype=np.intp)
    if len(numbers) == len(table):
        return table
    rows = _choose_rows(table, targets.tolist())
    stats = {key: _take_largest(column, targets, rows) for key, column in table.stats.items()}
    known = set(targets[[row for row in range(len(table)) if row not in table.unknown]].tolist())
    reasons = {int(targets[row]): reason for row, reason in table.unknown.items()}
    return replace(
        table,
        allocations=[table.allocations[row] for row in rows],
        stats=stats,
        coverage=_take_largest(table.coverage, targets, rows),
        unknown={row: reason for row, reason in reasons.items() if row not in known},
    )


def _identify(allocation: AllocationKey) -> Hashable:
    """Without the uid of the pod, which only some exporters report."""
    container = allocation.container
    name = (container.cluster, container.namespace, container.pod, container.name)
    return allocation.gpu_uuid, allocation.gpu_instance, name


def _choose_rows(table: UsageTable, targets: Sequence[int]) -> list[int]:
    """The best row of each target: of an engine that could be read, then with the uid of the pod, then the first."""

    def rate(row: int) -> tuple[bool, bool]:
        return row not in table.unknown, bool(table.allocations[row].container.pod_uid)

    chosen: dict[int, int] = {}
    for row, target in enumerate(targets):
        if rate(row) > rate(chosen.setdefault(target, row)):
            chosen[target] = row
    return list(chosen.values())


def _take_largest(column: np.ndarray[Any, Any], targets: np.ndarray[Any, Any], rows: list[int]) -> Any:
    largest = column[rows].copy()
    np.fmax.at(largest, targets, column)
    return largest
