"""`Nvml` reads all GPUs and GPU processes of this node once per cycle. What lives from opening the library to closing
it is its session."""

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import pynvml

from gpusteward.agent.nvml.events import FELL_OFF_THE_BUS, RECOVERY_ACTION_CHANGED, EventThread, LifetimeCounters
from gpusteward.agent.nvml.gpu import INSTANCE_SIGNALS, GpuDevice, GpuReader, NvmlReading
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
from gpusteward.core.errors import SourceError
from gpusteward.core.node.gpus import Gpu, GpuReading
from gpusteward.logs import Log
from gpusteward.messages.errors import nvml_errors as messages

log = Log(__name__)

RECOVERED_GPU = -1
"""Set as the number of GPUs when a missing GPU reappeared, so that the next cycle opens NVML again."""


class NvmlSession:
    """An open NVML library with its devices."""

    def __init__(
        self, node: str, counters: LifetimeCounters, *, clock: Callable[[], float], event_wait_milliseconds: int
    ) -> None:
        """Open NVML and find the GPUs.

        Raises SourceError when there is no library or no driver, DriverGoneError when the driver is unloaded meanwhile.
        """
        self._node = node
        self._counters = counters
        self._clock = clock
        self._devices: dict[int, GpuDevice] = {}
        self._ambiguous: set[str] = set()  # uuids of several GPUs
        self._events = EventThread(counters.xids, event_wait_milliseconds)
        self._count = 0
        open_library()
        try:
            self._find_devices()
        except BaseException:
            self.close()
            raise

    def _find_devices(self) -> None:
        self._process_lists = ProcessLists()
        self._count = count_devices()
        known = list(self._counters.gpus_by_index.values())
        for index in range(self._count):
            with contextlib.suppress(GpuLostError):
                self._find_device(index, NvmlReading())  # failures are recorded by the read that follows
        present = {device.gpu.uuid: device.handle for device in self._devices.values()}
        watched = self._events.start((handle, uuid) for uuid, handle in present.items())
        self._counters.xid_devices = (self._counters.xid_devices - present.keys()) | watched
        self._note_fallen_gpus(gpu for gpu in known if gpu.uuid not in present)
        log.info("nvml_opened", gpus=self._count, readable=len(self._devices))

    def _note_fallen_gpus(self, missing: Iterable[Gpu]) -> None:
        """Of the GPUs that are no longer there, some were removed; one whose last XID reported its loss is lost."""
        for gpu in missing:
            self._counters.xids.place(gpu.uuid, ())
            xids = self._counters.xids
            has_recovery = xids.last(gpu) == RECOVERY_ACTION_CHANGED and FELL_OFF_THE_BUS in xids.counts(gpu)
            if xids.last(gpu) == FELL_OFF_THE_BUS or has_recovery:
                self._counters.lost_gpus.setdefault(gpu.uuid, (gpu,))

    def has_changed(self) -> bool:
        """Whether the number of GPUs changed: NVML updates it only when it is opened. Raises DriverGoneError."""
        return count_devices() != self._count

    def read(self, wanted: frozenset[str], *, peers: bool) -> NvmlReading:
        """Read all GPUs, each followed by its MIG instances.

        Raises DriverGoneError.
        """
        result = NvmlReading()
        reader = GpuReader(wanted, wanted & INSTANCE_SIGNALS, self._process_lists, self._counters)
        responses = [self._read_device(index, reader, result) for index in range(max(self._count, 0))]
        if responses and not any(responses):
            raise DriverGoneError("no GPU responds")
        self._report_vanished(reader, result)
        self._process_lists.forget_except({process.pid for process in result.processes})
        if peers:
            result.readings = [self._with_peers(reading) for reading in result.readings]
        return result

    def close(self) -> None:
        """Release everything. The library stays open if a thread hangs in the driver; that is logged."""
        for device in self._devices.values():
            device.release()
        self._devices = {}
        if self._events.stop():
            close_library()

    def _read_device(self, index: int, reader: GpuReader, result: NvmlReading) -> bool:
        device = self._devices.get(index)
        if device is None:  # it could not be identified when NVML was opened
            try:
                self._find_device(index, result)
            except GpuLostError as error:
                self._report_missing(index, reader, result=result, reason=str(error))
            if index in self._devices:
                self._count = RECOVERED_GPU
            return True
        has_responded = reader.read(device, result)
        if device.gpu.uuid in self._events.unwatched and device.gpu.uuid not in self._counters.lost_gpus:
            self._count = RECOVERED_GPU
        return has_responded

    def _find_device(self, index: int, result: NvmlReading) -> None:
        """Identify a GPU; one that does not respond is tried again in each cycle.

        Raises GpuLostError, also if it cannot be opened for another reason than a missing permission, or does not
        tell its uuid.
        """
        handle = pynvml.c_nvmlDevice_t()
        code = find_function("nvmlDeviceGetHandleByIndex_v2")(index, ctypes.byref(handle))
        raise_if_fatal(code)
        if code and code != pynvml.NVML_ERROR_NO_PERMISSION:
            raise GpuLostError(describe(code))
        gpu = None if code else read_gpu(self._node, index, handle=handle)
        if gpu is None or not gpu.uuid:
            reason = describe(code) if code else "the driver has no uuid of it"
            result.fail("nvml", [f"GPU {index} cannot be identified: {reason}"], uuid="")
            return
        if self._is_ambiguous(gpu.uuid):
            result.fail("nvml", [f"GPU {index} is ignored: another GPU has the same uuid"], uuid=gpu.uuid)
            return
        self._counters.gpus_by_index[index] = gpu
        self._devices[index] = GpuDevice(handle, gpu, clock=self._clock)

    def _is_ambiguous(self, uuid: str) -> bool:
        """Whether several GPUs have this uuid: nothing tells which of them a pod holds, so that none is reported."""
        for index in [index for index, device in self._devices.items() if device.gpu.uuid == uuid]:
            self._devices.pop(index).release()
            self._ambiguous.add(uuid)
        return uuid in self._ambiguous

    def _report_missing(self, index: int, reader: GpuReader, *, result: NvmlReading, reason: str) -> None:
        """Record a GPU that cannot be opened, under its last known identity, or as one of which only the index is
        known."""
        known = self._counters.gpus_by_index.get(index)
        if known is not None and known.uuid not in self._list_uuids():
            reader.report_lost(self._counters.lost_gpus.get(known.uuid, (known,)), result)
            return
        unknown = Gpu(self._node, index, uuid="", model="")
        result.readings.append(GpuReading(unknown, lost=True, processes_known=False))
        reason = reason or "it fell off the bus before the agent saw it"
        result.fail("nvml", [f"GPU {index} is lost: {reason}. Reset it or reboot the node"], uuid="")

    def _report_vanished(self, reader: GpuReader, result: NvmlReading) -> None:
        """Record lost GPUs that NVML no longer counts. They stay lost until they are back or the agent restarts."""
        reported = {reading.gpu.uuid for reading in result.readings} | self._list_uuids()
        for gpus in list(self._counters.lost_gpus.values()):
            if gpus[0].uuid not in reported:
                reader.report_lost(gpus, result)

    def _list_uuids(self) -> set[str]:
        return {device.gpu.uuid for device in self._devices.values()}

    def _with_peers(self, reading: GpuReading) -> GpuReading:
        """Add the NVLink P2P status between this GPU and the others."""
        device = self._devices.get(reading.gpu.index)
        if device is None or reading.lost or reading.gpu.mig is not None:
            return reading
        statuses = {}
        for index, other in self._devices.items():
            if other is not device:
                with contextlib.suppress(pynvml.NVMLError):
                    nvlink = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
                    statuses[index] = int(pynvml.nvmlDeviceGetP2PStatus(device.handle, other.handle, nvlink))
        return replace(reading, peer_status=statuses)


def count_devices() -> int:
    """The number of GPUs. Raises DriverGoneError when NVML cannot report it."""
    count = ctypes.c_uint()
    code = find_function("nvmlDeviceGetCount_v2")(ctypes.byref(count))
    if code:
        raise DriverGoneError(describe(code))
    return count.value


EVENT_WAIT_MILLISECONDS = 1000
"""How long the XID thread waits in the driver; `release` may take as long."""

RELEASE_SECONDS = 10.0
"""How long `release` waits for a read to end. A read that hangs in the driver cannot be cancelled."""


class Nvml:
    """NVML of this node. A read opens it if needed, also again after the driver was unloaded."""

    def __init__(
        self,
        node: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        event_wait_milliseconds: int = EVENT_WAIT_MILLISECONDS,
    ) -> None:
        self._node = node
        self._clock = clock
        self._event_wait_milliseconds = event_wait_milliseconds
        self._counters = LifetimeCounters()
        self._session: NvmlSession | None = None
        self._lock = threading.Lock()

    def read(self, wanted: frozenset[str], *, peers: bool = False) -> NvmlReading:
        """Read the wanted signals (names of `core.node.signals`) and the processes of every GPU.

        Raises SourceError when NVML cannot be used at all; the next read tries to open it again.
        """
        with self._lock:
            try:
                if self._session is not None and self._session.has_changed():
                    self._close()
                if self._session is None:
                    self._session = NvmlSession(
                        self._node,
                        self._counters,
                        clock=self._clock,
                        event_wait_milliseconds=self._event_wait_milliseconds,
                    )
                return self._session.read(wanted, peers=peers)
            except DriverGoneError as error:
                self._close()
                log.warning("nvml_gone", reason=error)
                raise SourceError(messages.DRIVER_GONE, reason=error) from error

    def release(self) -> None:
        """Free all handles, so that the driver can be unloaded or a GPU reset. The next read opens NVML again."""
        if not self._lock.acquire(timeout=RELEASE_SECONDS):
            log.error("nvml_not_released", reason="a call hangs in the driver", seconds=RELEASE_SECONDS)
            return
        try:
            self._close()
        finally:
            self._lock.release()

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
