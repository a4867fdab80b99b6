"""The rows of the dcgm dialect: every device, MIG instance or pod that gets a sample, and its labels in dcgm-exporter's
order: device, labels of the field list and the pod, holder.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from gpusteward.agent.dialects.dcgm_options import DcgmOptions, DeviceSelection, instance_number
from gpusteward.agent.field_list import LabelRow, MetricRow
from gpusteward.agent.usage_counters import NO_COUNTERS, SnapshotView
from gpusteward.core.dcgm import DcgmEvent
from gpusteward.core.exposition import LabelCache, Labels
from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import Gpu, GpuAllocation, GpuReading, Place
from gpusteward.core.node.signals import SIGNALS, Scope
from gpusteward.core.node.usage_split import Part, group_by_gpu

HEAD = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "GPU_CI_ID")
HOLDER = ("container", "namespace", "pod", "pod_uid", "vgpu")
OLD = ("uuid", "container_name", "pod_namespace", "pod_name")
HPC_JOB = "hpc_job"
XID_ERROR = ("err_code", "err_msg")
EVENT = ("window_size_in_ms", "xid", "clock_event", "peer_gpu", "link_status")
RESERVED = frozenset((*HEAD, *HOLDER, *OLD, *EVENT, "Hostname", "hostname"))
"""Pod labels must not use these names, nor names that begin with `dra_`."""


_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")


class ExportedLabels(NamedTuple):
    """The labels of a device, of a MIG instance, or of one holder's sample of it."""

    head: Labels
    middle: Labels  # sorted: labels of the field list and of the pod
    tail: Labels  # sorted: labels of the holder

    def all(self) -> Labels:
        return self.head + self.middle + self.tail

    def with_holder(self, *more: tuple[str, str]) -> "ExportedLabels":
        """With these labels among those of the holder."""
        return self._replace(tail=tuple(sorted((*self.tail, *more))))

    def with_event(self, event: Labels) -> Labels:
        """All labels, with the event's labels where dcgm-exporter puts them."""
        return self.head + tuple(sorted(self.middle + event)) + self.tail


class LabelBuilder:
    """Builds the labels of a device according to the options and the label rows of the field list."""

    def __init__(self, options: DcgmOptions, rows: tuple[LabelRow, ...]) -> None:
        self._options = options
        self._rows = sorted((name, row.field.fact) for row in rows for name in exported_names(row, options.names))
        optional = (*(XID_ERROR if options.xid_error_labels else ()), *((HPC_JOB,) if options.hpc_jobs else ()))
        self._taken = RESERVED.union((name for name, _ in self._rows), optional)
        names = ("Hostname", "hostname") if options.hostname_label == "both" else (options.hostname_label,)
        self._host = tuple((name, options.hostname) for name in names) if options.hostname else ()

    def label(self, gpu: Gpu, *, holder: GpuAllocation | None, with_compute_instance: bool) -> ExportedLabels:
        middle = [(name, text) for name, fact in self._rows if (text := _read_fact(gpu, fact))]
        if holder is None:
            return ExportedLabels(self._head(gpu, with_compute_instance), tuple(middle), ())
        if self._options.pod_labels and holder.container.pod_labels:
            middle += name_pod_labels(holder.container.pod_labels, self._taken)
            middle.sort()
        return ExportedLabels(self._head(gpu, with_compute_instance), tuple(middle), self._tail(holder))

    def _head(self, gpu: Gpu, with_compute_instance: bool) -> Labels:
        model = "-".join(gpu.model.split()) if self._options.replace_blanks else gpu.model
        head = [("gpu", str(gpu.index)), ("uuid" if self._options.old_labels else "UUID", gpu.device_uuid)]
        if gpu.pci_bus_id:
            head.append(("pci_bus_id", gpu.pci_bus_id))
        head += [("device", f"nvidia{gpu.index}"), ("modelName", model)]
        if gpu.mig:
            head += [("GPU_I_PROFILE", gpu.mig.profile), ("GPU_I_ID", str(gpu.mig.gpu_instance_id))]
        if gpu.mig and with_compute_instance:
            head.append(("GPU_CI_ID", str(gpu.mig.compute_instance_id)))
        return (*head, *self._host)

    def _tail(self, holder: GpuAllocation) -> Labels:
        names = ("container_name", "pod_namespace", "pod_name") if self._options.old_labels else HOLDER[:3]
        container = holder.container
        tail = dict(holder.claim) | dict(zip(names, (container.name, container.namespace, container.pod), strict=True))
        if self._options.pod_uid:
            tail["pod_uid"] = container.pod_uid
        if self._options.device_per_pod:
            tail["vgpu"] = holder.replica
        return tuple(sorted(pair for pair in tail.items() if pair[1]))


@lru_cache(maxsize=256)
def name_pod_labels(labels: Labels, taken: frozenset[str]) -> Labels:
    """Pod labels under valid Prometheus names; conflicting names get a prefix, then a number.

    Empty values are omitted, because for Prometheus an empty label does not exist. Pods repeat every cycle, so results
    are cached, for more pods than a node can run.
    """
    used = set(taken)
    named: list[tuple[str, str]] = []
    for key, value in sorted(pair for pair in labels if pair[1]):
        name = _name_pod_label(key, used)
        used.add(name)
        named.append((name, value))
    return tuple(named)


def _name_pod_label(key: str, used: set[str]) -> str:
    name = _NOT_IN_A_NAME.sub("_", key)
    if name[:1].isdigit():
        name = f"_{name}"
    if name not in used and not name.startswith(("dra_", "__")):  # Prometheus reserves names with two underscores
        return name
    name = prefixed = f"pod_label_{name}"
    number = 2
    while name in used:
        name, number = f"{prefixed}_{number}", number + 1
    return name


def exported_names(row: LabelRow | MetricRow, names: str) -> tuple[str, ...]:
    """A classic name follows the option; any other name is exported as written, as in dcgm-exporter."""
    renamed = "" if isinstance(row.field, DcgmEvent) else row.field.v49_name
    if row.name != row.field.name or not renamed or names == "classic":
        return (row.name,)
    return (renamed,) if names == "v4.9" else (row.name, renamed)


_OWN: Mapping[str, Callable[[Gpu], str]] = {
    "model": lambda gpu: gpu.model,
    "index": lambda gpu: str(gpu.index),
    "device_uuid": lambda gpu: gpu.device_uuid,
    "minor": lambda gpu: "" if gpu.minor is None else str(gpu.minor),
    "pci_bus_id": lambda gpu: gpu.pci_bus_id,
}


def _read_fact(gpu: Gpu, fact: str) -> str:
    own = _OWN.get(fact)
    return own(gpu) if own else gpu.facts.get(fact, "")


ALL_SCOPES = (Scope.DEVICE, Scope.COPY, Scope.INSTANCE)
"""Of a GPU without MIG instances."""
INSTANCE_SCOPES = (Scope.COPY, Scope.INSTANCE)
MIG_PARENT_SCOPES = (Scope.DEVICE,)
"""Power, energy and PCIe only once. dcgm-exporter repeats them per instance, which makes sums wrong."""

_COPIED = tuple(signal.name for signal in SIGNALS.values() if signal.scope is Scope.COPY)


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """One sample in each family of its scopes."""

    reading: GpuReading
    signals: Mapping[str, float]
    labels: ExportedLabels
    text: str  # the labels, rendered
    is_rest: bool = False  # what is left of a shared GPU beside the rows of its pods


@dataclass(frozen=True, slots=True)
class ExportedDevice:
    """A device or MIG instance, and the scopes of the families it appears in."""

    reading: GpuReading
    scopes: tuple[Scope, ...]
    parent: GpuReading | None = None
    with_compute_instance: bool = False

    def signals(self) -> Mapping[str, float]:
        """Its own signals, and those of the parent that apply to every instance."""
        if self.parent is None:
            return self.reading.signals
        above = self.parent.signals
        return {name: above[name] for name in _COPIED if name in above} | dict(self.reading.signals)


Rows = Mapping[Scope, list[LabelledRow]]


def list_rows(view: SnapshotView, options: DcgmOptions, label_builder: LabelBuilder, *, cache: LabelCache) -> Rows:
    """All rows by scope, in the order of the GPUs. Of a lost GPU only the XIDs are known."""
    rows: dict[Scope, list[LabelledRow]] = {scope: [] for scope in ALL_SCOPES}
    usage = _AllocationUsage(view)
    for entity in list_devices(view.snapshot.readings, options.devices):
        jobs = view.snapshot.hpc_jobs.get(entity.reading.gpu.uuid, ())
        for labels, signals, is_rest in _list_copies(entity, usage, label_builder, per_pod=options.device_per_pod):
            # As dcgm-exporter: every sample once for each job on its GPU.
            for own in [labels.with_holder((HPC_JOB, job)) for job in jobs] or [labels]:
                row = LabelledRow(entity.reading, signals, own, cache.render(own.all()), is_rest)
                for scope in entity.scopes:
                    rows[scope].append(row)
    return rows


def list_devices(readings: Sequence[GpuReading], devices: DeviceSelection) -> Iterator[ExportedDevice]:
    """The selected devices and instances."""
    for device, instances in _group(readings):
        chosen = [
            (position, instance)
            for position, instance in enumerate(instances)
            if devices.takes_instance(instance.gpu.index, position)
        ]
        if devices.takes_gpu(device.gpu.index) or (devices.is_flexible and not instances):
            yield ExportedDevice(device, ALL_SCOPES)
        elif chosen:
            yield ExportedDevice(device, MIG_PARENT_SCOPES)
        sizes = Counter(map(_instance_id, instances))  # of several compute instances each has the label GPU_CI_ID
        for _, instance in chosen:
            yield ExportedDevice(instance, INSTANCE_SCOPES, device, sizes[_instance_id(instance)] > 1)


def find_missing(readings: Sequence[GpuReading], devices: DeviceSelection) -> list[str]:
    """Selected ids that do not exist on this node, such as `g:9`."""
    gpus = {reading.gpu.index for reading in readings}
    instances = {
        instance_number(device.gpu.index, position) for device, own in _group(readings) for position in range(len(own))
    }
    return [
        *(f"g:{number}" for number in sorted((devices.gpus or set()) - gpus)),
        *(f"i:{number}" for number in sorted((devices.instances or set()) - instances)),
    ]


def _group(readings: Sequence[GpuReading]) -> Iterator[tuple[GpuReading, list[GpuReading]]]:
    """Each device with its instances."""
    instances: dict[str, list[GpuReading]] = {}
    for reading in readings:
        if reading.gpu.mig:
            instances.setdefault(reading.gpu.mig.parent_uuid, []).append(reading)
    for reading in readings:
        if not reading.gpu.mig:
            yield reading, instances.get(reading.gpu.uuid, [])


def _instance_id(instance: GpuReading) -> int:
    return instance.gpu.mig.gpu_instance_id if instance.gpu.mig else -1


class _AllocationUsage:
    """Allocations per GPU, and the measured part of each holder."""

    def __init__(self, view: SnapshotView) -> None:
        self._counters = view.parts
        self._splits = {split.gpu.uuid: split for split in view.splits}
        self._rest_joules = view.gpu_rest_joules
        self._by_gpu = group_by_gpu(view.snapshot.allocations)
        self._parts: dict[tuple[str, Container | None], Part] = {
            (split.gpu.uuid, part.container): part
            for split in view.splits
            for part in split.parts
            if part.by is Place.CONTAINER
        }

    def on(self, gpu_uuid: str) -> Sequence[GpuAllocation]:
        return self._by_gpu.get(gpu_uuid, ())

    def measure(self, allocation: GpuAllocation, *, of: int) -> dict[str, float | None]:
        """The usage of one allocation. If a container has `of` allocations, its usage is spread evenly over them."""
        gpu_uuid, container = allocation.gpu_uuid, allocation.container
        part = self._parts.get((gpu_uuid, container), _UNKNOWN)
        own = {
            "utilization_ratio": part.utilization_ratio,
            "memory_used_bytes": part.memory_bytes,
            "power_watts": part.power_watts,
            "energy_joules_total": self._counters.get(
                (gpu_uuid, Place.CONTAINER, container), NO_COUNTERS
            ).energy_joules,
        }
        return {name: None if value is None else value / of for name, value in own.items()}

    def measure_rest(self, gpu_uuid: str) -> dict[str, float | None]:
        """The usage of the GPU that none of its holders has."""
        rest = self._splits[gpu_uuid].sum_rest() if gpu_uuid in self._splits else _UNKNOWN
        return {
            "utilization_ratio": rest.utilization_ratio,
            "memory_used_bytes": rest.memory_bytes,
            "power_watts": rest.power_watts,
            "energy_joules_total": self._rest_joules.get(gpu_uuid),
        }


_UNKNOWN = Part(Place.CONTAINER)
_Copy = tuple[ExportedLabels, Mapping[str, float], bool]  # labels, signals, whether it is the rest


def _list_copies(
    entity: ExportedDevice, usage: _AllocationUsage, label_builder: LabelBuilder, *, per_pod: bool
) -> list[_Copy]:
    """One sample per device, labelled with its exclusive holder; in the per-pod form one sample per allocation of a
    shared device instead, and one without a pod for the rest of what the pods have in parts: sums are right."""
    allocations = usage.on(entity.reading.gpu.uuid)
    holder = find_holder(allocations)
    signals = entity.signals()
    if not per_pod or holder or not allocations:
        return [(_label(entity, label_builder, holder), signals, False)]
    shared = Counter(allocation.container for allocation in allocations)
    merged: dict[ExportedLabels, dict[str, float | None]] = {}
    for allocation in allocations:
        own = usage.measure(allocation, of=shared[allocation.container])
        labels = _label(entity, label_builder, allocation if allocation.container.pod else None)
        merged[labels] = _add(merged[labels], own) if labels in merged else own
    of_rest, rest = _label(entity, label_builder, None), usage.measure_rest(entity.reading.gpu.uuid)
    rest = _add(rest, merged.pop(of_rest)) if of_rest in merged else rest
    copies = [(labels, _replace(signals, own), False) for labels, own in merged.items()]
    return [*copies, (of_rest, _replace({}, rest), True)]


def _label(entity: ExportedDevice, label_builder: LabelBuilder, holder: GpuAllocation | None) -> ExportedLabels:
    return label_builder.label(entity.reading.gpu, holder=holder, with_compute_instance=entity.with_compute_instance)


def find_holder(allocations: Sequence[GpuAllocation]) -> GpuAllocation | None:
    """The allocation of the pod that holds the device exclusively.

    A device that can be shared counts as shared even while one pod holds it, so that its labels stay stable.
    """
    if not allocations or any(one.share.is_shared for one in allocations):
        return None
    first = min(allocations, key=lambda one: one.container.name)
    pods = {(one.container.namespace, one.container.pod, one.container.pod_uid) for one in allocations}
    return first if len(pods) == 1 else None


def _add(one: Mapping[str, float | None], other: Mapping[str, float | None]) -> dict[str, float | None]:
    """Allocations with identical labels become one sample: the sum, or unknown if one is unknown."""
    return {
        name: None if value is None or (more := other[name]) is None else value + more for name, value in one.items()
    }


def _replace(signals: Mapping[str, float], own: Mapping[str, float | None]) -> Mapping[str, float]:
    """The device's signals with the holder's own values; values unknown for the holder are absent."""
    copied = {name: value for name, value in signals.items() if name not in own}
    return copied | {name: value for name, value in own.items() if value is not None}
