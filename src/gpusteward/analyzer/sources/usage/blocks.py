"""The columns of one dialect -> rows of the table: who is there, what each measure is, and what must not be judged."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.promql.query_runner import Gathered
from gpusteward.analyzer.sources.usage import contradictions, measures
from gpusteward.analyzer.sources.usage.coverage import Expectations
from gpusteward.analyzer.sources.usage.dialects import Dialect
from gpusteward.analyzer.sources.usage.keys import Details, Key
from gpusteward.analyzer.sources.usage.presence import NOBODY, Roster
from gpusteward.analyzer.sources.usage.quantities import ROLL_CALL, Fold, Level, Quantity
from gpusteward.analyzer.tables import Column
from gpusteward.core.containers import Container, Workload
from gpusteward.core.usages import AllocationKey, Measure, Stat
from gpusteward.messages import unknown_reasons

Flags = NDArray[np.bool_]
Stats = dict[tuple[Measure, Stat], Column]

_WITNESSES = (Quantity.MEMORY_COPY, Quantity.ENGINE, Quantity.TENSOR, Quantity.DRAM)
"""They may deny a zero of the core."""
_ESSENTIAL = (
    (Quantity.CORE, Fold.MEAN),
    (Quantity.CORE, Fold.PEAK),
    (Quantity.CORE, Fold.COUNT),
    (Quantity.BUSY, Fold.INCREASE),
    *((signal, fold) for signal in _WITNESSES for fold in (Fold.MEAN, Fold.PEAK)),
    (Quantity.UNATTRIBUTED, Fold.PEAK),
    (Quantity.MEMORY_USED, Fold.MEAN),
    (Quantity.POWER, Fold.MEAN),
)
"""Where one of these could not be read, a verdict would rest on less than this site has."""


@dataclass(frozen=True)
class Block:
    """The rows that one dialect contributes."""

    allocations: list[AllocationKey] = field(default_factory=list)
    stats: Stats = field(default_factory=dict)
    coverage: Column = field(default_factory=lambda: np.empty(0))
    unknown: dict[int, str] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)  # their numbers among the keys, for the next cycle


def build_block(
    dialect: Dialect, gathered: Gathered, *, expectations: Expectations, shelf: "Shelf", at: float
) -> Block:
    """What the answers of one dialect say."""
    roster = Roster(dialect, gathered)
    counts = roster.take(Level.HOLDER, Quantity.CORE, Fold.COUNT)
    coverage = expectations.cover(counts, roster.jobs, at)
    stats = measures.measure(roster, measures.Seen(expectations.window_seconds, coverage))
    unknown: dict[int, str] = {}
    for flags, reason in _doubts(roster, stats, coverage, expectations.young):
        for row in np.flatnonzero(flags).tolist():
            unknown.setdefault(row, reason)
    return Block(shelf.hold(roster), stats, np.nan_to_num(coverage), unknown, roster.rows)


def _doubts(roster: Roster, stats: Stats, coverage: Column, young: Collection[str]) -> Iterator[tuple[Flags, str]]:
    """Every reason not to judge a row, the plainest first."""
    gathered = roster.gathered
    yield roster.claimed_twice, unknown_reasons.CLAIMED_TWICE
    yield from _missing(roster)
    yield roster.silent, unknown_reasons.SILENT
    core_mean, core_peak = stats[Measure.CORE, Stat.MEAN], stats[Measure.CORE, Stat.PEAK]
    is_unmeasured = ~np.isfinite(core_mean) | ~np.isfinite(core_peak)
    yield from _unmeasured_slices(roster, is_unmeasured & ~(coverage > 0))
    yield is_unmeasured, unknown_reasons.NO_CORE
    if young:
        yield np.isin(roster.jobs, list(young)), unknown_reasons.YOUNG
    yield ~np.isfinite(coverage), unknown_reasons.UNCOUNTED
    yield core_peak > contradictions.HIGHEST_CORE, unknown_reasons.IMPOSSIBLE
    yield _denied(roster, core_peak), unknown_reasons.DENIED_ZERO
    if gathered.has(Level.DEVICE, Quantity.UNATTRIBUTED, Fold.PEAK):
        astray = roster.take(Level.DEVICE, Quantity.UNATTRIBUTED, Fold.PEAK)
        yield (core_peak == 0) & (astray > contradictions.ACTIVE_RATIO), unknown_reasons.UNATTRIBUTED


def _unmeasured_slices(roster: Roster, never: Flags) -> Iterator[tuple[Flags, str]]:
    """`never`: no sample in the whole window. Of a MIG instance waiting does not help: nobody measures it."""
    if roster.dialect is not Dialect.NATIVE:
        yield never & roster.in_slices, unknown_reasons.UNEXPORTED_SLICE
    else:
        yield never & roster.in_slices & roster.shared, unknown_reasons.SHARED_SLICE
        engine = roster.take(Level.DEVICE, Quantity.ENGINE, Fold.PEAK)  # where a GPU tells it, the core comes from it
        yield never & roster.in_slices & ~np.isfinite(engine), unknown_reasons.UNMEASURED_SLICE


def _missing(roster: Roster) -> Iterator[tuple[Flags, str]]:
    if reason := roster.gathered.failures.get(ROLL_CALL):
        yield roster.silent, f"who is there could not be read: {reason}"
    for level in Level:
        for quantity, fold in _ESSENTIAL:
            if reason := roster.gathered.failures.get((level, quantity, fold)):
                column = roster.take(level, quantity, fold)
                yield ~np.isfinite(column), f"{quantity} could not be read: {reason}"


def _denied(roster: Roster, core_peak: Column) -> Flags:
    """The other signals of the device, as it reports them, against the core of its holders."""
    ratios = [Quantity.MEMORY_COPY, Quantity.DRAM]
    if roster.dialect is not Dialect.DCGM or not roster.in_slices.any():
        ratios.append(Quantity.ENGINE)
    activity = np.full(len(roster), np.nan)
    for quantity in ratios:
        activity = np.fmax(activity, roster.take_device(quantity, Fold.PEAK))
    known = core_peak
    if roster.dialect is Dialect.NATIVE:
        # What the agent saw on the device, whoever did it: work of the host explains the other signals.
        for quantity, fold in ((Quantity.CORE, Fold.PEAK), (Quantity.BUSY, Fold.INCREASE)):
            known = np.fmax(known, roster.take(Level.DEVICE, quantity, fold))
    elif roster.dialect is Dialect.HAMI:
        activity = np.fmax(activity, roster.take(Level.DEVICE, Quantity.CORE, Fold.PEAK))
    power = np.where(roster.in_slices, np.nan, roster.take_device(Quantity.POWER, Fold.MEAN))
    limit = roster.take(Level.DEVICE, Quantity.POWER_LIMIT, Fold.LAST)
    return contradictions.deny_zeros(known, device=roster.device_numbers, activity=activity, power=power, limit=limit)


_Made = tuple[Details, Details, AllocationKey]


class Shelf:
    """Holdings made before: from one cycle to the next hardly any allocation changes."""

    def __init__(self) -> None:
        self._made: dict[Key, _Made] = {}
        self._containers: dict[tuple[object, ...], Container] = {}  # made in this cycle: several devices share one

    def hold(self, roster: Roster) -> list[AllocationKey]:
        """The holding of each row."""
        started = roster.take(Level.HOLDER, Quantity.STARTED_AT, Fold.LAST)
        times = [
            None if is_unknown else time for time, is_unknown in zip(started.tolist(), np.isnan(started), strict=True)
        ]
        rows = zip(roster.keys, roster.details, roster.identities, times, strict=True)
        self._made = {key: self._find(key, details, identity, time) for key, details, identity, time in rows}
        self._containers.clear()
        return [allocation for _, _, allocation in self._made.values()]

    def _find(self, key: Key, details: Details, identity: Details, started_at: float | None) -> _Made:
        """The one made before, if all it is made of is the same, or if nothing is said of it any more. Texts are kept
        from cycle to cycle, so they are compared as objects."""
        before = self._made.get(key)
        if before is None:
            return details, identity, self._make(key, details, identity, started_at)
        is_told_alike = details is NOBODY or (before[0] is details and before[1] is identity)
        if is_told_alike and started_at in (None, before[2].container.started_at):
            return before
        return details, identity, self._make(key, details, identity, started_at)

    def _make(self, key: Key, details: Details, identity: Details, started_at: float | None) -> AllocationKey:
        uuid, instance, namespace, pod, name = key
        node, gpu, model, _, uid, kind, workload, share, user = (*details, *("",) * (9 - len(details)))
        who = (namespace, pod, uid, name, kind, workload, started_at, user)
        container = self._containers.get(who)
        if container is None:
            owner = Workload(kind, namespace, workload) if kind else None
            container = Container(namespace, pod, uid, name, owner, started_at=started_at, user=user)
            self._containers[who] = container
        parent, its_model = identity
        return AllocationKey(
            parent or uuid, instance, container, node=node, gpu_index=gpu, model=model or its_model, share=share
        )
