"""`CycleRecord`: the part of a result that the ledger stores, in compact columns. Records are buffered while the
database is unavailable."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.ledger.ended_record import (
    NONE_ENDED,
    EndedRecord,
    PriceOf,
    find_gpu,
    find_replaced,
    list_prices,
    make_ended_record,
    name_ended,
    place_ended,
)
from gpusteward.analyzer.ledger.identities import (
    NewAllocations,
    PodLabels,
    clean_text,
    hash_attributes,
    make_allocation_id,
)
from gpusteward.analyzer.ledger.verdict_changes import VerdictChanges
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import Codes, Column, EndedHolder, NodeModel, UsageTable, VerdictTable
from gpusteward.core.usages import AllocationKey, Measure, Stat

IntColumn = NDArray[np.int64]
Float32Column = NDArray[np.float32]
FleetRows = NDArray[np.int32]

COVERED_INTERVALS = 3
"""A cycle covers the time since the last recorded cycle, but at most this many intervals. Earlier time is unknown."""
UNKNOWN_START = -1
NOT_IN_FLEET = -1
MAX_BYTES, MAX_WATTS, MAX_RATIO, MAX_SECONDS = 1e15, 1e5, 1e3, 1e11
MAX_GPUS = 1_000_000
MAX_TOKENS = 1e12  # of a workload in a window
"""Larger values are not plausible for any GPU, workload, fleet or date."""
_IDENTITY_BYTES = 600  # of one identity with its texts; measured, rounded up
_CHANGE_BYTES = 500
_FLEET_ROW_BYTES = 100
_NO_IDS: IntColumn = np.empty(0, np.int64)


@dataclass(frozen=True)
class HeldAllocations:
    """The allocations of one cycle: ids, ascending, and a hash of the attributes of each."""

    ids: IntColumn
    attribute_hashes: IntColumn


NO_ALLOCATIONS = HeldAllocations(_NO_IDS, _NO_IDS)


class IdleStarts(NamedTuple):
    """Allocations that became idle a short time ago."""

    rows: NDArray[np.intp]  # of the record
    since_ms: IntColumn
    worked_ms: IntColumn  # end of the last window with work


NO_IDLE_STARTS = IdleStarts(np.empty(0, np.intp), _NO_IDS, _NO_IDS)


@dataclass(frozen=True, kw_only=True)
class CycleRecord:
    """One cycle, one row per allocation, in the order of their ids. NaN is unknown."""

    at_ms: int
    covered_ms: int  # length of the time before `at_ms` that the cycle covers
    ids: IntColumn
    gpu_fractions: Column
    prices: IntColumn  # micros per GPU-hour
    started_ms: IntColumn  # of the pod; of a new one, where that is unknown, by its samples in the window
    has_returned: NDArray[np.bool_] | None = None  # its time begins at its start, although the last record has it too
    memory_total: Column
    memory_peak: Column
    core_peak: Column
    activity: Codes
    idle_since_ms: IntColumn  # UNKNOWN_START where it is not idle
    proof: Codes
    signature: Codes
    ineffective_since_ms: IntColumn  # UNKNOWN_START where it is not active, or not shown to be ineffective
    score: Float32Column
    watts: Float32Column
    tokens_per_second: Column  # of its workload, shared by the fractions of its GPUs
    fleet: Mapping[NodeModel, int]  # number of existing GPUs
    fleet_rows: FleetRows  # per allocation: the position in `fleet` it counts for
    currency: str  # of the prices
    new: NewAllocations  # not in the record before, or with changed attributes
    changes: VerdictChanges
    window_ms: int = 0  # of the verdicts
    idle_starts: IdleStarts = NO_IDLE_STARTS
    ended: EndedRecord = NONE_ENDED

    size_bytes: int = 0  # memory of the columns that it does not share with the record before

    def share_columns(self, before: "CycleRecord | None") -> "CycleRecord":
        """The same record, with columns that have not changed taken from the record before instead of copied."""
        pairs = ((name, getattr(self, name), getattr(before, name)) for name in (_STABLE if before else ()))
        shared = {name: old for name, new, old in pairs if np.array_equal(new, old, equal_nan=name in _WITH_NAN)}
        columns = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        own = sum(column.nbytes for name, column in columns.items() if name not in shared)
        identities = len(self.new) + len(self.ended)
        texts = identities * _IDENTITY_BYTES + len(self.changes) * _CHANGE_BYTES + len(self.fleet) * _FLEET_ROW_BYTES
        return replace(self, **shared, size_bytes=own + texts)


_STABLE = ("ids", "gpu_fractions", "prices", "started_ms", "memory_total", "fleet_rows", "ineffective_since_ms")
_WITH_NAN = ("gpu_fractions", "memory_total")


def make_cycle_record(
    result: Result,
    before: HeldAllocations,
    *,
    pod_labels: PodLabels,
    price_of: PriceOf,
    changes: VerdictChanges,
    last_allocations: Sequence[AllocationKey] = (),
    before_ms: int = 0,
) -> tuple[CycleRecord, HeldAllocations]:
    """The record of a result, and its allocations as `before` of the next record.

    `before`: the allocations of the last record, which was at `before_ms`. `new` contains only allocations that are not
    among them. `last_allocations`: those of the last result, with their owners.
    """
    verdicts, table = result.verdicts, result.verdicts.usage
    held, rows = _index_allocations(table.allocations, pod_labels)
    fleet = _clean_fleet(table.fleet)
    covered_ms = COVERED_INTERVALS * result.settings.scheduler.interval * 1000
    was_held = find_positions(held.ids, before.ids) >= 0
    ended = name_ended(table.ended, last_allocations, before_ms=before_ms)
    appeared = [table.allocations[row] for row in rows[~was_held].tolist()]
    ended += find_replaced(appeared, last_allocations, ended, before_ms=before_ms, at=table.at)
    returned_ms = _find_returns(table, rows, ended)
    has_returned = returned_ms != UNKNOWN_START
    is_there = was_held & ~has_returned
    started_ms = np.where(has_returned, returned_ms, _find_starts(table, rows, is_there))
    held_since = _find_held_since(table, rows, started_ms, was_held=is_there, ended=ended)
    spans = place_ended(ended, before.ids, held_since, before_ms=before_ms)
    is_new = find_new(held, before)
    new = [table.allocations[row] for row in rows[is_new].tolist()]
    record = CycleRecord(
        at_ms=int(result.at * 1000),
        covered_ms=covered_ms,
        ids=held.ids,
        gpu_fractions=result.workloads.fractions[rows],
        prices=list_prices(table.allocations, price_of)[rows],
        started_ms=started_ms,
        has_returned=has_returned if has_returned.any() else None,
        memory_total=_drop_implausible(table.column(Measure.MEMORY_TOTAL, Stat.LAST), MAX_BYTES)[rows],
        memory_peak=_drop_implausible(table.column(Measure.MEMORY_USED, Stat.PEAK), MAX_BYTES)[rows],
        core_peak=_drop_implausible(table.column(Measure.CORE, Stat.PEAK), MAX_RATIO)[rows],
        activity=verdicts.activity[rows],
        idle_since_ms=_to_ms(verdicts.idle_since)[rows],
        proof=verdicts.proof[rows],
        signature=verdicts.signature[rows],
        ineffective_since_ms=_find_ineffective(verdicts)[rows],
        score=verdicts.score[rows].astype(np.float32),
        watts=_drop_implausible(table.column(Measure.POWER, Stat.MEAN), MAX_WATTS)[rows].astype(np.float32),
        tokens_per_second=_share_tokens(result)[rows],
        fleet=fleet,
        fleet_rows=find_fleet_rows(table.allocations, fleet)[rows],
        currency=result.settings.prices.currency,
        new=NewAllocations(held.ids[is_new], new, pod_labels.read),
        changes=changes,
        window_ms=int(table.window_seconds * 1000),
        idle_starts=_find_idle_starts(verdicts, rows, covered_ms=covered_ms),
        ended=make_ended_record(
            spans,
            pod_labels=pod_labels,
            price_of=price_of,
            fleet_rows=find_fleet_rows([span.holder.allocation for span in spans], fleet),
        ),
    )
    return record, held


def _find_starts(table: UsageTable, rows: NDArray[np.intp], was_held: NDArray[np.bool_]) -> IntColumn:
    """When pods started; of new ones whose start is not known, as long before now as their samples cover."""
    started, coverage = table.started_at[rows], table.coverage[rows]
    is_estimated = np.isnan(started) & ~was_held & (coverage > 0)
    return _to_ms(np.where(is_estimated, table.at - coverage * table.window_seconds, started))


def _find_returns(table: UsageTable, rows: NDArray[np.intp], ended: Sequence[EndedHolder]) -> IntColumn:
    """When those began, by their samples, before whom others of the same name held their GPU in the window; unknown
    where the start of their own pod is known."""
    returned_ms = np.full(len(rows), UNKNOWN_START, np.int64)
    last = {each.allocation.names: each for each in ended if not np.isnan(each.returned_at)}  # in the order of time
    gpus = {each.allocation.gpu_uuid for each in last.values()}
    for position, row in enumerate(rows.tolist()) if gpus else ():
        allocation = table.allocations[row]
        before = last.get(allocation.names) if allocation.gpu_uuid in gpus else None
        started_at = allocation.container.started_at
        if before is not None and (started_at is None or started_at < before.ended_at):
            returned_ms[position] = int(before.returned_at * 1000)
    return returned_ms


def _find_held_since(
    table: UsageTable,
    rows: NDArray[np.intp],
    started_ms: IntColumn,
    *,
    was_held: NDArray[np.bool_],
    ended: Sequence[EndedHolder],
) -> Mapping[Hashable, Mapping[str, int]]:
    """Of the GPUs of ended holders: when those began who hold them now, by MIG instance; 0: before the last record."""
    gpus = {each.allocation.gpu_uuid for each in ended}
    since: dict[Hashable, dict[str, int]] = {}
    for position, row in enumerate(rows.tolist()) if gpus else ():
        allocation = table.allocations[row]
        if allocation.gpu_uuid in gpus:
            instance, began_ms = allocation.gpu_instance, int(started_ms[position])
            began_ms = int(table.at * 1000) if began_ms == UNKNOWN_START else began_ms
            began_ms = 0 if was_held[position] else began_ms
            of_gpu = since.setdefault(find_gpu(allocation), {})
            of_gpu[instance] = min(began_ms, of_gpu.get(instance, began_ms))
    return since


def _find_idle_starts(verdicts: VerdictTable, rows: NDArray[np.intp], *, covered_ms: int) -> IdleStarts:
    """Those that may not have been idle in the last record."""
    table = verdicts.usage
    idle_since, worked_at = verdicts.idle_since[rows], verdicts.worked_at[rows]
    # An idle GPU of a server without requests may work in every window: it was judged idle a window after it became so.
    worked_at = np.where(np.isnan(verdicts.unused_work_at[rows]), worked_at, idle_since)
    oldest = table.at - table.window_seconds - covered_ms / 1000
    found = np.flatnonzero(~np.isnan(idle_since) & (worked_at > oldest))
    return IdleStarts(found, _to_ms(idle_since[found]), _to_ms(worked_at[found]))


def _find_ineffective(verdicts: VerdictTable) -> IntColumn:
    since = verdicts.ineffective_since
    return _to_ms(np.where(verdicts.is_ineffective & (since < verdicts.usage.at), since, np.nan))


def _share_tokens(result: Result) -> Column:
    """The tokens of a workload belong to all of its GPUs, also to those of pods without metrics."""
    table, fractions, codes = result.verdicts.usage, result.workloads.fractions, result.workloads.codes
    tokens = _drop_implausible(table.column(Measure.SERVED_TOKENS, Stat.COUNT), MAX_TOKENS)
    held = np.bincount(codes, weights=fractions, minlength=len(result.workloads))
    return tokens / table.window_seconds * fractions / held[codes]


def _index_allocations(
    allocations: Sequence[AllocationKey], pod_labels: PodLabels
) -> tuple[HeldAllocations, NDArray[np.intp]]:
    """Each allocation once, in the order of the ids; the row of each in the table."""
    facts = (pod_labels.read(one.container) for one in allocations)
    ids = np.fromiter(map(make_allocation_id, allocations), np.int64, len(allocations))
    hashes = np.fromiter(map(hash_attributes, allocations, facts), np.int64, len(allocations))
    unique, rows = np.unique(ids, return_index=True)
    return HeldAllocations(unique, hashes[rows]), rows


def find_new(held: HeldAllocations, before: HeldAllocations) -> NDArray[np.intp]:
    """Positions of allocations that were not held before or whose attributes have changed."""
    positions = find_positions(held.ids, before.ids)
    was_held = positions >= 0
    is_same = np.zeros(len(held.ids), dtype=bool)
    is_same[was_held] = held.attribute_hashes[was_held] == before.attribute_hashes[positions[was_held]]
    return np.flatnonzero(~is_same)


def find_positions(ids: IntColumn, among: IntColumn) -> NDArray[np.intp]:
    """The position of each id among ascending ones; -1 where it is missing."""
    if not len(among):
        return np.full(len(ids), -1, np.intp)
    positions = np.minimum(np.searchsorted(among, ids), len(among) - 1)
    return np.where(among[positions] == ids, positions, -1)


def _drop_implausible(column: Column, limit: float) -> Column:
    """Values that cannot be right become unknown; they would not fit into the database either."""
    return np.where((column >= 0) & (column <= limit), column, np.nan)


def _to_ms(seconds: Column) -> IntColumn:
    plausible = _drop_implausible(seconds, MAX_SECONDS)
    return np.where(np.isnan(plausible), UNKNOWN_START, np.nan_to_num(plausible) * 1000).astype(np.int64)


def _clean_fleet(counts: Mapping[NodeModel, int]) -> dict[NodeModel, int]:
    fleet: dict[NodeModel, int] = {}
    for node_model, gpus in counts.items():
        if 0 < gpus <= MAX_GPUS:
            key = NodeModel(*map(clean_text, node_model))
            fleet[key] = fleet.get(key, 0) + gpus
    return fleet


def find_fleet_rows(allocations: Sequence[AllocationKey], fleet: Mapping[NodeModel, int]) -> FleetRows:
    """The position in the fleet that each allocation counts for; NOT_IN_FLEET where the number of GPUs is unknown.

    On a node with a single model the node alone decides: different exporters may spell the model differently, or not
    report it.
    """
    positions = {key: position for position, key in enumerate(fleet)}
    models = Counter((key.cluster, key.node) for key in fleet)
    by_node = {node: positions[key] for key in fleet if models[node := (key.cluster, key.node)] == 1}

    @cache
    def find_position(node: str, model: str, cluster: str) -> int:
        key = NodeModel(clean_text(node), clean_text(model), clean_text(cluster))
        return by_node.get((key.cluster, key.node), positions.get(key, NOT_IN_FLEET))

    found = (find_position(one.node, one.model, one.cluster) for one in allocations)
    return np.fromiter(found, np.int32, len(allocations))
