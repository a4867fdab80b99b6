"""GPUs and nodes that are missing: what a source without them cannot tell.

`GpuPresence`: a site without any GPU is degraded, unless the API server shows that no node offers one. Otherwise a site
whose exporters have all disappeared would look like one where nothing is held.

`NodePresence`: a part of the site that has disappeared while the rest reports. A node whose exporter has disappeared
looks like one that was removed. The API server knows better: nodes that offer GPUs are compared with those that report.
A GPU that fell off the bus is missing on a node that reports others; what the node had is known from earlier cycles
and, after a restart, from the ledger.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gpusteward.analyzer.ledger.last_gpus import ClusterNode, LastGpus, NodeGpus
from gpusteward.analyzer.sources.offered_gpus import OfferedGpus, OfferedNode
from gpusteward.analyzer.sources.usage.findings import NO_GPU_SERIES, list_names
from gpusteward.analyzer.tables import SiteFinding, UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.logs import Log
from gpusteward.messages import data_health as messages
from gpusteward.messages.unknown_reasons import NO_CURRENT_SAMPLE

log = Log(__name__)

REMEMBERED_SECONDS = 86_400.0
"""A GPU that is missing for a day is not expected any more; a site without any for a day is a warning, no outage."""
STARTING_SECONDS = 300.0
"""From a node being ready to its first samples: driver, exporter and service discovery start one after the other."""
DEGRADED_RATIO = 0.5
"""Of the GPUs that nodes offer: from then on sums over the cluster say nothing."""


@dataclass
class NodePresence:
    """Remembers what nodes had. For the thread that runs cycles.

    `read_known`: what the ledger knows of the last day; it may raise SourceError. `offered`: None without an API
    server. `own_cluster`: the name of its cluster. `reads_all_nodes`: whether the settings leave no nodes out.
    """

    read_known: Callable[[], Mapping[ClusterNode, NodeGpus]] = dict
    offered: OfferedGpus | None = None
    own_cluster: str = ""
    reads_all_nodes: Callable[[], bool] = lambda: True
    _known: dict[ClusterNode, NodeGpus] = field(default_factory=dict)
    _seen_at: dict[ClusterNode, float] = field(default_factory=dict)  # when a node had any GPU last
    _is_restored: bool = False

    def find_missing(self, table: UsageTable) -> Iterator[SiteFinding]:
        """Nothing where the source does not count GPUs."""
        if not table.fleet:
            return
        now = Counter[ClusterNode]()
        for key, gpus in table.fleet.items():
            now[ClusterNode(key.cluster, key.node)] += gpus
        self._remember(now, table.at)
        if self.offered is not None and self.reads_all_nodes() and _counts_all(table, now):
            try:
                offered = self.offered.list_nodes()
            except SourceError as error:
                yield SiteFinding("info", "nodes-unreadable", messages.NODES_NOT_COMPARED.fill(error=error))
            else:
                cluster = self._choose_cluster(now)
                if cluster is not None:
                    self._forget_replaced(offered, cluster)
                    yield from self._compare_nodes(offered, now, cluster, table)
                    yield from self._compare_counts(offered, now, cluster, table)
        yield from self._find_lost_gpus(now, table)

    def _remember(self, now: Mapping[ClusterNode, int], at: float) -> None:
        if not self._is_restored:
            try:
                self._known, self._is_restored = {**self.read_known(), **self._known}, True
                self._seen_at = {**{node: each.at for node, each in self._known.items()}, **self._seen_at}
            except SourceError as error:
                log.warning("known_gpus_not_read", reason=error)
        for node, gpus in now.items():
            known = self._known.get(node)
            if known is None or gpus >= known.gpus or at - known.at > REMEMBERED_SECONDS:
                self._known[node] = NodeGpus(gpus, at)
            self._seen_at[node] = at
        for node in [node for node, seen_at in self._seen_at.items() if at - seen_at > REMEMBERED_SECONDS]:
            del self._seen_at[node]
            self._known.pop(node, None)

    def _choose_cluster(self, now: Iterable[ClusterNode]) -> str | None:
        """Whose nodes the API server has, as the metrics name it: its own name, where they know it or knew it within a
        day, else the only one there is. None: that is not known."""
        # Where the metrics named two within a day, the one that is left is not the only one.
        found = {node.cluster for node in now} | {node.cluster for node in self._seen_at if node.cluster}
        if self.own_cluster and any(node.cluster == self.own_cluster for node in self._seen_at):
            return self.own_cluster
        if len(found) == 1 and (found == {""} or not self.own_cluster):
            return found.pop()
        return None

    def _forget_replaced(self, offered: Sequence[OfferedNode], cluster: str) -> None:
        """A node that was created again under its name may have fewer GPUs."""
        for one in offered:
            known = self._known.get(ClusterNode(cluster, one.name))
            if known is not None and one.created_at > known.at:
                del self._known[ClusterNode(cluster, one.name)]

    def _compare_nodes(
        self, offered: Sequence[OfferedNode], now: Mapping[ClusterNode, int], cluster: str, table: UsageTable
    ) -> Iterator[SiteFinding]:
        """A node reports if it did within the window. It is expected to from a window and five minutes after it became
        ready; one that is not ready is not."""
        latest = table.at - table.window_seconds
        reporting = {node.node for node, at in self._seen_at.items() if node.cluster == cluster and at > latest}
        names = {name for node in reporting for name in _list_names(node)}
        matched, others = list[OfferedNode](), list[OfferedNode]()
        for one in offered:
            is_reporting = any(name in names for each in one.names for name in _list_names(each))
            (matched if is_reporting else others).append(one)
        since = latest - STARTING_SECONDS
        missing = [one for one in others if one.ready_at is not None and one.ready_at <= since]
        if not missing:
            return
        gpus, total = (sum(one.gpus for one in nodes) for nodes in (missing, [*matched, *missing]))
        if matched or not reporting:
            fields = {"missing": len(missing), "nodes": len(matched) + len(missing), "gpus": gpus, "offered": total}
            text = messages.NODES_MISSING.fill(**fields, names=list_names(one.name for one in missing))
            yield _grade(gpus / total, text)
            return
        # The metrics name nodes by words of their own: only their numbers can be compared. Where GPUs are shared, what
        # nodes offer may be more than they have; the number of nodes is right.
        reported = sum(gpus for node, gpus in now.items() if node.cluster == cluster)
        if len(reporting) < len(missing) and reported < gpus:
            fields = {"offered": gpus, "nodes": len(missing), "gpus": reported, "reporting": len(reporting)}
            examples = {"example": min(reporting), "node": missing[0].name}
            text = messages.NODES_MISSING_BY_NUMBER.fill(**fields, **examples)
            yield _grade(min(1 - reported / gpus, 1 - len(reporting) / len(missing)), text)

    def _compare_counts(
        self, offered: Sequence[OfferedNode], now: Mapping[ClusterNode, int], cluster: str, table: UsageTable
    ) -> Iterator[SiteFinding]:
        """GPUs of nodes that report others, and that never reported: relabeling drops series without a pod, or an
        exporter is told to leave GPUs out. What was reported within a day is lost."""
        since = table.at - table.window_seconds - STARTING_SECONDS
        reported: dict[str, list[ClusterNode]] = {}
        for node in now:
            for name in _list_names(node.node) if node.cluster == cluster else ():
                reported.setdefault(name, []).append(node)
        missing: dict[str, tuple[int, int]] = {}
        for one in offered:
            own = {node for each in one.names for name in _list_names(each) for node in reported.get(name, ())}
            known = sum(max(now[node], self._known.get(node, NodeGpus(0, 0.0)).gpus) for node in own)
            if own and known < one.counted and one.ready_at is not None and one.ready_at <= since:
                missing[one.name] = known, one.counted
        if missing:
            names = list_names(f"{name} ({gpus}/{counted})" for name, (gpus, counted) in missing.items())
            count = sum(counted - gpus for gpus, counted in missing.values())
            text = messages.GPUS_UNREPORTED.fill(count=count, nodes=len(missing), names=names)
            yield SiteFinding("warning", "gpus-unreported", text)

    def _find_lost_gpus(self, now: Mapping[ClusterNode, int], table: UsageTable) -> Iterator[SiteFinding]:
        latest = table.at - table.window_seconds
        lost = {
            node: known.gpus - gpus
            for node, gpus in now.items()
            if gpus < (known := self._known.get(node, NodeGpus(0, 0.0))).gpus and known.at <= latest
        }
        if lost:
            names = (f"{node.node} ({now[node]}/{now[node] + gpus})" for node, gpus in lost.items())
            text = messages.GPUS_LOST.fill(count=sum(lost.values()), nodes=len(lost), names=list_names(names))
            yield SiteFinding("warning", "gpus-lost", text)


@dataclass
class GpuPresence:
    """Remembers when GPUs were last seen. For the thread that runs cycles.

    `read_last`: what the ledger knows of earlier processes; it may raise SourceError. `offered`: None without an API
    server. `own_cluster`: the name of its cluster. `nodes`: what is missing while other GPUs report.
    """

    read_last: Callable[[], LastGpus | None] = lambda: None
    offered: OfferedGpus | None = None
    own_cluster: str = ""
    nodes: NodePresence = field(default_factory=NodePresence)
    _last: LastGpus | None = None
    _is_restored: bool = False

    def check(self, table: UsageTable) -> UsageTable:
        """The same table, with findings if it has no GPU, or lacks some."""
        seen = _count_gpus(table)
        if seen:
            self._last = LastGpus(table.at, seen, frozenset(table.clusters))
            missing = tuple(self.nodes.find_missing(table))
            return replace(table, findings=(*table.findings, *missing)) if missing else table
        reasons = [one.message for one in table.findings if one.code == NO_GPU_SERIES]
        others = tuple(one for one in table.findings if one.code != NO_GPU_SERIES)
        why = reasons[0] if reasons else messages.NO_METRICS
        return replace(table, findings=(*others, self._explain(table.at, why)))

    def _explain(self, at: float, why: Message) -> SiteFinding:
        last = self._find_last()
        if self._asks_nodes(last):
            try:
                node = self.offered.find_node() if self.offered else ""
            except SourceError as error:
                why = _join(why, messages.NODES_UNREADABLE.fill(error=error))
            else:
                if not node:
                    return SiteFinding("info", "scaled-to-zero", messages.SCALED_TO_ZERO)
                why = _join(why, messages.NODES_OFFER.fill(node=node))
        if last is None:
            return SiteFinding("degraded", "gpus-never-found", messages.GPUS_NEVER_FOUND.fill(why=why))
        since = datetime.fromtimestamp(last.at, UTC).strftime("%Y-%m-%d %H:%M")
        if at - last.at <= REMEMBERED_SECONDS:
            text = messages.GPUS_VANISHED.fill(gpus=last.gpus, since=since, why=why)
            return SiteFinding("degraded", "gpus-vanished", text)
        return SiteFinding("warning", "gpus-gone", messages.GPUS_GONE.fill(since=since, why=why))

    def _asks_nodes(self, last: LastGpus | None) -> bool:
        """The API server knows the nodes of one cluster: it says nothing about GPUs of another one."""
        if self.offered is None:
            return False
        clusters = last.clusters - {""} if last else frozenset[str]()
        return not clusters or clusters == {self.own_cluster} or (len(clusters) == 1 and not self.own_cluster)

    def _find_last(self) -> LastGpus | None:
        if self._last is None and not self._is_restored:
            try:
                self._last, self._is_restored = self.read_last(), True
            except SourceError as error:
                log.warning("last_gpus_not_read", reason=error)
        return self._last


def _count_gpus(table: UsageTable) -> int:
    """Those that exist; where the source does not count them, those that report."""
    counted = sum(table.fleet.values())
    if counted or not len(table):
        return counted
    stale = {row for row, reason in table.unknown.items() if reason == NO_CURRENT_SAMPLE}
    reporting = (each for row, each in enumerate(table.allocations) if row not in stale)
    return len({(each.cluster, each.gpu_uuid) for each in reporting})


def _join(first: Message, second: Message) -> Message:
    return Message(f"{first.en} {second.en}", f"{first.zh}{second.zh}")


def _grade(ratio: float, text: Message) -> SiteFinding:
    return SiteFinding("degraded" if ratio >= DEGRADED_RATIO else "warning", "nodes-missing", text)


def _counts_all(table: UsageTable, now: Mapping[ClusterNode, int]) -> bool:
    """Whether GPUs are counted on every node that reports holders. HAMi alone does not report free ones, so that a node
    without holders looks like one that does not report."""
    stale = {row for row, reason in table.unknown.items() if reason == NO_CURRENT_SAMPLE}
    return all(
        ClusterNode(each.cluster, each.node) in now for row, each in enumerate(table.allocations) if row not in stale
    )


def _list_names(name: str) -> tuple[str, ...]:
    """A node by its name, by its address with the port of the exporter, by its name with or without a domain."""
    host, _, port = name.lower().rpartition(":")
    host = host if host and port.isdecimal() else name.lower()
    short = host.partition(".")[0]
    return (host,) if short.isdecimal() or ":" in host else (host, short)
