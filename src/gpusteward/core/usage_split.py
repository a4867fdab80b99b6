"""Who uses how much of a GPU: the device divided among containers, the host, and what nobody can name.

One rule for totals: a device uses at least what its processes are seen to use, and never more than it has. The
parts then sum to the total; `unattributed` takes what the others leave. A part that cannot be known is `None`,
it never becomes 0.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpusteward.core.allocations import Allocation, Share
from gpusteward.core.containers import Container
from gpusteward.core.gpus import Gpu, GpuProcess, GpuReading, Place
from gpusteward.core.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class Part:
    """One user's part of one GPU."""

    by: Place
    container: Container | None = None
    processes: int | None = 0
    utilization_ratio: float | None = None
    memory_bytes: float | None = None
    power_watts: float | None = None  # estimated by share of use


@dataclass(frozen=True, slots=True)
class Division:
    """One GPU and the parts of it; a total of `None` could not be measured."""

    gpu: Gpu
    utilization_ratio: float | None
    memory_used_bytes: float | None
    power_watts: float | None  # of a MIG instance: its estimated part of the device's
    parts: tuple[Part, ...]


DIVIDED_SIGNALS = frozenset(
    {"utilization_mean_ratio", "utilization_ratio", "gr_engine_ratio", "memory_used_bytes", "memory_total_bytes"}
    | {"memory_reserved_bytes", "power_watts", "energy_joules_total"}
)
"""What dividing a GPU, and counting what its users did, is made of."""

_Users = dict[tuple[Place, Container | None], list[GpuProcess]]
_OnGpu = TypeVar("_OnGpu", GpuProcess, Allocation)


def divide(snapshot: Snapshot) -> tuple[Division, ...]:
    """Divide every GPU of the snapshot that can be held: whole ones, and MIG instances instead of their parent."""
    processes = _by_gpu(snapshot.processes)
    allocations = _by_gpu(snapshot.allocations)
    instance_watts = _instance_watts(snapshot.readings, processes)
    return tuple(
        divide_gpu(
            reading,
            processes.get(reading.gpu.uuid, ()),
            allocations.get(reading.gpu.uuid, ()),
            watts=instance_watts.get(reading.gpu.uuid, reading.signals.get("power_watts")),
        )
        for reading in snapshot.readings
        if not reading.lost and not reading.is_mig_parent
    )


def divide_gpu(
    reading: GpuReading,
    processes: Sequence[GpuProcess],
    allocations: Sequence[Allocation],
    *,
    watts: float | None,
) -> Division:
    """Divide one GPU among those who hold it and those seen on it."""
    users = _users(processes, allocations)
    known = _known(reading, users)
    sizes = _sum_up(known, lambda process: process.memory_bytes)
    held, memory = _settle(reading.signals.get("memory_used_bytes"), sizes, _capacity(reading))
    busy, utilization = _settle(utilization_of(reading), _utilization(reading, users, known, allocations), 1.0)
    power = _power(watts, utilization, len(allocations))
    parts = tuple(
        Part(by, container, None if own is None else len(own), ratio, size, watt)
        for (by, container), own, ratio, size, watt in zip(users, known, utilization, memory, power, strict=True)
    )
    return Division(reading.gpu, busy, held, watts, parts)


def utilization_of(reading: GpuReading) -> float | None:
    """The widest window the device offers; on MIG, where NVML has no utilization, the engine's activity."""
    for name in ("utilization_mean_ratio", "utilization_ratio", "gr_engine_ratio"):
        if name in reading.signals:
            return reading.signals[name]
    return None


def _users(processes: Sequence[GpuProcess], allocations: Sequence[Allocation]) -> _Users:
    """Everybody with a claim, then everybody else with a process; host and unattributed are always there, last."""
    users: _Users = {(Place.CONTAINER, allocation.container): [] for allocation in allocations}
    rest: _Users = {(Place.HOST, None): [], (Place.UNKNOWN, None): []}
    for process in processes:
        if process.place is Place.CONTAINER:
            users.setdefault((Place.CONTAINER, process.container), []).append(process)
        else:
            rest[process.place, None].append(process)
    return users | rest


def _known(reading: GpuReading, users: _Users) -> list[list[GpuProcess] | None]:
    """The processes of each user; None where they cannot be told.

    None at all is an answer only if everything on the GPU could be seen and named.
    """
    nameless = [who for (_, who), own in users.items() if who and own and not (who.pod and who.name)]
    is_whole = reading.processes_known and not users[Place.UNKNOWN, None]
    return [
        own if own or (is_whole and not any(_may_be(other, who) for other in nameless)) else None
        for (_, who), own in users.items()
    ]


def _may_be(nameless: Container, holder: Container | None) -> bool:
    """Whether a container known by less than its name could be this holder, as far as both are known."""
    if holder is None:
        return False
    if nameless.pod:
        return (nameless.namespace, nameless.pod) == (holder.namespace, holder.pod)
    return not holder.pod_uid


def _sum_up(known: Iterable[list[GpuProcess] | None], read: Callable[[GpuProcess], float | None]) -> list[float | None]:
    return [None if own is None else _known_sum(map(read, own)) for own in known]


def _utilization(
    reading: GpuReading,
    users: _Users,
    known: Sequence[list[GpuProcess] | None],
    allocations: Sequence[Allocation],
) -> list[float | None]:
    """Each user's compute; a sole holder nobody disturbs has all that the device does."""
    device, ratios = utilization_of(reading), _sum_up(known, lambda process: process.sm_ratio)
    if device is not None and _has_sole_holder(users, allocations):
        return [max(device, ratios[0] or 0.0), 0.0, 0.0]
    return ratios


def _has_sole_holder(users: _Users, allocations: Sequence[Allocation]) -> bool:
    is_exclusive = len(allocations) == 1 and allocations[0].share in (Share.EXCLUSIVE, Share.MIG)
    return is_exclusive and len(users) == 3 and not users[Place.HOST, None] and not users[Place.UNKNOWN, None]


def _known_sum(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _settle(
    measured: float | None, parts: list[float | None], cap: float | None
) -> tuple[float | None, list[float | None]]:
    """The total and its parts, agreeing. Without a measured total, one unknown part makes the whole unknown."""
    seen = sum(part for part in parts if part is not None)
    if measured is None and None in parts:
        return None, [*parts[:-1], None]
    total = max(measured or 0.0, seen)
    if not total:  # of nothing, nobody has a part, whoever they are
        return total, [0.0] * len(parts)
    if cap is not None and total > cap:
        parts = [None if part is None else part * min(1.0, cap / seen) if seen else part for part in parts]
        total = cap
    named = sum(part for part in parts[:-1] if part is not None)
    return total, [*parts[:-1], max(total - named, 0.0)]


def _capacity(reading: GpuReading) -> float | None:
    return reading.signals.get("memory_total_bytes", reading.gpu.memory_total_bytes)


def _power(watts: float | None, utilization: list[float | None], holders: int) -> list[float | None]:
    """Power by share of use, unknown where the use is; what nobody is known to use is `_idle_weights`'s to give."""
    if watts is None:
        return [None] * len(utilization)
    weights = [ratio or 0.0 for ratio in utilization]
    if not any(weights):
        weights = _idle_weights(utilization, holders)
    return [
        watts * weight / sum(weights) if weight or ratio is not None else None
        for weight, ratio in zip(weights, utilization, strict=True)
    ]


def _idle_weights(utilization: list[float | None], holders: int) -> list[float]:
    """An idle GPU's power goes to its holders by equal parts, else to nobody.

    Where use is unknown it may not be idle: then only a holder who is alone on it is sure to be the one.
    """
    is_idle, is_alone = None not in utilization[:-1], holders == 1 and len(utilization) == 3
    heirs = holders if is_idle or is_alone else 0
    return [1.0] * heirs + [0.0] * (len(utilization) - heirs - 1) + [0.0 if heirs else 1.0]


def _instance_watts(
    readings: Iterable[GpuReading], processes: Mapping[str, Sequence[GpuProcess]]
) -> Mapping[str, float]:
    """A MIG device's power over its instances: by activity times compute slices; by slices alone while all are idle
    or the activity of one is unknown."""
    watts: dict[str, float] = {}
    instances = _by_parent(readings)
    for reading in readings:
        own = instances.get(reading.gpu.uuid)
        if own and (power := reading.signals.get("power_watts")) is not None:
            weights = _activities(own, processes)
            watts |= {each.gpu.uuid: power * w / sum(weights) for each, w in zip(own, weights, strict=True)}
    return watts


def _activities(instances: Sequence[GpuReading], processes: Mapping[str, Sequence[GpuProcess]]) -> list[float]:
    slices = [_compute_slices(each.gpu) for each in instances]
    known = [ratio for each in instances if (ratio := _activity(each, processes)) is not None]
    if len(known) < len(slices) or not any(known):
        return slices
    return [size * ratio for size, ratio in zip(slices, known, strict=True)]


def _activity(instance: GpuReading, processes: Mapping[str, Sequence[GpuProcess]]) -> float | None:
    """What the device tells; where it tells nothing, an instance nobody is on is idle."""
    is_empty = instance.processes_known and not processes.get(instance.gpu.uuid)
    ratio = utilization_of(instance)
    return 0.0 if ratio is None and is_empty else ratio


def _by_parent(readings: Iterable[GpuReading]) -> Mapping[str, list[GpuReading]]:
    instances: dict[str, list[GpuReading]] = {}
    for reading in readings:
        if reading.gpu.mig:
            instances.setdefault(reading.gpu.mig.parent_uuid, []).append(reading)
    return instances


_SLICES = re.compile(r"([0-9]+)(?:c\.|g\.)")


def _compute_slices(gpu: Gpu) -> float:
    """The 3 of `3g.40gb`, the 1 of `1c.3g.40gb`; a profile of another form counts as one slice."""
    match = _SLICES.match(gpu.mig.profile) if gpu.mig else None
    return float(match[1]) if match and int(match[1]) else 1.0


def _by_gpu(things: Iterable[_OnGpu]) -> dict[str, list[_OnGpu]]:
    grouped: dict[str, list[_OnGpu]] = {}
    for thing in things:
        grouped.setdefault(thing.gpu_uuid, []).append(thing)
    return grouped
