"""Splits the usage of each GPU among containers, the host, and an unattributed rest (pure).

The idea: the driver measures a device as a whole, and its processes with other methods, at other moments, and on some
devices not at all. The total of the device is what was measured best. What is known of processes is given to their
containers, and the difference is a part of its own, `unattributed`, so that nothing is lost and nobody gets what is not
shown to be theirs.

Invariants:

- The parts of a GPU sum to its total, for utilization, memory, power and video engines.
- The total is at least the sum of its processes, and at most the capacity of the device: more than that is scaled down.
- An unknown part is `None`, never 0: 0 is a statement, and idle verdicts are made of it. A part without processes is
  known to be 0 only if all processes of the GPU could be listed and attributed.
- A container that holds a GPU alone and is the only one with processes on it has all of the utilization, also what the
  samples per process miss.
- Power cannot be measured per process. It is split by utilization; that of an idle GPU equally among its holders, or to
  nobody where there is none. That of a MIG device is split among its instances by activity and slices first.

Without the rest, a sum over containers would disagree with the device, and work of processes that nobody can see (in
another PID namespace, or of a driver without per-process samples) would look like idleness of the holder.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import Gpu, GpuAllocation, GpuProcess, GpuReading, Place, is_mps_server
from gpusteward.core.node.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class Part:
    """The part of one GPU used by one container, by the host, or unattributed."""

    by: Place
    container: Container | None = None
    processes: int | None = 0
    utilization_ratio: float | None = None
    memory_bytes: float | None = None
    power_watts: float | None = None  # estimated from the utilization
    video_ratio: float | None = None  # utilization of the busiest video engine


@dataclass(frozen=True, slots=True)
class GpuSplit:
    """The usage of one GPU, split into parts; a total of `None` could not be measured."""

    gpu: Gpu
    utilization_ratio: float | None
    memory_used_bytes: float | None
    power_watts: float | None  # of a MIG instance: its estimated part of the device's power
    parts: tuple[Part, ...]
    is_used_outside: bool = False  # somebody who does not hold it uses it
    holders: int = 0  # this many parts, the first ones, are those of the containers that hold it

    def sum_rest(self) -> Part:
        """What its holders do not use; an unknown part of it is in the unattributed one."""
        *named, last = self.parts[self.holders :]
        return Part(
            Place.UNKNOWN,
            utilization_ratio=_add_known(last.utilization_ratio, [part.utilization_ratio for part in named]),
            memory_bytes=_add_known(last.memory_bytes, [part.memory_bytes for part in named]),
            power_watts=_add_known(last.power_watts, [part.power_watts for part in named]),
        )


SPLIT_SIGNALS = frozenset(
    {"utilization_mean_ratio", "utilization_ratio", "gr_engine_ratio", "memory_used_bytes", "memory_total_bytes"}
    | {"memory_reserved_bytes", "power_watts", "energy_joules_total", "encoder_ratio", "decoder_ratio"}
)
"""Signals needed to split a GPU and to accumulate the usage of its parts."""

UTILIZATION_SIGNALS = ("utilization_mean_ratio", "utilization_ratio", "gr_engine_ratio")
"""The utilization of a GPU: the first one that it reports."""

OUTSIDE_MEMORY_BYTES = 1 << 30
"""Whoever does not hold a GPU and has more memory than this on it uses it. A display server or a monitoring daemon of
the host has less, and a loaded model has more."""

_ProcessesByPart = dict[tuple[Place, Container | None], list[GpuProcess]]
_OnGpu = TypeVar("_OnGpu", GpuProcess, GpuAllocation)


def split_usage(snapshot: Snapshot) -> tuple[GpuSplit, ...]:
    """Split every GPU of the snapshot that can be allocated: whole GPUs, and MIG instances instead of their parent."""
    processes = group_by_gpu(snapshot.processes)
    allocations = group_by_gpu(snapshot.allocations)
    instance_watts = _instance_watts(snapshot.readings, processes)
    return tuple(
        split_gpu(
            reading,
            processes.get(reading.gpu.uuid, ()),
            allocations.get(reading.gpu.uuid, ()),
            watts=instance_watts.get(reading.gpu.uuid, reading.signals.get("power_watts")),
        )
        for reading in snapshot.readings
        if not reading.lost and not reading.is_mig_parent
    )


def split_gpu(
    reading: GpuReading,
    processes: Sequence[GpuProcess],
    allocations: Sequence[GpuAllocation],
    *,
    watts: float | None,
) -> GpuSplit:
    """Split one GPU among the containers that hold it and the processes on it."""
    groups = _group_processes(processes, allocations)
    known = _known_processes(reading, groups)
    sizes = _sum_per_part(known, lambda process: process.memory_bytes)
    held, memory = _memory(reading, sizes)
    busy, utilization = _reconcile_total(
        utilization_of(reading), _utilization(reading, groups, known, allocations), 1.0
    )
    power = _power(watts, utilization, len(allocations))
    video = _video(reading, groups, known, allocations)
    parts = tuple(
        Part(by, container, None if own is None else len(own), *values)
        for (by, container), own, *values in zip(groups, known, utilization, memory, power, video, strict=True)
    )
    holders = len({each.container for each in allocations})
    # What the other pod of a pair does is the holder's work, but while it does nothing, has no process or is asleep,
    # only the server in it knows whether it is needed.
    is_used_outside = any(each.used_by for each in allocations) or _is_used_outside(groups, parts, holders)
    return GpuSplit(reading.gpu, busy, held, watts, parts, is_used_outside, holders)


def utilization_of(reading: GpuReading) -> float | None:
    """The utilization over the longest window available; on MIG, where NVML has none, the engine activity."""
    for name in UTILIZATION_SIGNALS:
        if name in reading.signals:
            return reading.signals[name]
    return None


def _group_processes(processes: Sequence[GpuProcess], allocations: Sequence[GpuAllocation]) -> _ProcessesByPart:
    """Processes by part: containers with an allocation, then other containers with a process, host, unattributed."""
    groups: _ProcessesByPart = {(Place.CONTAINER, allocation.container): [] for allocation in allocations}
    rest: _ProcessesByPart = {(Place.HOST, None): [], (Place.UNKNOWN, None): []}
    for process in processes:
        if process.place is Place.CONTAINER:
            groups.setdefault((Place.CONTAINER, process.works_for or process.container), []).append(process)
        else:
            rest[process.place, None].append(process)
    return groups | rest


def _known_processes(reading: GpuReading, groups: _ProcessesByPart) -> list[list[GpuProcess] | None]:
    """The processes of each part; None if unknown.

    A part without processes is known to have none only if all processes on the GPU could be listed and attributed.
    """
    unnamed = [
        container
        for (_, container), own in groups.items()
        if container and own and not (container.pod and container.name)
    ]
    is_complete = reading.processes_known and not groups[Place.UNKNOWN, None]
    return [
        own if own or (is_complete and not any(_may_be(other, container) for other in unnamed)) else None
        for (_, container), own in groups.items()
    ]


def _may_be(unnamed: Container, holder: Container | None) -> bool:
    """Whether a container without a full name could be this holder."""
    if holder is None:
        return False
    if unnamed.pod:
        return (unnamed.namespace, unnamed.pod) == (holder.namespace, holder.pod)
    return not holder.pod_uid


def _sum_per_part(
    known: Iterable[list[GpuProcess] | None], read: Callable[[GpuProcess], float | None]
) -> list[float | None]:
    """None where the processes of a part are unknown, or the value of one of them."""
    sums: list[float | None] = []
    for own in known:
        total = None if own is None else 0.0
        for value in map(read, own or ()):
            total = None if value is None or total is None else total + value
        sums.append(total)
    return sums


def _memory(reading: GpuReading, sizes: list[float | None]) -> tuple[float | None, list[float | None]]:
    """Memory of the device and of each part. Where the driver reports none of the device (unified memory), only that
    of processes is known: neither the unattributed rest nor the total."""
    used = reading.signals.get("memory_used_bytes")
    if used is None:
        return None, [*sizes[:-1], None]
    return _reconcile_total(used, sizes, reading.signals.get("memory_total_bytes", reading.gpu.memory_total_bytes))


def _utilization(
    reading: GpuReading,
    groups: _ProcessesByPart,
    known: Sequence[list[GpuProcess] | None],
    allocations: Sequence[GpuAllocation],
) -> list[float | None]:
    """Utilization of each part; an exclusive holder without other processes on the GPU has all of it."""
    device, ratios = utilization_of(reading), _sum_per_part(known, lambda process: process.sm_ratio)
    if device is not None and _has_sole_holder(groups, allocations):
        return [max(device, ratios[0] or 0.0), 0.0, 0.0]
    return ratios


def _video(
    reading: GpuReading,
    groups: _ProcessesByPart,
    known: Sequence[list[GpuProcess] | None],
    allocations: Sequence[GpuAllocation],
) -> list[float | None]:
    """Use of the video engines by each part. The device reports one sample, its processes a mean since the last cycle:
    the device only counts for a sole holder, and where the use of a process is unknown. The driver reports neither of a
    MIG instance: there it is known only if the instance has no such engine."""
    if reading.gpu.mig and reading.gpu.mig.video_engines == 0:
        return [0.0] * len(groups)
    device = _max_known(reading.signals.get("encoder_ratio"), reading.signals.get("decoder_ratio"))
    ratios = _sum_per_part(known, lambda process: _max_known(process.encoder_ratio, process.decoder_ratio))
    if device is not None and _has_sole_holder(groups, allocations):
        return [max(device, ratios[0] or 0.0), 0.0, 0.0]
    return _reconcile_total(device if None in ratios else None, ratios, 1.0)[1]


def _max_known(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _has_sole_holder(groups: _ProcessesByPart, allocations: Sequence[GpuAllocation]) -> bool:
    is_exclusive = len(allocations) == 1 and not allocations[0].share.is_shared
    # Three groups are the holder, host and unattributed: no other container has a process here.
    return is_exclusive and len(groups) == 3 and not groups[Place.HOST, None] and not groups[Place.UNKNOWN, None]


def _is_used_outside(groups: _ProcessesByPart, parts: Sequence[Part], holders: int) -> bool:
    """Whether the host, a container without an allocation, or nobody known works on the GPU or holds much memory.

    What is left after all processes is use of somebody unknown only where no holder can have it: the utilization of a
    device and that of its processes are not measured at the same moments, and a process may hold more memory than the
    driver says.
    """
    named = [
        part
        for part, own in list(zip(parts, groups.values(), strict=True))[holders:-1]
        if not own or not all(is_mps_server(each.name) for each in own)  # it works for the holders
    ]
    rest = parts[-1]
    if groups[Place.UNKNOWN, None] or not any(part.processes is None or part.processes for part in parts[:holders]):
        named.append(rest if groups[Place.UNKNOWN, None] else replace(rest, utilization_ratio=None, video_ratio=None))
    return any(
        (part.utilization_ratio or 0) > 0
        or (part.video_ratio or 0) > 0
        or (part.memory_bytes or 0) > OUTSIDE_MEMORY_BYTES
        for part in named
    )


def _add_known(total: float | None, others: Iterable[float | None]) -> float | None:
    return None if total is None else total + sum(other or 0.0 for other in others)


def _reconcile_total(
    measured: float | None, parts: list[float | None], cap: float | None
) -> tuple[float | None, list[float | None]]:
    """Total and parts that add up. Without a measured total, one unknown part makes the total unknown."""
    seen = sum(part for part in parts if part is not None)
    if measured is None and None in parts:
        return None, [*parts[:-1], None]
    total = max(measured or 0.0, seen)  # processes are measured at other moments: their sum may be the higher one
    if not total:  # every part is 0, also the unknown ones
        return total, [0.0] * len(parts)
    if cap is not None and total > cap:
        parts = [None if part is None else part * min(1.0, cap / seen) if seen else part for part in parts]
        total = cap
    named = sum(part for part in parts[:-1] if part is not None)
    return total, [*parts[:-1], max(total - named, 0.0)]


def _power(watts: float | None, utilization: list[float | None], holders: int) -> list[float | None]:
    """Power split by utilization, unknown where that is unknown; an idle GPU is split by `_idle_weights`."""
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
    """The power of an idle GPU is split equally among its holders; without holders it is unattributed.

    With an unknown utilization the GPU may not be idle: then only a holder that is alone on it gets the power.
    """
    is_idle, is_alone = None not in utilization[:-1], holders == 1 and len(utilization) == 3
    receivers = holders if is_idle or is_alone else 0
    return [1.0] * receivers + [0.0] * (len(utilization) - receivers - 1) + [0.0 if receivers else 1.0]


def _instance_watts(
    readings: Iterable[GpuReading], processes: Mapping[str, Sequence[GpuProcess]]
) -> Mapping[str, float]:
    """The power of a MIG device split among its instances: by activity times compute slices, or by slices only while
    all are idle or the activity of one is unknown."""
    instances: dict[str, list[GpuReading]] = {}
    for reading in readings:
        if reading.gpu.mig:
            instances.setdefault(reading.gpu.mig.parent_uuid, []).append(reading)
    watts: dict[str, float] = {}
    for reading in readings:
        own, power = instances.get(reading.gpu.uuid), reading.signals.get("power_watts")
        if own and power is not None:
            weights, ratios = [_compute_slices(each.gpu) for each in own], [_activity(each, processes) for each in own]
            if None not in ratios and any(ratios):
                weights = [size * (ratio or 0.0) for size, ratio in zip(weights, ratios, strict=True)]
            watts |= {each.gpu.uuid: power * w / sum(weights) for each, w in zip(own, weights, strict=True)}
    return watts


def _activity(instance: GpuReading, processes: Mapping[str, Sequence[GpuProcess]]) -> float | None:
    """The measured activity; if there is none, an instance without processes is idle."""
    is_empty = instance.processes_known and not processes.get(instance.gpu.uuid)
    ratio = utilization_of(instance)
    return 0.0 if ratio is None and is_empty else ratio


_SLICES = re.compile(r"([0-9]+)(?:c\.|g\.)")


def _compute_slices(gpu: Gpu) -> float:
    """The 3 of `3g.40gb` or the 1 of `1c.3g.40gb`; any other profile name counts as one slice."""
    match = _SLICES.match(gpu.mig.profile) if gpu.mig else None
    return float(match[1]) if match and int(match[1]) else 1.0


def group_by_gpu(things: Iterable[_OnGpu]) -> dict[str, list[_OnGpu]]:
    """The processes or holders of each GPU, by its uuid."""
    grouped: dict[str, list[_OnGpu]] = {}
    for thing in things:
        grouped.setdefault(thing.gpu_uuid, []).append(thing)
    return grouped
