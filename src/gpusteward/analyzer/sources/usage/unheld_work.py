"""Devices that work although nobody holds them: a contradiction, which is said and never shown as a free GPU.

Their pods are not recognised (an exporter without the kubelet's socket, labels that were renamed or dropped), or
somebody uses them outside of Kubernetes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gpusteward.analyzer.sources.site_findings import list_names
from gpusteward.analyzer.sources.usage.metric_schemes import MetricScheme
from gpusteward.analyzer.sources.usage.quantities import UNHELD_FLOOR, Aggregation, Level, Quantity
from gpusteward.analyzer.sources.usage.query_results import Flags, QueryResults
from gpusteward.analyzer.sources.usage.row_index import DeviceKey, DeviceSet
from gpusteward.analyzer.sources.usage.unknown_rows import HIGHEST_CORE
from gpusteward.analyzer.tables import Column, Finding, UsageTable
from gpusteward.core.usages import Measure, Stat
from gpusteward.messages import data_health as messages

DEGRADED_RATIO = 0.5
"""Of the GPUs that work: from then on what is shown as free or idle says nothing."""


class UnheldWork(NamedTuple):
    """What one metric scheme says about devices without a holder."""

    working: Sequence[DeviceKey] = ()
    exporters: Sequence[str] = ()  # pods that are named as holders of devices, and are those of the exporter
    exported: Sequence[DeviceKey] = ()  # devices whose holder is such a pod


NOTHING = UnheldWork()


def find_unheld_work(scheme: MetricScheme, results: QueryResults, window_seconds: float) -> UnheldWork:
    """A device that had a holder at any time of the window is left out: the work may have been its."""
    if scheme is MetricScheme.HAMI:
        return NOTHING  # its devices are those of DCGM
    if scheme is MetricScheme.NATIVE:
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


def find_contradictions(table: UsageTable, found: Iterable[UnheldWork], labels: Iterable[str]) -> Iterator[Finding]:
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
        yield Finding("info", "exporter-is-holder", text)
    working = {key._replace(instance="") for part in parts for key in part.working}
    working = {key for key in working if key not in held}
    if not working:
        return
    known = _count_known(table)
    text = messages.USED_BY_NOBODY_KNOWN.fill(
        count=len(working),
        names=list_names(key.uuid for key in working),
        known=known,
        labels=", ".join(sorted(labels)) or "-",
    )
    is_most = len(working) >= DEGRADED_RATIO * (len(working) + known)
    yield Finding("degraded" if is_most else "warning", "used-by-nobody-known", text)


def _count_known(table: UsageTable) -> int:
    """GPUs that work for a holder."""
    rows = np.flatnonzero(table.column(Measure.CORE, Stat.MEAN) > UNHELD_FLOOR).tolist()
    return len({(table.allocations[row].cluster, table.allocations[row].gpu_uuid) for row in rows})
