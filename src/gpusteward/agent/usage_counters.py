"""Counters that grow from snapshot to snapshot: busy seconds and estimated energy, by GPU and by user."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gpusteward.core.containers import Container
from gpusteward.core.gpus import Place
from gpusteward.core.snapshots import Snapshot
from gpusteward.core.usage_split import Division, Part, divide

UserKey = tuple[str, Place, Container | None]  # gpu uuid, who
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """What every dialect is rendered from: a snapshot, its GPUs divided, and what was counted so far."""

    snapshot: Snapshot
    divisions: tuple[Division, ...] = ()
    gpu_busy_seconds: Mapping[str, float] = field(default_factory=dict)
    use_busy_seconds: Mapping[UserKey, float] = field(default_factory=dict)
    use_energy_joules: Mapping[UserKey, float] = field(default_factory=dict)


class _Counters(Generic[_Key]):
    """Counters by key. What cannot be measured for a while is not shown, and goes on from where it was."""

    def __init__(self) -> None:
        self._counts: dict[_Key, float] = {}

    def grow(self, growth: Mapping[_Key, float | None], is_kept: Callable[[_Key], bool]) -> Mapping[_Key, float]:
        """Those whose growth is known, grown. Of the others, those that are there or to be kept are remembered."""
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
    """Integrates use over time. Whoever is gone from a GPU is forgotten, so memory follows what is alive."""

    def __init__(self, *, longest_gap_seconds: float) -> None:
        """`longest_gap_seconds`: a longer silence is a fault of the collection and is not counted as use."""
        self._longest_gap = longest_gap_seconds
        self._last = Snapshot("", 0.0)
        self._gpu_busy: _Counters[str] = _Counters()
        self._use_busy: _Counters[UserKey] = _Counters()
        self._use_energy: _Counters[UserKey] = _Counters()

    def advance(self, snapshot: Snapshot) -> SnapshotView:
        """Count what happened since the last snapshot and show it with the new one."""
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
    """Which GPUs could not be looked at, so that nobody knows who is gone from them: the lost ones, or all."""
    lost = {reading.gpu.uuid for reading in snapshot.readings if reading.lost}
    return lambda uuid: not snapshot.readings or uuid in lost


def _times(rate: float | None, seconds: float) -> float | None:
    return None if rate is None else rate * seconds


def _parts(divisions: tuple[Division, ...]) -> Iterator[tuple[Division, Part, UserKey]]:
    for division in divisions:
        for part in division.parts:
            yield division, part, (division.gpu.uuid, part.by, part.container)


def _joules_per_watt(before: Snapshot, now: Snapshot, seconds: float) -> Mapping[str, float]:
    """Energy since the last snapshot for each watt drawn now: the energy counter is exact where power is a sample."""
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
