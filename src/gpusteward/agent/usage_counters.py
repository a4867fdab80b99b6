"""Counters accumulated from snapshot to snapshot: busy seconds, use of video engines and estimated energy, per GPU and
per part of it; and of each GPU the time in which somebody who does not hold it used it, and the energy of all of them.
The parts of a GPU are those of `core.node.usage_split`: its containers, the host, and an unattributed rest.

The idea: a scraper sees a GPU every 15 or 60 seconds, the agent every few. A gauge of the moment shows the scraper one
of many readings, and work between two scrapes not at all. A counter holds the integral: its increase over any window
is the use in that window, whoever scrapes how often. An increase of 0 proves that there was no work, which a gauge of
0 does not. That is what verdicts call measured without gaps.

Invariants:

- A counter only grows. What a snapshot shows counts for the interval that it ends.
- Time that was not measured is not counted: neither the first interval, nor one longer than `longest_gap_seconds`
  (the agent hung or the machine slept), nor one in which the clock was set back.
- What cannot be measured now has no sample, and continues later from its last value. Falling back to 0 would look
  like a restart, and showing the old value like idleness.
- The counters of a container that left a GPU are dropped, which bounds the memory. Of a GPU that could not be read
  nobody knows who left it: its counters are kept, hidden.
- Energy follows the energy counter of the driver where it has one: the split of the power of this moment is scaled so
  that the parts sum to what the GPU really drew.

Without them, use that is shorter than a scrape interval would be lost, and idleness could only be sampled.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import Place
from gpusteward.core.node.snapshots import Snapshot
from gpusteward.core.node.usage_split import GpuSplit, split_usage

PartKey = tuple[str, Place, Container | None]  # gpu uuid, place, container
_Key = TypeVar("_Key", bound=Hashable)
_Values = tuple[float | None, ...]


class PartCounters(NamedTuple):
    """The counters of a part. None: cannot be measured now."""

    busy_seconds: float | None = None
    energy_joules: float | None = None
    video_seconds: float | None = None


NO_COUNTERS = PartCounters()


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """Input of every dialect: a snapshot, the usage split of its GPUs, and the counters so far."""

    snapshot: Snapshot
    splits: tuple[GpuSplit, ...] = ()
    gpu_busy_seconds: Mapping[str, float] = field(default_factory=dict)
    gpu_outside_seconds: Mapping[str, float] = field(default_factory=dict)
    gpu_rest_joules: Mapping[str, float] = field(default_factory=dict)  # of others than its holders
    parts: Mapping[PartKey, PartCounters] = field(default_factory=dict)


class _Counters(Generic[_Key]):
    """Several counters by key. One that cannot be measured for a while is hidden and later continues from its last
    value."""

    def __init__(self) -> None:
        self._counts: dict[_Key, _Values] = {}

    def grow(self, growth: Mapping[_Key, _Values], is_kept: Callable[[_Key], bool]) -> list[tuple[_Key, _Values]]:
        """Add the known growth; return the counters, None for unknown growth. Others are kept hidden if `is_kept`."""
        before, shown = self._counts, []
        self._counts = {key: counts for key, counts in before.items() if key not in growth and is_kept(key)}
        for key, more in growth.items():
            counts = before.get(key)
            grown = self._counts[key] = more if counts is None else tuple(map(_add, counts, more))
            if None in more:  # hidden, so that a gap looks neither like idleness nor like a restart
                grown = tuple(None if each is None else count for count, each in zip(grown, more, strict=True))
            shown.append((key, grown))
        return shown


class UsageCounters:
    """Integrates usage over time. The counters of a container that left a GPU are dropped, which bounds memory."""

    def __init__(self, *, longest_gap_seconds: float) -> None:
        """`longest_gap_seconds`: a longer gap between snapshots is a collection failure and not counted as usage."""
        self._longest_gap = longest_gap_seconds
        self._last = Snapshot("", 0.0)
        self._gpus: _Counters[str] = _Counters()
        self._parts: _Counters[PartKey] = _Counters()

    def advance(self, snapshot: Snapshot) -> SnapshotView:
        """Add the usage since the last snapshot and return the view of the new one."""
        splits = split_usage(snapshot)
        seconds = snapshot.taken_at - self._last.taken_at
        seconds = seconds if 0 < seconds <= self._longest_gap else 0.0  # else nobody measured that time
        joules = _energy_per_watt(self._last, snapshot, seconds)  # without an energy counter: watts times seconds
        is_unread = _unread(snapshot)
        self._last = snapshot
        # Who holds a GPU is not known while the allocations are not.
        outside = seconds if snapshot.allocations_known else None
        of_gpus: dict[str, _Values] = {
            each.gpu.uuid: (
                _times(each.utilization_ratio, seconds),
                outside if each.is_used_outside else _times(outside, 0.0),
                _times(each.sum_rest().power_watts, joules.get(each.gpu.device_uuid, seconds)),
            )
            for each in splits
        }
        of_parts = {
            (each.gpu.uuid, part.by, part.container): (
                _times(part.utilization_ratio, seconds),
                _times(part.power_watts, joules.get(each.gpu.device_uuid, seconds)),
                _times(part.video_ratio, seconds),
            )
            for each in splits
            for part in each.parts
        }
        gpus = self._gpus.grow(of_gpus, is_unread)
        return SnapshotView(
            snapshot,
            splits,
            {uuid: busy for uuid, (busy, _, _) in gpus if busy is not None},
            {uuid: used for uuid, (_, used, _) in gpus if used is not None},
            {uuid: rest for uuid, (_, _, rest) in gpus if rest is not None},
            {key: PartCounters(*counts) for key, counts in self._parts.grow(of_parts, lambda key: is_unread(key[0]))},
        )


def _add(count: float | None, more: float | None) -> float | None:
    if count is None or more is None:  # unknown growth adds nothing; a counter begins with the first known one
        return more if count is None else count
    return count + more


def _unread(snapshot: Snapshot) -> Callable[[str], bool]:
    """Which GPUs could not be read, so that it is unknown which containers left them: the lost ones, or all."""
    lost = {reading.gpu.uuid for reading in snapshot.readings if reading.lost}
    return lambda uuid: not snapshot.readings or uuid in lost


def _times(rate: float | None, seconds: float) -> float | None:
    return None if rate is None else rate * seconds


def _energy_per_watt(before: Snapshot, now: Snapshot, seconds: float) -> Mapping[str, float]:
    """Energy since the last snapshot per watt drawn now: the energy counter is exact, power is only a sample."""
    if not seconds:
        return {}
    earlier = {each.gpu.uuid: each.signals.get("energy_joules_total") for each in before.readings}
    rates = {}
    for reading in now.readings:
        energy, power = reading.signals.get("energy_joules_total"), reading.signals.get("power_watts")
        was = earlier.get(reading.gpu.uuid)
        if energy is not None and was is not None and power and energy >= was:  # less: the driver was loaded again
            rates[reading.gpu.uuid] = (energy - was) / power
    return rates
