"""XID errors and clock events, counted since the agent started, also while NVML is closed and opened again."""

import ctypes
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pynvml

from gpusteward.agent.nvml.library import DRIVER_GONE, TIMEOUT, Handle, find_function
from gpusteward.core.gpus import Gpu
from gpusteward.core.signals import CLOCK_EVENTS
from gpusteward.logs import Log

log = Log(__name__)

NO_INSTANCE = 0xFFFFFFFF
STOP_SECONDS = 5.0


class XidLocation(NamedTuple):
    """The device or MIG instance that reported an XID."""

    device_uuid: str
    gpu_instance: int | None = None
    compute_instance: int | None = None


class XidLog:
    """Counts of each XID, and the last one, per device and MIG instance."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[XidLocation, Counter[int]] = {}
        self._last: dict[XidLocation, tuple[int, int]] = {}  # number of the event, XID
        self._events = 0

    def add(self, location: XidLocation, xid: int) -> None:
        with self._lock:
            self._events += 1
            self._counts.setdefault(location, Counter())[xid] += 1
            self._last[location] = (self._events, xid)

    def counts(self, gpu: Gpu) -> Mapping[int, int]:
        """Counts by XID of this device or instance. XIDs of an instance are not counted again on its parent."""
        if not self._events:
            return {}
        with self._lock:
            return sum((self._counts.get(location, Counter()) for location in _own_locations(gpu)), Counter[int]())

    def last(self, gpu: Gpu) -> int:
        """The last XID that affected this device or instance; 0 if none."""
        if not self._events:
            return 0
        with self._lock:
            events = [event for location, event in self._last.items() if _affects(location, gpu)]
        return max(events, default=(0, 0))[1]


class EventThread:
    """Waits for XID events of the given devices until stopped."""

    def __init__(self, xids: XidLog, wait_milliseconds: int) -> None:
        self._xids = xids
        self._wait_milliseconds = wait_milliseconds
        self._uuids: dict[int, str] = {}  # by address of the handle
        self._set: Handle | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def start(self, devices: Iterable[tuple[Handle, str]]) -> frozenset[str]:
        """Watch the devices that support XID events; return their uuids."""
        try:
            self._set = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            log.warning("xid_events_missing", reason=error)
            return frozenset()
        self._uuids = {_address(handle): uuid for handle, uuid in devices if self._register(handle, uuid)}
        if self._uuids:
            self._thread = threading.Thread(target=self._run, name="xid-events", daemon=True)
            self._thread.start()
        return frozenset(self._uuids.values())

    def stop(self) -> bool:
        """Stop the thread and free the event set; False if the thread hangs in the driver."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
            if self._thread.is_alive():
                log.error("xid_thread_stuck", seconds=STOP_SECONDS)
                return False
        if self._set is not None:
            find_function("nvmlEventSetFree")(self._set)
        self._thread = self._set = None
        return True

    def _register(self, handle: Handle, uuid: str) -> bool:
        kind = pynvml.nvmlEventTypeXidCriticalError
        try:
            if not pynvml.nvmlDeviceGetSupportedEventTypes(handle) & kind:
                return False
            pynvml.nvmlDeviceRegisterEvents(handle, kind, self._set)
        except pynvml.NVMLError as error:
            log.debug("xid_events_missing", gpu=uuid, reason=error)
            return False
        return True

    def _run(self) -> None:
        wait = find_function("nvmlEventSetWait_v2")
        event = pynvml.c_nvmlEventData_t()
        while not self._stop.is_set():
            code = wait(self._set, ctypes.byref(event), self._wait_milliseconds)
            if code == 0:
                self._record(event)
            elif code in DRIVER_GONE:
                return
            elif code != TIMEOUT:
                # With a lost GPU the wait always returns at once: do not spin.
                self._stop.wait(self._wait_milliseconds / 1000)

    def _record(self, event: pynvml.c_nvmlEventData_t) -> None:
        uuid = self._uuids.get(_address(event.device))
        if uuid is None or event.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return
        ids = (None if i == NO_INSTANCE else int(i) for i in (event.gpuInstanceId, event.computeInstanceId))
        gpu_instance, compute_instance = ids
        self._xids.add(XidLocation(uuid, gpu_instance, compute_instance), int(event.eventData))
        log.warning("xid_seen", gpu=uuid, xid=event.eventData, gpu_instance=gpu_instance)


def _own_locations(gpu: Gpu) -> tuple[XidLocation, ...]:
    if gpu.mig is None:
        return (XidLocation(gpu.uuid),)
    parent, instance = gpu.mig.parent_uuid, gpu.mig.gpu_instance_id
    return XidLocation(parent, instance, gpu.mig.compute_instance_id), XidLocation(parent, instance)


def _affects(location: XidLocation, gpu: Gpu) -> bool:
    """Whether an XID at this location affects the GPU: on a device any, on an instance not those of other instances."""
    if location.device_uuid != gpu.device_uuid:
        return False
    return gpu.mig is None or location.gpu_instance is None or location in _own_locations(gpu)


def _address(handle: Handle) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


class ClockEvents:
    """Counts how often each reason began to limit the clocks of each device."""

    def __init__(self) -> None:
        self._masks: dict[str, int] = {}
        self._counts: dict[str, Mapping[str, int]] = {}

    def update(self, uuid: str, mask: float) -> Mapping[str, int]:
        """Count the reasons that are new since the last mask of this device; the first mask counts nothing."""
        now = int(mask)
        began = now & ~self._masks.get(uuid, now)
        self._masks[uuid] = now
        counts = self._counts.setdefault(uuid, dict.fromkeys(CLOCK_EVENTS.values(), 0))
        if began:
            counts = {name: counts[name] + bool(began & bit) for bit, name in CLOCK_EVENTS.items()}
            self._counts[uuid] = counts
        return counts


@dataclass(slots=True)
class LifetimeCounters:
    """State kept while NVML is closed and opened again: event counters, and the last known GPU of each index."""

    xids: XidLog = field(default_factory=XidLog)
    clocks: ClockEvents = field(default_factory=ClockEvents)
    gpus_by_index: dict[int, Gpu] = field(default_factory=dict)
