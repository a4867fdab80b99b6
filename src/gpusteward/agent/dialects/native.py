"""gpusteward's own names: base units, one family a fact, and parts that sum to the device."""

from collections.abc import Iterator, Mapping
from functools import partial

from gpusteward.agent.dialects.sheets import Labels, Sheet
from gpusteward.agent.meters import View
from gpusteward.core import metrics
from gpusteward.core.allocations import Allocation
from gpusteward.core.containers import Container
from gpusteward.core.exposition import Family, LabelCache
from gpusteward.core.gpus import Gpu, GpuReading
from gpusteward.core.parts import Division, Part
from gpusteward.core.processes import GpuProcess
from gpusteward.core.signals import SIGNALS, Scope

_NO_CONTAINER = Container()


class NativeDialect:
    """What gpusteward knows, under its own names."""

    name = "native"
    wanted = frozenset(metrics.DEVICE_SIGNALS) | {"clock_event_reasons", "last_xid"}

    def __init__(self, labels: LabelCache) -> None:
        self._labels = labels

    def families(self, view: View) -> list[Family]:
        sheet = Sheet()
        gpus = {reading.gpu.uuid: reading.gpu for reading in view.snapshot.readings}
        for reading in view.snapshot.readings:
            self._write_reading(sheet, reading)
        for division in view.divisions:
            self._write_division(sheet, view, division)
        for allocation in view.snapshot.allocations:
            if allocation.gpu_uuid in gpus:
                self._write_allocation(sheet, allocation, gpus[allocation.gpu_uuid])
        for process in view.snapshot.processes:
            if process.gpu_uuid in gpus:
                self._write_process(sheet, process, gpus[process.gpu_uuid])
        node = self._labels.render((("node", view.snapshot.node),))
        sheet.write(node, (metrics.ALLOCATIONS_KNOWN, int(view.snapshot.allocations_known)))
        return sheet.families()

    def _write_reading(self, sheet: Sheet, reading: GpuReading) -> None:
        gpu, signals, keep = reading.gpu, reading.signals, self._labels.keep
        own = keep(("gpu", gpu.uuid, gpu.index), lambda: gpu_labels(gpu))
        version = gpu.facts.get("driver_version")
        sheet.write(keep(("info", gpu.uuid, gpu.index, version), lambda: _identity(gpu)), (metrics.GPU_INFO, 1))
        sheet.write(own, (metrics.GPU_UP, int(not reading.lost)))
        sheet.write(own, *((metrics.DEVICE_SIGNALS[name], signals.get(name)) for name in _TOLD[_standing(reading)]))
        for xid, count in _xid_counts(reading).items():
            labels = keep(("xid", gpu.uuid, gpu.index, xid), partial(_gpu_labels_and, gpu, "xid", str(xid)))
            sheet.write(labels, (metrics.GPU_XID_ERRORS, count))
        for reason, count in reading.clock_event_counts.items():
            labels = keep(("clock", gpu.uuid, gpu.index, reason), partial(_gpu_labels_and, gpu, "reason", reason))
            sheet.write(labels, (metrics.GPU_CLOCK_EVENTS, count))

    def _write_division(self, sheet: Sheet, view: View, division: Division) -> None:
        gpu = division.gpu
        sheet.write(
            self._labels.keep(("gpu", gpu.uuid, gpu.index), lambda: gpu_labels(gpu)),
            (metrics.GPU_UTILIZATION, _round(division.utilization_ratio)),
            (metrics.GPU_MEMORY_USED, division.memory_used_bytes),
            (metrics.GPU_BUSY_SECONDS, _round(view.gpu_busy_seconds.get(gpu.uuid))),
        )
        for part in division.parts:
            self._write_part(sheet, view, part, gpu=gpu)

    def _write_part(self, sheet: Sheet, view: View, part: Part, *, gpu: Gpu) -> None:
        who = part.container or _NO_CONTAINER
        key = (gpu.uuid, part.by, part.container)
        sheet.write(
            self._labels.keep(
                ("use", key, gpu.index, who.workload), lambda: (*gpu_labels(gpu), ("by", part.by), *_owner(who))
            ),
            (metrics.USE_UTILIZATION, _round(part.utilization_ratio)),
            (metrics.USE_MEMORY, part.memory_bytes),
            (metrics.USE_PROCESSES, part.processes),
            (metrics.USE_POWER, _round(part.power_watts)),
            (metrics.USE_ENERGY, _round(view.use_energy_joules.get(key))),
            (metrics.USE_BUSY_SECONDS, _round(view.use_busy_seconds.get(key))),
        )

    def _write_allocation(self, sheet: Sheet, allocation: Allocation, gpu: Gpu) -> None:
        holder = allocation.container
        key = (gpu.uuid, gpu.index, holder, holder.workload)
        terms = (("share", allocation.share), ("resource", allocation.resource), ("replica", allocation.replica))
        info = self._labels.keep(("info", key, terms), lambda: (*gpu_labels(gpu), *_owner(holder), *terms))
        sheet.write(info, (metrics.ALLOCATION_INFO, 1))
        sheet.write(
            self._labels.keep(("allocation", key), lambda: (*gpu_labels(gpu), *_owner(holder))),
            (metrics.ALLOCATION_MEMORY_LIMIT, allocation.memory_limit_bytes),
            (metrics.ALLOCATION_CORE_LIMIT, allocation.core_limit_ratio),
            (metrics.ALLOCATION_START, holder.started_at),
        )

    def _write_process(self, sheet: Sheet, process: GpuProcess, gpu: Gpu) -> None:
        key = (gpu.uuid, gpu.index, process.pid, process.name, process.place, process.container)
        outside = 1 if process.outside_allocation else None
        sheet.write(
            self._labels.keep(("process", key), lambda: _process_labels(process, gpu)),
            (metrics.PROCESS_MEMORY, process.memory_bytes),
            (metrics.PROCESS_OUTSIDE, outside),
        )
        for engine, ratio in _engines(process):
            labels = self._labels.keep((engine, key), partial(_process_labels, process, gpu, engine=engine))
            sheet.write(labels, (metrics.PROCESS_UTILIZATION, ratio))


def gpu_labels(gpu: Gpu) -> Labels:
    return (
        ("node", gpu.node),
        ("gpu", str(gpu.index)),
        ("uuid", gpu.uuid),
        ("gpu_instance_id", str(gpu.mig.gpu_instance_id) if gpu.mig else ""),
        ("mig_profile", gpu.mig.profile if gpu.mig else ""),
    )


def _gpu_labels_and(gpu: Gpu, name: str, value: str) -> Labels:
    return (*gpu_labels(gpu), (name, value))


def _identity(gpu: Gpu) -> Labels:
    return (
        *gpu_labels(gpu),
        ("parent_uuid", gpu.mig.parent_uuid if gpu.mig else ""),
        ("model", gpu.model),
        ("pci_bus_id", gpu.pci_bus_id),
        ("driver_version", gpu.facts.get("driver_version", "")),
        ("nvml_version", gpu.facts.get("nvml_version", "")),
    )


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


def _process_labels(process: GpuProcess, gpu: Gpu, *, engine: str = "") -> Labels:
    who = (("pid", str(process.pid)), ("process", process.name), ("by", process.place))
    return (*gpu_labels(gpu), *who, *_container_labels(process.container or _NO_CONTAINER), ("engine", engine))


def _engines(process: GpuProcess) -> Iterator[tuple[str, float | None]]:
    yield "sm", process.sm_ratio
    yield "memory", process.memory_ratio
    yield "encoder", process.encoder_ratio
    yield "decoder", process.decoder_ratio


def _standing(reading: GpuReading) -> str:
    if reading.gpu.mig:
        return "instance"
    return "parent" if reading.is_mig_parent else "whole"


_OF_INSTANCE = [name for name in metrics.DEVICE_SIGNALS if SIGNALS[name].scope is Scope.INSTANCE]
_TOLD = {
    "whole": list(metrics.DEVICE_SIGNALS),
    "parent": [name for name in metrics.DEVICE_SIGNALS if name not in _OF_INSTANCE],
    "instance": _OF_INSTANCE,
}
"""On a sliced GPU each fact is told once, by the device or by its instances, so that no sum counts it twice."""


WATCHED_XIDS = (48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140)
"""Faults of the hardware or its firmware by NVIDIA's XID catalogue: worth an alert, so they count from 0 and not from
their first appearance, which `increase()` would miss."""


def _xid_counts(reading: GpuReading) -> Mapping[int, int]:
    """Nothing where XIDs are not watched; zeros from the start where they are."""
    if "last_xid" not in reading.signals or reading.gpu.mig:
        return reading.xid_counts
    return dict.fromkeys(WATCHED_XIDS, 0) | dict(reading.xid_counts)


def _round(value: float | None) -> float | None:
    """To a millionth: far below what is measured, and 0.1 + 0.2 reads 0.3."""
    return None if value is None else round(value, 6)
