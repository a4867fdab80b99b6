"""Pods that are reported from two nodes, or from two nodes of the same name, which then have two GPUs of one index: a
pod runs on one node, so these are two pods of the same name. Most often two clusters share an engine and no label of
their series names them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.messages import Message
from gpusteward.core.usages import AllocationKey
from gpusteward.messages import unknown_reasons

_WITHOUT_KUBERNETES = frozenset({"Program", "Container"})
"""Kinds of machines without Kubernetes: the same program may run on many of them."""
_MOST_NAMES = 3

PodKey = tuple[str, str, str]  # cluster, namespace, name


class PodsOnTwoNodes:
    """Finds them; looks again only when the allocations have changed."""

    def __init__(self) -> None:
        self._seen: Sequence[AllocationKey] = ()
        self._unknown = frozenset[int]()
        self._nodes: Mapping[PodKey, Sequence[str]] = {}

    def mark(self, table: UsageTable) -> UsageTable:
        """Rows of such pods are unknown: whose work it is cannot be said. Rows that are unknown already do not count: a
        pod that was moved to another node is stale on the first one."""
        if table.allocations is not self._seen or table.unknown.keys() != self._unknown:
            self._seen, self._unknown, self._nodes = table.allocations, frozenset(table.unknown), _find(table)
        if not self._nodes:
            return table
        found = {
            row: unknown_reasons.POD_ON_TWO_NODES
            for row, one in enumerate(table.allocations)
            if _key(one) in self._nodes and row not in table.unknown
        }
        return replace(table, unknown={**table.unknown, **found})

    def describe(self) -> Message | None:
        """Which ones, for people who may see all namespaces."""
        if not self._nodes:
            return None
        names = [f"{key[1]}/{key[2]} ({', '.join(nodes)})" for key, nodes in sorted(self._nodes.items())[:_MOST_NAMES]]
        return unknown_reasons.PODS_ON_TWO_NODES.fill(count=len(self._nodes), pods="; ".join(names))


def _find(table: UsageTable) -> Mapping[PodKey, Sequence[str]]:
    nodes: dict[PodKey, str] = {}
    gpus: dict[tuple[PodKey, str], str] = {}  # by pod and index
    twins: dict[PodKey, set[str]] = {}
    for row, one in enumerate(table.allocations):
        if not one.node or not one.container.pod or row in table.unknown:
            continue
        workload = one.container.workload
        if workload is not None and workload.kind in _WITHOUT_KUBERNETES:
            continue
        first = nodes.setdefault(_key(one), one.node)
        is_whole = bool(one.gpu_index) and not one.gpu_instance  # an instance has the index of its GPU
        uuid = gpus.setdefault((_key(one), one.gpu_index), one.gpu_uuid) if is_whole else one.gpu_uuid
        if first != one.node or uuid != one.gpu_uuid:
            twins.setdefault(_key(one), {first}).add(one.node)
    return {key: sorted(found) for key, found in twins.items()}


def list_shared_nodes(table: UsageTable) -> Collection[str]:
    """Nodes of which two held GPUs have one index: two machines share a name."""
    gpus: dict[tuple[str, str, str], str] = {}
    found = set[str]()
    for row, one in enumerate(table.allocations):
        if one.node and one.gpu_index and not one.gpu_instance and row not in table.unknown:
            place = one.cluster, one.node, one.gpu_index
            if gpus.setdefault(place, one.gpu_uuid) != one.gpu_uuid:
                found.add(one.node)
    return found


def _key(one: AllocationKey) -> PodKey:
    return one.cluster, one.container.namespace, one.container.pod
