"""Counters accumulated from snapshot to snapshot: busy seconds and estimated energy, per GPU and per user of it."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gpusteward.core.containers import Container
from gpusteward.core.gpus import Place
from gpusteward.core.snapshots import Snapshot
from gpusteward.core.usage_split import Division, Part, divide

UserKey = tuple[str, Place, Container | None]  # gpu uuid, place, container
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """Input of every dialect: a snapshot, the usage split of its GPUs, and the counters so far."""

    snapshot: Snapshot
    divisions: tuple[Division, ...] = ()
    gpu_busy_seconds: Mapping[str, float] = field(default_factory=dict)
    use_busy_seconds: Mapping[UserKey, float] = field(default_factory=dict)
    use_energy_joules: Mapping[UserKey, float] = field(default_factory=dict)


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
    """Integrates usage over time. Users that left a GPU are dropped, so memory is bounded by what is running."""

    def __init__(self, *, longest_gap_seconds: float) -> None:
        """`longest_gap_seconds`: a longer gap between snapshots is a collection failure and not counted as usage."""
        self._longest_gap = longest_gap_seconds
        self._last = Snapshot("", 0.0)
        self._gpu_busy: _Counters[str] = _Counters()
        self._use_busy: _Counters[UserKey] = _Counters()
        self._use_energy: _Counters[UserKey] = _Counters()

    def advance(self, snapshot: Snapshot) -> SnapshotView:
        """Add the usage since the last snapshot and return the view of the new one."""
        divisions = divide(snapshot)
        seconds = snapshot.taken_at - self._last.taken_at
        seconds = seconds if 0 < seconds <= self._longest_gap else 0.0
        joules = _joules_per_watt(self._last, snapshot, seconds)
        is_unread = _unread(snapshot)
        self._last = snapshot
        return SnapshotView(
            snapshot,
            divisions,
            self._gpu_busy.grow(
                {each.gpu.uuid: _times(each.utilization_ratio, seconds) for each in divisions}, is_unread
            ),
            self._use_busy.grow(
                {key: _times(part.utilization_ratio, seconds) for _, part, key in _parts(divisions)},
                lambda key: is_unread(key[0]),
            ),
            self._use_energy.grow(
                {
                    key: _times(part.power_watts, joules.get(each.gpu.device_uuid, seconds))
                    for each, part, key in _parts(divisions)
                },
                lambda key: is_unread(key[0]),
            ),
        )


def _unread(snapshot: Snapshot) -> Callable[[str], bool]:
    """Which GPUs could not be read, so that it is unknown which users left them: the lost ones, or all."""
    lost = {reading.gpu.uuid for reading in snapshot.readings if reading.lost}
    return lambda uuid: not snapshot.readings or uuid in lost


def _times(rate: float | None, seconds: float) -> float | None:
    return None if rate is None else rate * seconds


def _parts(divisions: tuple[Division, ...]) -> Iterator[tuple[Division, Part, UserKey]]:
    for division in divisions:
        for part in division.parts:
            yield division, part, (division.gpu.uuid, part.by, part.container)


def _joules_per_watt(before: Snapshot, now: Snapshot, seconds: float) -> Mapping[str, float]:
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
