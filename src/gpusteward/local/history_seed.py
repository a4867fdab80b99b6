"""Writes weeks of history of simulated nodes into an empty ledger, so that the demo has reports and trends at once.

The ground truth of the simulation is recorded hour by hour with the ledger's own arithmetic; nothing is measured.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, Engine, Table, insert

from gpusteward.analyzer.judge.gpu_fraction import compute_gpu_fractions
from gpusteward.analyzer.ledger.accrual import HourSlice, accrue_time, make_fleet_rows, make_usage_rows, split_by_hour
from gpusteward.analyzer.ledger.cycle_record import UNKNOWN_START, CycleRecord, find_fleet_rows
from gpusteward.analyzer.ledger.database.db_engine import with_write_lock
from gpusteward.analyzer.ledger.database.periods import DAY_MS, HOUR_MS, RECORDED, floor_day, set_progress
from gpusteward.analyzer.ledger.database.retention import roll_up
from gpusteward.analyzer.ledger.database.schema import allocations, fleet_hourly, usage_hourly, verdict_changes
from gpusteward.analyzer.ledger.database.upsert import FLEET_RULES, USAGE_RULES, upsert
from gpusteward.analyzer.ledger.identities import (
    NewAllocations,
    PodFacts,
    make_allocation_id,
    make_identity,
    name_owner,
)
from gpusteward.analyzer.ledger.spells.idle_spells import NO_SPELLS, write_spells
from gpusteward.analyzer.ledger.verdict_changes import VerdictChange, VerdictChanges
from gpusteward.analyzer.prices import PriceList
from gpusteward.analyzer.tables import ACTIVITIES, PROOFS, SIGNATURES, Codes, Column, NodeModel, UsageTable
from gpusteward.core.kinds import RUN_THROUGH_KINDS
from gpusteward.core.node.gpus import Share
from gpusteward.core.usages import AllocationKey, Measure, Stat
from gpusteward.core.verdicts import Activity, Proof, Signature, State
from gpusteward.simulate.ground_truth import Ownership
from gpusteward.simulate.nodes import SimulatedNode
from gpusteward.simulate.workloads import Kind

Advance = Callable[[int, int], None]
"""Called with the number of hours written and the number of all hours."""

MINUTE_SECONDS, HOUR_SECONDS = 60.0, 3600.0
ROUNDING_SECONDS = 1e-6  # of work
PEAK_EVERY_MS = 3 * HOUR_MS
OUTAGE_EVERY = 331
"""One in this many hours of a node is recorded as unknown, as in a real cluster."""
_CODES = {activity: code for code, activity in enumerate(ACTIVITIES)}


@dataclass(slots=True, kw_only=True)
class SeededAllocation:
    """An allocation of the simulation and what was recorded of it."""

    ownership: Ownership
    id: int
    key: AllocationKey
    first_ms: int
    last_ms: int
    work_seconds: float  # up to the end of the last hour
    idle_since_ms: int  # begin of the first hour without work after the last one with work


class SeededHistory:
    """The history of these nodes until now."""

    def __init__(self, nodes: Sequence[SimulatedNode], prices: PriceList) -> None:
        self._nodes = nodes
        self._price_of = prices.micros_per_gpu_hour
        self._seeded: dict[int, SeededAllocation] = {}  # by id() of the simulation's allocation, which is kept here
        self._fractions: tuple[tuple[int, ...], Column] = ((), np.empty(0))
        self._spells = NO_SPELLS  # idle for whole hours
        self._fleet = {NodeModel(node.name, node.model.name): node.gpu_count for node in nodes}

    def write(self, engine: Engine, *, days: int, until: float, advance: Advance = lambda _done, _total: None) -> None:
        """Into an empty ledger; recording can continue at `until`. Raises SQLAlchemyError."""
        until_ms = int(until * 1000)
        parts = list(split_by_hour(floor_day(until_ms - days * DAY_MS), until_ms, is_observed=True))
        with with_write_lock(engine).begin() as connection:
            for number, part in enumerate(parts, start=1):
                self._write_slice(connection, part)
                advance(number, len(parts))
            _insert_all(connection, verdict_changes, list(self._list_idle_workloads(until_ms)))
            _insert_all(connection, allocations, self._list_allocations(until_ms))
            set_progress(connection, RECORDED, until_ms)
        while roll_up(engine):
            pass

    def _write_slice(self, connection: Connection, part: HourSlice) -> None:
        record = self._make_record(part)
        time = accrue_time(record, part, np.ones(len(record.ids), dtype=bool))
        for columns in make_usage_rows(record, part, time):
            upsert(connection, usage_hourly, columns, USAGE_RULES)
        upsert(connection, fleet_hourly, make_fleet_rows(record, part, time), FLEET_RULES)
        self._spells = write_spells(connection, record, self._spells, absent=np.empty(0, np.int64))

    def _make_record(self, part: HourSlice) -> CycleRecord:
        since, until = part.begin_ms / 1000, part.end_ms / 1000
        held = sorted(self._find_held(part), key=lambda one: one.id)
        keys, fractions = [one.key for one in held], self._compute_fractions(held)
        busy = np.array([_advance_work(one, until) for one in held]) / (until - since)
        peak = np.maximum(busy, _peaks(held, until)) if part.begin_ms % PEAK_EVERY_MS == 0 else busy
        watts = np.array([one.ownership.draw_watts(ratio) for one, ratio in zip(held, busy.tolist(), strict=True)])
        activity = self._find_activity(held, busy, part)
        is_useless = np.array([_is_useless(one) for one in held], dtype=bool)
        is_ineffective = is_useless & (activity == _CODES[Activity.ACTIVE])
        memory, memory_total = np.array([float(one.ownership.held_bytes) for one in held]), _memory_totals(held)
        return CycleRecord(
            at_ms=part.end_ms,
            covered_ms=part.end_ms - part.begin_ms,
            ids=np.array([one.id for one in held], np.int64),
            gpu_fractions=fractions,
            prices=np.array([self._price_of(key.model, key.container.namespace) for key in keys], np.int64),
            started_ms=np.full(len(held), UNKNOWN_START, np.int64),
            memory_total=memory_total,
            memory_peak=memory,
            core_peak=peak,
            activity=activity,
            idle_since_ms=np.where(activity == _CODES[Activity.IDLE], part.begin_ms, UNKNOWN_START).astype(np.int64),
            proof=np.full(len(held), PROOFS.index(Proof.INTEGRATED), np.int8),
            signature=np.array([SIGNATURES.index(_find_idle_signature(one)) for one in held], np.int8),
            ineffective_since_ms=np.where(is_ineffective, part.begin_ms, UNKNOWN_START).astype(np.int64),
            score=_score(held, busy, memory / memory_total).astype(np.float32),
            watts=(watts * fractions).astype(np.float32),
            tokens_per_second=np.full(len(held), np.nan),
            fleet=self._fleet,
            fleet_rows=find_fleet_rows(keys, self._fleet),
            currency="",  # recorded with the first real cycle
            new=NewAllocations(),
            changes=VerdictChanges(),
            window_ms=2 * HOUR_MS,  # an hour without data does not end a spell
        )

    def _find_held(self, part: HourSlice) -> Iterator[SeededAllocation]:
        for node in self._nodes:
            for ownership in node.ownerships((part.begin_ms + part.end_ms) / 2000):
                seeded = self._seeded.get(id(ownership.allocation))
                if seeded is None:
                    seeded = self._seeded[id(ownership.allocation)] = _seed(ownership, part)
                seeded.last_ms = part.end_ms
                yield seeded

    def _compute_fractions(self, held: Sequence[SeededAllocation]) -> Column:
        """Cached: the allocations rarely change."""
        ids = tuple(one.id for one in held)
        if ids != self._fractions[0]:
            stats = {(Measure.MEMORY_TOTAL, Stat.LAST): _memory_totals(held)}
            self._fractions = ids, compute_gpu_fractions(UsageTable(0.0, 0.0, [one.key for one in held], stats))
        return self._fractions[1]

    def _find_activity(self, held: Sequence[SeededAllocation], busy: Column, part: HourSlice) -> Codes:
        hour = part.begin_ms // HOUR_MS
        missing = {node.name for number, node in enumerate(self._nodes) if (hour + 17 * number) % OUTAGE_EVERY == 0}
        is_missing = np.array([one.key.node in missing for one in held])
        codes = np.where(busy > ROUNDING_SECONDS / HOUR_SECONDS, _CODES[Activity.ACTIVE], _CODES[Activity.IDLE])
        return np.where(is_missing, _CODES[Activity.UNKNOWN], codes).astype(np.int8)

    def _list_idle_workloads(self, until_ms: int) -> Iterator[Mapping[str, object]]:
        """Rows of `verdict_changes` for workloads all of whose GPUs are idle now."""
        owners: dict[tuple[str, str, str], list[SeededAllocation]] = {}
        for one in self._seeded.values():
            if one.last_ms == until_ms:
                kind, name = name_owner(one.key.container)
                owners.setdefault((kind, one.key.container.namespace, name), []).append(one)
        for (kind, namespace, name), own in owners.items():
            since_ms = max(one.idle_since_ms for one in own)
            if since_ms < until_ms:
                signature = min((_find_idle_signature(one) for one in own), key=lambda each: each.rank)
                change = VerdictChange(
                    cluster="",
                    owner_kind=kind,
                    namespace=namespace,
                    owner_name=name,
                    activity=Activity.IDLE.value,
                    signature=signature.value,
                    state=State.IDLE.value,
                    score=None,
                    gpus=len(own),
                    idle_gpus=len(own),
                    idle_since_ms=since_ms,
                )
                yield {"at_ms": until_ms, **change._asdict()}

    def _list_allocations(self, until_ms: int) -> list[Mapping[str, object]]:
        """Rows of `allocations`."""
        unique = {one.id: one for one in self._seeded.values()}.values()
        return [
            make_identity(one.key, allocation_id=one.id, facts=PodFacts(one.key.container.user))._asdict()
            | {
                "first_ms": one.first_ms,
                "last_ms": one.last_ms,
                "ended_ms": one.last_ms if one.last_ms < until_ms else None,
            }
            for one in unique
        ]


def _insert_all(connection: Connection, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
    if rows:
        connection.execute(insert(table), rows)


def _is_useless(one: SeededAllocation) -> bool:
    """What the judge shows of it: of a shared GPU nobody proves that it is kept busy."""
    kind = one.ownership.kind
    return kind is Kind.STALLED or (kind is Kind.KEEP_ALIVE and one.key.share is Share.EXCLUSIVE)


def _find_idle_signature(one: SeededAllocation) -> Signature:
    """That of an idle allocation: a job that keeps its memory without work is hung."""
    if not one.ownership.held_bytes:
        return Signature.EMPTY
    return Signature.HUNG if name_owner(one.key.container)[0] in RUN_THROUGH_KINDS else Signature.PARKED


def _seed(ownership: Ownership, part: HourSlice) -> SeededAllocation:
    gpu = ownership.gpu
    key = AllocationKey(  # as a usage source would report it
        gpu_uuid=gpu.device_uuid,
        gpu_instance=str(gpu.mig.gpu_instance_id) if gpu.mig else "",
        container=ownership.allocation.container,
        node=gpu.node,
        gpu_index=str(gpu.index),
        model=gpu.model,
        share=ownership.allocation.share,
    )
    return SeededAllocation(
        ownership=ownership,
        id=make_allocation_id(key),
        key=key,
        first_ms=part.begin_ms,
        last_ms=part.end_ms,
        work_seconds=ownership.placement.work(part.begin_ms / 1000),
        idle_since_ms=part.begin_ms,
    )


def _advance_work(one: SeededAllocation, until: float) -> float:
    """Seconds of work since the last call."""
    before, one.work_seconds = one.work_seconds, one.ownership.placement.work(until)
    if one.work_seconds - before > ROUNDING_SECONDS:
        one.idle_since_ms = int(until * 1000)
    return one.work_seconds - before


def _peaks(held: Sequence[SeededAllocation], until: float) -> Column:
    """The load of the last minute, as an approximation of the busiest one."""
    earlier = np.array([one.ownership.placement.work(until - MINUTE_SECONDS) for one in held])
    peaks: Column = (np.array([one.work_seconds for one in held]) - earlier) / MINUTE_SECONDS
    return peaks


def _memory_totals(held: Sequence[SeededAllocation]) -> Column:
    return np.array([float(one.ownership.gpu.memory_total_bytes or 0) for one in held])


def _score(held: Sequence[SeededAllocation], busy: Column, memory: Column) -> Column:
    """The formula of `judge.score` with its default weights; power is assumed to follow the work."""
    copied = busy * np.array([one.ownership.placement.activity.memory_copy for one in held])
    score: Column = np.clip(50 * busy + 20 * copied + 20 * memory + 10 * busy, 0.0, 100.0)
    return score
