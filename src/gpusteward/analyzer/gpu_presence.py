"""`GpuPresence`: a site without any GPU is degraded, unless the API server shows that no node offers one.

Otherwise a site whose exporters have all disappeared would look like one where nothing is held.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gpusteward.analyzer.ledger.last_gpus import LastGpus
from gpusteward.analyzer.node_presence import NodePresence
from gpusteward.analyzer.sources.offered_gpus import OfferedGpus
from gpusteward.analyzer.sources.usage.findings import NO_GPU_SERIES
from gpusteward.analyzer.tables import Finding, UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.logs import Log
from gpusteward.messages import data_health as messages
from gpusteward.messages.unknown_reasons import NO_CURRENT_SAMPLE

log = Log(__name__)

REMEMBERED_SECONDS = 86_400.0


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

    def _explain(self, at: float, why: Message) -> Finding:
        last = self._find_last()
        if self._asks_nodes(last):
            try:
                node = self.offered.find_node() if self.offered else ""
            except SourceError as error:
                why = _join(why, messages.NODES_UNREADABLE.fill(error=error))
            else:
                if not node:
                    return Finding("info", "scaled-to-zero", messages.SCALED_TO_ZERO)
                why = _join(why, messages.NODES_OFFER.fill(node=node))
        if last is None:
            return Finding("degraded", "gpus-never-found", messages.GPUS_NEVER_FOUND.fill(why=why))
        since = datetime.fromtimestamp(last.at, UTC).strftime("%Y-%m-%d %H:%M")
        if at - last.at <= REMEMBERED_SECONDS:
            text = messages.GPUS_VANISHED.fill(gpus=last.gpus, since=since, why=why)
            return Finding("degraded", "gpus-vanished", text)
        return Finding("warning", "gpus-gone", messages.GPUS_GONE.fill(since=since, why=why))

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
