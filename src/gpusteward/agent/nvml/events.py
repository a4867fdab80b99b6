"""XID errors: a thread waits for them, a log keeps them for as long as the agent lives."""

import ctypes
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pynvml

from gpusteward.agent.nvml.library import GONE, TIMEOUT, Handle, find_function
from gpusteward.core.gpus import Gpu
from gpusteward.core.signals import CLOCK_EVENTS
from gpusteward.logs import Log

log = Log(__name__)

NO_INSTANCE = 0xFFFFFFFF
STOP_SECONDS = 5.0

XidLocation = tuple[str, int | None, int | None]  # uuid of the device, GPU instance, compute instance


class XidLog:
    """How often each XID was seen, and which came last, on devices and on MIG instances."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[XidLocation, Counter[int]] = {}
        self._last: dict[XidLocation, tuple[int, int]] = {}  # which event it was, XID
        self._events = 0

    def add(self, location: XidLocation, xid: int) -> None:
        with self._lock:
            self._events += 1
            self._counts.setdefault(location, Counter())[xid] += 1
            self._last[location] = (self._events, xid)

    def counts(self, gpu: Gpu) -> Mapping[int, int]:
        """XIDs of this device or instance by code. What an instance did is not counted on its parent again."""
        if not self._events:
            return {}
        with self._lock:
            return sum((self._counts.get(location, Counter()) for location in _own_locations(gpu)), Counter[int]())

    def last(self, gpu: Gpu) -> int:
        """The last XID that touched this device or instance, 0 if none did."""
        if not self._events:
            return 0
        with self._lock:
            told = [event for location, event in self._last.items() if _touches(location, gpu)]
        return max(told, default=(0, 0))[1]


class EventThread:
    """Waits for XID events of some devices until stopped."""

    def __init__(self, xids: XidLog, wait_milliseconds: int) -> None:
        self._xids = xids
        self._wait_milliseconds = wait_milliseconds
        self._uuids: dict[int, str] = {}  # by address of the handle
        self._set: Handle | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def start(self, devices: Iterable[tuple[Handle, str]]) -> frozenset[str]:
        """Watch those of the devices that tell of XIDs; returns their uuids."""
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
        """End the thread and free the event set; False if the driver does not let go of the thread."""
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
                self._note(event)
            elif code in GONE:
                return
            elif code != TIMEOUT:
                # A lost GPU makes the wait return at once, for ever: do not spin on it.
                self._stop.wait(self._wait_milliseconds / 1000)

    def _note(self, event: pynvml.c_nvmlEventData_t) -> None:
        uuid = self._uuids.get(_address(event.device))
        if uuid is None or event.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return
        ids = (None if i == NO_INSTANCE else int(i) for i in (event.gpuInstanceId, event.computeInstanceId))
        gpu_instance, compute_instance = ids
        self._xids.add((uuid, gpu_instance, compute_instance), int(event.eventData))
        log.warning("xid_seen", gpu=uuid, xid=event.eventData, gpu_instance=gpu_instance)


def _own_locations(gpu: Gpu) -> tuple[XidLocation, ...]:
    if gpu.mig is None:
        return ((gpu.uuid, None, None),)
    ids = gpu.mig.gpu_instance_id
    return ((gpu.mig.parent_uuid, ids, gpu.mig.compute_instance_id), (gpu.mig.parent_uuid, ids, None))


def _touches(location: XidLocation, gpu: Gpu) -> bool:
    """A device is touched by all that happens on it, an instance not by what its neighbours do."""
    if location[0] != gpu.device_uuid:
        return False
    return gpu.mig is None or location[1] is None or location in _own_locations(gpu)


def _address(handle: Handle) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


class ClockEvents:
    """How often each reason began to limit the clocks of each device."""

    def __init__(self) -> None:
        self._masks: dict[str, int] = {}
        self._counts: dict[str, Mapping[str, int]] = {}

    def note(self, uuid: str, mask: float) -> Mapping[str, int]:
        """Compare with the last mask of this device; the first is where counting begins."""
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
    """Counters, and who was seen at which index."""

    xids: XidLog = field(default_factory=XidLog)
    clocks: ClockEvents = field(default_factory=ClockEvents)
    known: dict[int, Gpu] = field(default_factory=dict)
