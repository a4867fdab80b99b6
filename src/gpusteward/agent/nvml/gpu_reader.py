"""Reads one GPU: its signals, MIG instances, processes, and failures."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpusteward.agent.nvml.devices import Device, Instance
from gpusteward.agent.nvml.events import LifetimeCounters
from gpusteward.agent.nvml.library import GpuLostError
from gpusteward.agent.nvml.processes import BUSY_RATIO, GpuProcessList, ProcessLists
from gpusteward.agent.nvml.signals import UTILIZATION, read_once
from gpusteward.agent.nvml.utilization import IDLE, ProcessUtilization
from gpusteward.core.gpus import Gpu, GpuProcess, GpuReading
from gpusteward.core.signals import SIGNALS, Scope
from gpusteward.core.snapshots import Failure

INSTANCE_SIGNALS = frozenset(name for name, signal in SIGNALS.items() if signal.scope is Scope.INSTANCE)
COPIED_SIGNALS = frozenset(name for name, signal in SIGNALS.items() if signal.scope is Scope.COPY)


@dataclass(slots=True)
class ReadResult:
    """Readings, processes and failures of one read so far."""

    readings: list[GpuReading] = field(default_factory=list)
    processes: list[GpuProcess] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def fail(self, collector: str, reasons: Iterable[str], *, uuid: str) -> None:
        """Record one failure for all the reasons, if there are any."""
        if text := "; ".join(dict.fromkeys(reasons)):
            self.failures.append(Failure(collector, text, uuid))


@dataclass(frozen=True, slots=True)
class GpuReader:
    """Reads GPUs, one after the other, into one `ReadResult`."""

    wanted: frozenset[str]
    wanted_instance_signals: frozenset[str]
    process_lists: ProcessLists
    counters: LifetimeCounters

    def read(self, device: Device, result: ReadResult) -> bool:
        """Read one GPU, also a lost one; False if no call succeeded.

        Raises DriverGoneError.
        """
        kept = len(result.readings), len(result.processes)
        try:
            has_responded = self._read_whole(device, result)
        except GpuLostError:
            del result.readings[kept[0] :], result.processes[kept[1] :]
            instances = [instance.gpu for instance in device.partition.instances.values()]
            self.report_lost((device.gpu, *instances), result)
            return True
        self.counters.lost_gpus.pop(device.gpu.uuid, None)
        return has_responded

    def report_lost(self, gpus: tuple[Gpu, ...], result: ReadResult) -> None:
        """Record a GPU that fell off the bus, and its MIG instances, under their last known identity.

        Its XIDs stay known: the one that reports the loss is the last of them.
        """
        device, *instances = gpus
        self.counters.lost_gpus[device.uuid] = gpus
        self.counters.xids.place(device.uuid, instances)
        for gpu in gpus:
            counts = self.counters.xids.counts(gpu)
            reading = GpuReading(gpu, self._last_xid(gpu), lost=True, processes_known=False, xid_counts=counts)
            result.readings.append(reading)
        reason = f"GPU {device.index} at {device.pci_bus_id or 'an unknown address'} is lost: it fell off the bus."
        result.fail("nvml", [f"{reason} Reset it or reboot the node"], uuid=device.uuid)

    def _read_whole(self, device: Device, result: ReadResult) -> bool:
        signals: dict[str, float] = {}
        reasons = list(device.read(self.wanted, signals))
        has_responded = bool(signals) or not reasons
        _update_power_limit(device, signals)
        result.fail("nvml", reasons, uuid=device.gpu.uuid)
        self.counters.xids.place(device.gpu.uuid, [each.gpu for each in device.partition.instances.values()])
        unsupported = device.find_unsupported(self.wanted)
        if device.partition.is_on:
            self._add(device, signals, GpuProcessList(), result=result, is_mig_parent=True, unsupported=unsupported)
            for instance in device.partition.instances.values():
                self._read_instance(instance, signals, result)
        else:
            processes = self.process_lists.read(device.handle)
            processes.detect_hidden_processes(signals)
            self._add(device, signals, processes, result=result, unsupported=unsupported)
            utilization = (
                device.process_utilization.read(lambda: _is_busy(device, signals)) if processes.memory else None
            )
            _add_processes(device.gpu, processes, utilization, result=result)
        return has_responded

    def _read_instance(self, instance: Instance, parent: Mapping[str, float], result: ReadResult) -> None:
        signals = {name: value for name, value in parent.items() if name in COPIED_SIGNALS}
        result.fail("nvml", instance.read(self.wanted_instance_signals, signals), uuid=instance.gpu.uuid)
        processes = self.process_lists.read(instance.handle)
        processes.detect_hidden_processes(signals)
        self._add(instance, signals, processes, result=result)
        _add_processes(instance.gpu, processes, None, result=result)  # NVML has no process utilization on MIG

    def _add(
        self,
        device: Device | Instance,
        signals: dict[str, float],
        processes: GpuProcessList,
        *,
        result: ReadResult,
        is_mig_parent: bool = False,
        unsupported: frozenset[str] = frozenset(),
    ) -> None:
        gpu, counters = device.gpu, self.counters
        signals |= self._last_xid(gpu)
        mask = signals.get("clock_event_reasons")
        clock_events = counters.clocks.update(gpu.uuid, mask) if mask is not None and gpu.mig is None else {}
        reading = GpuReading(
            gpu,
            signals,
            is_mig_parent=is_mig_parent,
            processes_known=processes.is_known,
            is_mps=processes.is_mps,
            supports_gpm=device.supports_gpm,
            xid_counts=counters.xids.counts(gpu),
            clock_event_counts=clock_events,
            unsupported=unsupported,
        )
        result.readings.append(reading)
        result.fail("processes", processes.failures, uuid=gpu.uuid)

    def _last_xid(self, gpu: Gpu) -> dict[str, float]:
        """The signal `last_xid`, if it is wanted and the driver reports the XIDs of the device."""
        if "last_xid" not in self.wanted or gpu.device_uuid not in self.counters.xid_devices:
            return {}
        return {"last_xid": float(self.counters.xids.last(gpu))}


def _add_processes(
    gpu: Gpu,
    processes: GpuProcessList,
    utilization: dict[int, ProcessUtilization] | None,
    *,
    result: ReadResult,
) -> None:
    for pid, memory in processes.memory.items():
        if utilization is None:
            process = GpuProcess(pid, gpu.uuid, memory_bytes=memory)
        else:
            use = utilization.get(pid, IDLE)
            process = GpuProcess(pid, gpu.uuid, "", memory, use.sm, use.memory, use.encoder, use.decoder)
        result.processes.append(process)


def _is_busy(device: Device, signals: Mapping[str, float]) -> bool:
    found = signals if "utilization_ratio" in signals else read_once(UTILIZATION, device.handle)
    others = ("utilization_mean_ratio", "encoder_ratio", "decoder_ratio")
    return max(found.get("utilization_ratio", 0.0), *(signals.get(name, 0.0) for name in others)) >= BUSY_RATIO


def _update_power_limit(device: Device, signals: Mapping[str, float]) -> None:
    """Update the only part of the identity that can change while the driver runs."""
    limit = signals.get("enforced_power_limit_watts")
    if limit is not None and limit != device.gpu.power_limit_watts:
        device.gpu = replace(device.gpu, power_limit_watts=limit)
