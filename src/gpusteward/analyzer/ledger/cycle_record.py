"""A result in compact columns: all that the books need of a cycle, and all that is kept of it while they are closed."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.ledger.gpu_fraction import compute_gpu_fractions
from gpusteward.analyzer.ledger.identities import NewAllocations, Users, clean_text, make_allocation_id, mark
from gpusteward.analyzer.ledger.verdict_changes import Changes
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import Codes, Column
from gpusteward.core.usages import AllocationKey, Measure, Stat

Ids = NDArray[np.int64]
Half = NDArray[np.float32]
Places = NDArray[np.int32]
Place = tuple[str, str]  # node, model
PriceOf = Callable[[str, str], int]  # model, namespace -> micros per GPU-hour

COVERED_INTERVALS = 3
"""So many intervals since the last booked cycle count as seen by this one; what is before is unknown."""
UNKNOWN_START = -1
NOWHERE = -1
MOST_BYTES, MOST_WATTS, MOST_RATIO, LAST_SECOND = 1e15, 1e5, 1e3, 1e11
MOST_GPUS = 1_000_000
"""Far beyond any GPU, and any year."""
_IDENTITY_BYTES = 600  # of one identity, texts and all; measured generously
_CHANGE_BYTES = 500
_PLACE_BYTES = 100
_NO_IDS: Ids = np.empty(0, np.int64)


@dataclass(frozen=True)
class Roster:
    """Who held what in a cycle: numbers, rising, and the mark of each."""

    ids: Ids
    marks: Ids


NOBODY = Roster(_NO_IDS, _NO_IDS)


@dataclass(frozen=True)
class Sheet:
    """One cycle, one row an allocation, in the order of their numbers. NaN is unknown."""

    at_ms: int
    covered_ms: int  # how far back from `at_ms` this cycle speaks
    ids: Ids
    weights: Column
    prices: Ids  # micros per GPU-hour
    started_ms: Ids  # of the pod
    memory_total: Column
    memory_peak: Column
    core_peak: Column
    activity: Codes
    score: Half
    watts: Half
    fleet: Mapping[Place, int]
    places: Places  # of each row: where it counts among those of the fleet
    currency: str  # of the prices
    fresh: NewAllocations  # who was not on the sheet before, or has changed
    changes: Changes

    size_bytes: int = 0  # what it takes to keep it beside the sheet before

    def beside(self, before: "Sheet | None") -> "Sheet":
        """The same, holding no copy of its own of the columns that have not changed since the sheet before."""
        shared = {} if before is None else {name: getattr(before, name) for name in _LASTING if self._has(name, before)}
        own = sum(value.nbytes for name, value in vars(self).items() if _is_column(value) and name not in shared)
        texts = len(self.fresh) * _IDENTITY_BYTES + len(self.changes) * _CHANGE_BYTES + len(self.fleet) * _PLACE_BYTES
        return replace(self, **shared, size_bytes=own + texts)

    def _has(self, name: str, before: "Sheet") -> bool:
        return np.array_equal(getattr(self, name), getattr(before, name), equal_nan=name in _WITH_NAN)


_LASTING = ("ids", "weights", "prices", "started_ms", "memory_total", "places")
_WITH_NAN = ("weights", "memory_total")


def make_sheet(
    result: Result, before: Roster, *, users: Users, price_of: PriceOf, changes: Changes
) -> tuple[Sheet, Roster]:
    """`before`: who is on the last sheet; only others are described in words."""
    verdicts, table = result.verdicts, result.verdicts.usage
    roster, rows, named = _call_roll(table.allocations, users)
    fleet = _count_fleet(table.fleet)
    fresh = find_fresh(roster, before)
    sheet = Sheet(
        int(result.at * 1000),
        COVERED_INTERVALS * result.settings.scheduler.interval * 1000,
        roster.ids,
        compute_gpu_fractions(table)[rows],
        np.array([price_of(one.model, one.container.namespace) for one in table.allocations], np.int64)[rows],
        _to_ms(table.started_at)[rows],
        _believe(table.column(Measure.MEMORY_TOTAL, Stat.LAST), MOST_BYTES)[rows],
        _believe(table.column(Measure.MEMORY_USED, Stat.PEAK), MOST_BYTES)[rows],
        _believe(table.column(Measure.CORE, Stat.PEAK), MOST_RATIO)[rows],
        verdicts.activity[rows],
        verdicts.score[rows].astype(np.float32),
        _believe(table.column(Measure.POWER, Stat.MEAN), MOST_WATTS)[rows].astype(np.float32),
        fleet,
        place_holders(table.allocations, fleet)[rows],
        result.settings.prices.currency,
        NewAllocations(
            roster.ids[fresh],
            [table.allocations[row] for row in rows[fresh].tolist()],
            [named[row] for row in rows[fresh].tolist()],
        ),
        changes,
    )
    return sheet, roster


def _call_roll(allocations: Sequence[AllocationKey], users: Users) -> tuple[Roster, NDArray[np.intp], list[str]]:
    """Everybody once, in the order of their numbers; the row of each; the user of every row."""
    named = [one.container.user or users.find(one.container.pod_labels) for one in allocations]
    ids = np.fromiter(map(make_allocation_id, allocations), np.int64, len(allocations))
    marks = np.fromiter(map(mark, allocations, named), np.int64, len(allocations))
    numbers, rows = np.unique(ids, return_index=True)
    return Roster(numbers, marks[rows]), rows, named


def _is_column(value: object) -> bool:
    return isinstance(value, np.ndarray)


def find_fresh(roster: Roster, before: Roster) -> NDArray[np.intp]:
    """Places of those who were not there before or look different."""
    there = find_places(roster.ids, before.ids)
    known = there >= 0
    same = np.zeros(len(roster.ids), dtype=bool)
    same[known] = roster.marks[known] == before.marks[there[known]]
    return np.flatnonzero(~same)


def find_places(ids: Ids, among: Ids) -> NDArray[np.intp]:
    """Where each stands among others that rise; -1: nowhere."""
    if not len(among):
        return np.full(len(ids), -1, np.intp)
    places = np.minimum(np.searchsorted(among, ids), len(among) - 1)
    return np.where(among[places] == ids, places, -1)


def _believe(column: Column, most: float) -> Column:
    """What nobody can have measured is unknown; it would not fit into the books either."""
    return np.where((column >= 0) & (column <= most), column, np.nan)


def _to_ms(seconds: Column) -> Ids:
    believed = _believe(seconds, LAST_SECOND)
    return np.where(np.isnan(believed), UNKNOWN_START, np.nan_to_num(believed) * 1000).astype(np.int64)


def _count_fleet(told: Mapping[Place, int]) -> dict[Place, int]:
    fleet: dict[Place, int] = {}
    for (node, model), gpus in told.items():
        if 0 < gpus <= MOST_GPUS:
            place = clean_text(node), clean_text(model)
            fleet[place] = fleet.get(place, 0) + gpus
    return fleet


def place_holders(allocations: Sequence[AllocationKey], fleet: Mapping[Place, int]) -> Places:
    """Where each counts among the places of the fleet; NOWHERE: nobody said how many GPUs there are.

    Holders of the one model of a node are told by the node alone: who read their names may spell the model otherwise,
    or not at all.
    """
    numbers = {one: number for number, one in enumerate(fleet)}
    models = Counter(node for node, _ in fleet)
    alone = {node: numbers[node, model] for node, model in fleet if models[node] == 1}
    found: dict[Place, int] = {}
    for node, model in {(one.node, one.model) for one in allocations}:
        told = clean_text(node), clean_text(model)
        found[node, model] = alone.get(told[0], numbers.get(told, NOWHERE))
    return np.fromiter((found[one.node, one.model] for one in allocations), np.int32, len(allocations))
