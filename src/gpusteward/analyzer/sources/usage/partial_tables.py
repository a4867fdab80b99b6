"""Query results -> rows of one metric scheme -> one usage table for all schemes.

The idea. A site may have several exporters: gpusteward's agent on some nodes, HAMi or dcgm-exporter on others, two of
them on the same GPU. Each metric scheme is read by itself, with its own row numbers, labels and meaning, and becomes a
`PartialTable`: one row per allocation, all measures in base units under the same names. Only then are they merged, GPU
by GPU: what one scheme reports is taken from it as a whole, and left out of those that are trusted less. Measures of
two exporters are never mixed in one row: their windows, counters and attribution differ.

What must hold:
- A row comes from `presence`: the holder exists now, or was there in the last cycle and only stopped reporting. Numbers
  without such a row are use by somebody who holds nothing, never an allocation.
- A number that was not measured is NaN, never 0, and a row that must not be judged has a reason in `unknown`. The order
  is presence, coverage, measures, reasons: each uses what the one before it found, and no later step invents a value.
- A row that is only kept as stale yields to any scheme that reports its GPU now.
- Allocation keys stay the same objects from cycle to cycle (`AllocationCache`): what is kept per allocation elsewhere,
  in the judge and in the ledger, is found by them, and comparing them costs nothing while nothing changes.

Merged by measure, a GPU with two exporters would have twice the holders, and one that fails would leave rows whose idle
core is that of one exporter and whose coverage is that of the other: idle, although nobody has looked.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import isnan

import numpy as np

from gpusteward.analyzer.sources.usage.coverage import ExpectedSamples
from gpusteward.analyzer.sources.usage.measures import Stats, WindowCoverage, compute_measures
from gpusteward.analyzer.sources.usage.presence import NO_DETAILS, PresenceTable
from gpusteward.analyzer.sources.usage.quantities import FLOORS, MEASURES, Aggregation, Level, Quantity
from gpusteward.analyzer.sources.usage.query_results import (
    DeviceDetails,
    DeviceKey,
    DeviceSet,
    HolderDetails,
    HolderKey,
    QueryResults,
    ScrapeTarget,
    split_pod_labels,
)
from gpusteward.analyzer.sources.usage.unknown_rows import find_unknown_rows
from gpusteward.analyzer.tables import Column, EndedHolder, UsageTable, repeat_value
from gpusteward.core.messages import Message
from gpusteward.core.node.containers import Container, Workload, weigh_reported
from gpusteward.core.usages import AllocationKey, Measure, Stat

_ONLY_PROOFS = frozenset({*(MEASURES[each] for each in FLOORS if each in MEASURES), Measure.ENERGY})
"""Their columns are left out where no row has a value, as on most sites: NaN alone would take 8 bytes a row each."""


@dataclass(frozen=True)
class PartialTable:
    """The rows that one metric scheme contributes to the usage table."""

    allocations: list[AllocationKey] = field(default_factory=list)
    stats: Stats = field(default_factory=dict)
    coverage: Column = field(default_factory=lambda: np.empty(0))
    unknown: dict[int, Message] = field(default_factory=dict)
    holder_rows: list[int] = field(default_factory=list)  # the row of each allocation in the index of holders
    ended: Sequence[EndedHolder] = ()

    def take(self, rows: Sequence[int]) -> "PartialTable":
        """Some rows only, in ascending order; without a copy if these are all."""
        if len(rows) == len(self.allocations):
            return self
        return PartialTable(
            [self.allocations[row] for row in rows],
            {key: column[rows] for key, column in self.stats.items()},
            self.coverage[rows],
            {number: self.unknown[row] for number, row in enumerate(rows) if row in self.unknown},
            [self.holder_rows[row] for row in rows],
            self.ended,
        )


def build_partial_table(
    results: QueryResults, *, expected: ExpectedSamples, allocations: "AllocationCache", at: float
) -> PartialTable:
    """The usage of every holder of one metric scheme."""
    presence = PresenceTable(results)
    coverage = measure_coverage(presence, expected, at)
    stats = compute_measures(presence, WindowCoverage(expected.window_seconds, coverage))
    unknown = find_unknown_rows(presence, stats, coverage)
    # Coverage that is not known has become a reason already; the column itself is a number for all who read it.
    return PartialTable(allocations.find_keys(presence), stats, np.nan_to_num(coverage), unknown, presence.rows)


def measure_coverage(presence: PresenceTable, expected: ExpectedSamples, at: float) -> Column:
    """Of each row: by the target of its counted series, where targets differ, else by its job."""
    results = presence.results
    if not results.counted:
        counts = presence.column(Level.HOLDER, Quantity.CORE, Aggregation.COUNT)
        jobs = [details.job for details in presence.details]
        by_job = {job: ScrapeTarget(job) for job in set(jobs)}
        return expected.measure_coverage(counts, [by_job[job] for job in jobs], at)
    rows = np.concatenate([chunk.rows for chunk in results.counted])
    counts = np.concatenate([chunk.values for chunk in results.counted if chunk.values is not None])
    targets = [target for chunk in results.counted for target in chunk.details]
    coverage = np.full(len(results.holders), np.nan)
    np.fmax.at(coverage, rows, expected.measure_coverage(counts, targets, at))
    return coverage[presence.rows]


def choose_rows(tables: Sequence[PartialTable], without_samples: Sequence[Collection[int]]) -> list[Sequence[int]]:
    """The rows of each table that go into the usage table. Tables come in the order of trust: a GPU that one reports is
    left out of the later ones.

    `without_samples`: rows of each table that are only kept as stale. They yield to any table that reports their GPU.
    """
    if len(tables) == 1:  # most sites: nothing to compare, and `take` copies nothing
        return [range(len(tables[0].allocations))]
    # Stale results no longer name the GPU of a MIG instance; the allocation still does.
    gpus = [[DeviceKey(each.gpu_uuid, "", each.cluster) for each in table.allocations] for table in tables]
    reported = DeviceSet()  # by rows that are not only kept as stale
    for rows, stale in zip(gpus, without_samples, strict=True) if any(without_samples) else ():
        reported.update(gpu for row, gpu in enumerate(rows) if row not in stale)
    taken = DeviceSet()  # also by stale rows: their GPU is that of their scheme until another one reports it
    chosen: list[Sequence[int]] = []
    for rows, stale in zip(gpus, without_samples, strict=True):
        replaced = {row for row in stale if rows[row] in reported}
        chosen.append([row for row, gpu in enumerate(rows) if gpu not in taken and row not in replaced])
        taken.update(rows[row] for row in chosen[-1])
    return chosen


def merge_partial_tables(
    tables: Sequence[PartialTable], chosen: Sequence[Sequence[int]], *, at: float, window_seconds: float
) -> UsageTable:
    """The chosen rows of each table as one usage table."""
    parts = [table.take(rows) for table, rows in zip(tables, chosen, strict=True)]
    stats: Stats = {}
    for key in dict.fromkeys(key for part in parts for key in part.stats):
        found = (part.stats.get(key, repeat_value(np.nan, len(part.allocations))) for part in parts)
        column = _concatenate(list(found))
        may_be_left_out = key[0] in _ONLY_PROOFS or key[1] is Stat.STEP
        if not may_be_left_out or np.isfinite(column).any():
            stats[key] = column
    allocations = parts[0].allocations if len(parts) == 1 else [each for part in parts for each in part.allocations]
    ends = accumulate(len(part.allocations) for part in parts)
    unknown = {
        end - len(part.allocations) + row: reason
        for end, part in zip(ends, parts, strict=True)
        for row, reason in sorted(part.unknown.items())
    }
    coverage = _concatenate([part.coverage for part in parts])
    ended = join_ended([part.ended for part in parts], allocations)
    return UsageTable(at, window_seconds, allocations, stats, coverage, unknown, ended=ended)


def join_ended(tables: Sequence[Sequence[EndedHolder]], present: Iterable[AllocationKey]) -> Sequence[EndedHolder]:
    """Those of each name as the first table has them, without the last one of a name that another table has as
    present."""
    first: dict[Hashable, int] = {}
    for number, table in enumerate(tables):
        for each in table:
            first.setdefault(each.allocation.names, number)
    gpus = {each.allocation.gpu_uuid for table in tables for each in table}
    names = {allocation.names for allocation in present if allocation.gpu_uuid in gpus} if gpus else set()
    return tuple(
        each
        for number, table in enumerate(tables)
        for each in table
        if first[each.allocation.names] == number and not (isnan(each.returned_at) and each.allocation.names in names)
    )


def _concatenate(columns: Sequence[Column]) -> Column:
    return columns[0] if len(columns) == 1 else np.concatenate((np.empty(0), *columns))


class AllocationCache:
    """Allocation keys of the last cycle: hardly any of them changes from one cycle to the next.

    In lists, one entry per row: at 50,000 rows a dict of tuples takes 5 MB more.
    """

    def __init__(self) -> None:
        self._keys: list[HolderKey] = []
        self._details: list[HolderDetails] = []
        self._device_details: list[DeviceDetails] = []
        self._started: Column = np.empty(0)
        self._allocations: list[AllocationKey] = []

    def find_keys(self, presence: PresenceTable) -> list[AllocationKey]:
        """The allocation of each row."""
        started = presence.column(Level.HOLDER, Quantity.STARTED_AT, Aggregation.LAST)
        is_same = (
            presence.keys == self._keys
            and presence.details == self._details
            and presence.device_details == self._device_details
            and np.array_equal(started, self._started, equal_nan=True)
        )
        if not is_same:
            self._update(presence, started)
        return self._allocations

    def _update(self, presence: PresenceTable, started: Column) -> None:
        """An allocation stays the same object as long as its details are."""
        positions = {key: position for position, key in enumerate(self._keys)}
        details, devices = [*presence.details], [*presence.device_details]
        allocations: list[AllocationKey] = []
        containers: dict[tuple[object, ...], Container] = {}  # several devices may share one
        for row, (key, time) in enumerate(zip(presence.keys, started.tolist(), strict=True)):
            started_at = None if isnan(time) else time
            known = positions.get(key)
            if known is not None and self._is_unchanged(known, details[row], devices[row], started_at):
                details[row], devices[row] = self._details[known], self._device_details[known]
                allocations.append(self._allocations[known])
            else:
                container = _find_container(containers, key, details[row], started_at)
                allocations.append(_make_allocation(key, container, details[row], devices[row]))
        self._allocations, self._details, self._device_details = allocations, details, devices
        self._keys, self._started = presence.keys, started

    def _is_unchanged(
        self, position: int, details: HolderDetails, device: DeviceDetails, started_at: float | None
    ) -> bool:
        """Whether an allocation of the last cycle is made of the same details, or there are none now. Details are kept
        from cycle to cycle, so they are compared by identity."""
        is_same = self._details[position] is details and self._device_details[position] is device
        if not is_same and details is not NO_DETAILS:
            return False
        return started_at in (None, self._allocations[position].container.started_at)


def _make_allocation(
    key: HolderKey, container: Container, details: HolderDetails, device: DeviceDetails
) -> AllocationKey:
    return AllocationKey(
        device.parent_uuid or key.uuid,
        key.instance,
        container,
        node=details.node,
        gpu_index=details.gpu,
        model=details.model or device.model,
        share=details.share,
        used_by=details.used_by,
    )


def _find_container(
    known: dict[tuple[object, ...], Container], key: HolderKey, details: HolderDetails, started_at: float | None
) -> Container:
    """One of the known ones, else a new one."""
    kind = details.workload_kind
    described = (kind, details.workload, details.pod_uid, details.user, details.pod_labels)
    same = (*key.pod_key, key.container, started_at, *described)
    if same not in known:
        owner = Workload(kind, key.namespace, details.workload, key.cluster, weigh_reported(kind)) if kind else None
        known[same] = Container(
            key.namespace,
            key.pod,
            details.pod_uid,
            key.container,
            owner,
            started_at=started_at,
            pod_labels=split_pod_labels(details.pod_labels),
            user=details.user,
            cluster=key.cluster,
        )
    return known[same]
