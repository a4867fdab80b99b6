"""Counters that grow from snapshot to snapshot: busy seconds and estimated energy, by GPU and by user."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpusteward.core.containers import Container
from gpusteward.core.parts import Division, Part, divide
from gpusteward.core.processes import Place
from gpusteward.core.snapshots import Snapshot

UserKey = tuple[str, Place, Container | None]  # gpu uuid, who


@dataclass(frozen=True, slots=True)
class View:
    """What every dialect is rendered from: a snapshot, its GPUs divided, and what was counted so far."""

    snapshot: Snapshot
    divisions: tuple[Division, ...] = ()
    gpu_busy_seconds: Mapping[str, float] = field(default_factory=dict)
    use_busy_seconds: Mapping[UserKey, float] = field(default_factory=dict)
    use_energy_joules: Mapping[UserKey, float] = field(default_factory=dict)


class Meters:
    """Integrates use over time. Whoever is gone from a snapshot is forgotten, so memory follows what is alive."""

    def __init__(self, *, longest_gap_seconds: float) -> None:
        """`longest_gap_seconds`: a longer silence is a fault of the collection and is not counted as use."""
        self._longest_gap = longest_gap_seconds
        self._last = View(Snapshot("", 0.0))

    def advance(self, snapshot: Snapshot) -> View:
        """Count what happened since the last snapshot and show it with the new one."""
        divisions = divide(snapshot)
        seconds = snapshot.taken_at - self._last.snapshot.taken_at
        seconds = seconds if 0 < seconds <= self._longest_gap else 0.0
        self._last = View(
            snapshot,
            divisions,
            gpu_busy_seconds=self._count_gpus(divisions, seconds),
            use_busy_seconds=self._count_users(divisions, seconds),
            use_energy_joules=self._count_energy(snapshot, divisions, seconds),
        )
        return self._last

    def _count_gpus(self, divisions: tuple[Division, ...], seconds: float) -> Mapping[str, float]:
        before = self._last.gpu_busy_seconds
        return {
            each.gpu.uuid: before.get(each.gpu.uuid, 0.0) + each.utilization_ratio * seconds
            for each in divisions
            if each.utilization_ratio is not None
        }

    def _count_users(self, divisions: tuple[Division, ...], seconds: float) -> Mapping[UserKey, float]:
        before = self._last.use_busy_seconds
        return {
            key: before.get(key, 0.0) + part.utilization_ratio * seconds
            for _, part, key in _parts(divisions)
            if part.utilization_ratio is not None
        }

    def _count_energy(
        self, snapshot: Snapshot, divisions: tuple[Division, ...], seconds: float
    ) -> Mapping[UserKey, float]:
        before = self._last.use_energy_joules
        joules = _joules_per_watt(self._last.snapshot, snapshot, seconds)
        return {
            key: before.get(key, 0.0) + part.power_watts * joules.get(division.gpu.device_uuid, seconds)
            for division, part, key in _parts(divisions)
            if part.power_watts is not None
        }


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
