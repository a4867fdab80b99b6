"""Weeks of simulated nodes in the ledger, as if they had been watched: what reports and trends are made of.

The truth of the simulation is booked by the ledger's own arithmetic, an hour at a time; nothing is measured.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection, Engine, insert

from gpusteward.analyzer.ledger.accrual import Step, book_fleet, book_usage, spend
from gpusteward.analyzer.ledger.cycle_record import UNKNOWN_START, Sheet, place_holders
from gpusteward.analyzer.ledger.db_engine import with_write_lock
from gpusteward.analyzer.ledger.gpu_fraction import compute_gpu_fractions
from gpusteward.analyzer.ledger.identities import Identity, NewAllocations, describe, make_allocation_id, name_owner
from gpusteward.analyzer.ledger.ledger_writer import set_progress
from gpusteward.analyzer.ledger.periods import BOOKED, DAY_MS, HOUR_MS, floor_day
from gpusteward.analyzer.ledger.retention import roll_up
from gpusteward.analyzer.ledger.schema import allocations, fleet_hourly, usage_hourly, verdict_changes
from gpusteward.analyzer.ledger.upsert import REPLACE, USAGE_RULES, add_rows
from gpusteward.analyzer.ledger.verdict_changes import Changes
from gpusteward.analyzer.prices import PriceList
from gpusteward.analyzer.tables import ACTIVITIES, Codes, Column, UsageTable
from gpusteward.core.usages import AllocationKey, Measure, Stat
from gpusteward.core.verdicts import Activity, Signature, State
from gpusteward.simulate.ground_truth import Ownership
from gpusteward.simulate.nodes import SimulatedNode

Advance = Callable[[int, int], None]
"""Told how many steps are done, and of how many."""

STEP_MS = HOUR_MS
MINUTE, HOUR_SECONDS = 60.0, 3600.0
NOTHING_SECONDS = 1e-6  # of work: rounding
PEAK_EVERY_MS = 3 * HOUR_MS
OUTAGE_EVERY = 331
"""One in so many hours of a node was not seen, as it happens."""
_CODES = {activity: code for code, activity in enumerate(ACTIVITIES)}


def _tell_nobody(_done: int, _total: int) -> None:
    pass


@dataclass(slots=True)
class Known:
    """A claim that was seen: its number, its words, and from when to when."""

    ownership: Ownership
    number: int
    allocation: AllocationKey
    first_ms: int
    last_ms: int
    busy_until: float  # seconds of work up to the last step
    idle_since_ms: int  # begin of the first step without work since the last one with it


class SeededHistory:
    """What happened on these nodes until now."""

    def __init__(self, nodes: Sequence[SimulatedNode], prices: PriceList) -> None:
        self._nodes = nodes
        self._price_of = prices.micros_per_gpu_hour
        self._known: dict[int, Known] = {}  # by the identity of the claim, which lives as long as it is kept here
        self._weights: tuple[tuple[int, ...], Column] = ((), np.empty(0))
        self._fleet = {(node.name, node.model.name): node.gpu_count for node in nodes}

    def write(self, engine: Engine, *, days: int, until: float, advance: Advance = _tell_nobody) -> None:
        """Into empty books, which go on from `until`. Raises SQLAlchemyError."""
        until_ms = int(until * 1000)
        steps = list(_split(floor_day(until_ms - days * DAY_MS), until_ms))
        with with_write_lock(engine).begin() as connection:
            for number, step in enumerate(steps, start=1):
                self._write_step(connection, step)
                advance(number, len(steps))
            if idle := list(self._list_idle(until_ms)):
                connection.execute(insert(verdict_changes), idle)
            add_rows(connection, allocations, self._list_allocations(until_ms), dict.fromkeys(_columns(), REPLACE))
            set_progress(connection, BOOKED, until_ms)
        while roll_up(engine):
            pass

    def _write_step(self, connection: Connection, step: Step) -> None:
        sheet = self._make_sheet(step)
        spent = spend(sheet, step, np.ones(len(sheet.ids), dtype=bool))
        for columns in book_usage(sheet, step, spent):
            add_rows(connection, usage_hourly, columns, USAGE_RULES)
        add_rows(connection, fleet_hourly, book_fleet(sheet, step, spent), {})

    def _make_sheet(self, step: Step) -> Sheet:
        since, until = step.begin_ms / 1000, step.end_ms / 1000
        seen = sorted(self._meet(step), key=lambda known: known.number)
        weights = self._weigh(seen)
        busy = np.array([_work_on(known, until) for known in seen]) / (until - since)
        peak = np.maximum(busy, _peaks(seen, until)) if step.begin_ms % PEAK_EVERY_MS == 0 else busy
        watts = np.array([known.ownership.draw_watts(one) for known, one in zip(seen, busy.tolist(), strict=True)])
        held = np.array([float(known.ownership.held_bytes) for known in seen])
        totals = _totals(seen)
        return Sheet(
            step.end_ms,
            step.end_ms - step.begin_ms,
            np.array([known.number for known in seen], np.int64),
            weights,
            np.array([self._price_of(k.allocation.model, k.allocation.container.namespace) for k in seen], np.int64),
            np.full(len(seen), UNKNOWN_START, np.int64),
            totals,
            held,
            peak,
            self._tell_activity(seen, busy, step),
            _score(seen, busy, held / totals).astype(np.float32),
            (watts * weights).astype(np.float32),
            self._fleet,
            place_holders([known.allocation for known in seen], self._fleet),
            "",  # known to the books with the first cycle that is real
            NewAllocations(),
            Changes(),
        )

    def _meet(self, step: Step) -> Iterator[Known]:
        for node in self._nodes:
            for ownership in node.ownerships((step.begin_ms + step.end_ms) / 2000):
                known = self._known.get(id(ownership.allocation))
                if known is None:
                    allocation = _hold(ownership)
                    busy_before = ownership.placement.work(step.begin_ms / 1000)
                    moments = (step.begin_ms, step.end_ms, busy_before, step.begin_ms)
                    known = Known(ownership, make_allocation_id(allocation), allocation, *moments)
                    self._known[id(ownership.allocation)] = known
                known.last_ms = step.end_ms
                yield known

    def _weigh(self, seen: Sequence[Known]) -> Column:
        """Who holds what changes seldom."""
        numbers = tuple(known.number for known in seen)
        if numbers != self._weights[0]:
            stats = {(Measure.MEMORY_TOTAL, Stat.LAST): _totals(seen)}
            self._weights = (
                numbers,
                compute_gpu_fractions(UsageTable(0.0, 0.0, [known.allocation for known in seen], stats)),
            )
        return self._weights[1]

    def _tell_activity(self, seen: Sequence[Known], busy: Column, step: Step) -> Codes:
        hour = step.begin_ms // HOUR_MS
        unseen = {node.name for number, node in enumerate(self._nodes) if (hour + 17 * number) % OUTAGE_EVERY == 0}
        is_unseen = np.array([known.allocation.node in unseen for known in seen])
        codes = np.where(busy > NOTHING_SECONDS / HOUR_SECONDS, _CODES[Activity.ACTIVE], _CODES[Activity.IDLE])
        return np.where(is_unseen, _CODES[Activity.UNKNOWN], codes).astype(np.int8)

    def _list_idle(self, until_ms: int) -> Iterator[Mapping[str, object]]:
        """Workloads all of whose GPUs do nothing now: since when."""
        owners: dict[tuple[str, str, str], list[Known]] = {}
        for known in self._known.values():
            if known.last_ms == until_ms:
                kind, name = name_owner(known.allocation.container)
                owners.setdefault((kind, known.allocation.container.namespace, name), []).append(known)
        for (kind, namespace, name), own in owners.items():
            since_ms = max(known.idle_since_ms for known in own)
            if since_ms < until_ms:
                signature = Signature.PARKED if any(known.ownership.held_bytes for known in own) else Signature.EMPTY
                yield {
                    "at_ms": until_ms,
                    "owner_kind": kind,
                    "namespace": namespace,
                    "owner_name": name,
                    "activity": Activity.IDLE.value,
                    "signature": signature.value,
                    "state": State.IDLE.value,
                    "score": None,
                    "gpus": len(own),
                    "idle_gpus": len(own),
                    "idle_since_ms": since_ms,
                }

    def _list_allocations(self, until_ms: int) -> list[Sequence[object]]:
        rows = [
            (*self._identify(known), known.first_ms, known.last_ms, known.last_ms if known.last_ms < until_ms else None)
            for known in {known.number: known for known in self._known.values()}.values()
        ]
        return list(zip(*rows, strict=True))

    def _identify(self, known: Known) -> Identity:
        return describe(known.allocation, number=known.number, user=known.allocation.container.user)


def _split(begin_ms: int, end_ms: int) -> Iterator[Step]:
    while begin_ms < end_ms:
        until = min(begin_ms - begin_ms % STEP_MS + STEP_MS, end_ms)
        yield Step(begin_ms, until, seen=True)
        begin_ms = until


def _columns() -> list[str]:
    return [column.name for column in allocations.columns]


def _hold(ownership: Ownership) -> AllocationKey:
    """As a source would name it."""
    gpu = ownership.gpu
    return AllocationKey(
        gpu.device_uuid,
        str(gpu.mig.gpu_instance_id) if gpu.mig else "",
        ownership.allocation.container,
        gpu.node,
        str(gpu.index),
        gpu.model,
        ownership.allocation.share,
    )


def _work_on(known: Known, until: float) -> float:
    """Seconds of work in the step that ends then: each moment is asked for once."""
    before, known.busy_until = known.busy_until, known.ownership.placement.work(until)
    if known.busy_until - before > NOTHING_SECONDS:
        known.idle_since_ms = int(until * 1000)
    return known.busy_until - before


def _peaks(seen: Sequence[Known], until: float) -> Column:
    """The busiest minute stands for the last one."""
    earlier = np.array([known.ownership.placement.work(until - MINUTE) for known in seen])
    peaks: Column = (np.array([known.busy_until for known in seen]) - earlier) / MINUTE
    return peaks


def _totals(seen: Sequence[Known]) -> Column:
    return np.array([float(known.ownership.gpu.memory_total_bytes or 0) for known in seen])


def _score(seen: Sequence[Known], busy: Column, memory: Column) -> Column:
    """The formula of `judge.score` with its default weights; power is taken to follow the work."""
    copied = busy * np.array([known.ownership.placement.activity.memory_copy for known in seen])
    score: Column = np.clip(50 * busy + 20 * copied + 20 * memory + 10 * busy, 0.0, 100.0)
    return score
