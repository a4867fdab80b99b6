"""GPUs and MIG instances with their readers, kept while NVML is open."""

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

import pynvml

from gpusteward.agent.nvml.fields import FieldReader
from gpusteward.agent.nvml.gpm import GpmReader
from gpusteward.agent.nvml.identity import read_instance
from gpusteward.agent.nvml.library import (
    UNSUPPORTED,
    Handle,
    describe,
    find_function,
    is_absent,
    raise_if_fatal,
)
from gpusteward.agent.nvml.signals import MEMORY, CallReader, LicenceReader, Signals
from gpusteward.agent.nvml.utilization import ProcessUtilizationReader, SampleReader
from gpusteward.core.gpus import Gpu

FIRST_READS = 2
"""In the first reads after the readers were created it turns out what a GPU does not support; it is tried once."""


class _SignalReader(Protocol):
    def supported(self) -> Iterator[str]:
        """The signals that the device has not refused so far."""


class Instance:
    """One MIG instance."""

    def __init__(self, parent: Handle, gpu: Gpu, *, handle: Handle) -> None:
        self.gpu = gpu
        self.handle = handle
        self.has_siblings = False  # compute instances beside it in the same GPU instance
        self._calls = CallReader(handle, (MEMORY,))
        self._gpm = GpmReader(parent, gpu.mig.gpu_instance_id if gpu.mig else None)

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


class Device:
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
        self._readers = (CallReader(self.handle), FieldReader(self.handle, self._clock), SampleReader(self.handle))
        self._licence = LicenceReader(self.handle)
        self._gpm = GpmReader(self.handle)
        self._reads = 0
        self._unsupported: frozenset[str] = frozenset()
        self._unsupported_of: frozenset[str] = frozenset()

    def find_unsupported(self, wanted: frozenset[str]) -> frozenset[str]:
        """The wanted signals that neither the device nor a MIG instance of it supports, as far as they were tried."""
        if self._reads <= FIRST_READS or wanted != self._unsupported_of:
            readers: list[_SignalReader] = [
                *self._readers,
                self._licence,
                self._gpm,
                *self.partition.instances.values(),
            ]
            supported = {name for reader in readers for name in reader.supported()}
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
        self._licence.read(wanted, into)
        yield from self._gpm.read(wanted, into)

    @property
    def supports_gpm(self) -> bool:
        return self._gpm.is_supported

    def release(self) -> None:
        self.partition.release()
        self._gpm.release()


class Partition:
    """The MIG instances of a GPU. Listed in each cycle, because they can change at any time."""

    def __init__(self, device: Device) -> None:
        self.is_on = False
        self.instances: dict[str, Instance] = {}  # by uuid
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
        found: dict[str, Instance] = {}  # assigned at the end: if the GPU is lost meanwhile, the known instances stay
        for slot in range(self._count_slots() if self.is_on else 0):
            handle = pynvml.c_nvmlDevice_t()
            code = self._get_handle(self._device.handle, slot, ctypes.byref(handle))
            if code == 0:
                code = self._get_uuid(handle, self._uuid, len(self._uuid))
            if code == 0:
                instance = self._get_instance(handle)
                found[instance.gpu.uuid] = instance
            elif not is_absent(code):
                raise_if_fatal(code)
                yield f"MIG instance {slot}: {describe(code)}"
        for removed in self.instances.keys() - found.keys():
            self.instances[removed].release()
        self.instances = found
        sizes = Counter(_gpu_instance(instance) for instance in self.instances.values())
        for instance in self.instances.values():
            instance.has_siblings = sizes[_gpu_instance(instance)] > 1

    def _get_instance(self, handle: Handle) -> Instance:
        uuid = self._uuid.value.decode(errors="replace")
        known = self.instances.get(uuid)
        if known is not None and _address(known.handle) == _address(handle):
            return known
        if known is not None:
            known.release()
        parent = self._device
        gpu = read_instance(parent.gpu, uuid, handle=handle, parent_handle=parent.handle)
        return Instance(parent.handle, gpu, handle=handle)

    def _count_slots(self) -> int:
        if not self._max_instances:
            try:
                self._max_instances = pynvml.nvmlDeviceGetMaxMigDeviceCount(self._device.handle)
            except pynvml.NVMLError as error:
                raise_if_fatal(error.value)
        return self._max_instances


def _gpu_instance(instance: Instance) -> int | None:
    return instance.gpu.mig.gpu_instance_id if instance.gpu.mig else None


def _address(handle: Handle) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
