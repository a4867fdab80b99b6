"""Usage tables for tests and benches: written by hand, sampled from simulated nodes, or large."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gpusteward.analyzer.tables import Column, UsageTable
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.node.gpus import GpuReading, Share
from gpusteward.core.node.snapshots import Snapshot
from gpusteward.core.node.usage_split import Part, split_usage
from gpusteward.core.usages import AllocationKey, Measure, Stat
from gpusteward.simulate.ground_truth import Truth, TruthKey
from gpusteward.simulate.nodes import SimulatedNode

AT = 1_790_000_000.0
WINDOW = 600.0
STEP = 30.0
AGENT_STEP = 5.0
DAY = 86_400.0
GIB = float(1 << 30)
SUMS = (Stat.MEAN, Stat.PEAK, Stat.LAST, Stat.SPREAD)

Stats = Mapping[tuple[Measure, Stat], float]
Values = Mapping[Measure, float]

_DEVICE_SIGNALS = {
    Measure.MEMORY_COPY: "memory_copy_ratio",
    Measure.ENGINE: "gr_engine_ratio",
    Measure.TENSOR: "tensor_ratio",
    Measure.DRAM: "dram_ratio",
    Measure.SM_CLOCK: "sm_clock_hertz",
    Measure.MEMORY_TOTAL: "memory_total_bytes",
    Measure.POWER_LIMIT: "power_limit_watts",
}
_TRUE_OF_EVERY_SHARE = (Measure.SM_CLOCK, Measure.MEMORY_TOTAL, Measure.POWER_LIMIT)


def allocation(
    number: int = 0,
    *,
    owner: Workload | None = None,
    model: str = "NVIDIA H100 80GB HBM3",
    share: str = "exclusive",
    instance: str = "",
    started_at: float | None = AT - DAY,
) -> AllocationKey:
    """One container on one GPU; the owner is a Deployment by default."""
    owner = owner or Workload("Deployment", "team", "server")
    container = Container("team", f"pod-{number}", f"uid-{number}", "main", owner, (), started_at)
    return AllocationKey(f"GPU-{number}", instance, container, f"node-{number // 8}", str(number % 8), model, share)


def signal(
    measure: Measure, mean: float, peak: float | None = None, *, last: float | None = None, spread: float = 0.0
) -> dict[tuple[Measure, Stat], float]:
    """All stats of one measure; constant over time by default."""
    peak = mean if peak is None else peak
    stats = {Stat.MEAN: mean, Stat.PEAK: peak, Stat.LAST: mean if last is None else last, Stat.SPREAD: spread}
    return {(measure, stat): value for stat, value in stats.items()}


def resting(
    memory_gib: float = 40.0, *, processes: float = 1.0, watts: float = 110.0
) -> dict[tuple[Measure, Stat], float]:
    """A GPU that does nothing."""
    return (
        signal(Measure.CORE, 0.0)
        | {(Measure.BUSY, Stat.MEAN): 0.0}
        | signal(Measure.MEMORY_COPY, 0.0)
        | signal(Measure.MEMORY_USED, memory_gib * GIB)
        | signal(Measure.PROCESSES, processes)
        | signal(Measure.POWER, watts)
    )


def working(mean: float = 0.6, peak: float = 0.9, *, spread: float = 0.1) -> dict[tuple[Measure, Stat], float]:
    """A GPU at work."""
    return (
        resting(watts=400)
        | signal(Measure.CORE, mean, peak, spread=spread)
        | {(Measure.BUSY, Stat.MEAN): mean}
        | signal(Measure.MEMORY_COPY, mean / 2)
    )


def table_of(
    *rows: Stats,
    allocations: Sequence[AllocationKey] = (),
    coverage: float | Sequence[float] = 1.0,
    unknown: Mapping[int, str] | None = None,
    at: float = AT,
) -> UsageTable:
    """A table of these rows; what a row omits is unknown."""
    names = {name for row in rows for name in row}
    stats = {name: np.array([row.get(name, np.nan) for row in rows], dtype=float) for name in names}
    held = list(allocations) or [allocation(number) for number in range(len(rows))]
    return UsageTable(at, WINDOW, held, stats, np.broadcast_to(coverage, len(rows)).astype(float), unknown or {})


def large_table(rows: int, *, at: float = AT, seed: int = 0) -> UsageTable:
    """Many GPUs, all signals, eight to a pod, two pods to a workload; a third of them idle."""
    chance = np.random.default_rng(seed)
    busy = np.where(chance.random(rows) < 0.67, chance.random(rows), 0.0)
    scales = {Measure.MEMORY_USED: 80 * GIB, Measure.POWER: 700.0, Measure.SM_CLOCK: 1.9e9, Measure.PROCESSES: 2.0}
    stats = {(measure, stat): busy * scales.get(measure, 1.0) for measure in Measure for stat in SUMS}
    stats |= {(Measure.MEMORY_TOTAL, stat): np.full(rows, 80 * GIB) for stat in SUMS}
    stats |= {(Measure.POWER_LIMIT, stat): np.full(rows, 700.0) for stat in SUMS}
    stats[Measure.CORE, Stat.COUNT] = np.full(rows, WINDOW / STEP)
    owners = [Workload("Deployment", f"team-{number % 200}", f"app-{number}") for number in range(rows // 16 + 1)]
    pods = [
        Container(
            owners[number // 2].namespace, f"app-{number}", f"uid-{number}", "main", owners[number // 2], (), at - DAY
        )
        for number in range(rows // 8 + 1)
    ]
    allocations = [
        AllocationKey(
            f"GPU-{number:08d}", "", pods[number // 8], f"node-{number // 8}", str(number % 8), "NVIDIA H100 80GB HBM3"
        )
        for number in range(rows)
    ]
    return UsageTable(at, WINDOW, allocations, stats, np.ones(rows))


@dataclass
class Sampled:
    """Simulated nodes as Prometheus would have them: scraped at steps, each moment once for all windows it is in."""

    nodes: Sequence[SimulatedNode]
    counts_processes: bool = True  # False: as with dcgm-exporter alone
    _moments: dict[tuple[int, float], Mapping[AllocationKey, Values]] = field(default_factory=dict)

    def table(
        self, at: float, *, window: float = WINDOW, step: float = STEP, counter_step: float | None = None
    ) -> UsageTable:
        """The window that ends at a moment. With `counter_step`, core means come from a counter fed at these steps."""
        moments = [at - step * number for number in range(round(window / step))][::-1]
        rows = [row for number in range(len(self.nodes)) for row in self._rows(number, moments, counter_step)]
        measured = {key for _, samples, _ in rows for sample in samples for key in sample}
        columns = [_sum_up(measure, [samples for _, samples, _ in rows], len(moments)) for measure in measured]
        stats: dict[tuple[Measure, Stat], Column] = {name: column for each in columns for name, column in each.items()}
        if counter_step:
            stats[Measure.CORE, Stat.MEAN] = stats[Measure.BUSY, Stat.MEAN] = np.array([mean for _, _, mean in rows])
        seen = [sum(Measure.CORE in sample for sample in samples) for _, samples, _ in rows]
        stats[Measure.CORE, Stat.COUNT] = np.array(seen, dtype=float)
        coverage = np.array([len(samples) / len(moments) for _, samples, _ in rows])
        return UsageTable(at, window, [held for held, _, _ in rows], stats, coverage)

    def truths(self, at: float) -> Mapping[TruthKey, Truth]:
        return {key: truth for node in self.nodes for key, truth in node.truths(at).items()}

    def _rows(
        self, number: int, moments: Sequence[float], counter_step: float | None
    ) -> Iterable[tuple[AllocationKey, list[Values], float]]:
        """The allocations at the end of the window, with all their samples, and the mean of the counter."""
        at = moments[-1]
        seen = [self._moment(number, moment) for moment in moments]
        for held in seen[-1]:
            samples = [moment[held] for moment in seen if held in moment]
            yield held, samples, self._count(number, held, at, counter_step) if counter_step else np.nan

    def _count(self, number: int, held: AllocationKey, at: float, step: float) -> float:
        moments = (self._moment(number, at - step * back) for back in range(round(WINDOW / step)))
        return sum(moment[held].get(Measure.CORE, np.nan) for moment in moments if held in moment) * step / WINDOW

    def _moment(self, number: int, at: float) -> Mapping[AllocationKey, Values]:
        if (number, at) not in self._moments:
            values = read_snapshot(self.nodes[number].snapshot(at), counts_processes=self.counts_processes)
            self._moments[number, at] = values
        return self._moments[number, at]


def truth_key(held: AllocationKey) -> TruthKey:
    container = held.container
    return container.namespace, container.pod, container.name, held.gpu_uuid


def read_snapshot(snapshot: Snapshot, *, counts_processes: bool = True) -> Mapping[AllocationKey, Values]:
    """What is measured of every allocation at a moment: its own part, and of the device what is its own too."""
    readings = {reading.gpu.uuid: reading for reading in snapshot.readings}
    parts = {(each.gpu.uuid, part.container): part for each in split_usage(snapshot) for part in each.parts}
    rows = {}
    for allocation in snapshot.allocations:
        reading = readings[allocation.gpu_uuid]
        gpu, container = reading.gpu, allocation.container
        instance = str(gpu.mig.gpu_instance_id) if gpu.mig else ""
        held = AllocationKey(gpu.uuid, instance, container, gpu.node, str(gpu.index), gpu.model, allocation.share)
        is_own = allocation.share in (Share.EXCLUSIVE, Share.MIG)
        values = _read_device(reading, is_own=is_own) | _read_part(parts[gpu.uuid, container])
        if not counts_processes:
            values.pop(Measure.PROCESSES, None)
        rows[held] = values
    return rows


def _read_device(reading: GpuReading, *, is_own: bool) -> dict[Measure, float]:
    wanted = _DEVICE_SIGNALS if is_own else {name: _DEVICE_SIGNALS[name] for name in _TRUE_OF_EVERY_SHARE}
    return {measure: reading.signals[name] for measure, name in wanted.items() if name in reading.signals}


def _read_part(part: Part) -> dict[Measure, float]:
    found = {
        Measure.CORE: part.utilization_ratio,
        Measure.MEMORY_USED: part.memory_bytes,
        Measure.PROCESSES: part.processes,
        Measure.POWER: part.power_watts,
    }
    return {measure: float(value) for measure, value in found.items() if value is not None}


def _sum_up(measure: Measure, rows: Sequence[Sequence[Values]], width: int) -> dict[tuple[Measure, Stat], Column]:
    """Mean, peak, last and spread over what was seen; all unknown where nothing was."""
    grid = np.full((len(rows), width), np.nan)
    for number, samples in enumerate(rows):
        grid[number, width - len(samples) :] = [sample.get(measure, np.nan) for sample in samples]
    known = ~np.isnan(grid).all(axis=1)
    stats = {}
    for stat, sum_up in ((Stat.MEAN, np.nanmean), (Stat.PEAK, np.nanmax), (Stat.SPREAD, np.nanstd)):
        column = np.full(len(rows), np.nan)
        column[known] = sum_up(grid[known], axis=1)
        stats[measure, stat] = column
    return stats | {(measure, Stat.LAST): grid[:, -1]}


def with_stats(table: UsageTable, changes: Mapping[tuple[Measure, Stat], Column]) -> UsageTable:
    return replace(table, stats={**table.stats, **changes})
