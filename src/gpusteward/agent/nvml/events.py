"""XID errors and clock events, counted since the agent started, also while NVML is closed and opened again."""

import ctypes
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pynvml

from gpusteward.agent.nvml.library import DRIVER_GONE, GPU_LOST, TIMEOUT, Handle, address_of, find_function
from gpusteward.core.node.gpus import Gpu
from gpusteward.core.node.signals import CLOCK_EVENTS
from gpusteward.logs import Log

log = Log(__name__)

NO_INSTANCE = 0xFFFFFFFF
FELL_OFF_THE_BUS = 79
RECOVERY_ACTION_CHANGED = 154  # recent drivers report it after the loss
STOP_SECONDS = 5.0

LOST_WAITS = 3
"""After this many waits in a row that fail because of a lost GPU, the others are watched without it. Its own last XID
may still arrive before that; the number is our guess."""


class XidLocation(NamedTuple):
    """The device or MIG instance that reported an XID."""

    device_uuid: str
    gpu_instance: int | None = None
    compute_instance: int | None = None


class XidLog:
    """Counts of each XID, and the last one, per device and MIG instance."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unplaced: list[tuple[XidLocation, int]] = []  # as reported by the driver, until the next `place`
        self._counts: dict[XidLocation, Counter[int]] = {}
        self._last: dict[XidLocation, tuple[int, int]] = {}  # number of the event, XID
        self._events = 0

    def add(self, location: XidLocation, xid: int) -> None:
        """Add an event; it is counted by the next `place` of its device."""
        with self._lock:
            self._unplaced.append((location, xid))

    def place(self, device_uuid: str, instances: Iterable[Gpu]) -> None:
        """Count the new XIDs of a device that has these MIG instances.

        An XID of an instance that does not exist belongs to the device: without MIG, drivers report instance 0 as well
        as no instance. Later changes of the instances do not move it.
        """
        if not self._unplaced:
            return
        with self._lock:
            here = [each for each in self._unplaced if each[0].device_uuid == device_uuid]
            self._unplaced = [each for each in self._unplaced if each[0].device_uuid != device_uuid]
            for reported, xid in here:
                location = _existing_location(reported, instances)
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
        self._handles: dict[str, Handle] = {}  # by uuid
        self._set: Handle | None = None
        self.unwatched: frozenset[str] = frozenset()  # uuids of lost GPUs that are no longer watched
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def start(self, devices: Iterable[tuple[Handle, str]]) -> frozenset[str]:
        """Watch the devices that support XID events; return their uuids."""
        if self._create_set(devices):
            self._thread = threading.Thread(target=self._run, name="xid-events", daemon=True)
            self._thread.start()
        return frozenset(self._handles)

    def stop(self) -> bool:
        """Stop the thread and free the event set; False if the thread hangs in the driver."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
            if self._thread.is_alive():
                log.error("xid_thread_stuck", seconds=STOP_SECONDS)
                return False
        self._free_set()
        self._thread = None
        return True

    def _create_set(self, devices: Iterable[tuple[Handle, str]]) -> bool:
        """Create an event set of these devices; return whether it watches any."""
        self._handles = {}
        try:
            self._set = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            log.warning("xid_events_missing", reason=error)
            return False
        self._handles = {uuid: handle for handle, uuid in devices if self._register(handle, uuid)}
        self._uuids = {address_of(handle): uuid for uuid, handle in self._handles.items()}
        return bool(self._handles)

    def _free_set(self) -> None:
        if self._set is not None:
            find_function("nvmlEventSetFree")(self._set)
        self._set = None

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
        lost_waits = 0
        while not self._stop.is_set():
            code = wait(self._set, ctypes.byref(event), self._wait_milliseconds)
            lost_waits = lost_waits + 1 if code == GPU_LOST else 0
            if code == 0:
                self._record(event)
            elif code in DRIVER_GONE or (lost_waits >= LOST_WAITS and not self._leave_out_lost_gpus()):
                return
            elif code != TIMEOUT:
                # With a lost GPU the wait always returns at once: do not spin.
                self._stop.wait(self._wait_milliseconds / 1000)

    def _leave_out_lost_gpus(self) -> bool:
        """Watch only the GPUs that respond: one lost GPU fails every wait, which hides the events of all others."""
        watched = self._handles
        self._free_set()
        are_any_left = self._create_set((handle, uuid) for uuid, handle in watched.items())
        self.unwatched |= watched.keys() - self._handles.keys()
        return are_any_left

    def _record(self, event: pynvml.c_nvmlEventData_t) -> None:
        uuid = self._uuids.get(address_of(event.device))
        if uuid is None or event.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return
        ids = (None if i == NO_INSTANCE else int(i) for i in (event.gpuInstanceId, event.computeInstanceId))
        location = XidLocation(uuid, *ids)
        self._xids.add(location, int(event.eventData))
        log.warning("xid_seen", gpu=uuid, xid=event.eventData, gpu_instance=location.gpu_instance)


def _existing_location(reported: XidLocation, instances: Iterable[Gpu]) -> XidLocation:
    """The reported compute instance if the device has it, else the GPU instance, else the device."""
    existing = {location for gpu in instances for location in _own_locations(gpu)}
    gpu_instance = reported._replace(compute_instance=None)
    return next((each for each in (reported, gpu_instance) if each in existing), XidLocation(reported.device_uuid))


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
    """State kept while NVML is closed and opened again: event counters, and the last known GPUs."""

    xids: XidLog = field(default_factory=XidLog)
    clocks: ClockEvents = field(default_factory=ClockEvents)
    gpus_by_index: dict[int, Gpu] = field(default_factory=dict)
    lost_gpus: dict[str, tuple[Gpu, ...]] = field(default_factory=dict)  # by uuid: each with its MIG instances
    xid_devices: set[str] = field(default_factory=set)  # uuids of the devices whose XIDs were watched at any time
