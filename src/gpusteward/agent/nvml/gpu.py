"""GPUs and MIG instances with their readers, kept while NVML is open, and how one GPU is read: its signals, MIG
instances, processes, and failures."""

import ctypes
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pynvml

from gpusteward.agent.nvml.events import LifetimeCounters
from gpusteward.agent.nvml.fields import FieldReader
from gpusteward.agent.nvml.gpm import GpmReader
from gpusteward.agent.nvml.identity import read_instance
from gpusteward.agent.nvml.library import (
    UNSUPPORTED,
    GpuLostError,
    Handle,
    address_of,
    describe,
    explain_failure,
    find_function,
    raise_if_fatal,
)
from gpusteward.agent.nvml.processes import BUSY_RATIO, GpuProcessList, ProcessLists
from gpusteward.agent.nvml.signals import MEMORY, UTILIZATION, CallReader, LicenceReader, Signals, read_once
from gpusteward.agent.nvml.utilization import IDLE, ProcessUtilization, ProcessUtilizationReader, SampleReader
from gpusteward.core.node.gpus import Gpu, GpuProcess, GpuReading
from gpusteward.core.node.signals import SIGNALS, Scope
from gpusteward.core.node.snapshots import Failure

FIRST_READS = 2
"""In the first reads after the readers were created it turns out what a GPU does not support; it is tried once."""


class MigDevice:
    """One MIG instance."""

    def __init__(self, parent: Handle, gpu: Gpu, *, handle: Handle) -> None:
        self.gpu = gpu
        self.handle = handle
        self.gpu_instance_id = gpu.mig.gpu_instance_id if gpu.mig else None
        self.has_siblings = False  # compute instances beside it in the same GPU instance
        self._calls = CallReader(handle, (MEMORY,))
        self._gpm = GpmReader(parent, self.gpu_instance_id)

    def read(self, wanted: frozenset[str], into: Signals) -> Iterator[str]:
        """Put its signals into `into`; yield error texts.

        Memory and profiling signals are those of the whole GPU instance. If it has several compute instances, they
        belong to none of them and are not read. Raises GpuLostError, DriverGoneError.
        """
        if self.has_siblings:
            return
        yield from self._calls.read(wanted, into)
        yield from self._gpm.read(wanted, into)

    @property
    def supports_gpm(self) -> bool:
        return self._gpm.is_supported

    def supported(self) -> Iterator[str]:
        yield from self._calls.supported()
        yield from self._gpm.supported()

    def release(self) -> None:
        self._gpm.release()


class GpuDevice:
    """One whole GPU."""

    def __init__(self, handle: Handle, gpu: Gpu, *, clock: Callable[[], float]) -> None:
        self.gpu = gpu
        self.handle = handle
        self.partition = Partition(self)
        self._clock = clock
        self._create_readers()

    def _create_readers(self) -> None:
        """Create the readers, which then find out what this GPU supports."""
        self.process_utilization = ProcessUtilizationReader(self.handle)
        self._gpm = GpmReader(self.handle)
        self._readers = (
            CallReader(self.handle),
            FieldReader(self.handle, self._clock),
            SampleReader(self.handle),
            LicenceReader(self.handle),
            self._gpm,
        )
        self._reads = 0
        self._unsupported: frozenset[str] = frozenset()
        self._unsupported_of: frozenset[str] = frozenset()

    def find_unsupported(self, wanted: frozenset[str]) -> frozenset[str]:
        """The wanted signals that neither the device nor a MIG instance of it supports, as far as they were tried."""
        if self._reads <= FIRST_READS or wanted != self._unsupported_of:
            supported = {name for reader in self._readers for name in reader.supported()}
            supported.update(*(each.supported() for each in self.partition.instances.values()))
            self._unsupported, self._unsupported_of = wanted - supported, wanted
        return self._unsupported

    def read(self, wanted: frozenset[str], into: Signals) -> Iterator[str]:
        """Put its signals into `into`; yield error texts. Raises GpuLostError, DriverGoneError."""
        was_on = self.partition.is_on
        yield from self.partition.refresh()
        if self.partition.is_on != was_on:  # the supported signals change with MIG mode
            self._gpm.release()
            self._create_readers()
        self._reads += 1
        for reader in self._readers:
            yield from reader.read(wanted, into)

    @property
    def supports_gpm(self) -> bool:
        return self._gpm.is_supported

    def release(self) -> None:
        self.partition.release()
        self._gpm.release()


class Partition:
    """The MIG instances of a GPU. Listed in each cycle, because they can change at any time."""

    def __init__(self, device: GpuDevice) -> None:
        self.is_on = False
        self.instances: dict[str, MigDevice] = {}  # by uuid
        self._device = device
        self._supports_mig = True
        self._max_instances = 0
        self._get_mig_mode = find_function("nvmlDeviceGetMigMode")
        self._get_handle = find_function("nvmlDeviceGetMigDeviceHandleByIndex")
        self._get_uuid = find_function("nvmlDeviceGetUUID")
        self._mode, self._pending = ctypes.c_uint(), ctypes.c_uint()
        self._uuid = ctypes.create_string_buffer(pynvml.NVML_DEVICE_UUID_V2_BUFFER_SIZE)

    def refresh(self) -> Iterator[str]:
        """Update MIG mode and instances; yield error texts. Raises GpuLostError, DriverGoneError."""
        if not self._supports_mig:
            return
        code = self._get_mig_mode(self._device.handle, ctypes.byref(self._mode), ctypes.byref(self._pending))
        if code == 0:
            self.is_on = self._mode.value == pynvml.NVML_DEVICE_MIG_ENABLE
            yield from self._list_instances()
        elif code in UNSUPPORTED:
            self._supports_mig = False
        else:
            raise_if_fatal(code)
            yield f"nvmlDeviceGetMigMode: {describe(code)}"

    def release(self) -> None:
        for instance in self.instances.values():
            instance.release()
        self.instances = {}

    def _list_instances(self) -> Iterator[str]:
        found: dict[str, MigDevice] = {}  # assigned at the end: if the GPU is lost meanwhile, the known instances stay
        for slot in range(self._count_slots() if self.is_on else 0):
            handle = pynvml.c_nvmlDevice_t()
            code = self._get_handle(self._device.handle, slot, ctypes.byref(handle))
            if code == 0:
                code = self._get_uuid(handle, self._uuid, len(self._uuid))
            if code == 0:
                instance = self._get_instance(handle)
                found[instance.gpu.uuid] = instance
            else:
                yield from explain_failure(f"MIG instance {slot}", code)
        for removed in self.instances.keys() - found.keys():
            self.instances[removed].release()
        self.instances = found
        sizes = Counter(each.gpu_instance_id for each in self.instances.values())
        for instance in self.instances.values():
            instance.has_siblings = sizes[instance.gpu_instance_id] > 1

    def _get_instance(self, handle: Handle) -> MigDevice:
        uuid = self._uuid.value.decode(errors="replace")
        known = self.instances.get(uuid)
        if known is not None and address_of(known.handle) == address_of(handle):
            return known
        if known is not None:
            known.release()
        parent = self._device
        gpu = read_instance(parent.gpu, uuid, handle=handle, parent_handle=parent.handle)
        return MigDevice(parent.handle, gpu, handle=handle)

    def _count_slots(self) -> int:
        if not self._max_instances:
            try:
                self._max_instances = pynvml.nvmlDeviceGetMaxMigDeviceCount(self._device.handle)
            except pynvml.NVMLError as error:
                raise_if_fatal(error.value)
        return self._max_instances


INSTANCE_SIGNALS = frozenset(name for name, signal in SIGNALS.items() if signal.scope is Scope.INSTANCE)
COPIED_SIGNALS = frozenset(name for name, signal in SIGNALS.items() if signal.scope is Scope.COPY)


@dataclass(slots=True)
class NvmlReading:
    """All GPUs, each followed by its MIG instances; the processes on them; failures. Filled GPU by GPU."""

    readings: list[GpuReading] = field(default_factory=list)
    processes: list[GpuProcess] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def fail(self, collector: str, reasons: Iterable[str], *, uuid: str) -> None:
        """Record one failure for all the reasons, if there are any."""
        if text := "; ".join(dict.fromkeys(reasons)):
            self.failures.append(Failure(collector, text, uuid))


@dataclass(frozen=True, slots=True)
class GpuReader:
    """Reads GPUs, one after the other, into one `NvmlReading`."""

    wanted: frozenset[str]
    wanted_instance_signals: frozenset[str]
    process_lists: ProcessLists
    counters: LifetimeCounters

    def read(self, device: GpuDevice, result: NvmlReading) -> bool:
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

    def report_lost(self, gpus: tuple[Gpu, ...], result: NvmlReading) -> None:
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

    def _read_whole(self, device: GpuDevice, result: NvmlReading) -> bool:
        signals: dict[str, float] = {}
        reasons = list(device.read(self.wanted, signals))
        has_responded = bool(signals) or not reasons
        limit = signals.get("enforced_power_limit_watts")
        if limit is not None and limit != device.gpu.power_limit_watts:  # all else is fixed while the driver runs
            device.gpu = replace(device.gpu, power_limit_watts=limit)
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

    def _read_instance(self, instance: MigDevice, parent: Mapping[str, float], result: NvmlReading) -> None:
        signals = {name: value for name, value in parent.items() if name in COPIED_SIGNALS}
        result.fail("nvml", instance.read(self.wanted_instance_signals, signals), uuid=instance.gpu.uuid)
        processes = self.process_lists.read(instance.handle)
        processes.detect_hidden_processes(signals)
        self._add(instance, signals, processes, result=result)
        _add_processes(instance.gpu, processes, None, result=result)  # NVML has no process utilization on MIG

    def _add(
        self,
        device: GpuDevice | MigDevice,
        signals: dict[str, float],
        processes: GpuProcessList,
        *,
        result: NvmlReading,
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
    result: NvmlReading,
) -> None:
    for pid, memory in processes.memory.items():
        if utilization is None:
            process = GpuProcess(pid, gpu.uuid, memory_bytes=memory)
        else:
            use = utilization.get(pid, IDLE)
            process = GpuProcess(pid, gpu.uuid, "", memory, use.sm, use.memory, use.encoder, use.decoder)
        result.processes.append(process)


def _is_busy(device: GpuDevice, signals: Mapping[str, float]) -> bool:
    found = signals if "utilization_ratio" in signals else read_once(UTILIZATION, device.handle)
    others = ("utilization_mean_ratio", "encoder_ratio", "decoder_ratio")
    return max(found.get("utilization_ratio", 0.0), *(signals.get(name, 0.0) for name in others)) >= BUSY_RATIO
