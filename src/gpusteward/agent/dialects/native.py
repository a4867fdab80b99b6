"""The native dialect: gpusteward's own names in base units; the parts of each GPU sum to the device total."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter

from gpusteward.agent.dialects.dcgm import DcgmDialect
from gpusteward.agent.usage_counters import NO_COUNTERS, SnapshotView
from gpusteward.core import metrics
from gpusteward.core.exposition import Family, FamilyBuilder, LabelCache, Labels, Samples
from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import Gpu, GpuAllocation, GpuProcess, GpuReading, Place
from gpusteward.core.node.signals import SIGNALS, Scope
from gpusteward.core.node.usage_split import UTILIZATION_SIGNALS, Part

_NO_CONTAINER = Container()
Counts = Mapping[int, int] | Mapping[str, int] | Mapping[int | str, int]


class NativeDialect:
    """Renders a view under gpusteward's own names."""

    name = "native"

    def __init__(
        self,
        labels: LabelCache,
        *,
        pod_labels: bool = False,
        all_series: bool = False,
        beside: DcgmDialect | None = None,
    ) -> None:
        """`pod_labels`: whether allocations have the labels of their pods. `all_series`: also those that nothing here
        reads, and those that the dialect `beside` this one repeats."""
        self._labels = labels
        self._has_pod_labels = pod_labels
        self._all_series = all_series
        self._unread = frozenset[str]() if all_series else UNREAD
        self._beside = beside

    @property
    def wanted(self) -> frozenset[str]:
        """Names of the signals it needs."""
        return frozenset(metrics.DEVICE_SIGNALS).difference(self._unread) | {"clock_event_reasons", "last_xid"}

    @property
    def _hidden(self) -> frozenset[str]:
        """Signals of a GPU without MIG that are not exported; the list of DCGM fields can change."""
        if self._all_series or self._beside is None:
            return self._unread
        return self._unread | (REPEATED & self._beside.exported)

    def families(self, view: SnapshotView) -> list[Family]:
        builder = FamilyBuilder()
        gpus = {reading.gpu.uuid: reading.gpu for reading in view.snapshot.readings}
        self._write_readings(builder, view.snapshot.readings)
        self._write_splits(builder, view)
        self._write_parts(builder, view)
        self._write_allocations(builder, [each for each in view.snapshot.allocations if each.gpu_uuid in gpus], gpus)
        self._write_processes(builder, [each for each in view.snapshot.processes if each.gpu_uuid in gpus], gpus)
        node = (("node", view.snapshot.node),)
        rows = builder.rows(metrics.ALLOCATIONS_KNOWN, metrics.ALLOCATIONS_KEPT)
        known, kept = view.snapshot.allocations_known, view.snapshot.allocations_kept
        rows.write(self._labels.render(node), int(known), kept or None)
        unlisted = builder.rows(metrics.UNLISTED_DEVICES)
        for each in view.snapshot.unlisted_devices:
            labels = (*node, *_pod_labels(each.container), ("resource", each.resource))
            unlisted.write(self._labels.render(labels), each.count)
        host_use = builder.rows(metrics.POD_CPU_SECONDS, metrics.POD_DISK_BYTES, metrics.POD_NETWORK_BYTES)
        for use in view.snapshot.pod_host_use:
            values = (_round(use.cpu_seconds), use.disk_bytes, use.network_bytes)
            host_use.write(self._labels.render((*node, *_pod_labels(use.pod))), *values)
        return builder.families()

    def list_unavailable(self, unsupported: frozenset[str]) -> list[str]:
        """Names of the families that a GPU without these signals cannot have."""
        hidden = self._hidden
        return [
            metric.name for metric, any_of in _NEEDS if hidden.isdisjoint(any_of) and unsupported.issuperset(any_of)
        ]

    def _write_readings(self, builder: FamilyBuilder, readings: Sequence[GpuReading]) -> None:
        info, up = builder.rows(metrics.GPU_INFO), builder.rows(metrics.GPU_UP)
        totals, hidden = builder.rows(metrics.GPU_ALL_XID_ERRORS, metrics.GPU_ALL_CLOCK_EVENTS), self._hidden
        by_level = {
            level: (names, builder.rows(*(metrics.DEVICE_SIGNALS[name] for name in names)))
            for level, every in _SIGNALS_BY_LEVEL.items()
            # Of a MIG device DCGM has most values by instance only.
            for names in ([name for name in every if name not in (hidden if level == "whole" else self._unread)],)
        }
        for reading in readings:
            gpu, version = reading.gpu, reading.gpu.facts.get("driver_version")
            key = ("gpu", gpu.uuid, gpu.index, version)
            own, identity = self._labels.get_or_render_all(key, partial(_labels_of_reading, gpu))
            info.write(identity, 1 if gpu.uuid else None)
            up.write(own, int(not reading.lost))
            names, rows = by_level["instance" if gpu.mig else "parent" if reading.is_mig_parent else "whole"]
            rows.write(own, *map(reading.signals.get, names))
            clock_changes = sum(reading.clock_event_counts.values()) if reading.clock_event_counts else None
            is_known = reading.xid_counts or "last_xid" in reading.signals  # else the driver reports no XIDs
            totals.write(own, sum(reading.xid_counts.values()) if is_known else None, clock_changes)
        self._write_events(builder.column(metrics.GPU_XID_ERRORS), readings, "xid", attrgetter("xid_counts"))
        self._write_events(
            builder.column(metrics.GPU_CLOCK_EVENTS), readings, "reason", attrgetter("clock_event_counts")
        )

    def _write_events(
        self, samples: Samples, readings: Sequence[GpuReading], label: str, read: Callable[[GpuReading], Counts]
    ) -> None:
        """One sample per event that occurred and GPU, with the event in its own label."""
        for reading in readings:
            counts = {event: count for event, count in read(reading).items() if count}
            key = (label, reading.gpu.uuid, reading.gpu.index, *counts)
            texts = self._labels.get_or_render_all(key, partial(_labels_of_events, reading.gpu, label, counts))
            samples += zip(texts, counts.values(), strict=True)

    def _write_splits(self, builder: FamilyBuilder, view: SnapshotView) -> None:
        rows = builder.rows(*_SPLIT_METRICS)
        hides_memory = "memory_used_bytes" in self._hidden
        for each in view.splits:
            gpu = each.gpu
            rows.write(
                self._labels.get_or_render(("split", gpu.uuid, gpu.index), partial(gpu_labels, gpu)),
                _round(each.utilization_ratio),
                None if hides_memory and not gpu.mig else each.memory_used_bytes,
                _round(view.gpu_busy_seconds.get(gpu.uuid)),
                _round(view.gpu_outside_seconds.get(gpu.uuid)),
            )

    def _write_parts(self, builder: FamilyBuilder, view: SnapshotView) -> None:
        rows, energy = builder.rows(*_PART_METRICS), builder.rows(metrics.USE_ENERGY)
        video = builder.rows(metrics.USE_VIDEO_SECONDS)
        for split in view.splits:
            gpu = split.gpu
            for part in split.parts:
                key = (gpu.uuid, part.by, part.container)
                counters = view.parts.get(key, NO_COUNTERS)
                workload = part.container.workload if part.container else None
                labels = self._labels.get_or_render(
                    ("use", key, gpu.index, workload), partial(_labels_of_part, gpu, part)
                )
                values = (
                    _round(part.utilization_ratio),
                    part.memory_bytes,
                    part.processes,
                    _round(part.power_watts),
                    _round(counters.busy_seconds),
                )
                # Nobody holds these parts: without use they have no series.
                rows.write(labels, *(values if part.container else [value or None for value in values]))
                if self._all_series:
                    energy.write(labels, _round(counters.energy_joules))
                if part.by is not Place.HOST or counters.video_seconds:  # verdicts need its increase, from 0 on
                    video.write(labels, _round(counters.video_seconds))

    def _write_allocations(
        self, builder: FamilyBuilder, allocations: Sequence[GpuAllocation], gpus: Mapping[str, Gpu]
    ) -> None:
        info, rows = builder.rows(metrics.ALLOCATION_INFO), builder.rows(*_ALLOCATION_METRICS)
        for each in allocations:
            gpu, holder = gpus[each.gpu_uuid], each.container
            pod_labels = holder.pod_labels if self._has_pod_labels else ()
            terms = (holder.workload, holder.user, pod_labels, each.share, each.resource, each.replica, each.used_by)
            key = (gpu.uuid, gpu.index, holder, *terms)
            own, with_terms = self._labels.get_or_render_all(key, partial(_labels_of_allocation, each, gpu, pod_labels))
            info.write(with_terms, 1)
            rows.write(own, each.memory_limit_bytes, each.core_limit_ratio, holder.started_at)

    def _write_processes(
        self, builder: FamilyBuilder, processes: Sequence[GpuProcess], gpus: Mapping[str, Gpu]
    ) -> None:
        rows = builder.rows(metrics.PROCESS_MEMORY, metrics.PROCESS_OUTSIDE, metrics.PROCESS_MEMORY_UNKNOWN)
        utilization, engines = builder.column(metrics.PROCESS_UTILIZATION), _ENGINES if self._all_series else ()
        for each in processes:
            gpu = gpus[each.gpu_uuid]
            key = ("process", gpu.uuid, gpu.index, each.pid, each.name, each.place, each.container)
            own, *by_engine = self._labels.get_or_render_all(key, partial(_labels_of_process, each, gpu, engines))
            is_outside, is_hidden = each.outside_allocation, each.memory_bytes is None
            rows.write(own, each.memory_bytes, 1 if is_outside else None, 1 if is_hidden else None)
            if engines:
                ratios = (each.sm_ratio, each.memory_ratio, each.encoder_ratio, each.decoder_ratio)
                utilization += [
                    (text, value) for text, value in zip(by_engine, ratios, strict=True) if value is not None
                ]


UNREAD = frozenset({"memory_free_bytes", "memory_reserved_bytes", "energy_joules_total"})
"""Signals that no dashboard, rule, verdict or documented query reads under their native name."""
REPEATED = frozenset(
    {"memory_used_bytes", "memory_temperature_celsius", "memory_clock_hertz", "encoder_ratio", "decoder_ratio"}
)
"""Signals that whoever reads them also reads under their DCGM name. Verdicts and rules need the others under the native
name; of video engines verdicts read `use_video_seconds_total`."""

_NEEDS = (
    *((metric, (signal,)) for signal, metric in metrics.DEVICE_SIGNALS.items()),
    *((metric, ("last_xid",)) for metric in (metrics.GPU_ALL_XID_ERRORS, metrics.GPU_XID_ERRORS)),
    *((metric, ("clock_event_reasons",)) for metric in (metrics.GPU_ALL_CLOCK_EVENTS, metrics.GPU_CLOCK_EVENTS)),
    (metrics.GPU_MEMORY_USED, ("memory_used_bytes",)),
    (metrics.GPU_UTILIZATION, UTILIZATION_SIGNALS),
    (metrics.GPU_BUSY_SECONDS, UTILIZATION_SIGNALS),
)
"""The families of a GPU, each with the signals of which it needs one."""
_SPLIT_METRICS = (
    metrics.GPU_UTILIZATION,
    metrics.GPU_MEMORY_USED,
    metrics.GPU_BUSY_SECONDS,
    metrics.GPU_OUTSIDE_SECONDS,
)
_PART_METRICS = (
    *(metrics.USE_UTILIZATION, metrics.USE_MEMORY, metrics.USE_PROCESSES),
    *(metrics.USE_POWER, metrics.USE_BUSY_SECONDS),
)
_ALLOCATION_METRICS = (metrics.ALLOCATION_MEMORY_LIMIT, metrics.ALLOCATION_CORE_LIMIT, metrics.ALLOCATION_START)
_NOT_IN_A_NAME = re.compile("[^a-zA-Z0-9_]")
_ENGINES = ("sm", "memory", "encoder", "decoder")


def gpu_labels(gpu: Gpu) -> Labels:
    return (
        ("node", gpu.node),
        ("gpu", str(gpu.index)),
        ("uuid", gpu.uuid),
        ("gpu_instance_id", str(gpu.mig.gpu_instance_id) if gpu.mig else ""),
        ("mig_profile", gpu.mig.profile if gpu.mig else ""),
    )


def _labels_of_reading(gpu: Gpu) -> tuple[Labels, Labels]:
    """Labels of the GPU, and the same with its identity."""
    own = gpu_labels(gpu)
    identity = (
        ("parent_uuid", gpu.mig.parent_uuid if gpu.mig else ""),
        ("model", gpu.model),
        ("pci_bus_id", gpu.pci_bus_id),
        ("driver_version", gpu.facts.get("driver_version", "")),
        ("nvml_version", gpu.facts.get("nvml_version", "")),
    )
    return own, own + identity


def _labels_of_events(gpu: Gpu, label: str, events: Iterable[int | str]) -> list[Labels]:
    return [(*gpu_labels(gpu), (label, str(event))) for event in events]


def _labels_of_part(gpu: Gpu, part: Part) -> Labels:
    return (*gpu_labels(gpu), ("by", part.by), *_owner(part.container or _NO_CONTAINER))


def _labels_of_allocation(allocation: GpuAllocation, gpu: Gpu, pod_labels: Labels) -> tuple[Labels, Labels]:
    """Labels of the allocation, and the same with share, resource, replica, user, pair and pod labels."""
    own = (*gpu_labels(gpu), *_owner(allocation.container))
    terms = (("share", allocation.share), ("resource", allocation.resource), ("replica", allocation.replica))
    # As in kube-state-metrics: `label_cost_center`. Of labels that get the same name, one is exported.
    named = {f"label_{_NOT_IN_A_NAME.sub('_', key)}": value for key, value in sorted(pod_labels) if value}
    last = (("user", allocation.container.user), ("used_by", allocation.used_by))
    return own, (*own, *terms, *last, *named.items())


def _labels_of_process(process: GpuProcess, gpu: Gpu, engines: Sequence[str]) -> list[Labels]:
    """Labels of the process, and the same per engine."""
    who = (("pid", str(process.pid)), ("process", process.name), ("by", process.place))
    own = (*gpu_labels(gpu), *who, *_container_labels(process.container or _NO_CONTAINER))
    return [own, *((*own, ("engine", engine)) for engine in engines)]


def _pod_labels(pod: Container) -> Labels:
    return (("namespace", pod.namespace), ("pod", pod.pod), ("pod_uid", pod.pod_uid))


def _container_labels(container: Container) -> Labels:
    return (
        ("namespace", container.namespace),
        ("pod", container.pod),
        ("container", container.name),
        ("pod_uid", container.pod_uid),
    )


def _owner(container: Container) -> Labels:
    workload = container.workload
    return (
        *_container_labels(container),
        ("workload_kind", workload.kind if workload else ""),
        ("workload", workload.name if workload else ""),
    )


_INSTANCE_SIGNALS = [name for name in metrics.DEVICE_SIGNALS if SIGNALS[name].scope is Scope.INSTANCE]
_SIGNALS_BY_LEVEL = {
    "whole": list(metrics.DEVICE_SIGNALS),
    "parent": [name for name in metrics.DEVICE_SIGNALS if name not in _INSTANCE_SIGNALS],
    "instance": _INSTANCE_SIGNALS,
}
"""On a MIG device each signal is exported either by the device or by its instances, so that no sum counts it twice."""


def _round(value: float | None) -> float | None:
    """Round to 6 digits: far below the precision of any measurement, and 0.1 + 0.2 is shown as 0.3."""
    return None if value is None else round(value, 6)
