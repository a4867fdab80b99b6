"""What a source says about the whole site: `SiteFinding`s of its usage table. Two contradictions are found here:

A pod runs on one node. Pods that are reported from two nodes, or from two nodes of the same name, which then have two
GPUs of one index, are two pods of the same name. Most often two clusters share an engine and no label of their series
names them.

A device that works although nobody holds it is never shown as a free GPU. Its pods are not recognised (an exporter
without the kubelet's socket, labels that were renamed or dropped), or somebody uses it outside of Kubernetes.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.sources.usage.quantities import UNHELD_FLOOR, Aggregation, Level, Quantity
from gpusteward.analyzer.sources.usage.query_results import DeviceKey, DeviceSet, Flags, PodKey, QueryResults
from gpusteward.analyzer.sources.usage.unknown_rows import HIGHEST_CORE
from gpusteward.analyzer.tables import Column, SiteFinding, UsageTable
from gpusteward.core.messages import Message
from gpusteward.core.usages import AllocationKey, Measure, Stat
from gpusteward.messages import data_health as messages
from gpusteward.messages import unknown_reasons

MAX_NAMES = 3
"""A finding names a few examples; their number says the rest."""
MAX_LABELS = 30
NO_GPU_SERIES = "no-gpu-series"
"""Code of the finding with which a source says why it has no GPU; `gpu_presence` decides what that means."""


def find_failures(failures: Mapping[str, Message]) -> Iterator[SiteFinding]:
    """Whatever could not be read is a warning that names it."""
    if failures:
        named = [messages.FAILED_PART.fill(name=name, reason=reason) for name, reason in failures.items()]
        names = join_messages(named[:MAX_NAMES])
        yield SiteFinding(
            "warning", "source-incomplete", messages.SOURCE_INCOMPLETE.fill(count=len(named), names=names)
        )


def join_messages(parts: Iterable[Message]) -> Message:
    found = list(parts)
    return Message("; ".join(part.en for part in found), "；".join(part.zh for part in found))


def list_names(names: Iterable[str], limit: int = MAX_NAMES) -> str:
    """The first of these names, sorted."""
    found = sorted(set(names))
    return ", ".join(found[:limit]) + (", …" if len(found) > limit else "")


_WITHOUT_KUBERNETES = frozenset({"Program", "Container"})
"""Kinds of machines without Kubernetes: the same program may run on many of them."""
_MOST_NAMES = 3


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
        names = [
            f"{key.namespace}/{key.name} ({', '.join(nodes)})"
            for key, nodes in sorted(self._nodes.items())[:_MOST_NAMES]
        ]
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
    return PodKey(one.container.namespace, one.container.pod, one.cluster)


DEGRADED_RATIO = 0.5
"""Of the GPUs that work: from then on what is shown as free or idle says nothing."""


class UnheldWork(NamedTuple):
    """What one metric scheme says about devices without a holder."""

    working: Sequence[DeviceKey] = ()
    exporters: Sequence[str] = ()  # pods that are named as holders of devices, and are those of the exporter
    exported: Sequence[DeviceKey] = ()  # devices whose holder is such a pod


NOTHING = UnheldWork()


def find_unheld_work(results: QueryResults, window_seconds: float) -> UnheldWork:
    """A device that had a holder at any time of the window is left out: the work may have been its."""
    if results.scheme.devices:
        return NOTHING  # its devices are those of DCGM
    if results.scheme.lists_allocations:
        return UnheldWork(_find_native(results, window_seconds))
    keys, exporters = results.holders.keys, results.exporter_rows
    working = np.flatnonzero(_works(results.column(Level.HOLDER, Quantity.UNHELD, Aggregation.MEAN))).tolist()
    # Some series may name a namespace and no pod: the label of their pods was dropped or renamed.
    works = np.flatnonzero(_works(results.column(Level.HOLDER, Quantity.CORE, Aggregation.MEAN))).tolist()
    working += [row for row in works if not keys[row].pod or row in exporters]
    held = _list_held(results) if working else DeviceSet()
    return UnheldWork(
        [keys[row].device for row in working if keys[row].device not in held],
        sorted({f"{keys[row].namespace}/{keys[row].pod}" for row in exporters}),
        sorted({keys[row].device for row in exporters if row in results.present}),
    )


def _works(core: Column) -> Flags:
    """A few impossible samples, which drivers are known to report, are no work."""
    return (core > UNHELD_FLOOR) & (core <= HIGHEST_CORE)


def _find_native(results: QueryResults, window_seconds: float) -> list[DeviceKey]:
    busy = results.column(Level.DEVICE, Quantity.BUSY, Aggregation.INCREASE)
    working = np.flatnonzero(busy > UNHELD_FLOOR * window_seconds).tolist()
    if not working:
        return []
    keys, held = results.devices.keys, _list_held(results)
    instances = (row for row, details in results.device_details.items() if details.parent_uuid)
    held.update(DeviceKey(results.device_details[row].parent_uuid, "", keys[row].cluster) for row in instances)
    return [keys[row] for row in working if keys[row] not in held]


def _list_held(results: QueryResults) -> DeviceSet:
    has_samples, exporters = results.has_samples, results.exporter_rows
    return DeviceSet(
        key.device
        for row, key in enumerate(results.holders.keys)
        if key.pod and row not in exporters and (has_samples[row] or row in results.present)
    )


def find_contradictions(table: UsageTable, found: Iterable[UnheldWork], labels: Iterable[str]) -> Iterator[SiteFinding]:
    """`labels`: of the series that name no holder."""
    parts = [part for part in found if part.working or part.exporters]
    if not parts:
        return
    held = DeviceSet(DeviceKey(each.gpu_uuid, "", each.cluster) for each in table.allocations)
    # Another label may name the holder.
    exported = {key for part in parts for key in part.exported if key._replace(instance="") not in held}
    if exported:
        names = list_names(name for part in parts for name in part.exporters)
        text = messages.EXPORTER_IS_HOLDER.fill(count=len(exported), names=names)
        yield SiteFinding("info", "exporter-is-holder", text)
    working = {key._replace(instance="") for part in parts for key in part.working}
    working = {key for key in working if key not in held}
    if not working:
        return
    works = np.flatnonzero(table.column(Measure.CORE, Stat.MEAN) > UNHELD_FLOOR).tolist()
    known = len({(table.allocations[row].cluster, table.allocations[row].gpu_uuid) for row in works})
    text = messages.USED_BY_NOBODY_KNOWN.fill(
        count=len(working),
        names=list_names(key.uuid for key in working),
        known=known,
        labels=", ".join(sorted(labels)) or "-",
    )
    is_most = len(working) >= DEGRADED_RATIO * (len(working) + known)
    yield SiteFinding("degraded" if is_most else "warning", "used-by-nobody-known", text)
