"""Families that dcgm-exporter computes itself (`DCGM_EXP_*`): XIDs, clock events and the P2P status of GPUs."""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.core import dcgm
from gpusteward.core.dcgm import DcgmEvent
from gpusteward.core.exposition import Labels
from gpusteward.core.node.gpus import GpuReading
from gpusteward.core.node.signals import CLOCK_EVENTS
from gpusteward.core.node.snapshots import Snapshot

EventSamples = list[tuple[Labels, float]]
_Event = TypeVar("_Event", bound=Hashable)

LINK_STATUS = (
    "OK",
    "ChipsetNotSupported",
    "GPUNotSupported",
    "TopologyNotSupported",
    "DisabledByRegKey",
    "NotSupported",
    "Unknown",
)
"""Indexed by nvmlGpuP2PStatus_t."""


class EventWindow(Generic[_Event]):
    """Counts of events per GPU within the last seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._events: deque[tuple[float, str, Mapping[_Event, int]]] = deque()
        self._counts: dict[str, Counter[_Event]] = {}
        self._now = 0.0

    def advance(self, now: float) -> None:
        if now < self._now:  # the clock was set back: the window is no longer valid
            self._events.clear()
            self._counts.clear()
        self._now = now
        while self._events and self._events[0][0] <= now - self._seconds:
            _, gpu, what = self._events.popleft()
            counts = self._counts[gpu]
            counts.subtract(what)
            for key in what:
                if not counts[key]:
                    del counts[key]
            if not counts:
                del self._counts[gpu]

    def add(self, gpu_uuid: str, what: Mapping[_Event, int]) -> None:
        if what:
            self._events.append((self._now, gpu_uuid, what))
            self._counts.setdefault(gpu_uuid, Counter()).update(what)

    def counts(self, gpu_uuid: str) -> Mapping[_Event, int]:
        return self._counts.get(gpu_uuid, {})


class DcgmEvents:
    """Events of a node, accumulated from view to view."""

    def __init__(self, options: DcgmOptions) -> None:
        self._xids: EventWindow[int] = EventWindow(options.xid_window_seconds)
        self._clocks: EventWindow[str] = EventWindow(options.clock_events_window_seconds)
        self._xid_window = _window_label(options.xid_window_seconds)
        self._clock_window = _window_label(options.clock_events_window_seconds)
        self._totals: dict[str, Mapping[int, int]] = {}  # XID counters of this view
        self._seen: dict[str, Mapping[int, int]] | None = None  # those of the last one that had GPUs
        self.watches_clocks = False  # a window of clock events costs memory: kept only if exported
        self._samples: Mapping[str, Callable[[GpuReading], EventSamples]] = {
            dcgm.XID_ERRORS_COUNT.name: self._count_xids,
            dcgm.XID_ERRORS_TOTAL.name: self._total_xids,
            dcgm.CLOCK_EVENTS_COUNT.name: self._count_clock_events,
            dcgm.CLOCK_EVENTS_TOTAL.name: _total_clock_events,
            dcgm.PEER_STATUS.name: _list_peers,
        }

    def advance(self, snapshot: Snapshot) -> None:
        """Add the events of a new snapshot."""
        self._xids.advance(snapshot.taken_at)
        self._clocks.advance(snapshot.taken_at)
        devices = [reading for reading in snapshot.readings if not reading.gpu.mig]
        self._totals = _count_by_device(snapshot.readings)
        for device in devices:
            self._xids.add(device.gpu.uuid, self._new_xids(device.gpu.uuid))
            if self.watches_clocks:
                self._clocks.add(device.gpu.uuid, _name_reasons(int(device.signals.get("clock_event_reasons", 0))))
        if devices:
            self._seen = self._totals

    def samples(self, event: DcgmEvent, reading: GpuReading) -> EventSamples:
        """Labels and values of one event family on one GPU; none if a signal it needs is missing."""
        if any(signal not in reading.signals for signal in event.signals):
            return []
        return self._samples[event.name](reading)

    def _new_xids(self, gpu_uuid: str) -> Mapping[int, int]:
        """XIDs since the last view; none for a GPU that reappeared, because their time is unknown."""
        counts = self._totals[gpu_uuid]
        if not counts:
            return {}
        before = {} if self._seen is None else self._seen.get(gpu_uuid, counts)
        return {xid: new for xid, count in counts.items() if (new := count - before.get(xid, 0)) > 0}

    def _total_xids(self, reading: GpuReading) -> EventSamples:
        counts = self._totals.get(reading.gpu.uuid, {})
        return [((("xid", str(xid)),), count) for xid, count in sorted(counts.items())]

    def _count_xids(self, reading: GpuReading) -> EventSamples:
        """Without XIDs a single 0 without an xid label, as in dcgm-exporter."""
        counts = self._xids.counts(reading.gpu.uuid)
        return [(((*self._xid_window, ("xid", str(xid)))), count) for xid, count in sorted(counts.items())] or [
            (self._xid_window, 0)
        ]

    def _count_clock_events(self, reading: GpuReading) -> EventSamples:
        counts = self._clocks.counts(reading.gpu.uuid)
        return [((*self._clock_window, ("clock_event", name)), counts.get(name, 0)) for name in CLOCK_EVENTS.values()]


def _window_label(seconds: float) -> Labels:
    return (("window_size_in_ms", str(round(seconds * 1000))),)


@lru_cache(maxsize=64)
def _name_reasons(mask: int) -> Mapping[str, int]:
    """Count 1 for each reason in the mask. Masks repeat, so the mappings are cached."""
    return {name: 1 for bit, name in CLOCK_EVENTS.items() if mask & bit}


def _count_by_device(readings: Sequence[GpuReading]) -> dict[str, Mapping[int, int]]:
    """XIDs of each device including its MIG instances: these families have one row per device."""
    totals: dict[str, Mapping[int, int]] = {each.gpu.uuid: each.xid_counts for each in readings if not each.gpu.mig}
    for each in readings:
        if each.gpu.mig and each.xid_counts:
            totals[each.gpu.device_uuid] = Counter(totals.get(each.gpu.device_uuid, {})) + Counter(each.xid_counts)
    return totals


def _total_clock_events(reading: GpuReading) -> EventSamples:
    """All reasons, starting at 0: `increase()` misses the first event of a counter that first appears at 1."""
    counts = reading.clock_event_counts
    return [((("clock_event", name),), counts.get(name, 0)) for name in CLOCK_EVENTS.values()]


def _list_peers(reading: GpuReading) -> EventSamples:
    return [
        ((("link_status", LINK_STATUS[min(status, len(LINK_STATUS) - 1)]), ("peer_gpu", str(peer))), status)
        for peer, status in sorted(reading.peer_status.items())
    ]
