"""Counters accumulated from snapshot to snapshot: busy seconds, use of video engines and estimated energy, per GPU and
per part of it.

The parts of a GPU are those of `core.usage_split`: its containers, the host, and an unattributed rest.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gpusteward.core.containers import Container
from gpusteward.core.gpus import Place
from gpusteward.core.snapshots import Snapshot
from gpusteward.core.usage_split import GpuSplit, Part, split_usage

PartKey = tuple[str, Place, Container | None]  # gpu uuid, place, container
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """Input of every dialect: a snapshot, the usage split of its GPUs, and the counters so far."""

    snapshot: Snapshot
    splits: tuple[GpuSplit, ...] = ()
    gpu_busy_seconds: Mapping[str, float] = field(default_factory=dict)
    part_busy_seconds: Mapping[PartKey, float] = field(default_factory=dict)
    part_energy_joules: Mapping[PartKey, float] = field(default_factory=dict)
    part_video_seconds: Mapping[PartKey, float] = field(default_factory=dict)


class _Counters(Generic[_Key]):
    """Counters by key. One that cannot be measured for a while is hidden and later continues from its last value."""

    def __init__(self) -> None:
        self._counts: dict[_Key, float] = {}

    def grow(self, growth: Mapping[_Key, float | None], is_kept: Callable[[_Key], bool]) -> Mapping[_Key, float]:
        """Add the known growth and return those counters. Others are kept hidden if still present or `is_kept`."""
        before, grown = self._counts, {}
        hidden = {key: count for key, count in before.items() if is_kept(key) and key not in growth}
        for key, more in growth.items():
            if more is not None:
                grown[key] = before.get(key, 0.0) + more
            elif key in before:
                hidden[key] = before[key]
        self._counts = grown | hidden
        return grown


class UsageCounters:
    """Integrates usage over time. The counters of a container that left a GPU are dropped, which bounds memory."""

    def __init__(self, *, longest_gap_seconds: float) -> None:
        """`longest_gap_seconds`: a longer gap between snapshots is a collection failure and not counted as usage."""
        self._longest_gap = longest_gap_seconds
        self._last = Snapshot("", 0.0)
        self._gpu_busy: _Counters[str] = _Counters()
        self._part_busy: _Counters[PartKey] = _Counters()
        self._part_energy: _Counters[PartKey] = _Counters()
        self._part_video: _Counters[PartKey] = _Counters()

    def advance(self, snapshot: Snapshot) -> SnapshotView:
        """Add the usage since the last snapshot and return the view of the new one."""
        splits = split_usage(snapshot)
        seconds = snapshot.taken_at - self._last.taken_at
        seconds = seconds if 0 < seconds <= self._longest_gap else 0.0
        joules = _energy_per_watt(self._last, snapshot, seconds)
        is_unread = _unread(snapshot)
        self._last = snapshot
        return SnapshotView(
            snapshot,
            splits,
            self._gpu_busy.grow({each.gpu.uuid: _times(each.utilization_ratio, seconds) for each in splits}, is_unread),
            self._part_busy.grow(
                {key: _times(part.utilization_ratio, seconds) for _, part, key in _parts(splits)},
                lambda key: is_unread(key[0]),
            ),
            self._part_energy.grow(
                {
                    key: _times(part.power_watts, joules.get(each.gpu.device_uuid, seconds))
                    for each, part, key in _parts(splits)
                },
                lambda key: is_unread(key[0]),
            ),
            self._part_video.grow(
                {key: _times(part.video_ratio, seconds) for _, part, key in _parts(splits)},
                lambda key: is_unread(key[0]),
            ),
        )


def _unread(snapshot: Snapshot) -> Callable[[str], bool]:
    """Which GPUs could not be read, so that it is unknown which containers left them: the lost ones, or all."""
    lost = {reading.gpu.uuid for reading in snapshot.readings if reading.lost}
    return lambda uuid: not snapshot.readings or uuid in lost


def _times(rate: float | None, seconds: float) -> float | None:
    return None if rate is None else rate * seconds


def _parts(splits: tuple[GpuSplit, ...]) -> Iterator[tuple[GpuSplit, Part, PartKey]]:
    for split in splits:
        for part in split.parts:
            yield split, part, (split.gpu.uuid, part.by, part.container)


def _energy_per_watt(before: Snapshot, now: Snapshot, seconds: float) -> Mapping[str, float]:
    """Energy since the last snapshot per watt drawn now: the energy counter is exact, power is only a sample."""
    if not seconds:
        return {}
    earlier = {each.gpu.uuid: each.signals.get("energy_joules_total") for each in before.readings}
    rates = {}
    for reading in now.readings:
        energy, power = reading.signals.get("energy_joules_total"), reading.signals.get("power_watts")
        was = earlier.get(reading.gpu.uuid)
        if energy is not None and was is not None and power and energy >= was:
            rates[reading.gpu.uuid] = (energy - was) / power
    return rates
