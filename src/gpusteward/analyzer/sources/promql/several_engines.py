"""`SeveralEngines`: one usage table from the engines of `prometheus.url`, each of which has a part of the site."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, TypeVar

import numpy as np

from gpusteward.analyzer.setting_values import mask_password
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.live_readings import HostUse, PodProcesses, ReportedGpu
from gpusteward.analyzer.sources.memory_limits import DEFAULT_LIMITS, MemoryLimits
from gpusteward.analyzer.sources.promql.site_checks import describe_gpus_in_two_engines
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.usage.findings import (
    NO_GPU_SERIES,
    PodsOnTwoNodes,
    find_failures,
    list_names,
    list_shared_nodes,
)
from gpusteward.analyzer.sources.usage.inference_servers import join_duplicate_servers
from gpusteward.analyzer.sources.usage.partial_tables import PartialTable, merge_partial_tables
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.analyzer.tables import Column, ServerPod, SiteFinding, UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.core.usages import AllocationKey, Measure
from gpusteward.logs import Log
from gpusteward.messages import data_health as messages
from gpusteward.messages import unknown_reasons
from gpusteward.messages.errors import source_errors

log = Log(__name__)

T = TypeVar("T")


@dataclass
class EngineShard:
    """One engine, and what it had in the last cycle in which it could be read."""

    url: str  # without credentials
    source: PrometheusSource
    table: UsageTable | None = None  # allocations and GPUs only; None: it could not be read yet
    error: Message | None = None  # why it could not be read in this cycle
    failure: SourceError | None = None  # of `find_lag` in this cycle
    has_unnamed: bool = False  # whether it has ever had a GPU whose series name no cluster
    unnamed_gpus: frozenset[str] = frozenset()  # those that are held, of the last cycle in which it was read
    unnamed_nodes: frozenset[str] = frozenset()  # nodes with GPUs whose series name no cluster, held or not, likewise
    cluster: str = ""  # of these: the address of its engine, where engines have different GPUs
    named: dict[int, tuple[AllocationKey, AllocationKey]] = field(default_factory=dict)  # by id, without and with it

    @property
    def address(self) -> str:
        """Its URL without scheme."""
        return self.url.partition("://")[2].rstrip("/") or self.url

    def name_cluster(self, table: UsageTable) -> UsageTable:
        """The table with `cluster` in rows and GPUs without one."""
        if not self.cluster:
            return table
        before, self.named = self.named, {}
        allocations = [each if each.cluster else self._name(each, before) for each in table.allocations]
        fleet = {key if key.cluster else key._replace(cluster=self.cluster): gpus for key, gpus in table.fleet.items()}
        return replace(table, allocations=allocations, fleet=fleet, servers=self.name_servers(table.servers))

    def name_servers(self, servers: Sequence[ServerPod]) -> list[ServerPod]:
        """With `cluster` where they name none."""
        return [one if one.container.cluster else one.in_cluster(self.cluster) for one in servers]

    def _name(self, one: AllocationKey, before: Mapping[int, tuple[AllocationKey, AllocationKey]]) -> AllocationKey:
        """The same object as in the last cycle: allocations are compared by identity."""
        known = before.get(id(one))
        if known is None or known[0] is not one or known[1].cluster != self.cluster:
            workload = one.container.workload
            owner = None if workload is None else replace(workload, cluster=self.cluster)
            known = one, replace(one, container=replace(one.container, cluster=self.cluster, workload=owner))
        self.named[id(one)] = known
        return known[1]

    def list_unnamed(self, table: UsageTable) -> None:
        """Which of its GPUs name no cluster. A row without a current sample does not count: its GPU may have been
        moved to another cluster with its machine."""
        stale = {row for row, reason in table.unknown.items() if reason == unknown_reasons.NO_CURRENT_SAMPLE}
        held = {one.gpu_uuid for row, one in enumerate(table.allocations) if not one.cluster and row not in stale}
        self.unnamed_gpus = _only_uuids(held)
        self.unnamed_nodes = frozenset(key.node for key in table.fleet if not key.cluster)
        self.has_unnamed = self.has_unnamed or any(not one.cluster for one in table.allocations)

    def own_pods(self, pods: Collection[PodKey]) -> list[PodKey]:
        """As its series name them."""
        return [pod._replace(cluster="") if self.cluster and pod.cluster == self.cluster else pod for pod in pods]

    def name_pod(self, pod: PodKey) -> PodKey:
        return pod if pod.cluster or not self.cluster else pod._replace(cluster=self.cluster)

    def find_lag(self, at: float) -> float:
        """How late its samples arrive; raises nothing."""
        self.failure = None
        try:
            return self.source.find_lag(at)
        except SourceError as error:
            self.failure = error
            return 0.0

    def read(self, at: float, *, lag: float) -> UsageTable:
        """The table of this engine. While it cannot be read, its allocations are unknown, never absent.

        Raises SourceError if it could never be read: a workload may have further GPUs there.
        """
        try:
            if self.failure:
                raise self.failure
            table, self.error = self.source.read(at, lag=lag), None
        except SourceError as error:
            reason = source_errors.OF_ENGINE.fill(url=self.url, error=error)
            if self.table is None:
                raise SourceError(reason) from error
            if self.error is None:
                log.warning("engine_not_read", url=self.url, reason=error)
            self.error = reason
            unknown = dict.fromkeys(range(len(self.table)), unknown_reasons.ENGINE_FAILED.fill(error=reason))
            return replace(self.table, at=at - lag, unknown=unknown, lag_seconds=lag)
        self.table = UsageTable(
            table.at, table.window_seconds, table.allocations, coverage=np.zeros(len(table)), fleet=table.fleet
        )
        return table


def _only_uuids(names: Iterable[str]) -> frozenset[str]:
    """Without empty names and those made of a node and an index, which two clusters may have in common."""
    return frozenset(name for name in names if name and "/" not in name)


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
        self._twins: Message | None = None
        self._pods = PodsOnTwoNodes()
        self._failures: dict[str, Message] = {}  # what only all tables together show, of the last cycle
        self._groups: list[frozenset[int]] = [frozenset({number}) for number in range(len(self._shards))]
        """Engines with the same unnamed cluster, by number. Once joined they stay so: while a replica is down, its last
        table has other holders than that of the others."""
        self._compared: set[tuple[int, int, str]] = set()  # pairs of engines, and a node whose GPUs were compared
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
        engines = [
            {**shard.source.describe(), "error": str(shard.error or ""), "cluster": shard.cluster}
            for shard in self._shards
        ]
        failures = {
            f"{engine['url']}: {query}": reason for engine in engines for query, reason in engine["failures"].items()
        }
        errors = {shard.url: str(shard.error) for shard in self._shards if shard.error}
        return {
            "url": ", ".join(shard.url for shard in self._shards),
            "lag_seconds": max((one["lag_seconds"] for one in engines if one["lag_seconds"] is not None), default=None),
            "engines": engines,
            "warnings": [self._twins.en] if self._twins else [],
            "failures": failures | errors | {name: reason.en for name, reason in self._failures.items()},
        }

    def read(self, at: float) -> UsageTable:
        """Every allocation of every engine over the window before `at`.

        Raises SourceError if no engine can be read now, or one could never be read.
        """
        # One window for all: a workload may have GPUs in several engines.
        lag = max(self._threads.map(lambda shard: shard.find_lag(at), self._shards))
        tables = list(self._threads.map(lambda shard: shard.read(at, lag=lag), self._shards))
        errors = [shard.error for shard in self._shards if shard.error]
        if len(errors) == len(self._shards):
            raise SourceError(errors[0])
        self._name_clusters(tables, at)
        named = [shard.name_cluster(table) for shard, table in zip(self._shards, tables, strict=True)]
        joined = join_tables(named)
        self._failures = {}
        if in_two := describe_gpus_in_two_engines(named):
            self._failures["names"] = in_two
        twins = list[SiteFinding]()
        if _have_one_name(named):
            joined = self._pods.mark(joined)
            if pods := self._pods.describe():
                self._failures["clusters"] = pods
            if nodes := list_shared_nodes(joined):
                text = messages.SHARED_NAMES.fill(count=len(nodes), names=list_names(nodes))
                twins.append(SiteFinding("warning", "two-gpus-one-index", text))
        failed = find_failures({shard.url: shard.error for shard in self._shards if shard.error} | self._failures)
        found = self._join_findings(tables, has_gpus=bool(joined.fleet or len(joined)))
        self._twins = _find_twins(self._shards, named)
        if self._twins:
            twins.append(SiteFinding("warning", "same-pod-in-two-engines", self._twins))
        return replace(joined, findings=(*failed, *found, *twins))

    def _join_findings(self, tables: Sequence[UsageTable], *, has_gpus: bool) -> Iterable[SiteFinding]:
        """An engine without any GPU beside one with GPUs is named; why there is none at all, the first one says."""
        found: dict[SiteFinding, None] = {}
        for shard, table in zip(self._shards, tables, strict=True):
            for one in table.findings:
                if one.code == NO_GPU_SERIES and has_gpus:
                    text = messages.ENGINE_WITHOUT_GPUS.fill(url=shard.url, why=one.message)
                    found[SiteFinding("warning", "engine-without-gpus", text)] = None
                else:
                    found[one] = None
        return found

    def _name_clusters(self, tables: Sequence[UsageTable], at: float) -> None:
        """Series that name no cluster are of one cluster if their engines have GPUs in common, such as replicas of one
        Prometheus; else the address of an engine is the name. An engine that cannot be read joins and leaves none."""
        readable = [number for number, shard in enumerate(self._shards) if shard.error is None]
        for number in readable:
            self._shards[number].list_unnamed(tables[number])
        for one, other in combinations(readable, 2):
            first, second = (next(group for group in self._groups if number in group) for number in (one, other))
            if first is not second and self._have_common_gpus(one, other, at):
                self._groups = [group for group in self._groups if group not in (first, second)] + [first | second]
        groups = [group for group in self._groups if any(self._shards[number].has_unnamed for number in group)]
        for group in groups:
            for number in group:
                self._shards[number].cluster = self._shards[min(group)].address if len(groups) > 1 else ""

    def _have_common_gpus(self, one: int, other: int, at: float) -> bool:
        """Of those that are held, else of a node that both have: all its GPUs are asked for, once."""
        first, second = self._shards[one], self._shards[other]
        if first.unnamed_gpus & second.unnamed_gpus:
            return True
        node = min(first.unnamed_nodes & second.unnamed_nodes, default="")
        if not node or (one, other, node) in self._compared:
            return False
        try:
            gpus = [shard.source.read_gpus(node, "", at) for shard in (first, second)]
        except SourceError as error:
            log.warning("gpus_not_compared", node=node, reason=error)
            return False
        self._compared.add((one, other, node))
        return bool(_only_uuids(gpu.uuid for gpu in gpus[0]) & _only_uuids(gpu.uuid for gpu in gpus[1]))

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        """The chart of one allocation, from the first engine that has it. Raises SourceError if none has it and one of
        them could not be read."""

        def read(shard: EngineShard) -> Chart | None:
            chart = shard.source.read_series(allocation, at, seconds=seconds)
            return chart if chart.lines else None

        return _find_first(self._shards, read) or Chart(allocation)

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> list[Chart]:
        """What all engines know of each allocation: work that one of them has seen counts. Raises SourceError if one of
        them could not be read: it may be the only one that saw work."""
        found = list(
            self._threads.map(lambda shard: shard.source.read_work(allocations, at, seconds=seconds), self._shards)
        )
        charts: list[Chart] = []
        for number, one in enumerate(allocations):
            lines: dict[Measure, list[tuple[float, float]]] = {}
            for part in found:
                for measure, points in part[number].lines.items():
                    lines[measure] = sorted([*lines.get(measure, ()), *points])
            charts.append(Chart(one, lines))
        return charts

    def read_processes(self, pods: Collection[PodKey], at: float) -> PodProcesses:
        """The processes of these pods, from all engines that can be read. Raises SourceError if these have none of the
        pods and another could not be read."""
        parts: list[PodProcesses] = []
        failure: SourceError | None = None
        for shard in self._shards:
            try:
                found = shard.source.read_processes(shard.own_pods(pods), at)
            except SourceError as error:
                failure = error
                continue
            own = [replace(one, pod=shard.name_pod(one.pod)) for one in found.processes]
            parts.append(PodProcesses(own, frozenset(map(shard.name_pod, found.reported)) & frozenset(pods)))
        reported = frozenset[PodKey]().union(*(part.reported for part in parts))
        if failure is not None and not reported:
            raise failure
        wanted = frozenset(pods)
        processes = {
            (one.pod, one.node, one.gpu_uuid, one.pid): one
            for part in parts
            for one in part.processes
            if one.pod in wanted
        }
        return PodProcesses(list(processes.values()), reported)

    def read_host_use(self, pods: Collection[PodKey], at: float, *, seconds: float) -> dict[PodKey, HostUse]:
        """Of each signal the largest value of all engines. Raises SourceError if one of them could not be read: it may
        be the only one that has the counters of a pod."""
        found: dict[PodKey, HostUse] = {}
        names = {shard.cluster for shard in self._shards} - {""}
        for shard in self._shards:
            here = [pod for pod in pods if pod.cluster == shard.cluster or pod.cluster not in names]
            wanted = dict(zip(shard.own_pods(here), here, strict=True))
            for own, use in shard.source.read_host_use(wanted, at, seconds=seconds).items():
                pairs = zip(found.get(wanted[own], HostUse()), use, strict=True)
                known = ([value for value in pair if value is not None] for pair in pairs)
                found[wanted[own]] = HostUse(*(max(values, default=None) for values in known))
        return found

    def read_servers(self, at: float, *, seconds: float) -> Sequence[ServerPod]:
        """Of all engines. Raises SourceError if one of them could not be read: it may have seen a request."""
        shards = self._shards
        return join_duplicate_servers(
            one for each in shards for one in each.name_servers(each.source.read_servers(at, seconds=seconds))
        )

    def read_gpus(self, node: str, cluster: str, at: float) -> Sequence[ReportedGpu]:
        """From the first engine that has the node. Raises SourceError if none has it and one could not be read."""
        names = {shard.cluster for shard in self._shards} - {""}
        own = [shard for shard in self._shards if cluster not in names or shard.cluster in ("", cluster)]
        return (
            _find_first(
                own, lambda shard: shard.source.read_gpus(node, "" if cluster == shard.cluster else cluster, at)
            )
            or ()
        )

    def close(self) -> None:
        for shard in self._shards:
            shard.source.close()
        self._threads.shutdown(wait=False)


def _find_first(shards: Iterable[EngineShard], read: Callable[[EngineShard], T]) -> T | None:
    """The first answer that is not empty. Raises SourceError if there is none and one of them could not be read."""
    failure: Message | None = None  # not the error: it would refer to this frame, and this frame to it
    for shard in shards:
        try:
            if found := read(shard):
                return found
        except SourceError as error:
            failure = error.as_message()
    if failure is not None:
        raise SourceError(failure)
    return None


def _have_one_name(tables: Sequence[UsageTable]) -> bool:
    """Whether two engines have a cluster of one name and no GPU in common: parts of one cluster, or two clusters. Those
    with the same GPUs are replicas, which for a moment may differ in where a pod is."""
    clusters = [{one.cluster for one in table.allocations} for table in tables]
    gpus = [{one.gpu_uuid for one in table.allocations} for table in tables]
    pairs = combinations(range(len(tables)), 2)
    return any(clusters[one] & clusters[other] and gpus[one].isdisjoint(gpus[other]) for one, other in pairs)


def _find_twins(shards: Sequence[EngineShard], tables: Sequence[UsageTable]) -> Message | None:
    """Pods of the same name in engines whose addresses stand for their clusters: these may be one cluster after all."""
    seen: dict[tuple[str, str], str] = {}
    for shard, table in zip(shards, tables, strict=True):
        for one in table.allocations if shard.cluster else ():
            if one.cluster == shard.cluster:
                pod = one.container.namespace, one.container.pod
                if seen.setdefault(pod, shard.cluster) != shard.cluster:
                    names = {"pod": "/".join(pod), "first": seen[pod], "second": shard.cluster}
                    return source_errors.SAME_POD_IN_TWO_ENGINES.fill(**names)
    return None


def join_tables(tables: Sequence[UsageTable]) -> UsageTable:
    """All rows of all tables; an allocation that several engines have is one row."""
    parts = [
        PartialTable(list(one.allocations), dict(one.stats), one.coverage, dict(one.unknown), ended=one.ended)
        for one in tables
    ]
    first = tables[0]
    joined = merge_partial_tables(
        parts, [list(range(len(one))) for one in tables], at=first.at, window_seconds=first.window_seconds
    )
    fleet: dict[Any, int] = {}
    for table in tables:
        for key, gpus in table.fleet.items():
            fleet[key] = max(gpus, fleet.get(key, 0))
    held = [{each.gpu_uuid for each in one.allocations} for one in tables]
    if len(set[str]().union(*held)) < sum(map(len, held)):
        joined = _join_duplicates(joined)
    skews = [one.clock_skew for one in tables if one.clock_skew is not None]
    servers = join_duplicate_servers(one for table in tables for one in table.servers)
    skew = min(skews, key=abs, default=None)
    return replace(joined, fleet=fleet, servers=servers, lag_seconds=first.lag_seconds, clock_skew=skew)


def _join_duplicates(table: UsageTable) -> UsageTable:
    """One row of each allocation, with the largest value of all its rows: work that one engine has seen counts. It is
    unknown only if all its rows are."""
    numbers: dict[Hashable, int] = {}
    targets = np.array([numbers.setdefault(one.names, len(numbers)) for one in table.allocations], dtype=np.intp)
    if len(numbers) == len(table):
        return table

    def rate(row: int) -> tuple[bool, bool]:
        """The best row is of an engine that could be read, then with the uid of the pod, then the first."""
        return row not in table.unknown, bool(table.allocations[row].container.pod_uid)

    chosen: dict[int, int] = {}
    for row, target in enumerate(targets.tolist()):
        if rate(row) > rate(chosen.setdefault(target, row)):
            chosen[target] = row
    rows = list(chosen.values())

    def take_largest(column: Column) -> Column:
        largest = column[rows].copy()
        np.fmax.at(largest, targets, column)
        return largest

    stats = {key: take_largest(column) for key, column in table.stats.items()}
    known = set(targets[[row for row in range(len(table)) if row not in table.unknown]].tolist())
    reasons = {int(targets[row]): reason for row, reason in table.unknown.items()}
    return replace(
        table,
        allocations=[table.allocations[row] for row in rows],
        stats=stats,
        coverage=take_largest(table.coverage),
        unknown={row: reason for row, reason in reasons.items() if row not in known},
    )
