"""Everything that lives from one opening of NVML to its closing."""

import ctypes
from collections.abc import Callable
from dataclasses import replace

import pynvml

from gpusteward.agent.nvml.devices import Device
from gpusteward.agent.nvml.events import EventThread, LifetimeCounters
from gpusteward.agent.nvml.gpu_reader import OWN, GpuReader, ReadResult, report_lost
from gpusteward.agent.nvml.identity import read_gpu
from gpusteward.agent.nvml.library import (
    DriverGoneError,
    GpuLostError,
    close_library,
    describe,
    find_function,
    open_library,
    raise_if_fatal,
)
from gpusteward.agent.nvml.processes import ProcessLists
from gpusteward.core.gpus import GpuReading
from gpusteward.logs import Log

log = Log(__name__)

FOUND_LATE = -1
"""No count of GPUs: one that was missing has come back, so everything is opened anew in the next cycle."""


class Session:
    """NVML, open."""

    def __init__(
        self, node: str, counters: LifetimeCounters, *, clock: Callable[[], float], event_wait_milliseconds: int
    ) -> None:
        """Open NVML and find the GPUs.

        Raises SourceError when there is no library or no driver, DriverGoneError when it goes away meanwhile.
        """
        self._node = node
        self._counters = counters
        self._clock = clock
        self._devices: dict[int, Device] = {}
        self._events = EventThread(counters.xids, event_wait_milliseconds)
        self._with_xids: frozenset[str] = frozenset()
        self._count = 0
        open_library()
        try:
            self._find_devices()
        except BaseException:
            self.close()
            raise

    def _find_devices(self) -> None:
        self._lists = ProcessLists()
        self._count = count_devices()
        for index in range(self._count):
            self._find_device(index, ReadResult())  # what is wrong is told by the read that follows
        watched = [(device.handle, device.gpu.uuid) for device in self._devices.values()]
        self._with_xids = self._events.start(watched)
        log.info("nvml_opened", gpus=self._count, answering=len(self._devices))

    def has_changed(self) -> bool:
        """Whether GPUs came or went: NVML counts them only when it is opened. Raises DriverGoneError."""
        return count_devices() != self._count

    def read(self, wanted: frozenset[str], *, peers: bool) -> ReadResult:
        """Every GPU, each with its MIG instances behind it.

        Raises DriverGoneError.
        """
        result = ReadResult()
        measure = GpuReader(wanted, wanted & OWN, self._lists, self._counters, self._with_xids)
        answers = [self._read_device(index, measure, result) for index in range(max(self._count, 0))]
        if answers and not any(answers):
            raise DriverGoneError("no GPU answers any more")
        self._lists.forget_except({process.pid for process in result.processes})
        if peers:
            result.readings = [self._with_peers(reading) for reading in result.readings]
        return result

    def close(self) -> None:
        """Give everything back. What the driver does not let go of stays open, and is said."""
        for device in self._devices.values():
            device.release()
        self._devices = {}
        if self._events.stop():
            close_library()

    def _read_device(self, index: int, measure: GpuReader, result: ReadResult) -> bool:
        device = self._devices.get(index)
        if device is None:
            self._find_device(index, result)
            if index in self._devices:
                self._count = FOUND_LATE
            return True
        return measure.read(device, result)

    def _find_device(self, index: int, result: ReadResult) -> None:
        """Make the acquaintance of a GPU; one that does not answer is tried again in each cycle."""
        handle = pynvml.c_nvmlDevice_t()
        code = find_function("nvmlDeviceGetHandleByIndex_v2")(index, ctypes.byref(handle))
        try:
            raise_if_fatal(code)
            gpu = None if code else read_gpu(self._node, index, handle=handle)
            if gpu is None or not gpu.uuid:
                result.fail("nvml", [f"GPU {index} does not tell who it is: {describe(code)}"], uuid="")
                return
            self._counters.known[index] = gpu
            self._devices[index] = Device(handle, gpu, clock=self._clock)
        except GpuLostError:
            self._miss(index, result)

    def _miss(self, index: int, result: ReadResult) -> None:
        """A GPU that was lost before NVML was opened: known from earlier, or never seen."""
        known = self._counters.known.get(index)
        present = {device.gpu.uuid for device in self._devices.values()}
        if known is not None and known.uuid not in present:
            report_lost(known, result)
        else:
            result.fail("nvml", [f"GPU {index} is lost: it fell off the bus before the agent saw it"], uuid="")

    def _with_peers(self, reading: GpuReading) -> GpuReading:
        """How a whole GPU reaches the others over NVLink."""
        device = self._devices.get(reading.gpu.index)
        if device is None or reading.lost or reading.gpu.mig is not None:
            return reading
        others = [(index, other) for index, other in self._devices.items() if other is not device]
        answers = {index: _peer_status(device, other) for index, other in others}
        return replace(reading, peer_status={index: status for index, status in answers.items() if status is not None})


def count_devices() -> int:
    """How many GPUs NVML knows. Raises DriverGoneError when it cannot even tell that."""
    count = ctypes.c_uint()
    code = find_function("nvmlDeviceGetCount_v2")(ctypes.byref(count))
    if code:
        raise DriverGoneError(describe(code))
    return count.value


def _peer_status(device: Device, other: Device) -> int | None:
    try:
        return int(pynvml.nvmlDeviceGetP2PStatus(device.handle, other.handle, pynvml.NVML_P2P_CAPS_INDEX_NVLINK))
    except pynvml.NVMLError:
        return None
